"""The callbacks of a plugin. Policy lives in plugins, mechanism in actions; only these callbacks connect them.

They are kube-batch's eleven (job_order, queue_order, task_order, predicate, node_order, preemptable, reclaimable,
overused, job_ready, job_pipelined, job_valid) and some for vectors, limits and explanations. Orders return a sort key
(lower first). Keys are compared plugin by plugin, as in kube-batch: the first difference decides.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import Struct

from maniple.api.errors import InputError
from maniple.model.job import Job, PlacedPod, Queue, TaskGroup
from maniple.model.resources import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from maniple.scheduler.framework.due_rules import Due
    from maniple.scheduler.growth.resize_value import Sizing
    from maniple.scheduler.moving.move_value import Moving

Key = float | tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a gang waits: a code for programs, a message, what would change it, and whether the gang is in line.

    A gang is in line if actions try it. A gang that `job_valid` refuses is never in line.
    """

    code: str
    message: str
    would_start_if: str = ""
    is_in_line: bool = True

    @property
    def cure(self) -> str:
        """What would change it, with a default for plugins that do not say."""
        return self.would_start_if or f"{self.code} no longer applied"


@dataclass(frozen=True, slots=True)
class Check:
    """The answer of a predicate: the nodes that pass, and the reason for those that do not."""

    reason: str
    passes: BoolArray


@dataclass(frozen=True, slots=True)
class Rows:
    """Candidates to score: a node and what is free there before the pod comes. A node can have several rows."""

    nodes: IntArray
    free: FloatArray  # [R, rows]


class Need(Struct, frozen=True):
    """How many pods a gang still needs before it may start, by role and in all."""

    by_role: dict[str, int]
    total: int


class Victim(Struct, frozen=True, eq=False):
    """A placed pod that an action wants to evict."""

    job: Job
    pod: PlacedPod


# Returns the candidates that may be evicted for the claimant, each given the ones before it; may be a subset.
VictimRule = Callable[[Job, Sequence[Victim]], Sequence[Victim]]


def nothing_else(_: object) -> None:
    """A declaration (job_kind, group_kind, victim_kind): the callbacks look at nothing that is not compared already."""


def by_amounts(_: TaskGroup) -> bool:
    """A declaration (node_order_by_amounts): for all groups."""
    return True


def no_other_group(_: TaskGroup) -> bool:
    """A declaration (pod_predicate_groups): only groups with host ports, disks or pod affinity."""
    return False


