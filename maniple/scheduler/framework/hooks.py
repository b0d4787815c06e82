"""What a plugin can say. Policy lives in plugins, mechanism in actions; these callbacks are all that joins them.

The kinds are kube-batch's eleven (job_order, queue_order, task_order, predicate, node_order, preemptable, reclaimable,
overused, job_ready, job_pipelined, job_valid) and a few that vectors, limits and explanations need. Orders return a
sort key (lower first): comparing key after key is kube-batch's "first plugin that is not indifferent wins".
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from maniple.model.job import Job, PlacedPod, Queue, TaskGroup
from maniple.model.resources import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from maniple.scheduler.framework.queue_dues import Due
    from maniple.scheduler.growth.resize_value import Sizing

Key = float | tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a gang waits: a code for programs, a sentence for people, what would change it, and whether it is in line.

    A gang is in line if actions try it. One that `job_valid` refuses is not, whatever its Reason says of that.
    """

    code: str
    message: str
    would_start_if: str = ""
    is_in_line: bool = True

    @property
    def cure(self) -> str:
        """What would change it, also if its plugin does not say."""
        return self.would_start_if or f"{self.code} no longer applied"


@dataclass(frozen=True, slots=True)
class Check:
    """One predicate over all nodes: who passes, and what to say of those that do not."""

    reason: str
    passes: BoolArray


@dataclass(frozen=True, slots=True)
class Rows:
    """Places to judge: a node and what it has free before the pod comes. A node can stand in several rows."""

    nodes: IntArray
    free: FloatArray  # [R, rows]


@dataclass(frozen=True, slots=True)
class Need:
    """Pods a gang still needs before it may start: so many of each role, and so many in all."""

    by_role: dict[str, int]
    total: int


@dataclass(frozen=True, slots=True, eq=False)
class Victim:
    """A placed pod that somebody wants to evict."""

    job: Job
    pod: PlacedPod


# Returns the victims that may go for the claimant, counting those before them in the list; may be a subset.
VictimRule = Callable[[Job, Sequence[Victim]], Sequence[Victim]]


def nothing_else(_: object) -> None:
    """A declaration (job_kind, group_kind, victim_kind): the callbacks look at nothing that is not compared anyway."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """The callbacks of one plugin for one session; what it has no opinion about stays None.

    What is found out about a gang is used for its equals (demand.py). So a plugin says what its callbacks look at, with
    the three kinds. They must not change in a cycle. A plugin that does not say so is asked about each gang.
    """

    # What preemptable, reclaimable, job_ready and job_pipelined look at of the job (the claimant), apart from its
    # queue, priority, need, groups, placed pods and topology.
    job_kind: Callable[[Job], Hashable] | None = None
    # What predicate, pod_predicate, node_order, batch_node_order and is_placed_singly look at of the group, apart from
    # its shape, and for pod_predicate and batch_node_order its pod affinity.
    group_kind: Callable[[TaskGroup], Hashable] | None = None
    # What preemptable and reclaimable look at of a victim, apart from its requests, role and is_critical, and of its
    # job apart from its queue, priority, minimums and all that it holds.
    victim_kind: Callable[[Victim], Hashable] | None = None

    job_order: Callable[[Job], Key] | None = None
    queue_order: Callable[[Queue], Key] | None = None
    task_order: Callable[[TaskGroup], Key] | None = None
    # Looks at nodes' own attributes only: cached by the group's Constraint and group_kind.
    predicate: Callable[[TaskGroup], Iterable[Check]] | None = None
    # Looks at the pods that are there, so that it is asked anew for every placement.
    pod_predicate: Callable[[TaskGroup], Iterable[Check]] | None = None
    # Looks at the row alone (its node and free resources) and the group: cached by Shape and group_kind.
    node_order: Callable[[TaskGroup, Rows], FloatArray | None] | None = None
    # Looks at all candidates together (to normalise) or at pods elsewhere; asked anew for every placement.
    batch_node_order: Callable[[TaskGroup, IntArray], FloatArray | None] | None = None
    # Whether each pod of the group must see where the one before went, because batch_node_order looks at that.
    is_placed_singly: Callable[[TaskGroup], bool] | None = None
    # [0..1000] what a GPU is worth to others by its free thousandths: says on which of a node's GPUs a share goes.
    device_worth: FloatArray | None = None
    preemptable: VictimRule | None = None
    reclaimable: VictimRule | None = None
    # Whether the queue has had its share of what is asked for (a vector, of which only what is not 0 matters).
    overused: Callable[[Queue, FloatArray], Reason | None] | None = None
    # Whether a queue may take on so much more (True: and it is charged for it already). Never exceeded, unlike
    # overused.
    admissible: Callable[[Queue, FloatArray, bool], Reason | None] | None = None
    job_valid: Callable[[Job], Reason | None] | None = None
    job_ready: Callable[[Job], bool] | None = None
    job_pipelined: Callable[[Job], bool] | None = None
    job_need: Callable[[Job], Need] | None = None
    evicts_whole: bool | None = None  # whether a gang may be evicted whole, and not only down to its minimum
    # Pods that nobody may ever take: others of their job's surplus are looked at in their place.
    protects: Callable[[PlacedPod], bool] | None = None
    patience_s: float | None = None  # after so long room is kept for the first gang of a queue; None: never
    sizing: "Sizing | None" = None  # what sizes of elastic jobs are worth
    due: "Due | None" = None  # what queues deserve, where a plugin has computed it
