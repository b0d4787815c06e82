"""What reclaim and preempt share: blocked gangs in line, each trying to make room by eviction.

Only gangs that have not started contend: pods above a minimum never evict anybody.
"""

from collections.abc import Callable, Sequence

from maniple.model.job import Job, Queue
from maniple.scheduler.actions.allocate import check_valid, keep_promises
from maniple.scheduler.actions.line import Line
from maniple.scheduler.hooks import VictimRule
from maniple.scheduler.session import Session
from maniple.scheduler.units import Market
from maniple.scheduler.victims import make_room


def contend(
    session: Session,
    reason: str,
    market: Market,
    rules: Sequence[VictimRule],
    belongs: Callable[[Queue, Job, Job], bool],
) -> None:
    """`belongs(queue, claimant, other)`: whether the claimant may look at what the other job holds."""
    keep_promises(session)
    jobs = (
        job
        for job in session.snapshot.waiting
        if not job.is_best_effort and check_valid(session, job) and not session.job_ready(job)
    )
    line = Line(session, jobs)
    # Evictions made here are promised away at once, so what found no room keeps finding none.
    in_vain: set[object] = set()
    while (queue := line.next_queue()) is not None:
        job = line.next_job(queue)
        alike = _demand(session, job)
        if alike in in_vain:
            continue
        offered = market.offer(lambda other, queue=queue, job=job: other is not job and belongs(queue, job, other))  # type: ignore[misc]
        taken = make_room(session, queue, job, offered, rules, reason)
        if taken:
            market.take(session, taken)
        else:
            in_vain.add(alike)


def _demand(session: Session, job: Job) -> object:
    """All that decides whether room can be made for a job: what it asks for, of whom, and how much of it at least."""
    need = session.job_need(job)
    groups = tuple((group.shape.number, group.peers, group.role, len(group.pods)) for group in job.groups)
    # A gang that must stay where some of its pods are is like no other.
    place = (job.required, job.mixed_models, job.key if session.state(job).nodes else None)
    return job.queue, job.priority, need.total, tuple(need.by_role.items()), groups, place
