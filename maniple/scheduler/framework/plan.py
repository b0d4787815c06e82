"""The result of a cycle: binds, evictions, nominations, resizes, reservations, and why gangs wait. Values, sorted.

Why gangs wait is found out when somebody asks.
kube/serve/applier.py and cluster/in_memory_cluster.py apply it.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import msgspec
from msgspec import UNSET, UnsetType, field

from maniple.api.moves import Place
from maniple.api.timestamps import format_timestamp
from maniple.model.job import Job
from maniple.model.pod_identity import JobKey
from maniple.scheduler.framework.hooks import Reason

SHRUNK = "Shrunk"  # the reason of evictions that leave a job its minimum
PREEMPTED = "Preempted"
RECLAIMED = "Reclaimed"
MOVED = "Moved"  # the reason of evictions of pods that have another place
STALE = "Stale"  # of evictions of gangs that stay below their minimum: for nobody else


class Bind(msgspec.Struct, frozen=True, order=True):
    pod: str
    node: str
    gpus: tuple[str, ...] = ()
    gpu_share: float | UnsetType = field(default=UNSET, name="gpuShare")  # of each GPU, if below 1
    ring_gbs: float | UnsetType = field(default=UNSET, name="ringGBs")  # of a ring over its GPUs, if links are known
    backfill: str | UnsetType = UNSET  # the gang whose reservation it uses until that gang can start


class Eviction(msgspec.Struct, frozen=True, order=True):
    pod: str
    reason: str
    beneficiary: str = field(name="for")


class Nomination(msgspec.Struct, frozen=True, order=True):
    pod: str
    node: str


class Move(msgspec.Struct, frozen=True, order=True):
    """A pod that is evicted, and the node on which room is kept for the pod that comes in its place."""

    pod: str
    group: str
    kind: str  # of the group
    from_node: str = field(name="from")
    to_node: str = field(name="to")
    beneficiary: str = field(name="for")


class MovedGang(msgspec.Struct, frozen=True, order=True):
    """A gang of which pods are moved: how many pods it has, and the places that are kept for those."""

    group: str
    kind: str
    size: int
    places: tuple[Place, ...]
    grace_s: float = 0.0  # the longest that one of them may take to leave
    earlier: tuple[float, ...] = ()  # when it was moved before, in the last hour


class Leaver(msgspec.Struct, frozen=True, order=True):
    """A replica that leaves when its job shrinks, and the gang that gets its room."""

    pod: str
    beneficiary: str = field(name="for")


class Resize(msgspec.Struct, frozen=True, order=True, omit_defaults=True):
    """A new size of an elastic job's role. If it shrinks for another gang, `leaves` has the replicas that leave."""

    job: str
    role: str
    from_size: int = field(name="from")
    to_size: int = field(name="to")
    leaves: tuple[Leaver, ...] = ()

    def evictions(self) -> list[Eviction]:
        """The replicas that leave, for callers that evict them directly."""
        return [Eviction(leaver.pod, SHRUNK, leaver.beneficiary) for leaver in self.leaves]


class ReservedNodes(msgspec.Struct, frozen=True):
    """A reservation for a gang that cannot start yet: how many of its pods will go to each node, and when."""

    group: str
    nodes: dict[str, int]
    expected: str


class NodeCount(msgspec.Struct, frozen=True):
    """How many nodes refuse the gang for a reason. Every node is counted once."""

    reason: str
    count: int


class Tried(msgspec.Struct, frozen=True):
    """An action of the policy that was tried for a gang, and why it did not help."""

    action: str
    why: str


class Holder(msgspec.Struct, frozen=True):
    """A job that holds what a gang lacks, where the gang lacks least."""

    job: str  # empty: pods that belong to no job of ours
    pods: int
    amount: str
    what: str  # what its pods are to the gang, such as "surplus" or "lower priority"
    guard: str | UnsetType = UNSET  # why they cannot be evicted, such as "cooling down"
    until: float | UnsetType = UNSET  # seconds until that ends
    ends: str | UnsetType = UNSET  # when the last of its pods there ends by itself


class Nearest(msgspec.Struct, frozen=True):
    """The place where a gang lacks least to start: a domain, a node, or the cluster."""

    place: str
    pods: int  # that the gang needs there
    fits: int  # how many of them fit now
    resource: str  # the scarcest; empty: no resource is missing
    needs: str
    free: str
    lacks: str
    # Whether enough is free in all, but not on nodes where the pods fit.
    is_scattered: bool = field(name="isScattered")
    refusals: tuple[str, ...]  # the reasons of nodes there
    held_by: tuple[Holder, ...] = field(name="heldBy")
    others: int  # further jobs that hold some of the resource there


