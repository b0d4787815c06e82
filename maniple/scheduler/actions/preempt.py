"""preempt: within a queue, work with a higher priority displaces work with a lower one.

It ends: a victim must have a lower priority than its claimant (the priority plugin's rule, kept here whatever plugins
are chosen). So no victim, one pod or a whole gang, can ever displace the job that displaced it. A whole gang evicted
for a smaller one may leave its queue below its due, and so with a claim on others:
docs/decisions/005-how-victims-are-chosen.md says why reclaim and preempt end together.
"""

from maniple.model.job import Job, Queue
from maniple.scheduler.actions.common.contend import contend
from maniple.scheduler.eviction.unit_table import OfferedUnits
from maniple.scheduler.eviction.units import evictable_jobs
from maniple.scheduler.explain.tried import LowerPriority
from maniple.scheduler.framework.action import Ability
from maniple.scheduler.framework.session import Session


class Preempt:
    abilities = frozenset((Ability.PREEMPT,))

    def execute(self, session: Session) -> None:
        rules = session.victim_rules("preemptable")
        session.leave_note(LowerPriority(rules))
        if not rules or not session.snapshot.waiting:
            return
        lowest: dict[int, int] = {}  # queue -> the lowest priority that runs in it
        for job in evictable_jobs(session):
            if job.placed:
                lowest[job.queue] = min(job.priority, lowest.get(job.queue, job.priority))

        def may_claim(claimant: Job) -> bool:
            return claimant.may_preempt and lowest.get(claimant.queue, claimant.priority) < claimant.priority

        queues = {job.queue for job in session.snapshot.waiting if may_claim(job)}
        offered = OfferedUnits(session, (job for job in evictable_jobs(session) if job.queue in queues))
        contend(session, "Preempted", offered, rules, _belongs, may_claim)


def _belongs(queue: Queue, claimant: Job, other: Job) -> bool:
    return other.queue == queue.index and other.priority < claimant.priority
