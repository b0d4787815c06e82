"""Surplus takes surplus of lower priority in its queue, if the policy says so.

A job that has started is nominated for the room at once, like a gang. Nobody's minimum is touched, nor what has the
same priority, nor what other queues hold. A job takes as much as there is for it before the next one has its turn.

It ends: a claim takes surplus of strictly lower priority than the surplus that it gives. List what the surplus of a
queue holds by priority, the highest first: each claim makes the first amount that changes larger. The loser gets its
surplus back only from free room. docs/decisions/005-how-victims-are-chosen.md has the whole argument.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from maniple.model.job import Job, Queue, TaskGroup
from maniple.model.pod_identity import JobKey
from maniple.model.resources import BoolArray, IntArray
from maniple.scheduler.actions.common.in_line import check_valid
from maniple.scheduler.actions.common.job_queue import JobQueue
from maniple.scheduler.eviction.surplus_claims import claim_of, step_of, take_most, why_no_claim
from maniple.scheduler.eviction.surplus_units import surplus_units
from maniple.scheduler.eviction.unit_table import OfferedUnits
from maniple.scheduler.eviction.units import Unit
from maniple.scheduler.eviction.victim_search import RoomMaker, Terms, always
from maniple.scheduler.explain.tried import OwnPodsLeave
from maniple.scheduler.explain.tried_for_surplus import LowerSurplus
from maniple.scheduler.framework.hooks import VictimRule
from maniple.scheduler.framework.plan import SHRUNK
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.statement import Statement
from maniple.scheduler.placement.placement_search import place_gang


def lower_surplus(session: Session, job: Job) -> Iterator[Unit]:
    """Yields what the job holds above its minimum: of several jobs, the lowest priority goes first."""
    for unit in surplus_units(session, job):
        yield replace(unit, grade=job.priority, cost=(job.priority, *unit.cost))


class SurplusMaker:
    """Makes room for claims of surplus."""

    def __init__(self, session: Session, rules: Sequence[VictimRule]) -> None:
        self._session = session
        self._rules = rules
        self._offered = OfferedUnits(session, session.snapshot.running, lower_surplus)

    def take(self, queue: Queue, job: Job, group: TaskGroup, count: int) -> bool:
        """Evicts surplus of lower priority, and nominates `count` pods for its room; False if that is not enough."""
        claim = claim_of(self._session, job, [group], count)
        units = self._below(claim)
        is_any_left = (units & self._offered.left).any()
        victims = self._maker(units).make_room(queue, claim, self._offered.left) if is_any_left else None
        if victims is None:
            return False
        self._offered.take(victims)
        self._offered.withdraw(claim)  # it keeps what it has
        return True

    def suppose_room(self, queue: Queue, claim: Job, keeping: Container[JobKey]) -> "SupposedRoom | None":
        """The same as a supposition that can be undone, for pods that do not exist yet. `keeping` lose nothing."""
        units = self._below(claim) & self._offered.table.of_jobs(lambda job: job.key not in keeping)
        is_any_left = (units & self._offered.left).any()
        victims = self._maker(units).find_room(queue, claim, self._offered.left) if is_any_left else None
        if victims is None:
            return None
        losers = [self._offered.table.units[unit] for unit in victims.tolist()]
        changes, coming = Statement(self._session), Statement(self._session)
        for unit in losers:
            for pod in unit.pods:
                changes.evict(unit.job, pod, SHRUNK, claim.name)
        if not place_gang(self._session, coming, claim, later=True):
            changes.rollback()
            return None
        changes.absorb(coming)
        self._offered.left[victims] = False
        return SupposedRoom(changes, frozenset(unit.job.key for unit in losers), victims, self._offered)

    def _below(self, claim: Job) -> BoolArray:
        """[units] of lower priority in the claim's queue."""
        return self._offered.table.of_queue(claim.queue, claim.priority)

    def _maker(self, units: BoolArray) -> RoomMaker:
        return RoomMaker(self._session, self._offered.table, units, Terms(always(SHRUNK), self._rules))


@dataclass(frozen=True, slots=True, eq=False)
class SupposedRoom:
    """Room that surplus of these jobs would leave, with pods in it that do not exist yet."""

    changes: Statement
    losers: frozenset[JobKey]
    units: IntArray
    offered: OfferedUnits

    def nodes(self) -> set[int]:
        return self.changes.nodes()

    def rollback(self) -> None:
        self.changes.rollback()
        self.offered.left[self.units] = True


def take_lower_surplus(session: Session, rules: Sequence[VictimRule]) -> None:
    """Makes room for pods above their jobs' minimums, the highest priority of a queue first."""
    maker = SurplusMaker(session, rules)
    started = (job for job in session.snapshot.waiting if job.groups and not job.is_best_effort)
    jobs = JobQueue(session, (job for job in started if check_valid(session, job) and session.job_ready(job)))
    while (turn := jobs.next()) is not None:
        queue, job = turn
        if session.state(job).evicted:
            session.leave_note(OwnPodsLeave(), job.key)
            continue
        session.leave_note(LowerSurplus(rules, lower_surplus), job.key)
        if not why_no_claim(session, job):
            for group in session.groups(job):
                take_most(session.state(job).left(group), step_of(job, group), partial(maker.take, queue, job, group))
