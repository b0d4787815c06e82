"""reclaim: a queue below its due takes back what other queues hold above theirs.

A queue never loses what it deserves of anything scarce, whatever the plugins say: candidates are only pods that their
queue, and the queues above it, can spare. The claimant must stay within its own due with what it takes. So each reclaim
lowers the sum of what queues hold above their dues and never raises it: that is why reclaiming ends, and nothing is
taken back and forth.
"""

from maniple.model.job import Job, Queue
from maniple.scheduler.actions.contend import contend
from maniple.scheduler.hooks import Victim
from maniple.scheduler.session import Session
from maniple.scheduler.shares import spared
from maniple.scheduler.victims import find_victims


class Reclaim:
    def execute(self, session: Session) -> None:
        contend(session, "Reclaimed", _candidates)


def _candidates(session: Session, queue: Queue, job: Job) -> list[Victim]:
    rules = session.victim_rules("reclaimable")
    if not rules:
        return []

    def belongs(other: Job) -> bool:
        return other.queue != queue.index

    return find_victims(session, job, belongs, [*rules, lambda claimant, found: spared(session, claimant, found)])
