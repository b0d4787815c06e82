"""proportion: what each queue deserves of the cluster, over the tree of queues.

Each resource is shared on its own. A parent's share (at the top, the cluster) goes first to its children's guarantees,
as far as they ask for them. The rest goes by weight to the children that still ask for more, until none does or nothing
is left (water-filling). No queue gets more than it asks for, or than its limit. Examples: docs/plugins/proportion.md.

The queue with the lowest share (allocated / deserved, the largest over scarce resources) is next. With `borrow: "true"`
a queue may hold more than it deserves while others do not use it. Without it, as in kube-batch, a queue that has what
it deserves is skipped. A limit is never exceeded. With `preemptable.guarantee: "true"` gangs that may not be preempted
start only within their queue's guarantee.
"""

from collections.abc import Sequence

import numpy as np

from maniple.model.job import Queue
from maniple.model.resources import FloatArray
from maniple.scheduler.framework.due_rules import EPSILON, Due, counted_of, share_of, spared
from maniple.scheduler.framework.guaranteed_starts import GuaranteedStarts
from maniple.scheduler.framework.hooks import Hooks, Reason, nothing_else
from maniple.scheduler.framework.plugin_arguments import Arguments
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.share_accounting import Accounting, speeds_argument


class Proportion:
    def __init__(self, arguments: Arguments) -> None:
        self._borrow = arguments.boolean("borrow", default=False)
        self._speeds = speeds_argument(arguments)
        self._starts_guaranteed = arguments.boolean("preemptable.guarantee", default=False)

    def open(self, session: Session) -> Hooks:
        snapshot = session.snapshot
        accounting = session.accounting(self._speeds)
        due = find_dues(accounting, accounting.demand() * snapshot.axis.shared)

        def order(queue: Queue) -> tuple[float, ...]:
            held, deserved = accounting.queue_held[queue.index], due.deserved[queue.index]
            counted = counted_of(session, queue)
            served = share_of(held, deserved, counted)
            # Queues below their due come first; a queue that deserves nothing is not below it. The queue's priority
            # decides among these, and among the others.
            has_its_due = served >= 1.0 or not (held < deserved)[counted].any()
            return (float(has_its_due), -float(queue.priority), served)

        def overused(queue: Queue, asked: FloatArray) -> Reason | None:
            # Scarce GPUs do not block jobs that ask for none. A resource that the cluster lacks is never overused.
            scarce = due.scarce[queue.index] & (asked > 0) & (snapshot.total > 0)
            deserved = due.deserved[queue.index]
            if not scarce.any() or not (deserved <= accounting.queue_held[queue.index] + EPSILON)[scarce].all():
                return None
            return Reason(
                "QueueOverused",
                f"queue {queue.name!r} holds all that it deserves: {_shown(session, deserved * scarce)}"
                f"{accounting.note(scarce)}",
                f"queue {queue.name!r} held less than it deserves",
            )

        limited = [queue.index for queue in snapshot.queues if np.isfinite(queue.limit).any()]

        def admissible(queue: Queue, more: FloatArray, is_charged: bool) -> Reason | None:
            over = []
            for index in session.queue_paths[queue.index] if limited else ():
                before = session.queue_allocated[index] - more if is_charged else session.queue_allocated[index]
                rows = np.flatnonzero((before + more > snapshot.queues[index].limit) & (more > 0))
                over += [(snapshot.queues[index], int(row), float(before[row])) for row in rows]
            return _limit(session, over, more) if over else None

        return Hooks(
            queue_order=order,
            overused=None if self._borrow else overused,
            admissible=admissible,
            startable=GuaranteedStarts(session).refusal if self._starts_guaranteed else None,
            reclaimable=lambda claimant, candidates: spared(session, claimant, candidates),
            due=due,
            job_kind=(lambda job: job.preemptable) if self._starts_guaranteed else nothing_else,
            victim_kind=nothing_else,
        )


