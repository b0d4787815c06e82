"""Names of objects: "namespace/name" as text, (namespace, name) as a key. Converted only here."""

from maniple.api.meta import ObjectMeta

Key = tuple[str, str]  # namespace, name
ObjectKey = tuple[type, str, str]  # the struct that the object is read as, namespace, name


def key_of(meta: ObjectMeta) -> Key:
    return meta.namespace, meta.name


def name_of(meta: ObjectMeta) -> str:
    return f"{meta.namespace}/{meta.name}"


def join_key(key: Key) -> str:
    return f"{key[0]}/{key[1]}"


def job_label(key: Key) -> str:
    """An ElasticJob in messages."""
    return f"ElasticJob {join_key(key)}"


def split_name(name: str) -> Key:
    """The key of a "namespace/name". A name without a slash has no namespace."""
    namespace, slash, own = name.partition("/")
    return (namespace, own) if slash else ("", name)
