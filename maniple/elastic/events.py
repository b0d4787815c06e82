"""The events that the machine takes.

Each says how something is now: hearing one twice does no harm, and a missed one is made good by the next.
"""

from dataclasses import dataclass
from typing import Literal

from maniple.api import types
from maniple.elastic.job_spec import ReplicaKey

# asked: to be created, not yet seen · pending: without a node · starting: on a node, not ready · the rest as in pods
Stage = Literal["asked", "pending", "starting", "ready", "succeeded", "failed"]


@dataclass(frozen=True, slots=True)
class Replica:
    """A pod of the job, the parts that the machine looks at."""

    role: str
    index: int
    uid: str = ""
    stage: Stage = "pending"
    is_leaving: bool = False  # it is being deleted, or does not belong to this job
    leaves_at: float = 0.0  # when it should be gone at the latest; 0: it is not being deleted
    node: str = ""
    domains: tuple[str, ...] = ()  # of its node, from the widest domain to the node itself
    address: str = ""
    bound_at: float = 0.0
    ready_at: float = 0.0
    trouble: str = ""  # why it does not start, such as ImagePullBackOff
    exit: int | None = None
    reason: str = ""  # why it failed, in Kubernetes' words, such as Evicted
    is_disrupted: bool = False  # Kubernetes says that something outside of the pod ended it
    notified_generation: int = 0  # the last generation in its annotation
    # Set by the machine.
    failed_at: float = 0.0  # when it was first seen to have failed
    stopped_generation: int = 0  # the generation for which its workers have stopped
    is_done: bool = False  # it has acknowledged that its workers have succeeded

    @property
    def key(self) -> ReplicaKey:
        return self.role, self.index

    @property
    def has_ended(self) -> bool:
        return self.stage in ("succeeded", "failed")

    @property
    def is_alive(self) -> bool:
        return not self.is_leaving and not self.has_ended

    @property
    def is_at_work(self) -> bool:
        """Whether workers may run in it. A member that is not ready any more may still have to checkpoint."""
        return self.stage == "ready" or (self.stage == "starting" and self.notified_generation > 0)

    @property
    def is_bound(self) -> bool:
        return self.stage in ("starting", "ready", "succeeded")


@dataclass(frozen=True, slots=True)
class JobSeen:
    """The ElasticJob is new or changed: its spec, or what others have written into its status."""

    item: types.ElasticJob


@dataclass(frozen=True, slots=True)
class ReplicaSeen:
    """A pod of the job is new or changed."""

    replica: Replica


@dataclass(frozen=True, slots=True)
class ReplicaGone:
    role: str
    index: int
    uid: str


@dataclass(frozen=True, slots=True)
class CreateRefused:
    """The API server will never accept such a pod."""

    role: str
    index: int
    message: str


@dataclass(frozen=True, slots=True)
class Hindered:
    """Something outside of the job keeps failing an instruction. Empty: nothing does any more."""

    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A replica's workers have stopped for `generation`, or run, have failed or are done in it."""

    role: str
    index: int
    uid: str
    generation: int
    state: str
    exit: int = 0


@dataclass(frozen=True, slots=True)
class Reported:
    """How far the job is, and how fast, as one of its replicas reports it."""

    generation: int
    step: int
    at: float  # when it was first reported
    throughput: float | None = None
    total: int | None = None


@dataclass(frozen=True, slots=True)
class TimePassed:
    pass


Event = JobSeen | ReplicaSeen | ReplicaGone | CreateRefused | Hindered | Acknowledged | Reported | TimePassed
