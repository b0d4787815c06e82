"""Jobs (gangs), the groups of like pods they wait with, and queues: plain values that a snapshot is made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from maniple.api.types import GpuModel
from maniple.model.elastic import Elastic
from maniple.model.gpu.devices import Granted
from maniple.model.pod_affinity import AffinityInfo
from maniple.model.pod_identity import pod_order
from maniple.model.reads import nothing
from maniple.model.resources import FloatArray
from maniple.model.shape import Shape


@dataclass(frozen=True, slots=True, eq=False)
class TaskGroup:
    """Pending pods of one job that are alike in all that scheduling looks at, and so stand for each other."""

    number: int
    role: str
    priority: int
    shape: Shape
    pod_affinity: AffinityInfo | None
    owner: str
    pods: tuple[str, ...]  # ns/name, in the order in which they are placed
    lasts_s: float = inf  # how long its pods run at most, where they say so
    stays: bool = False  # critical, or under a PodDisruptionBudget: nobody can count on it to make way

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels of its pods, of those that plugins declare to read."""
        return self.shape.constraint.labels

    @property
    def annotations(self) -> Mapping[str, str]:
        """Annotations of its pods, of those that plugins declare to read."""
        return self.shape.constraint.annotations

    @property
    def is_coupled(self) -> bool:
        """Whether placing one of its pods can change where the next may go, other than by using up resources."""
        return self.pod_affinity is not None and self.pod_affinity.has_terms


@dataclass(slots=True, eq=False)  # not frozen: there may be a hundred thousand, and frozen ones take twice as long
class PlacedPod:
    """A pod that is on a node (-1: on a node nobody described) and is not leaving."""

    pod: str
    node: int
    role: str
    priority: int
    requests: FloatArray
    pod_affinity: AffinityInfo | None
    started: float
    is_critical: bool
    labels: dict[str, str]
    gpu_models: tuple[GpuModel, ...] = ()  # those it may have, the one liked best first
    gpus: tuple[Granted, ...] = ()
    ends: float = inf  # at the latest, where it says so
    makes_way_for: str = ""  # the gang (ns/name) in whose reserved room it runs until that gang can start
    is_ours: bool = True  # False: another scheduler placed it; it counts for its gang, but is not ours to evict
    annotations: Mapping[str, str] = field(default_factory=nothing)  # only keys that plugins declare to read

    @property
    def order(self) -> tuple[str, int, str]:
        """Its place in the count of its job; those with a higher one are surplus first."""
        return pod_order(self.pod.split("/", 1)[1], self.labels)


@dataclass(slots=True, eq=False)
class Job:
    """A gang: a PodGroup, an ElasticJob, or a pod on its own."""

    key: tuple[str, str]  # ns/name, kind
    queue: int
    priority: int
    created: float
    min_member: int
    role_min: dict[str, int]
    preemptable: bool = True
    min_runtime_s: float = 0.0
    required: str = ""  # level of the topology, one domain of which must hold the gang
    preferred: str = ""  # … should hold it
    mixed_models: bool = False
    elastic: Elastic | None = None  # of an ElasticJob
    growth: dict[str, TaskGroup] = field(default_factory=dict)  # role -> replicas that it might have beside its own
    role_models: dict[str, tuple[GpuModel, ...]] = field(default_factory=dict)
    is_suspended: bool = False
    exists: bool = True  # False: its pods name a group that nobody wrote
    groups: list[TaskGroup] = field(default_factory=list)
    placed: list[PlacedPod] = field(default_factory=list)
    placed_by_role: dict[str, int] = field(default_factory=dict)
    succeeded: int = 0
    succeeded_by_role: dict[str, int] = field(default_factory=dict)
    gated: int = 0
    strangers: int = 0  # waiting pods of the gang with another schedulerName
    holds_reservation: bool = False  # the nodes that its pods are nominated to are kept for it, and not promised yet
    was_promised: bool = False  # room in an earlier cycle, and still waits for it
    nominated: dict[int, int] = field(default_factory=dict)  # node -> pods, in an earlier cycle: promised or reserved
    lasts_s: float = inf  # after its first pod has started, where it says so
    bind_failures: int = 0
    backs_off_until: float = 0.0
    may_preempt: bool = True
    allocated: FloatArray | None = None  # what its placed pods hold; None: nothing
    pending: FloatArray | None = None
    # Of its PodGroup or ElasticJob, or of the pod that it is; only keys that plugins declare to read.
    labels: Mapping[str, str] = field(default_factory=nothing)
    annotations: Mapping[str, str] = field(default_factory=nothing)

    @property
    def name(self) -> str:
        return self.key[0]

    @property
    def is_best_effort(self) -> bool:
        """Whether none of its waiting pods asks for anything."""
        return all(group.shape.is_best_effort for group in self.groups)

    @property
    def waiting_pods(self) -> int:
        return sum(len(group.pods) for group in self.groups)


@dataclass(frozen=True, slots=True, eq=False)
class Queue:
    """A queue of the tree. `parent` is an index, -1 at the top; `limit` is inf where there is none."""

    name: str
    index: int
    parent: int
    children: tuple[int, ...]
    weight: float
    guaranteed: FloatArray
    limit: FloatArray
    reclaimable: bool
    priority: int
