"""proportion: what each queue deserves of the cluster, over the tree of queues.

In each resource on its own: a parent's share (at the top, the cluster) goes first to its children's guarantees, as
far as they ask for them; what is left is poured in proportion to weights into the children that still ask for more,
until nobody does or nothing is left (water-filling). Nobody gets more than it asks for or than its limit.
docs/plugins/proportion.md has examples worked out on paper.

The queue with the lowest share (allocated / deserved, the largest over resources) is served next. With `borrow: "true"`
queues may go on beyond what they deserve while others leave it unused; without it (kube-batch's way) a queue that has
what it deserves is skipped. A limit is never exceeded.
"""

from collections.abc import Sequence

import numpy as np

from maniple.model.job import Job, Queue
from maniple.model.resources import BoolArray, FloatArray
from maniple.scheduler.arguments import Arguments
from maniple.scheduler.hooks import Hooks, Reason, Victim
from maniple.scheduler.session import Session


class Proportion:
    def __init__(self, arguments: Arguments) -> None:
        self._borrow = arguments.boolean("borrow", default=False)

    def open(self, session: Session) -> Hooks:
        snapshot = session.snapshot
        deserved = deserved_shares(snapshot.queues, snapshot.total, snapshot.queue_allocated + snapshot.queue_pending)
        counted = snapshot.axis.shared

        def share(queue: Queue) -> float:
            return queue_share(session.queue_allocated[queue.index], deserved[queue.index], counted)

        def order(queue: Queue) -> tuple[float, ...]:
            served = share(queue)
            # Whoever is below its due comes first; the queue's own priority decides within both halves.
            return (float(served >= 1.0), -float(queue.priority), served)

        def overused(queue: Queue) -> Reason | None:
            due, held = deserved[queue.index][counted], session.queue_allocated[queue.index][counted]
            if not (due <= held).all():
                return None
            return Reason(
                "QueueOverused",
                f"queue {queue.name!r} holds what it deserves: {_shown(session, deserved[queue.index])}",
                f"queue {queue.name!r} gave something back, or deserved more",
            )

        limited = [queue.index for queue in snapshot.queues if np.isfinite(queue.limit).any()]

        def admissible(queue: Queue, more: FloatArray, is_charged: bool) -> Reason | None:
            for at in session.queue_paths[queue.index] if limited else ():
                before = session.queue_allocated[at] - more if is_charged else session.queue_allocated[at]
                over = np.flatnonzero((before + more > snapshot.queues[at].limit) & (more > 0))
                if len(over):
                    return _limit(session, snapshot.queues[at], int(over[0]), before, more)
            return None

        def reclaimable(claimant: Job, candidates: Sequence[Victim]) -> list[Victim]:
            del claimant
            left = session.queue_allocated.copy()
            chosen = []
            for victim in candidates:
                path = session.queue_paths[victim.job.queue]
                if not all(snapshot.queues[at].reclaimable for at in path):
                    continue
                after = left[path] - victim.pod.requests
                if (after >= deserved[path] - 1e-6)[:, counted & (victim.pod.requests > 0)].all():
                    left[path] = after
                    chosen.append(victim)
            return chosen

        return Hooks(
            queue_order=order,
            overused=None if self._borrow else overused,
            admissible=admissible,
            reclaimable=reclaimable,
            deserved=lambda queue: deserved[queue.index],
        )


def queue_share(held: FloatArray, due: FloatArray, counted: BoolArray) -> float:
    """The largest part of its due that a queue holds, over resources; what it has no due of counts as 1 if held."""
    held, due = held[counted], due[counted]
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = np.where(due > 0, held / due, np.where(held > 0, 1.0, 0.0))
    return float(parts.max()) if len(parts) else 0.0


def deserved_shares(queues: Sequence[Queue], total: FloatArray, own_demand: FloatArray) -> FloatArray:
    """[Q, R]: what each queue deserves, given what its own jobs hold and ask for."""
    demand = np.zeros_like(own_demand)
    deserved = np.zeros_like(own_demand)

    def ask(queue: Queue) -> FloatArray:
        below = own_demand[queue.index].copy()
        for child in queue.children:
            below += ask(queues[child])
        wanted: FloatArray = np.minimum(below, queue.limit)
        demand[queue.index] = wanted
        return wanted

    def pour(siblings: Sequence[Queue], amount: FloatArray) -> None:
        if not siblings:
            return
        wants = np.array([demand[queue.index] for queue in siblings])
        weights = np.array([queue.weight for queue in siblings])
        first = np.minimum(np.array([queue.guaranteed for queue in siblings]), wants)
        for row in range(len(amount)):
            shares = water_fill(float(amount[row]), first[:, row], wants[:, row], weights)
            for queue, share in zip(siblings, shares, strict=True):
                deserved[queue.index, row] = share
        for queue in siblings:
            pour([queues[child] for child in queue.children], deserved[queue.index])

    top = [queue for queue in queues if queue.parent < 0]
    for queue in top:
        ask(queue)
    pour(top, total)
    return deserved


def water_fill(amount: float, first: FloatArray, wants: FloatArray, weights: FloatArray) -> FloatArray:
    """`amount` shared out: `first` to each, the rest by weight to those that want more, nobody above what it wants.

    Ends because every round either fills somebody or uses up the rest. Where `first` alone is too much it is cut in
    proportion.
    """
    given = first.copy()
    promised = float(given.sum())
    if promised > amount:
        return given * (amount / promised) if promised else given
    rest = amount - promised
    while rest > 1e-6:
        open_ = np.flatnonzero(wants - given > 1e-6)
        if not len(open_):
            break
        slice_ = rest * weights[open_] / weights[open_].sum()
        poured = np.minimum(slice_, wants[open_] - given[open_])
        given[open_] += poured
        rest -= float(poured.sum())
        if not (poured < slice_).any():
            break
    return given


def _limit(session: Session, queue: Queue, row: int, held: FloatArray, more: FloatArray) -> Reason:
    axis = session.snapshot.axis
    name, limit, wanted = axis.names[row], axis.text(row, queue.limit[row]), axis.text(row, more[row])
    if more[row] > queue.limit[row]:
        would = f"the limit of queue {queue.name!r} were at least {wanted} {name}"
    else:
        excess = axis.text(row, held[row] + more[row] - queue.limit[row])
        would = f"queue {queue.name!r} gave back {excess} {name}, or its limit were so much higher"
    return Reason(
        "QueueLimit",
        f"queue {queue.name!r} is limited to {limit} {name}, holds {axis.text(row, held[row])}, this needs {wanted}",
        would,
    )


def _shown(session: Session, amount: FloatArray) -> str:
    return ", ".join(f"{value} {name}" for name, value in session.snapshot.axis.describe(amount).items()) or "nothing"
