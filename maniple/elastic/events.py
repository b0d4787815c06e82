"""What happens to a job: the events that `step` takes. All of them say how something is, so hearing one twice is no
harm, and one that was missed is made good by the next."""

from dataclasses import dataclass, field
from typing import Literal

from maniple.api import types
from maniple.elastic.job import Place

# asked: to be created, not yet seen · pending: without a node · starting: on a node, not ready · the rest as in pods
Stage = Literal["asked", "pending", "starting", "ready", "succeeded", "failed"]


@dataclass(frozen=True, slots=True)
class Replica:
    """A pod, as far as the machine looks at it."""

    role: str
    index: int
    uid: str = ""
    stage: Stage = "pending"
    is_leaving: bool = False  # it is being deleted, or does not belong to this job
    leaves_at: float = 0.0  # when it should be gone at the latest; 0: nobody has asked it to go
    node: str = ""
    domains: tuple[str, ...] = ()  # where that is, from the widest domain to the node
    address: str = ""
    bound_at: float = 0.0
    ready_at: float = 0.0
    trouble: str = ""  # why it does not start, such as ImagePullBackOff
    exit: int | None = None
    reason: str = ""  # why it failed, as Kubernetes says it, such as Evicted
    is_disrupted: bool = False  # Kubernetes says that something outside of the pod ended it
    told: int = 0  # the last generation that it has heard of, as far as can be seen
    # What the machine adds.
    failed_at: float = 0.0  # when it was first seen to have failed
    stopped: int = 0  # the generation for which its workers have stopped
    is_done: bool = field(default=False)  # it says that its workers have ended well

    @property
    def place(self) -> Place:
        return self.role, self.index

    @property
    def has_ended(self) -> bool:
        return self.stage in ("succeeded", "failed")

    @property
    def is_alive(self) -> bool:
        return not self.is_leaving and not self.has_ended

    @property
    def is_at_work(self) -> bool:
        """Whether workers may run in it. Who has taken part and is not ready any more may still need a checkpoint."""
        return self.stage == "ready" or (self.stage == "starting" and self.told > 0)

    @property
    def is_bound(self) -> bool:
        return self.stage in ("starting", "ready", "succeeded")


@dataclass(frozen=True, slots=True)
class JobSeen:
    """The ElasticJob, new or changed: its spec, and what others have written into its status."""

    item: types.ElasticJob


@dataclass(frozen=True, slots=True)
class JobGone:
    pass


@dataclass(frozen=True, slots=True)
class ReplicaSeen:
    """A pod of the job, new or changed: created, running, ready, succeeded, failed, about to go."""

    replica: Replica


@dataclass(frozen=True, slots=True)
class ReplicaGone:
    role: str
    index: int
    uid: str


@dataclass(frozen=True, slots=True)
class CreateRefused:
    """The API server will never take such a pod."""

    role: str
    index: int
    message: str


@dataclass(frozen=True, slots=True)
class Hindered:
    """Something outside of the job keeps an instruction from being done, time and again; empty: nothing does now."""

    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """What a replica says of its workers: stopped (for `generation`), running, failed or done (in it)."""

    role: str
    index: int
    uid: str
    generation: int
    state: str
    exit: int = 0


@dataclass(frozen=True, slots=True)
class Reported:
    """How far the job is, and how fast, as one of its replicas sees it."""

    generation: int
    step: int
    at: float  # when it was said; what is told again was
    throughput: float | None = None
    total: int | None = None


@dataclass(frozen=True, slots=True)
class TimePassed:
    pass


Event = JobSeen | JobGone | ReplicaSeen | ReplicaGone | CreateRefused | Hindered | Acknowledged | Reported | TimePassed
