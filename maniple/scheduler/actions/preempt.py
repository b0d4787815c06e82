"""preempt: within a queue, work that matters more displaces work that matters less.

Ends because a victim must have a lower priority than its claimant (the priority plugin's rule, kept here whatever
plugins are chosen): no victim can ever come back and displace the one that displaced it.
"""

from maniple.model.job import Job, Queue
from maniple.scheduler.actions.contend import contend
from maniple.scheduler.session import Session
from maniple.scheduler.units import Market


class Preempt:
    def execute(self, session: Session) -> None:
        rules = session.victim_rules("preemptable")
        if rules and session.snapshot.waiting:
            market = Market(session, (job for job in session.snapshot.jobs if job.preemptable))
            contend(session, "Preempted", market, rules, _belongs)


def _belongs(queue: Queue, claimant: Job, other: Job) -> bool:
    return claimant.may_preempt and other.queue == queue.index and other.priority < claimant.priority
