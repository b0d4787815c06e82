"""Labels and annotations of maniple.dev on any object: unknown ones, and the one that names a queue."""

from maniple.api import types
from maniple.api.errors import Problem, nearest
from maniple.api.labels import OWN_ANNOTATIONS, OWN_LABELS
from maniple.api.meta import ObjectMeta
from maniple.api.queue_names import queue_name_problem

_OWN_PREFIX = f"{types.GROUP}/"

Errors = list[Problem]


def check_queue_name(metadata: ObjectMeta, errors: Errors) -> None:
    problem = queue_name_problem(metadata)
    if problem is not None:
        errors.append(problem)


def check_own_keys(metadata: ObjectMeta, errors: Errors) -> None:
    """Refuses unknown labels and annotations of maniple.dev: a typing error would be ignored silently.

    Objects from an API server (they have a uid) are not refused: another version of Maniple may know the key. Their
    unknown keys become notes.
    """
    if not metadata.uid:
        errors.extend(unknown_own_keys(metadata))


def unknown_own_keys(metadata: ObjectMeta | types.TemplateMeta, path: str = "metadata") -> Errors:
    own_keys = (("label", metadata.labels, OWN_LABELS), ("annotation", metadata.annotations, OWN_ANNOTATIONS))
    return [
        Problem(f"{path}.{kind}s[{key}]", f"unknown {kind}{nearest(key, known)}")
        for kind, keys, known in own_keys
        for key in keys
        if key.startswith(_OWN_PREFIX) and key not in known
    ]


def own_key_notes(item: object) -> tuple[str, ...]:
    """What is said of an API server's object with a label or annotation of ours that is not known."""
    metadata = getattr(item, "metadata", None)
    if not isinstance(metadata, ObjectMeta) or not metadata.uid:
        return ()
    return tuple(f"{problem.field}: {problem.message}; it is not read" for problem in unknown_own_keys(metadata))
