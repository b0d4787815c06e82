"""An object as an API server sends it, to a typed one. What is wrong with it is told, and stops nothing.

Unknown fields are no error here: the server keeps only what it knows, and may be newer than we are.
"""

import typing

import msgspec

from maniple.api import core, foreign
from maniple.api.decode import FieldError, Object, typed
from maniple.api.meta import Struct
from maniple.api.validate import problems


class Version(msgspec.Struct, frozen=True, gc=False):
    """Who an object is, and its place in the order of all writes."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = msgspec.field(name="resourceVersion", default="")


class Head(msgspec.Struct, frozen=True, gc=False):
    metadata: Version = Version()


class Live(typing.NamedTuple):
    """`item` is None if nothing can be made of it; `wrong` says why, or what of it does not count."""

    head: Version
    item: Object | None
    source: Struct | None  # the object itself, where it is another system's
    wrong: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what it says that has no counterpart here


_HEADS = msgspec.json.Decoder(Head)


def read_live(raw: bytes | msgspec.Raw, struct: type[Struct]) -> Live:
    head = _HEADS.decode(raw).metadata
    try:
        found = typed(raw, struct, strictly=False)
    except FieldError as error:
        return Live(head, None, None, (str(error.problem),))
    source: Struct | None = None
    notes: tuple[str, ...] = ()
    if isinstance(found, foreign.ForeignObject):
        source = found
        notes = tuple(f"{name} has no counterpart here and is not read" for name in found.unread())
        found = found.ours()
    item = typing.cast(Object, found)
    wrong = tuple(map(str, problems(item)))
    return Live(head, _usable(item) if wrong else item, source, wrong, notes)


def _usable(item: Object) -> Object | None:
    """What must count in spite of all: a pod that runs uses its node, whatever is noted on it."""
    if not isinstance(item, core.Pod) or not item.spec.node_name:
        return None
    bare = msgspec.structs.replace(item, metadata=msgspec.structs.replace(item.metadata, annotations={}))
    return None if problems(bare) else bare
