"""preempt: within a queue, work that matters more displaces work that matters less.

Ends because a victim must have a lower priority than its claimant (the priority plugin's rule, kept here whatever
plugins are chosen): no victim can ever come back and displace the one that displaced it.
"""

from maniple.model.job import Job, Queue
from maniple.scheduler.actions.contend import contend
from maniple.scheduler.hooks import Victim
from maniple.scheduler.session import Session
from maniple.scheduler.victims import find_victims


class Preempt:
    def execute(self, session: Session) -> None:
        contend(session, "Preempted", _candidates)


def _candidates(session: Session, queue: Queue, job: Job) -> list[Victim]:
    rules = session.victim_rules("preemptable")
    if not rules or not job.may_preempt:
        return []

    def belongs(other: Job) -> bool:
        return other.queue == queue.index and other.priority < job.priority

    return find_victims(session, job, belongs, rules)
