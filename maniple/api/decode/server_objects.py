"""An object as an API server sends it, to a typed one. What is wrong with it is told, and stops nothing.

Unknown fields are no error here: the server keeps only what it knows, and may be newer than we are.
"""

import typing

import msgspec

from maniple.api import kubernetes
from maniple.api.compat import other_schedulers
from maniple.api.decode.decode import FieldError, Object, typed
from maniple.api.meta import Struct
from maniple.api.replica_pods import ReplicaFacts, is_replica, read_replica_facts
from maniple.api.types import ElasticJob


class Version(msgspec.Struct, frozen=True, gc=False):
    """Who an object is, and its place in the order of all writes."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = msgspec.field(name="resourceVersion", default="")


class Head(msgspec.Struct, frozen=True, gc=False):
    metadata: Version = Version()


class Live(typing.NamedTuple):
    """`item` is None if nothing can be made of it, and `wrong` says why. Whether it makes sense is not looked at."""

    head: Version
    item: Object | None
    source: Struct | None  # the object itself, where it is another system's
    wrong: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what it says that has no counterpart here
    replica: ReplicaFacts | None = None  # of a pod that an ElasticJob has made: what its controller looks at
    spec: bytes = b""  # of an ElasticJob, as it was written: its pods have much that scheduling does not read


class _WithSpec(msgspec.Struct, frozen=True, gc=False):
    spec: msgspec.Raw = msgspec.Raw()


_HEADS = msgspec.json.Decoder(Head)
_SPECS = msgspec.json.Decoder(_WithSpec)


def read_live(raw: bytes | msgspec.Raw, struct: type[Struct]) -> Live:
    head = _HEADS.decode(raw).metadata
    try:
        found = typed(raw, struct, strictly=False)
    except FieldError as error:
        return Live(head, None, None, tuple(map(str, error.problems)))
    source: Struct | None = None
    notes: tuple[str, ...] = ()
    if isinstance(found, other_schedulers.ForeignObject):
        source = found
        notes = tuple(f"{name} has no counterpart here and is not read" for name in found.unread())
        found = found.ours()
    replica = None
    if isinstance(found, kubernetes.Pod) and is_replica(found.metadata):
        replica = read_replica_facts(raw)
    spec = bytes(_SPECS.decode(raw).spec) if isinstance(found, ElasticJob) else b""
    return Live(head, typing.cast(Object, found), source, (), notes, replica, spec)
