"""reclaim: a queue takes back what it deserves or is guaranteed from queues that hold more than theirs.

What queues may take from each other is the same for all policies (eviction/queue_claims.py): first so that nobody falls
below its due, then so that the outcome is strictly fairer, then what the queue is guaranteed. Plugins may allow less.

It ends: a claim on a guarantee adds a gang to those inside guarantees, which nothing takes away, and each other claim
makes the division strictly fairer. docs/decisions/005-how-victims-are-chosen.md has the proof.
"""

from collections.abc import Iterable

from maniple.model.job import Job
from maniple.scheduler.actions.common.claim_attempts import claim_attempts
from maniple.scheduler.actions.common.contend import Attempt, contend
from maniple.scheduler.actions.common.take_together import take_together
from maniple.scheduler.eviction.lenders import give_nothing
from maniple.scheduler.eviction.queue_claims import claims_of
from maniple.scheduler.eviction.unit_table import OfferedUnits
from maniple.scheduler.eviction.units import evictable_jobs
from maniple.scheduler.eviction.victim_search import always
from maniple.scheduler.explain.tried import AboveShare
from maniple.scheduler.framework.action import Ability
from maniple.scheduler.framework.plan import RECLAIMED
from maniple.scheduler.framework.session import Session


class Reclaim:
    abilities = frozenset((Ability.RECLAIM,))

    def execute(self, session: Session) -> None:
        self._reclaim(session)
        take_together(session)

    def _reclaim(self, session: Session) -> None:
        rules = session.victim_rules("reclaimable")
        session.leave_note(AboveShare(rules))
        if not rules or not session.snapshot.waiting:
            return
        claims = claims_of(session)
        if claims is None:
            return

        def attempts(claimant: Job) -> Iterable[Attempt]:
            return claim_attempts(claims, claimant, always(RECLAIMED), rules)

        contend(session, OfferedUnits(session, evictable_jobs(session)), attempts, lambda: give_nothing(session))
