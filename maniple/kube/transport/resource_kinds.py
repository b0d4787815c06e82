"""The kinds of objects that are read from the API server, their paths, and whether a cluster may lack them."""

from collections.abc import Iterable
from dataclasses import dataclass

from maniple.api import kubernetes, types
from maniple.api.compat.other_schedulers import ForeignObject
from maniple.api.decode.decode import KINDS
from maniple.api.keys import Key, join_key
from maniple.api.meta import Struct


@dataclass(frozen=True)
class Resource:
    """A kind of one API group. `read_as` is what the scheduler takes it for: PodGroups of all systems are PodGroups."""

    api_version: str
    kind: str
    plural: str
    struct: type[Struct]
    read_as: type
    is_required: bool  # False: its CRD may be missing, or come later
    rank: int = 0  # of several systems' objects with the same name, the one with the lowest rank counts

    @property
    def prefix(self) -> str:
        return f"/api/{self.api_version}" if "/" not in self.api_version else f"/apis/{self.api_version}"

    @property
    def list_path(self) -> str:
        return f"{self.prefix}/{self.plural}"

    @property
    def is_decisive(self) -> bool:
        """Whether a new leader needs its latest objects: the nodes, and what the last leader may have written."""
        return self.read_as in (kubernetes.Node, kubernetes.Pod, types.PodGroup, types.ElasticJob)

    @property
    def is_foreign(self) -> bool:
        return issubclass(self.struct, ForeignObject)

    def may_lack(self, status: int) -> bool:
        """Whether this answer to a list is no error: no such kind, or another system's kind that we may not read."""
        # The API server checks rights first: without rights for a kind one cannot see that it is missing.
        return (status == 404 and not self.is_required) or (status == 403 and self.is_foreign)

    def path(self, namespace: str, name: str, part: str = "") -> str:
        """Of one object, or of a part of it such as `status`."""
        folder = f"{self.prefix}/namespaces/{namespace}" if namespace else self.prefix
        return f"{folder}/{self.plural}/{name}" + (f"/{part}" if part else "")

    def describe(self, key: Key) -> str:
        """`PodGroup ns/name`, or `Queue name` of a kind without namespaces."""
        return f"{self.kind} {join_key(key) if key[0] else key[1]}"

    def __str__(self) -> str:
        return f"{self.plural}.{self.api_version}"


INSTALL = "install their CRDs with `maniple crds | kubectl apply --server-side -f -`, or the Helm chart"


def missing_crds(missing: Iterable[Resource]) -> str:
    """What to tell a person about a cluster that does not know kinds of ours; empty if it knows them all."""
    plurals = sorted(resource.plural for resource in missing if not resource.is_foreign)
    if not plurals:
        return ""
    return f"the cluster has no {', '.join(plurals)}: {INSTALL}"


ObjectRef = tuple[Resource, Key]

_IRREGULAR_PLURALS = {
    "PriorityClass": "priorityclasses",
    "StorageClass": "storageclasses",
    "Topology": "topologies",
}
_OURS = {"Queue": types.Queue, "PodGroup": types.PodGroup}


def _resource(rank: int, api_version: str, kind: str, struct: type[Struct]) -> Resource:
    read_as = _OURS[kind] if issubclass(struct, ForeignObject) else struct
    is_required = struct.__module__ == kubernetes.__name__
    plural = _IRREGULAR_PLURALS.get(kind, f"{kind.lower()}s")
    return Resource(api_version, kind, plural, struct, read_as, is_required, rank)


RESOURCES = tuple(
    _resource(rank, api_version, kind, struct) for rank, ((api_version, kind), struct) in enumerate(KINDS.items())
)
_BY_STRUCT = {resource.struct: resource for resource in RESOURCES}
PODS, NODES = _BY_STRUCT[kubernetes.Pod], _BY_STRUCT[kubernetes.Node]
CLAIMS, VOLUMES = _BY_STRUCT[kubernetes.PersistentVolumeClaim], _BY_STRUCT[kubernetes.PersistentVolume]
JOBS, QUEUES = _BY_STRUCT[types.ElasticJob], _BY_STRUCT[types.Queue]
