"""shrink: a gang's minimum comes before any job's surplus.

A blocked gang takes what elastic jobs hold above their minimum: of its own queue all, of other queues as far as its own
has a claim on them (eviction/queue_claims.py). Priority and `preemptable: false` do not matter here: surplus is on
loan. The victims are those that lose the least speed in total; among equals, the fewest pods.

It ends: only a gang that starts takes anything, and it takes only surplus. So each time one more gang has its minimum,
and surplus never evicts. A job gets its surplus back only by growing into free room.
"""

from collections.abc import Iterable

import numpy as np

from maniple.model.job import Job
from maniple.model.running_columns import has_surplus
from maniple.scheduler.actions.common.claim_attempts import claim_attempts
from maniple.scheduler.actions.common.contend import Attempt, contend
from maniple.scheduler.actions.common.take_together import take_together
from maniple.scheduler.eviction.queue_claims import claims_of
from maniple.scheduler.eviction.surplus_units import surplus_units
from maniple.scheduler.eviction.unit_table import OfferedUnits, UnitTable
from maniple.scheduler.eviction.victim_search import always
from maniple.scheduler.explain.tried import Surplus
from maniple.scheduler.framework.action import Ability
from maniple.scheduler.framework.plan import SHRUNK
from maniple.scheduler.framework.session import Session


class Shrink:
    abilities = frozenset((Ability.SHRINK,))

    def execute(self, session: Session) -> None:
        session.leave_note(Surplus(units_of=surplus_units))
        if not session.snapshot.waiting:
            return
        claims = claims_of(session)
        reason_of = always(SHRUNK)
        everything = Attempt(None, reason_of, lambda table: np.ones(len(table), dtype=bool))

        def attempts(claimant: Job) -> Iterable[Attempt]:
            if claims is None:
                return [everything]

            def own(table: UnitTable) -> np.ndarray:
                return table.of_queue(claimant.queue)

            surplus = claims.surplus_of(claimant.queue)
            return claim_attempts(claims, claimant, reason_of, own=own, given_back=surplus, is_last=False)

        offered = OfferedUnits(session, session.snapshot.running, surplus_units)
        contend(session, offered, attempts, lambda: not has_surplus(session.snapshot.running))
        take_together(session)
