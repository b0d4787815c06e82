"""The last attempt for a gang that neither shrink nor reclaim nor preempt could help: what all of them may take.

The last of these actions in the policy makes it. Each victim leaves as it would for its own action, with the same
reason: surplus is shrunk, lower priorities of the gang's queue are preempted, the rest is reclaimed. Surplus goes
first. A queue that borrows by its surplus may thus claim its guarantee.

It ends as claims do (docs/decisions/005-how-victims-are-chosen.md): beside what it claims, a gang takes less of lower
priority than it needs itself.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial

import numpy as np

from maniple.model.job import Job, PlacedPod
from maniple.model.pod_identity import JobKey
from maniple.model.resources import BoolArray, IntArray
from maniple.scheduler.actions.common.claim_attempts import claim_attempts
from maniple.scheduler.actions.common.contend import Attempt, contend
from maniple.scheduler.eviction.queue_claims import QueueClaims, claims_of
from maniple.scheduler.eviction.surplus_units import surplus_units
from maniple.scheduler.eviction.unit_table import OfferedUnits, UnitTable
from maniple.scheduler.eviction.units import Unit, evictable_jobs, offered_units, surplus_steps
from maniple.scheduler.explain.tried_together import TriedTogether
from maniple.scheduler.framework.action import Ability, is_last_with
from maniple.scheduler.framework.due_rules import EPSILON, Due
from maniple.scheduler.framework.hooks import Victim, VictimRule
from maniple.scheduler.framework.plan import PREEMPTED, RECLAIMED, SHRUNK
from maniple.scheduler.framework.session import Session

_TAKING = frozenset((Ability.SHRINK, Ability.RECLAIM, Ability.PREEMPT))


def take_together(session: Session) -> None:
    if not session.snapshot.waiting or not is_last_with(session, _TAKING):
        return
    due, claims = session.due, claims_of(session)
    if due is None or claims is None:
        return
    together = Together(session, due, claims)
    if together.is_useful:
        contend(session, together.offered, together.attempts)
        alone = session.notes.get(session.action, {}).get(None)
        session.leave_note(TriedTogether(alone, together))


class Together:
    """What the actions of the policy may take, as one."""

    def __init__(self, session: Session, due: Due, claims: QueueClaims) -> None:
        self._session = session
        self._due = due
        self._shrinks = session.has_action(Ability.SHRINK)
        self._may_reclaim = session.victim_rules("reclaimable") if session.has_action(Ability.RECLAIM) else []
        self._may_preempt = session.victim_rules("preemptable") if session.has_action(Ability.PREEMPT) else []
        self.claims = claims
        if self._may_preempt:
            self._may_preempt = [*self._may_preempt, self.claims.preemptable]
        self.offered = _Offered(session, session.snapshot.running, self.units_of)

    @property
    def is_useful(self) -> bool:
        """Whether the policy has two ways of taking, and one of them could add something for a gang still blocked."""
        if sum(map(bool, (self._shrinks, self._may_reclaim, self._may_preempt))) < 2:
            return False
        session = self._session
        highest: dict[int, int] = {}  # queue -> the highest priority of such a gang
        for job in session.waiting.one_of_each():
            if job.exists and not session.is_promised(job) and not session.job_ready(job):
                highest[job.queue] = max(job.priority, highest.get(job.queue, job.priority))
        return bool(highest) and (
            self._has_firm_surplus or any(self._gives(queue, priority) for queue, priority in highest.items())
        )

    def _gives(self, queue: int, highest: int) -> bool:
        """Whether the queue itself may have something to give to a gang of that priority."""
        if self._shrinks and self.claims.surplus_of(queue).any():
            return True
        return bool(self._may_preempt) and self.claims.priorities.has_lower_than(highest, queue)

    @cached_property
    def _has_firm_surplus(self) -> bool:
        """Whether there is surplus that only shrink may take."""
        firm = (job for job in self._session.snapshot.running if self._shrinks and not job.preemptable)
        return any(True for job in firm for _ in surplus_steps(self._session, job))

    # -- units

    @cached_property
    def _evictable(self) -> frozenset[JobKey]:
        return frozenset(job.key for job in evictable_jobs(self._session))

    def units_of(self, session: Session, job: Job) -> Iterator[Unit]:
        """Surplus goes before all else, and its grade never makes a set of victims dearer."""
        if self._shrinks:
            for unit in surplus_units(session, job):
                yield replace(unit, cost=(False, *unit.cost), grade=-np.inf)
        if (self._may_reclaim or self._may_preempt) and job.key in self._evictable:
            for unit in offered_units(session, job):
                yield replace(unit, cost=(True, *unit.cost))

    # -- attempts

    def attempts(self, claimant: Job) -> Iterable[Attempt]:
        given_back = self.claims.given_back(claimant, shrinks=self._shrinks, preempts=bool(self._may_preempt))
        if not given_back.any() and not self._has_firm_surplus:
            return ()
        rules: list[VictimRule] = [
            *(partial(self._ask, rule, True) for rule in self._may_preempt),
            *(partial(self._ask, rule, False) for rule in self._may_reclaim),
            self._less_than_needed,
        ]
        return claim_attempts(
            self.claims,
            claimant,
            self.reasons,
            rules,
            own=partial(self._own, claimant),
            others=partial(self._others, claimant),
            given_back=given_back,
            only_for_room=partial(self._lower, claimant),
        )

    def _own(self, claimant: Job, table: UnitTable) -> BoolArray:
        mine = table.of_queue(claimant.queue)
        return np.asarray((mine & self.offered.is_surplus) | self._lower(claimant, table))

    def _lower(self, claimant: Job, table: UnitTable) -> BoolArray:
        if not self._may_preempt or not claimant.may_preempt:
            return np.zeros(len(table), dtype=bool)
        lower = table.of_queue(claimant.queue, claimant.priority)
        return np.asarray(lower & ~self.offered.is_surplus)

    def _others(self, claimant: Job, table: UnitTable) -> BoolArray:
        others = np.asarray(~table.of_queue(claimant.queue))
        return others if self._may_reclaim else np.asarray(others & self.offered.is_surplus)

    # -- rules and reasons

    def reasons(self, claimant: Job, units: Sequence[Unit]) -> list[str]:
        going = {unit.job.key for unit in units if not self._is_surplus(unit)}
        taken = {True: PREEMPTED, False: RECLAIMED}
        return [taken[unit.job.queue == claimant.queue] if unit.job.key in going else SHRUNK for unit in units]

    @staticmethod
    def _is_surplus(unit: Unit) -> bool:
        return not unit.cost[0]

    def _ask(self, rule: VictimRule, of_own: bool, claimant: Job, candidates: Sequence[Victim]) -> list[Victim]:
        """Asks a plugin about what would be preempted (`of_own`) or reclaimed. All others may go."""
        going = self._going(candidates)
        asked = [v for v in candidates if v.job.key in going and (v.job.queue == claimant.queue) == of_own]
        refused = set(asked).difference(rule(claimant, asked) if asked else ())
        return [victim for victim in candidates if victim not in refused]

    def _less_than_needed(self, claimant: Job, candidates: Sequence[Victim]) -> list[Victim]:
        """What is of lower priority holds less than the gang needs: its queues then have more than before."""
        if all(victim.job.queue == claimant.queue for victim in candidates):
            return list(candidates)  # nothing is claimed: that is preempting and shrinking
        need, path = self.claims.need(claimant), self._session.queue_paths[claimant.queue]
        counted = (self._due.scarce[path] | (self._due.guaranteed[path] > 0)).any(axis=0)
        most = np.where(counted & (need > 0), need - EPSILON, np.where(counted, 0.0, np.inf))
        going, taken, allowed = self._going(candidates), np.zeros_like(need), list[Victim]()
        for victim in candidates:
            if victim.job.queue == claimant.queue and victim.job.key in going:
                more = taken + self._due.accounting.of_pod(victim.pod)
                if (more > most).any():
                    continue
                taken = more
            allowed.append(victim)
        return allowed

    def _going(self, candidates: Sequence[Victim]) -> set[JobKey]:
        """The jobs that lose more than surplus."""
        return {victim.job.key for victim in candidates if victim.pod not in self.offered.surplus}


class _Offered(OfferedUnits):
    """A job of which surplus was shrunk keeps its minimum for the rest of the cycle. One that lost more keeps its rest:
    what was surplus may be its minimum now.
    """

    @cached_property
    def is_surplus(self) -> BoolArray:
        return np.array([not unit.cost[0] for unit in self.table.units], dtype=bool)

    @cached_property
    def surplus(self) -> frozenset[PlacedPod]:
        units = self.table.units
        return frozenset(
            pod for unit, surplus in zip(units, self.is_surplus, strict=True) if surplus for pod in unit.pods
        )

    def take(self, units: IntArray) -> None:
        super().take(units)
        going = self.table.job_of[units[~self.is_surplus[units]]]
        shrunk = np.setdiff1d(self.table.job_of[units], going)
        self.left[np.isin(self.table.job_of, shrunk) & ~self.is_surplus] = False
        self.left[np.isin(self.table.job_of, going)] = False
