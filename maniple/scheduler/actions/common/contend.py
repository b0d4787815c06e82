"""What shrink, reclaim and preempt share: blocked gangs in line, each trying to make room by eviction.

Only gangs that have not started contend: pods above a minimum never evict anybody. Nor does a gang that loses pods in
this cycle: the next one sees what came of that.
"""

from collections.abc import Callable, Sequence

from maniple.model.job import Job, Queue
from maniple.model.resources import BoolArray
from maniple.scheduler.actions.allocate import check_valid, keep_promises
from maniple.scheduler.actions.backfill import Filling
from maniple.scheduler.actions.common.job_queue import JobQueue
from maniple.scheduler.eviction.search import RoomMaker
from maniple.scheduler.eviction.unit_table import Market
from maniple.scheduler.framework.action import Ability
from maniple.scheduler.framework.hooks import VictimRule
from maniple.scheduler.framework.session import Session

_MOST_KEPT = 64  # kinds of claimants of which it is remembered what they may take


def contend(
    session: Session,
    reason: str,
    market: Market,
    rules: Sequence[VictimRule],
    belongs: Callable[[Queue, Job, Job], bool],
    may_claim: Callable[[Job], bool] = lambda _: True,
) -> None:
    """`belongs(queue, claimant, other)`: whether the claimant may look at what the other job holds. Of the claimant it
    may look at its priority, and at whether it may preempt.

    `may_claim`: whether anything could come of it at all, as far as that is seen without looking at others.
    """
    keep_promises(session)
    waiting = (job for job in session.snapshot.waiting if not job.is_best_effort and check_valid(session, job))
    line = JobQueue(session, (job for job in waiting if not session.job_ready(job)))
    offers: dict[tuple[int, int, bool], BoolArray] = {}
    # Reserved room that a gang may use meanwhile is cheaper than anybody's eviction.
    filling = Filling(session) if session.reservations and session.has_action(Ability.BACKFILL) else None
    makers: dict[object, RoomMaker] = {}
    # Evictions made here are promised away at once, so what found no room keeps finding none.
    in_vain: set[object] = set()
    while (queue := line.next_queue()) is not None:
        job = line.next_job(queue)
        alike = session.demands.of(job)
        if alike in in_vain or session.state(job).evicted:
            continue
        if filling is not None and job.key not in session.reservations and filling.place(queue, job):
            continue
        maker = makers.pop(alike, None)
        if maker is None:
            if not may_claim(job):
                continue
            kind = (queue.index, job.priority, job.may_preempt)
            if kind not in offers:
                offers[kind] = market.offer(lambda other, queue=queue, job=job: belongs(queue, job, other))  # type: ignore[misc]
            maker = RoomMaker(session, market.table, offers[kind] & market.of_others(job), rules, reason)
        taken = maker.make_room(queue, job, market.left)
        if taken is None:
            in_vain.add(alike)
            continue
        market.take(taken)
        market.withdraw(job)  # whoever is promised the rest of its pods keeps those that it has
        makers[alike] = maker
        if len(makers) > _MOST_KEPT:
            del makers[next(iter(makers))]
