"""preempt: within a queue, work with a higher priority displaces work with a lower one.

It ends: a victim must have a lower priority than its claimant (the priority plugin's rule, kept here whatever plugins
are chosen). So no victim, one pod or a whole gang, can ever displace the job that displaced it. A whole gang evicted
for a smaller one may leave its queue below its due, and so with a claim on others:
docs/decisions/005-how-victims-are-chosen.md says why reclaim and preempt end together.

Gangs come first. Then, if the policy says so, surplus takes surplus of lower priority (common/lower_surplus.py).
"""

from collections.abc import Sequence
from functools import partial

from maniple.model.job import Job
from maniple.model.resources import BoolArray
from maniple.scheduler.actions.common.contend import Attempt, contend
from maniple.scheduler.actions.common.lower_surplus import take_lower_surplus
from maniple.scheduler.actions.common.take_together import take_together
from maniple.scheduler.eviction.queue_claims import claims_of
from maniple.scheduler.eviction.surplus_claims import surplus_preempts
from maniple.scheduler.eviction.unit_table import OfferedUnits, UnitTable
from maniple.scheduler.eviction.units import evictable_jobs
from maniple.scheduler.eviction.victim_search import always
from maniple.scheduler.explain.tried import LowerPriority
from maniple.scheduler.framework.action import Ability
from maniple.scheduler.framework.hooks import VictimRule
from maniple.scheduler.framework.plan import PREEMPTED
from maniple.scheduler.framework.session import Session


class Preempt:
    abilities = frozenset((Ability.PREEMPT,))

    def execute(self, session: Session) -> None:
        rules = session.victim_rules("preemptable")
        self._preempt(session, rules)
        take_together(session)
        if rules and surplus_preempts(session):
            take_lower_surplus(session, rules)

    def _preempt(self, session: Session, rules: Sequence[VictimRule]) -> None:
        claims = claims_of(session)
        if rules and claims is not None:
            rules = [*rules, claims.preemptable]
        session.leave_note(LowerPriority(rules))
        if not rules or not session.snapshot.waiting:
            return
        lowest: dict[int, int] = {}  # queue -> the lowest priority that runs in it
        for job in evictable_jobs(session):
            if job.placed:
                lowest[job.queue] = min(job.priority, lowest.get(job.queue, job.priority))

        def may_claim(claimant: Job) -> bool:
            return claimant.may_preempt and lowest.get(claimant.queue, claimant.priority) < claimant.priority

        queues = {job.queue for job in session.waiting.one_of_each() if may_claim(job)}
        offered = OfferedUnits(session, (job for job in evictable_jobs(session) if job.queue in queues))
        units_below: dict[tuple[int, int], BoolArray] = {}

        def below(claimant: Job, table: UnitTable) -> BoolArray:
            queue, priority = kind = (claimant.queue, claimant.priority)
            if kind not in units_below:
                units_below[kind] = table.of_queue(queue, priority)
            return units_below[kind]

        def attempts(claimant: Job) -> Sequence[Attempt]:
            reason_of, units = always(PREEMPTED), partial(below, claimant)
            return [Attempt(None, reason_of, units, rules)] if may_claim(claimant) else ()

        contend(session, offered, attempts, lambda: not queues)
