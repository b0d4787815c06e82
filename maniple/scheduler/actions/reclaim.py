"""reclaim: a queue below its due takes back what other queues hold above theirs.

A queue never loses what it deserves of anything scarce, whatever the plugins say: candidates are only pods that their
queue, and the queues above it, can spare. The claimant must stay within its own due with what it takes.

So nothing is taken back and forth: whoever lost a pod or a whole gang still has its due, and with any more of it would
be above, so that it may claim nothing. And it ends: add up what all queues hold, of each no more than its due. A loser
counts as much as before, the claimant for more, and the sum cannot grow for ever. Only preemption can lower it, when a
gang goes whole for a smaller one; why both together end is said in docs/decisions/005-victims.md.
"""

import numpy as np

from maniple.scheduler.actions.common.contend import contend
from maniple.scheduler.eviction.unit_table import Market
from maniple.scheduler.eviction.units import evictable_jobs
from maniple.scheduler.explain.tried import AboveShare
from maniple.scheduler.framework.action import Ability
from maniple.scheduler.framework.queue_dues import EPSILON, Due, entitled, spared
from maniple.scheduler.framework.session import Session


class Reclaim:
    abilities = frozenset((Ability.RECLAIM,))

    def execute(self, session: Session) -> None:
        rules, due = session.victim_rules("reclaimable"), session.due
        if rules:
            rules = [*rules, lambda claimant, found: spared(session, claimant, found)]
        session.leave_note(AboveShare(rules))
        if not rules or due is None or not session.snapshot.waiting:
            return
        # Nobody comes to hold more than its due here, so these are all that can lose anything.
        queues = _above_their_due(session, due)
        contend(
            session,
            "Reclaimed",
            Market(session, (job for job in evictable_jobs(session) if job.queue in queues)),
            rules,
            lambda queue, _, other: other.queue != queue.index,
            lambda claimant: bool(queues) and bool(entitled(session, claimant, due)),
        )


def _above_their_due(session: Session, due: Due) -> set[int]:
    above = due.scarce & (due.accounting.queue_held > due.deserved + EPSILON)
    return {at for at in np.flatnonzero(above.any(axis=1)).tolist() if session.snapshot.queues[at].reclaimable}
