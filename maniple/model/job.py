"""Jobs (gangs), their groups of equal pending pods, their placed pods, and queues: the values in a snapshot.

There may be a hundred thousand of each. A Struct is created several times faster than a dataclass.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from msgspec import Struct, field

from maniple.api.keys import split_name
from maniple.api.moves import Move
from maniple.api.types import GpuModel
from maniple.model.elastic import Elastic
from maniple.model.gpu.devices import GpuGrant
from maniple.model.plugin_reads import nothing
from maniple.model.pod_affinity import AffinityInfo
from maniple.model.pod_identity import pod_order
from maniple.model.pod_shape import Exclusive, Shape
from maniple.model.resources import FloatArray

_NO_NODES: Mapping[int, int] = {}


def no_nodes() -> Mapping[int, int]:
    """The same empty map for all, like `nothing`: most groups are nominated nowhere."""
    return _NO_NODES


class TaskGroup(Struct, frozen=True, eq=False):
    """Pending pods of one job that are equal in everything that scheduling looks at."""

    number: int
    role: str
    priority: int
    shape: Shape
    pod_affinity: AffinityInfo | None
    owner: str
    pods: tuple[str, ...]  # ns/name, in the order in which they are placed
    lasts_s: float = inf  # the longest time that its pods run, if they have a deadline
    stays: bool = False  # critical, or under a PodDisruptionBudget: eviction cannot be relied on
    nominated: Mapping[int, int] = field(default_factory=no_nodes)  # node -> pods, by an earlier cycle

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels of its pods, only the keys that plugins declare to read."""
        return self.shape.constraint.labels

    @property
    def annotations(self) -> Mapping[str, str]:
        """Annotations of its pods, only the keys that plugins declare to read."""
        return self.shape.constraint.annotations

    @property
    def is_coupled(self) -> bool:
        """Whether placing one of its pods can change where the next may go, apart from the resources that it uses."""
        has_terms = self.pod_affinity is not None and self.pod_affinity.has_terms
        return has_terms or (bool(self.shape.exclusives) and self.shape.is_one_per_cluster)


class PlacedPod(Struct, eq=False):
    """A pod on a node (-1: a node without an object) that is not terminating."""

    pod: str
    node: int
    role: str
    priority: int
    requests: FloatArray
    pod_affinity: AffinityInfo | None
    started: float
    is_critical: bool
    labels: dict[str, str]
    gpu_models: tuple[GpuModel, ...] = ()  # the allowed models, the preferred one first
    gpus: tuple[GpuGrant, ...] = ()
    ends: float = inf  # the latest time, if it has a deadline
    makes_way_for: str = ""  # the gang (ns/name) on whose reserved nodes it runs until that gang can start
    exclusives: tuple[Exclusive, ...] = ()  # its host ports and disks
    is_ours: bool = True  # False: another scheduler placed it. It counts for its gang, but we do not evict it
    annotations: Mapping[str, str] = field(default_factory=nothing)  # only the keys that plugins declare to read
    # What a pod in its place asks for. It takes time to find out: only of jobs that may be moved, or for explanations.
    shape: Shape | None = None
    owner: str = ""  # the same
    grace_s: float = 0.0  # that it has to end; the same

    @property
    def order(self) -> tuple[str, int, str]:
        """Its position among the pods of its job. Pods with a higher position are surplus first."""
        return pod_order(split_name(self.pod)[1], self.labels)

    @property
    def index(self) -> int:
        """The number in that order."""
        return pod_order(self.pod, self.labels)[1]  # with or without the namespace: a number cannot reach beyond "/"


class Job(Struct, eq=False):
    """A gang: a PodGroup, an ElasticJob, or a pod on its own."""

    key: tuple[str, str]  # ns/name, kind
    queue: int
    priority: int
    created: float
    min_member: int
    role_min: dict[str, int]
    preemptable: bool = True
    min_runtime_s: float = 0.0
    required: str = ""  # the topology level of which one domain must hold the whole gang
    preferred: str = ""  # the level of which one domain should hold it
    mixed_models: bool = False
    elastic: Elastic | None = None  # only for an ElasticJob
    growth: dict[str, TaskGroup] = field(default_factory=dict)  # role -> replicas that could be added
    role_models: dict[str, tuple[GpuModel, ...]] = field(default_factory=dict)
    is_suspended: bool = False
    exists: bool = True  # False: its pods name a PodGroup that does not exist
    set_aside: str = ""  # what is wrong with its object, which is there and does not count
    groups: list[TaskGroup] = field(default_factory=list)
    placed: list[PlacedPod] = field(default_factory=list)
    placed_by_role: dict[str, int] = field(default_factory=dict)
    succeeded: int = 0
    succeeded_by_role: dict[str, int] = field(default_factory=dict)
    gated: int = 0
    strangers: int = 0  # waiting pods of the gang with another schedulerName
    holds_reservation: bool = False  # the nodes that its pods are nominated to are reserved for it, not yet promised
    was_promised: bool = False  # capacity was promised in an earlier cycle, and the job still waits for it
    has_evicted: bool = False  # pods were evicted for that promise
    nominated: dict[int, int] = field(default_factory=dict)  # node -> pods promised or reserved in an earlier cycle
    lasts_s: float = inf  # after its first pod has started, if it has a deadline
    bind_failures: int = 0
    backs_off_until: float = 0.0
    stale_at: float = inf  # when it gives back what it holds, unless it is whole by then
    may_preempt: bool = True
    is_movable: bool = False
    moved: Move | None = None  # the last one
    allocated: FloatArray | None = None  # held by its placed pods. None: nothing
    pending: FloatArray | None = None
    # Of its PodGroup or ElasticJob, or of the single pod. Only the keys that plugins declare to read.
    labels: Mapping[str, str] = field(default_factory=nothing)
    annotations: Mapping[str, str] = field(default_factory=nothing)

    @property
    def name(self) -> str:
        return self.key[0]

    @property
    def is_whole(self) -> bool:
        """Whether its whole minimum is on nodes or has succeeded."""
        if len(self.placed) + self.succeeded < self.min_member:
            return False
        there, done = self.placed_by_role, self.succeeded_by_role
        return all(there.get(role, 0) + done.get(role, 0) >= least for role, least in self.role_min.items())

    @property
    def is_incomplete(self) -> bool:
        """Whether it holds something without being whole, or is marked so (api/incomplete_since.py)."""
        return self.stale_at < inf or (bool(self.placed) and not self.is_whole)

    @property
    def is_best_effort(self) -> bool:
        """Whether none of its waiting pods requests anything."""
        return all(group.shape.is_best_effort for group in self.groups)

    @property
    def waiting_pods(self) -> int:
        return sum(len(group.pods) for group in self.groups)


@dataclass(frozen=True, slots=True, eq=False)
class Queue:
    """A queue of the tree. `parent` is an index, -1 for a root. [R]: `limit` is inf where there is none."""

    name: str
    index: int
    parent: int
    children: tuple[int, ...]
    weights: FloatArray
    guaranteed: FloatArray
    limit: FloatArray
    reclaimable: bool
    priority: int
    min_runtime_s: float = 0.0  # of its jobs that name none: its own, or that of the nearest queue above that has one
