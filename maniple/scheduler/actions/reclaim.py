"""reclaim: a queue below its due takes back what other queues hold above theirs.

A queue never loses what it deserves of a scarce resource, whatever the plugins allow: candidates are only pods that
their queue, and the queues above it, can spare. The claimant must stay within its own due with what it takes.

Nothing goes back and forth: a queue that lost a pod or a whole gang still has its due. With more it would be above, so
it may claim nothing. It ends: add up what all queues hold, each counted up to its due. A loser counts as before and the
claimant counts more, and the sum is bounded. Only preemption can lower it, when a whole gang is evicted for a smaller
one; docs/decisions/005-how-victims-are-chosen.md says why both together end.
"""

import numpy as np

from maniple.scheduler.actions.common.contend import contend
from maniple.scheduler.eviction.unit_table import OfferedUnits
from maniple.scheduler.eviction.units import evictable_jobs
from maniple.scheduler.explain.tried import AboveShare
from maniple.scheduler.framework.action import Ability
from maniple.scheduler.framework.due_rules import EPSILON, Due, entitled, spared
from maniple.scheduler.framework.session import Session


class Reclaim:
    abilities = frozenset((Ability.RECLAIM,))

    def execute(self, session: Session) -> None:
        rules, due = session.victim_rules("reclaimable"), session.due
        if rules:
            rules = [*rules, lambda claimant, candidates: spared(session, claimant, candidates)]
        session.leave_note(AboveShare(rules))
        if not rules or due is None or not session.snapshot.waiting:
            return
        # No queue comes to hold more than its due here, so only these can lose anything.
        queues = _above_their_due(session, due)
        contend(
            session,
            "Reclaimed",
            OfferedUnits(session, (job for job in evictable_jobs(session) if job.queue in queues)),
            rules,
            lambda queue, _, other: other.queue != queue.index,
            lambda claimant: bool(queues) and bool(entitled(session, claimant, due)),
        )


def _above_their_due(session: Session, due: Due) -> set[int]:
    above = due.scarce & (due.accounting.queue_held > due.deserved + EPSILON)
    queues = session.snapshot.queues
    return {index for index in np.flatnonzero(above.any(axis=1)).tolist() if queues[index].reclaimable}
