"""proportion: what each queue deserves of the cluster, over the tree of queues.

Each resource is shared on its own. A parent's share (at the top, the cluster) goes first to its children's guarantees,
as far as they ask for them. The rest goes by weight to the children that still ask for more, until none does or nothing
is left (water-filling), and only then to those without weight. With `divide.byPriority: "true"` children of a higher
priority come before the others. No queue gets more than it asks for, or than its limit. Indivisible resources are
shared in whole units. Examples: docs/plugins/proportion.md.

The queue with the lowest share (allocated / deserved, the largest over scarce resources) is next. With `borrow: "true"`
a queue may hold more than it deserves while others do not use it. Without it, as in kube-batch, a queue that has what
it deserves is skipped. A limit is never exceeded. With `preemptable.guarantee: "true"` gangs that may not be preempted
start only within their queue's guarantee.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from maniple.api.gpu.requests import WHOLE
from maniple.model.job import Queue
from maniple.model.resources import BoolArray, FloatArray
from maniple.scheduler.framework.due_rules import EPSILON, Due, Standing, counted_of
from maniple.scheduler.framework.guaranteed_starts import GuaranteedStarts
from maniple.scheduler.framework.hooks import Hooks, Reason, nothing_else
from maniple.scheduler.framework.plugin_arguments import Arguments
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.share_accounting import Accounting, speeds_argument


class Proportion:
    def __init__(self, arguments: Arguments) -> None:
        self._borrow = arguments.boolean("borrow", default=False)
        self._by_priority = arguments.boolean("divide.byPriority", default=False)
        self._speeds = speeds_argument(arguments)
        self._starts_guaranteed = arguments.boolean("preemptable.guarantee", default=False)

    def open(self, session: Session) -> Hooks:
        snapshot = session.snapshot
        accounting = session.accounting(self._speeds)
        demand = accounting.demand() * snapshot.axis.shared
        due = find_dues(accounting, demand, by_priority=self._by_priority)

        counted: dict[int, list[tuple[int, float]]] = {}  # queue -> what counts for its share, and its due of that

        def order(queue: Queue) -> tuple[float, ...]:
            if queue.index not in counted:
                rows = np.flatnonzero(counted_of(session, queue)).tolist()
                counted[queue.index] = [(row, float(due.deserved[queue.index, row])) for row in rows]
            held, dues = accounting.queue_held[queue.index].tolist(), counted[queue.index]
            # As share_of, for a few numbers: asked after each start.
            served = max([held[row] / most if most > 0 else float(held[row] > 0) for row, most in dues], default=0.0)
            # Queues below their due come first; a queue that deserves nothing is not below it. The queue's priority
            # decides among these, and among the others.
            has_its_due = served >= 1.0 or not any(held[row] < most for row, most in dues)
            return (float(has_its_due), -float(queue.priority), served)

        def stand(path: Sequence[int], need: FloatArray) -> float:
            standing = session.queue_turns.standing
            is_guaranteed = any(standing(queue, need) == Standing.GUARANTEED for queue in path[:-1])
            return Standing.GUARANTEED if is_guaranteed else standing(path[-1], need)

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
            # kube-batch looks at the share alone.
            queue_standing=stand if (self._borrow and due.scarce.any()) or due.guaranteed.any() else None,
            overused=None if self._borrow else overused,
            admissible=admissible,
            startable=GuaranteedStarts(session).refusal if self._starts_guaranteed else None,
            # Any: what queues may take from each other is not up to plugins (eviction/queue_claims.py).
            reclaimable=lambda _, candidates: candidates,
            due=due,
            job_kind=nothing_else,
            victim_kind=nothing_else,
        )


def find_dues(accounting: Accounting, own_demand: FloatArray, *, by_priority: bool = False) -> Due:
    """What each queue deserves, given what its own jobs hold and ask for."""
    queues, whole = accounting.queues, accounting.indivisible
    unit = np.where(whole, float(WHOLE), 1.0)

    def in_units(amounts: FloatArray) -> FloatArray:
        return np.where(whole, np.floor(amounts / unit), amounts)

    limits = in_units(np.array([queue.limit for queue in queues]))
    demand = np.minimum(in_units(own_demand), limits)
    guaranteed = in_units(np.array([queue.guaranteed for queue in queues]))
    weights = np.array([queue.weights for queue in queues])
    parents = [queue for queue in _parents_first(queues) if queue.children]
    for queue in reversed(parents):
        row, below = queue.index, list(queue.children)
        demand[row] = np.minimum(demand[row] + demand[below].sum(axis=0), limits[row])
        guaranteed[row] = np.maximum(guaranteed[row], np.minimum(guaranteed[below], demand[below]).sum(axis=0))
    guaranteed = np.minimum(guaranteed, demand)
    # A queue may hold more than it may ask for: its limit was lowered. That is missing, too.
    in_use = np.maximum(demand, in_units(accounting.queue_held))

    deserved = np.zeros_like(own_demand)
    scarce = np.zeros(own_demand.shape, dtype=bool)

    def pour(siblings: list[int], amount: FloatArray) -> None:
        siblings.sort(key=lambda index: (-queues[index].priority, index))  # the order of ties
        deserved[siblings] = demand[siblings]
        short = np.flatnonzero(in_use[siblings].sum(axis=0) > amount + EPSILON)
        if not len(short):
            return
        # A resource is not scarce for a queue that asks for none of it.
        here = (np.array(siblings)[:, None], short)
        scarce[here] = demand[here] > 0
        turns = _turns(weights[here], [queues[index].priority for index in siblings] if by_priority else None)
        deserved[here] = water_fill(amount[short], guaranteed[here], demand[here], turns, whole[short])

    pour([queue.index for queue in queues if queue.parent < 0], in_units(accounting.total))
    for queue in parents:
        pour(list(queue.children), deserved[queue.index])
    return Due(deserved * unit, guaranteed * unit, scarce, accounting)


def _parents_first(queues: Sequence[Queue]) -> list[Queue]:
    order = [queue for queue in queues if queue.parent < 0]
    for queue in order:  # grows while it is read
        order.extend(queues[child] for child in queue.children)
    return order


def _turns(weights: FloatArray, priorities: Sequence[int] | None) -> list[FloatArray]:
    """The weights [n, R] of each turn, 0 for a queue whose turn it is not. Every queue has one turn for a resource.

    Queues without weight come last, in equal parts. With `priorities`, sorted, a higher one comes first.
    """
    ends = [len(weights)]
    if priorities is not None:
        ends = [end for end in range(1, len(weights)) if priorities[end] != priorities[end - 1]] + ends
    turns = []
    for of_turn in (weights, weights == 0):
        if not of_turn.any():
            continue
        for start, end in pairwise([0, *ends]):
            turn = np.zeros_like(weights)
            turn[start:end] = of_turn[start:end]
            turns.append(turn)
    return turns


def water_fill(
    amount: FloatArray, first: FloatArray, wants: FloatArray, turns: Sequence[FloatArray], whole: BoolArray
) -> FloatArray:
    """Shares out `amount` [R] among n: `first` [n, R] to each, the rest turn by turn, by weight up to what each wants.

    It ends because every round fills an entry or uses up the rest. `first` is cut in proportion if it is too much.
    """
    promised = first.sum(axis=0)
    is_cut = promised > amount
    given = np.where(is_cut, _split(amount, first, whole), first) if is_cut.any() else first.copy()
    rest = np.where(is_cut, 0.0, amount - promised)
    for turn in turns:
        while True:
            room = wants - given
            parts = np.where((room > EPSILON) & (rest > EPSILON), turn, 0.0)
            if not parts.any():
                break
            is_full = (parts > 0) & (room * parts.sum(axis=0) <= rest * parts)
            fills = is_full.any(axis=0)
            slices = np.where(is_full, room, 0.0)
            if not fills.all():
                slices = np.where(fills, slices, np.minimum(_split(rest, parts, whole), room))
            given += slices
            rest = np.where(fills | ~parts.any(axis=0), rest - slices.sum(axis=0), 0.0)
    return given


def _split(amount: FloatArray, parts: FloatArray, whole: BoolArray) -> FloatArray:
    """`amount` [R] in proportion to `parts` [n, R]. Nothing where there are no parts.

    Whole units: each share is rounded down, and what is left goes one by one to the largest remainders, among equal
    ones to the first. All numbers are whole then, and products up to 2^53 exact: equal remainders are equal.
    """
    products = amount * parts
    total = parts.sum(axis=0)
    total[total == 0] = 1.0
    shares: FloatArray = products / total
    if whole.any():
        floors, remainders = np.divmod(products, total)
        left = amount - floors.sum(axis=0)
        order = np.argsort(-remainders, axis=0, kind="stable")
        rank = np.argsort(order, axis=0)
        floors += (rank < left) & (parts > 0)
        shares = np.where(whole, floors, shares)
    return shares


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
