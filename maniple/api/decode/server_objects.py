"""Objects from an API server to typed ones. Problems are returned and never raised: one bad object stops nothing.

Unknown fields are no error here: the server keeps only fields that it knows, and may be newer than Maniple.
"""

import typing

import msgspec

from maniple.api import kubernetes
from maniple.api.compat import other_schedulers
from maniple.api.decode.decode import FieldError, Object, typed
from maniple.api.meta import Struct
from maniple.api.replica_pods import ReplicaFacts, is_replica, read_replica_facts
from maniple.api.types import ElasticJob
from maniple.api.validate.own_keys import own_key_notes


class Version(msgspec.Struct, frozen=True, gc=False):
    """The identity and version of an object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = msgspec.field(name="resourceVersion", default="")


class Head(msgspec.Struct, frozen=True, gc=False):
    metadata: Version = Version()


class Live(typing.NamedTuple):
    """`item` is None if the object cannot be decoded, and `wrong` says why. It is not validated here."""

    head: Version
    item: Object | None
    source: Struct | None  # another system's object, before it was converted
    wrong: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # fields that have no counterpart here, and keys of ours that are not known
    replica: ReplicaFacts | None = None  # of a pod of an ElasticJob
    spec: bytes = b""  # of an ElasticJob, undecoded: its templates have fields that scheduling does not read


class _WithSpec(msgspec.Struct, frozen=True, gc=False):
    spec: msgspec.Raw = msgspec.Raw()


_HEADS = msgspec.json.Decoder(Head)
_SPECS = msgspec.json.Decoder(_WithSpec)


def read_live(raw: bytes | msgspec.Raw, struct: type[Struct]) -> Live:
    head = _HEADS.decode(raw).metadata
    try:
        item = typed(raw, struct, strictly=False)
    except FieldError as error:
        return Live(head, None, None, tuple(map(str, error.problems)))
    source: Struct | None = None
    notes: tuple[str, ...] = ()
    if isinstance(item, other_schedulers.ForeignObject):
        source = item
        notes = tuple(f"{name} has no counterpart here and is not read" for name in item.unread())
        item = item.ours()
    notes += own_key_notes(item)
    replica = None
    if isinstance(item, kubernetes.Pod) and is_replica(item.metadata):
        replica = read_replica_facts(raw)
    spec = bytes(_SPECS.decode(raw).spec) if isinstance(item, ElasticJob) else b""
    return Live(head, typing.cast(Object, item), source, (), notes, replica, spec)
