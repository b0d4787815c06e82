"""preempt: within a queue, work that matters more displaces work that matters less.

Ends because a victim must have a lower priority than its claimant (the priority plugin's rule, kept here whatever
plugins are chosen): no victim can ever come back and displace the one that displaced it, be it one pod or a whole gang.
What goes whole for a smaller gang may leave its queue below its due, and so with a claim on others: why reclaiming and
preempting end together is said in docs/decisions/005-victims.md.
"""

from maniple.model.job import Job, Queue
from maniple.scheduler.actions.common.contend import contend
from maniple.scheduler.eviction.unit_table import Market
from maniple.scheduler.eviction.units import evictable_jobs
from maniple.scheduler.framework.action import Ability
from maniple.scheduler.framework.session import Session


class Preempt:
    abilities = frozenset((Ability.PREEMPT,))

    def execute(self, session: Session) -> None:
        rules = session.victim_rules("preemptable")
        if not rules or not session.snapshot.waiting:
            return
        lowest: dict[int, int] = {}  # priority of what runs in each queue
        for job in evictable_jobs(session):
            if job.placed:
                lowest[job.queue] = min(job.priority, lowest.get(job.queue, job.priority))

        def may_claim(claimant: Job) -> bool:
            return claimant.may_preempt and lowest.get(claimant.queue, claimant.priority) < claimant.priority

        queues = {job.queue for job in session.snapshot.waiting if may_claim(job)}
        market = Market(session, (job for job in evictable_jobs(session) if job.queue in queues))
        contend(session, "Preempted", market, rules, _belongs, may_claim)


def _belongs(queue: Queue, claimant: Job, other: Job) -> bool:
    return other.queue == queue.index and other.priority < claimant.priority