@dataclass(frozen=True, slots=True)
class Hooks:
    """The callbacks of one plugin for one session. Callbacks that it does not have are None.

    Results for a gang are reused for its equals (demand_cache_keys.py). So a plugin declares what its callbacks look
    at, with the three kinds. Kinds must not change in a cycle. A plugin without them is asked about each gang.
    """

    # What preemptable, reclaimable, startable, job_ready and job_pipelined look at of the job (the claimant), apart
    # from its queue, priority, need, groups, placed pods, topology and preemptable.
    job_kind: Callable[[Job], Hashable] | None = None
    # What predicate, pod_predicate, node_order, batch_node_order and is_placed_singly look at of the group, apart from
    # its shape, and for pod_predicate and batch_node_order its pod affinity.
    group_kind: Callable[[TaskGroup], Hashable] | None = None
    # What preemptable and reclaimable look at of a victim, apart from its requests, role and is_critical, and of its
    # job apart from its queue, priority, minimums and all that it holds.
    victim_kind: Callable[[Victim], Hashable] | None = None

    # Whether job_order, job_valid, task_order and job_need give one answer for all waiting gangs that hold nothing, ask
    # for the same in the same queue and have the same job_kind: they look at neither age nor name.
    is_alike_in_line: bool | None = None

    job_order: Callable[[Job], Key] | None = None
    # Looks at what the queue and those above it hold: an answer is kept until that changes.
    queue_order: Callable[[Queue], Key] | None = None
    # How a queue would stand with what the next job of a queue below it needs. Given are the indices of the queues from
    # that of the job up to this one. It is compared before queue_order. Kept like its answers.
    queue_standing: Callable[[Sequence[int], FloatArray], float] | None = None
    task_order: Callable[[TaskGroup], Key] | None = None
    # Looks at nodes' own attributes only: cached by the group's Constraint and group_kind.
    predicate: Callable[[TaskGroup], Iterable[Check]] | None = None
    # Looks at the pods that are there now, or (True) when all leaving pods have left: asked anew for every placement.
    pod_predicate: Callable[[TaskGroup, bool], Iterable[Check]] | None = None
    # Which groups pod_predicate can object to, beside groups with host ports, disks or pod affinity; None: any group.
    # The pods of such a group are placed one by one, and its fit failures are not cached.
    pod_predicate_groups: Callable[[TaskGroup], bool] | None = None
    # Looks at the row alone (its node and free resources) and the group: cached by Shape and group_kind.
    node_order: Callable[[TaskGroup, Rows], FloatArray | None] | None = None
    # Whether node_order, for this group, looks of a node only at its allocatable resources, its GPUs, and what is left
    # of both. Then nodes that are alike in these share one answer. None: it may look at anything.
    node_order_by_amounts: Callable[[TaskGroup], bool] | None = None
    # Looks at all candidates together (to normalise) or at pods elsewhere: asked anew for every placement.
    batch_node_order: Callable[[TaskGroup, IntArray], FloatArray | None] | None = None
    # Which groups batch_node_order can score in this cycle; for the others it always returns None. None: any group.
    batch_node_order_groups: Callable[[TaskGroup], bool] | None = None
    # Whether the pods of the group are placed one by one, because batch_node_order looks at the pods before.
    is_placed_singly: Callable[[TaskGroup], bool] | None = None
    # [0..1000] what a GPU is worth to other pods by its free thousandths. Decides which GPU of a node a share goes to.
    device_worth: FloatArray | None = None
    preemptable: VictimRule | None = None
    reclaimable: VictimRule | None = None
    # Whether the queue holds its share of the resources that a vector asks for.
    overused: Callable[[Queue, FloatArray], Reason | None] | None = None
    # Whether a queue may hold so much more (True: it is charged for it already). A hard limit, unlike overused.
    admissible: Callable[[Queue, FloatArray, bool], Reason | None] | None = None
    # Why a gang may not start with these requests, whoever leaves for it. What is refused once in a cycle must be
    # refused for the rest of it.
    startable: Callable[[Job, FloatArray], Reason | None] | None = None
    job_valid: Callable[[Job], Reason | None] | None = None
    job_ready: Callable[[Job], bool] | None = None
    job_pipelined: Callable[[Job], bool] | None = None
    job_need: Callable[[Job], Need] | None = None
    evicts_whole: bool | None = None  # whether a gang may be evicted whole, and not only down to its minimum
    surplus_preempts: bool | None = None  # whether surplus may take surplus of lower priority in its queue
    # Pods that are never evicted; other surplus pods of their job are considered in their place.
    protects: Callable[[PlacedPod], bool] | None = None
    patience_s: float | None = None  # how long the first gang of a queue waits for a reservation; None: for ever
    sizing: "Sizing | None" = None  # the worth of sizes of elastic jobs
    moving: "Moving | None" = None  # what moving pods may cost
    due: "Due | None" = None  # what queues deserve


# Callbacks that only one plugin of a policy may have.
CLAIMS = {
    "due": "what queues deserve",
    "patience_s": "how long a gang waits for a reservation",
    "sizing": "what sizes of elastic jobs are worth",
    "moving": "what moving pods may cost",
    "device_worth": "what a GPU is worth to others",
    "job_need": "what a gang needs to start",
}


def check_claims(names: Sequence[str], hooks: Sequence[Hooks]) -> None:
    """Raises InputError if two plugins have a callback that only one may have."""
    wrong = []
    for claim, meaning in CLAIMS.items():
        claimants = [name for name, hook in zip(names, hooks, strict=True) if getattr(hook, claim) is not None]
        if len(claimants) > 1:
            both = " and ".join(map(repr, claimants))
            wrong.append(f"plugins {both} both say {meaning} ({claim}); remove one of them")
    if wrong:
        raise InputError(wrong)