class Waiting(msgspec.Struct, frozen=True):
    group: str
    kind: str  # PodGroup, ElasticJob or Pod: gangs of different kinds may have the same name
    queue: str
    reason: str  # a code for programs, such as InsufficientResources
    message: str
    needs: dict[str, str]
    nodes: tuple[NodeCount, ...]
    would_start_if: str = field(name="wouldStartIf")
    position: int | None = None  # in its queue's line, 1 is next; None: it is not in line
    tried: tuple[Tried, ...] = ()
    nearest: Nearest | None = None


class QueueShare(msgspec.Struct, frozen=True):
    name: str
    deserved: dict[str, str]
    allocated: dict[str, str]
    share: float


class Glance(NamedTuple):
    """What is seen of a gang that waits without explaining it. If it changes, so does most likely the reason."""

    job: Job | None = None  # None: no pod of it waits, or all that is left of the cycle is explanations
    promised: int = 0  # pods that are promised room


class Explains(Protocol):
    """Knows why gangs wait, and says so when it is asked."""

    @property
    def gangs(self) -> Mapping[JobKey, Glance]: ...

    def explain_all(self) -> Iterable[Waiting]: ...

    def explain(self, gang: JobKey, *, is_thorough: bool = False) -> Waiting | None: ...

    def reason(self, gang: JobKey) -> Reason | None: ...

    def line(self, queue: str) -> int: ...


class Explanations:
    """Why gangs wait. Nothing is explained before somebody asks: sentences take longer than most decisions."""

    def __init__(self, source: Explains | None = None) -> None:
        """Without a source nobody waits."""
        self._source = source
        self._all: tuple[Waiting, ...] | None = None if source is not None else ()

    @property
    def gangs(self) -> Mapping[JobKey, Glance]:
        """The gangs that wait. To know them takes no explanation."""
        if self._source is None:
            return {(entry.group, entry.kind): Glance() for entry in self.all()}
        return self._source.gangs

    def all(self) -> tuple[Waiting, ...]:
        """Explains every gang. Whoever has all explanations needs the cycle no more: it is let go of."""
        if self._all is None:
            found = () if self._source is None else self._source.explain_all()
            self._all = tuple(sorted(found, key=lambda entry: (entry.group, entry.kind)))
            self._source = None
        return self._all

    def of(self, gang: JobKey, *, is_thorough: bool = False) -> Waiting | None:
        """Explains one gang; None if it does not wait. What is said is what `all` says, or more.

        `is_thorough`: in full, at any cost.
        """
        if self._source is None:
            return next((entry for entry in self.all() if (entry.group, entry.kind) == gang), None)
        return self._source.explain(gang, is_thorough=is_thorough)

    def reason(self, gang: JobKey) -> Reason | None:
        """The reason alone, in a fraction of the time: without what was tried, or who is before it in line."""
        if self._source is None:
            entry = self.of(gang)
            return None if entry is None else Reason(entry.reason, entry.message, entry.would_start_if)
        return self._source.reason(gang)

    def line(self, queue: str) -> int:
        """How many gangs are in the queue's line."""
        if self._source is None:
            return sum(entry.queue == queue and entry.position is not None for entry in self.all())
        return self._source.line(queue)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Explanations) and self.all() == other.all())

    __hash__ = None  # type: ignore[assignment]  # as of all that is compared by values that may change


@dataclass(frozen=True, slots=True)
class Plan:
    binds: tuple[Bind, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    nominations: tuple[Nomination, ...] = ()
    claimants: tuple[str, ...] = ()  # the nominated pods for whose gang pods were evicted; not printed
    moves: tuple[Move, ...] = ()  # their pods are among the evictions
    moved_gangs: tuple[MovedGang, ...] = ()  # the same for those who apply the plan; not printed
    ended_moves: tuple[JobKey, ...] = ()  # gangs that need their kept places no more; not printed
    resizes: tuple[Resize, ...] = ()
    reservations: tuple[ReservedNodes, ...] = ()
    explanations: Explanations = dataclasses.field(default_factory=Explanations, repr=False)
    queues: tuple[QueueShare, ...] = ()

    @property
    def waiting(self) -> tuple[Waiting, ...]:
        """Why gangs wait, all of them. They are explained when this is first asked for."""
        return self.explanations.all()

    @property
    def decides(self) -> bool:
        """Whether anything starts, leaves, is nominated or is resized."""
        return bool(self.binds or self.evictions or self.nominations or self.resizes)

    @property
    def waits(self) -> list[tuple[str, ...]]:
        """What waits for what, without details that tell the time."""
        reserved = [(entry.group, *entry.nodes) for entry in self.reservations]
        return reserved + [
            (gang.group, gang.kind, gang.reason, gang.message, gang.would_start_if) for gang in self.waiting
        ]

    def leaving(self) -> Iterator[Eviction]:
        """All pods that leave: evicted pods, and replicas of jobs that shrink."""
        yield from self.evictions
        for resize in self.resizes:
            yield from resize.evictions()


def format_rounded_up(moment: float) -> str:
    """The timestamp of a moment, rounded up to the second."""
    return format_timestamp(math.ceil(moment))