def find_dues(accounting: Accounting, own_demand: FloatArray) -> Due:
    """What each queue deserves, given what its own jobs hold and ask for."""
    queues = accounting.queues
    demand = np.zeros_like(own_demand)
    deserved = np.zeros_like(own_demand)
    scarce = np.zeros(own_demand.shape, dtype=bool)

    order = _parents_first(queues)
    for queue in reversed(order):
        below = own_demand[queue.index].copy()
        for child in queue.children:
            below += demand[child]
        demand[queue.index] = np.minimum(below, queue.limit)

    def pour(siblings: Sequence[Queue], amount: FloatArray) -> None:
        wants = np.array([demand[queue.index] for queue in siblings])
        weights = np.array([queue.weight for queue in siblings])
        first = np.minimum(np.array([queue.guaranteed for queue in siblings]), wants)
        for row in np.flatnonzero(wants.any(axis=0)).tolist():  # a queue that asks for nothing deserves nothing
            shares = water_fill(float(amount[row]), first[:, row], wants[:, row], weights)
            is_scarce = float(wants[:, row].sum()) > amount[row] + EPSILON
            for queue, share in zip(siblings, shares, strict=True):
                deserved[queue.index, row] = share
                # A resource is not scarce for a queue that asks for none of it.
                scarce[queue.index, row] = is_scarce and demand[queue.index, row] > 0

    pour([queue for queue in queues if queue.parent < 0], accounting.total)
    for queue in order:
        if queue.children:
            pour([queues[child] for child in queue.children], deserved[queue.index])
    return Due(deserved, scarce, accounting)


def _parents_first(queues: Sequence[Queue]) -> list[Queue]:
    order = [queue for queue in queues if queue.parent < 0]
    for queue in order:  # grows while it is read
        order.extend(queues[child] for child in queue.children)
    return order


def water_fill(amount: float, first: FloatArray, wants: FloatArray, weights: FloatArray) -> FloatArray:
    """Shares out `amount`: `first` to each, the rest by weight up to what each wants.

    It ends because every round fills an entry or uses up the rest. `first` is cut in proportion if it is too much.
    """
    given = first.copy()
    promised = float(given.sum())
    if promised > amount:
        return given * (amount / promised) if promised else given
    rest = amount - promised
    while rest > EPSILON:
        open_ = np.flatnonzero(wants - given > EPSILON)
        if not len(open_):
            break
        slice_ = rest * weights[open_] / weights[open_].sum()
        poured = np.minimum(slice_, wants[open_] - given[open_])
        given[open_] += poured
        rest -= float(poured.sum())
        if not (poured < slice_).any():
            break
    return given


def _limit(session: Session, over: list[tuple[Queue, int, float]], more: FloatArray) -> Reason:
    """`over`: each queue and resource whose limit `more` would exceed, with what the queue holds."""
    axis = session.snapshot.axis
    queue, row, held = over[0]
    name, limit, wanted = axis.names[row], axis.amount(row, queue.limit[row]), axis.amount(row, more[row])
    wanted_of: dict[str, list[str]] = {}  # queue -> the limits that it would need
    for other, other_row, used in over:
        least = f"{axis.amount(other_row, used + more[other_row], up=True)} {axis.names[other_row]}"
        wanted_of.setdefault(other.name, []).append(least)
    walls = [f"queue {other!r} were at least {', '.join(amounts)}" for other, amounts in wanted_of.items()]
    would = f"the limit of {' and that of '.join(walls)}"
    if len(over) == 1 and more[row] <= queue.limit[row]:
        excess, least = (axis.amount(row, held + more[row] - less, up=True) for less in (queue.limit[row], 0.0))
        would = f"queue {queue.name!r} gave back {excess} {name} (or its limit were {least})"
    return Reason(
        "QueueLimit",
        f"queue {queue.name!r} is limited to {limit} {name}, holds {axis.amount(row, held)}, this needs {wanted}",
        would,
    )


def _shown(session: Session, amount: FloatArray) -> str:
    return ", ".join(session.snapshot.axis.list_words(amount)) or "nothing"
