"""The loop of shrink, reclaim and preempt: blocked gangs, in the order of their turn, make room by eviction.

Only gangs that have not started are claimants: pods above a minimum never evict. A gang that loses pods in this cycle
waits for the next one.
"""

from collections.abc import Callable, Sequence

from maniple.model.job import Job, Queue
from maniple.model.resources import BoolArray
from maniple.scheduler.actions.allocate import check_valid, keep_promises
from maniple.scheduler.actions.backfill import Filling
from maniple.scheduler.actions.common.job_queue import JobQueue
from maniple.scheduler.eviction.unit_table import OfferedUnits
from maniple.scheduler.eviction.victim_search import RoomMaker
from maniple.scheduler.explain.tried import OwnPodsLeave
from maniple.scheduler.framework.action import Ability
from maniple.scheduler.framework.hooks import VictimRule
from maniple.scheduler.framework.session import Session

_MOST_KEPT = 64  # demands whose RoomMaker is kept


def contend(
    session: Session,
    reason: str,
    offered: OfferedUnits,
    rules: Sequence[VictimRule],
    belongs: Callable[[Queue, Job, Job], bool],
    may_claim: Callable[[Job], bool] = lambda _: True,
) -> None:
    """Makes room for each blocked gang in turn, as far as `rules` allow.

    `belongs(queue, claimant, other)` says whether the claimant may evict pods of the other job. Of the claimant it may
    read only the priority and whether it may preempt, because its answers are kept by these. `may_claim` filters
    claimants that cannot succeed, whatever other jobs hold.
    """
    keep_promises(session)
    # Pods without requests claim, too: a host port or an anti-affinity may be all that is in their way.
    waiting = (job for job in session.snapshot.waiting if check_valid(session, job))
    jobs = JobQueue(session, (job for job in waiting if not session.job_ready(job)))
    units_of_kind: dict[tuple[int, int, bool], BoolArray] = {}
    # Reserved room that a gang may use meanwhile is cheaper than any eviction.
    filling = Filling(session) if session.reservations and session.has_action(Ability.BACKFILL) else None
    makers: dict[object, RoomMaker] = {}
    # Room made here is nominated at once, so a demand that found no room finds none later.
    failed: set[object] = set()
    while (queue := jobs.next_queue()) is not None:
        job = jobs.next_job(queue)
        demand = session.demands.of(job)
        if session.state(job).evicted:
            session.leave_note(OwnPodsLeave(), job.key)
            continue
        if demand in failed:
            continue
        if filling is not None and job.key not in session.reservations and filling.place(queue, job):
            continue
        maker = makers.pop(demand, None)
        if maker is None:
            if not may_claim(job) or session.startable(job, session.needed_resources(job)) is not None:
                continue
            kind = (queue.index, job.priority, job.may_preempt)
            if kind not in units_of_kind:
                units_of_kind[kind] = offered.offer(lambda other, queue=queue, job=job: belongs(queue, job, other))  # type: ignore[misc]
            maker = RoomMaker(session, offered.table, units_of_kind[kind] & offered.of_others(job), rules, reason)
        victims = maker.make_room(queue, job, offered.left)
        if victims is None:
            failed.add(demand)
            continue
        offered.take(victims)
        offered.withdraw(job)  # a nominated gang keeps the pods that it has
        makers[demand] = maker
        if len(makers) > _MOST_KEPT:
            del makers[next(iter(makers))]
