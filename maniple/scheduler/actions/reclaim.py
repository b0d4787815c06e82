"""reclaim: a queue below its due takes back what other queues hold above theirs.

A queue never loses what it deserves of anything scarce, whatever the plugins say: candidates are only pods that their
queue, and the queues above it, can spare. The claimant must stay within its own due with what it takes. So each reclaim
lowers the sum of what queues hold above their dues and never raises it: that is why reclaiming ends, and nothing is
taken back and forth.
"""

from maniple.scheduler.actions.contend import contend
from maniple.scheduler.session import Session
from maniple.scheduler.shares import spared
from maniple.scheduler.units import Market


class Reclaim:
    def execute(self, session: Session) -> None:
        rules = session.victim_rules("reclaimable")
        if rules and session.snapshot.waiting:
            market = Market(session, (job for job in session.snapshot.jobs if job.preemptable))
            rules = [*rules, lambda claimant, found: spared(session, claimant, found)]
            contend(session, "Reclaimed", market, rules, lambda queue, _, other: other.queue != queue.index)
