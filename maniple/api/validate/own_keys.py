"""Labels and annotations of maniple.dev on any object: unknown ones, and the one that names a queue."""

import difflib
from functools import lru_cache

from maniple.api import types
from maniple.api.errors import Problem, did_you_mean, nearest
from maniple.api.labels import OWN_ANNOTATIONS, OWN_LABELS
from maniple.api.meta import ObjectMeta
from maniple.api.queue_names import queue_name_problem

_OWN_PREFIX = f"{types.GROUP}/"
_OWN_KEYS = frozenset({*OWN_LABELS, *OWN_ANNOTATIONS})
_ALIKE = 0.8  # of two names of groups that differ by a typing error

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
    ] + [
        Problem(f"{path}.{kind}s[{key}]", f"unknown {kind}{did_you_mean(_OWN_PREFIX + key.partition('/')[2], known)}")
        for kind, keys, known in own_keys
        for key in keys
        if _is_misspelt(key)
    ]


@lru_cache(maxsize=16384)
def _is_misspelt(key: str) -> bool:
    """Whether a key is probably one of ours, of a group that is written in another way: `manipel.dev/queue`."""
    group, slash, name = key.partition("/")
    if not slash or group == types.GROUP or f"{_OWN_PREFIX}{name}" not in _OWN_KEYS:
        return False
    group = group.lower()
    is_alike = difflib.SequenceMatcher(None, group, types.GROUP).ratio() >= _ALIKE
    return is_alike or group.partition(".")[0] == types.GROUP.partition(".")[0]


def own_key_notes(item: object) -> tuple[str, ...]:
    """What is said of an API server's object with a label or annotation of ours that is not known."""
    metadata = getattr(item, "metadata", None)
    if not isinstance(metadata, ObjectMeta) or not metadata.uid:
        return ()
    return tuple(f"{problem.field}: {problem.message}; it is not read" for problem in unknown_own_keys(metadata))
