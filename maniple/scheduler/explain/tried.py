"""What was tried for a gang that waits: the notes that actions left, in words.

An action notes what it looks at. The words are written when the cycle is over, from the state that the actions left: a
note costs nothing on the hot path, and its words are true of the plan. Nothing here knows an action by its name.

Examining each possible victim costs as much as evicting it. A large cluster does it for the first kinds of gangs only;
for the others the words are as true, and shorter.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf
from typing import ClassVar, NamedTuple

from maniple.model.job import Job, TaskGroup
from maniple.scheduler.eviction.units import Unit, UnitsOf, offered_units
from maniple.scheduler.eviction.victim_consent import allowed_units
from maniple.scheduler.explain.lenders import lenders, no_claim
from maniple.scheduler.explain.nearest_miss import find_miss
from maniple.scheduler.explain.running_pods import Holders
from maniple.scheduler.explain.words import describe_nearest, joined, listed, pods
from maniple.scheduler.framework.hooks import Reason, Victim, VictimRule
from maniple.scheduler.framework.plan import Nearest, Tried
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.statement import Statement
from maniple.scheduler.placement.placement_search import place_gang

# Guards of running pods, as said of several pods. The others are such words already.
_OF_SEVERAL = {
    "cooling down": "of jobs that cool down",
    "preemptable: false": "of jobs with preemptable: false",
    "minRuntimeSeconds": "younger than minRuntimeSeconds",
    "PodDisruptionBudget": "protected by a PodDisruptionBudget",
    "reclaimable: false": "of queues with reclaimable: false",
}


@dataclass(frozen=True, slots=True)
class Case:
    """One gang that waits, and what is known of it by now."""

    holders: Holders
    job: Job
    reason: Reason
    blocked: Reason | None  # by a limit or a share, as an action found out
    nearest: Nearest | None
    is_thorough: bool = False
    is_surplus: bool = False  # the gang runs, and pods above its minimum wait

    @property
    def session(self) -> Session:
        return self.holders.session

    def tried(self) -> tuple[Tried, ...]:
        notes = {action: notes.get(self.job.key) or notes.get(None) for action, notes in self.session.notes.items()}
        tried = (Tried(action, note.describe(self)) for action, note in notes.items() if note is not None)
        return tuple(entry for entry in tried if entry.why)

    def would_get_room(self, wanted: Mapping[TaskGroup, int]) -> bool:
        """Whether these pods would get room from pods that leave, if nothing but room were in their way.

        Some leave already; of others an action would take enough.
        """
        if self.job.is_best_effort or self.session.state(self.job).evicted:
            return False
        if self.session.anything_leaving and not find_miss(self.session, self.job, wanted, later=True).missing:
            return True
        notes = (notes.get(self.job.key) or notes.get(None) for notes in self.session.notes.values())
        return any(note is not None and note.frees_room(self, wanted) for note in notes)

    def may_look_at(self, pods_there: int) -> bool:
        """Whether so many more pods may be examined. Notes that they are."""
        if not self.is_thorough and pods_there > self.holders.left_to_look_at:
            return False
        self.holders.left_to_look_at -= pods_there
        return True

    def free_room(self) -> str:
        """What the free room lacks, or the limit or share of the queue."""
        return self.reason.message if self.blocked or self.nearest is None else describe_nearest(self.nearest)


class Note(ABC):
    """What an action looked at for gangs. Actions leave it with Session.leave_note."""

    @abstractmethod
    def describe(self, case: Case) -> str:
        """Why that did not help the gang; empty if the action is not for such gangs."""

    def frees_room(self, case: Case, wanted: Mapping[TaskGroup, int]) -> bool:
        """Whether all that may be taken would be room enough for these pods, some of which may not exist yet."""
        del case, wanted
        return False


# --- free room


class FreeRoom(Note):
    """Free room was handed out to gangs that ask for something."""

    def describe(self, case: Case) -> str:
        return "" if case.job.is_best_effort else case.free_room()


class FreeAndReservedRoom(Note):
    """Free room was handed out to gangs that ask for nothing, and to others what is reserved and not in use yet."""

    def describe(self, case: Case) -> str:
        session, job = case.session, case.job
        if job.is_best_effort:
            return case.free_room()
        others = [reservation for reservation in session.reservations.values() if reservation.job is not job]
        if case.is_surplus or not others or job.key in session.reservations:
            return ""
        now = session.snapshot.now
        lasts = max((group.lasts_s for group in job.groups), default=0.0)
        may_leave = job.preemptable and not any(group.stays for group in job.groups)
        names = listed(sorted(reservation.job.name for reservation in others))
        last_ready = max(reservation.ready for reservation in others)
        if now + lasts <= last_ready or (may_leave and now + job.min_runtime_s <= last_ready):
            return f"what is free of the room that is reserved for {names} is not enough for it"
        ends = "it does not say when it ends" if lasts == inf else "it ends too late"
        leaves = "runs for its minRuntimeSeconds at least" if may_leave else "may not be evicted"
        return f"it could delay {names}, for which room is reserved: {ends}, and {leaves}"


# --- room that others hold


class OwnPodsLeave(Note):
    """Nothing was looked at for a gang that loses pods itself."""

    def describe(self, case: Case) -> str:
        del case
        return "pods of its own leave in this cycle, so it takes nothing from others"


class Pool(NamedTuple):
    """Running jobs that an action may look at for a gang."""

    noun: str  # what their pods are, such as "of lower priority in queue 'q'"
    size: int  # how many pods they have; of surplus: how many jobs
    jobs: Iterable[Job]


@dataclass(frozen=True, slots=True, eq=False)
class Victims(Note):
    """Pods of other jobs were looked at, as far as all rules let them go."""

    rules: Sequence[VictimRule] = ()
    units_of: UnitsOf = offered_units
    is_surplus: ClassVar[bool] = False  # only pods above a minimum

    @abstractmethod
    def pool(self, case: Case) -> Pool | str:
        """What there is to look at; or why there is nothing."""

    def describe(self, case: Case) -> str:
        session, job = case.session, case.job
        if case.is_surplus or job.is_best_effort:
            return ""
        if case.nearest is None and case.blocked is not None:
            limit = session.admissible(session.queue_of(job), session.needed_resources(job))
            if limit is None:
                return "there is room without anybody leaving"
        pool = self.pool(case)
        if isinstance(pool, str):
            return pool
        if case.may_look_at(pool.size):
            return self._describe_taking(case, pool.noun, list(pool.jobs))
        noun = f"{pods(pool.size)} {pool.noun}"
        if self.is_surplus:
            noun = f"surplus of {pool.size:,} job{'s' * (pool.size > 1)}"
        return f"{noun}: taking what may be taken of that did not make room"

    def frees_room(self, case: Case, wanted: Mapping[TaskGroup, int]) -> bool:
        pool = self.pool(case)
        if isinstance(pool, str) or not case.may_look_at(pool.size):
            return False
        return make_room(case, wanted, self._allowed(case, list(pool.jobs)))

    def alternatives(self, case: Case) -> Sequence[Sequence[VictimRule]]:
        """The sets of rules that were tried one after the other."""
        del case
        return [self.rules]

    def _allowed(self, case: Case, jobs: Sequence[Job]) -> list[Unit]:
        """The most that may be taken of the jobs."""
        session, holders = case.session, case.holders
        able = [job for job in jobs if self.is_surplus or (job.preemptable and job.key not in holders.kept.shrunk)]
        units = holders.units(self.units_of, able)
        takings = [allowed_units(session, case.job, units, rules) for rules in self.alternatives(case)]
        return max(takings, key=lambda taking: sum(len(unit.pods) for unit in taking), default=[])

    def _describe_taking(self, case: Case, noun: str, jobs: Sequence[Job]) -> str:
        """What would come of taking all that may be taken."""
        holders, allowed = case.holders, self._allowed(case, jobs)
        taken = {pod.pod: pod for unit in allowed for pod in unit.pods}
        spent = holders.kept.spend(taken.values())
        candidates = [(job, pod) for job in jobs for pod in job.placed if pod.node >= 0]
        if self.is_surplus:
            candidates = [(job, pod) for job, pod in candidates if pod.pod in holders.kept.surplus(job)]
        count = pods(len(candidates))
        noun = f"{count} {noun}"
        if self.is_surplus:
            noun = f"surplus of {listed([*dict.fromkeys(job.name for job, _ in candidates)])} ({count})"
        kept: dict[str, list[float]] = {}  # why pods are kept -> for how long each
        for job, pod in candidates:
            if pod.pod not in taken:
                guard = holders.kept.why_kept(case.job, job, pod, spent, of_surplus=self.is_surplus)
                kept.setdefault(guard.what, []).append(guard.until)
        refused = joined([_describe_kept(what, untils) for what, untils in kept.items()])
        if not allowed:
            return f"{noun}, none of which may be taken: {refused}" if refused else noun
        owners = listed(sorted({unit.job.name for unit in allowed}))
        rest = f"; may not be taken: {refused}" if refused else ""
        return f"taking all that may be taken ({pods(len(taken))} of {owners}) {effect(case, allowed)}{rest}"


def _describe_kept(what: str, untils: Sequence[float]) -> str:
    """`2 of jobs that cool down (the first for 40 s more)`"""
    text = f"{len(untils)} {_OF_SEVERAL.get(what, what)}"
    return text if min(untils) == inf else f"{text} (the first for {min(untils):g} s more)"


def _evict(statement: Statement, session: Session, claimant: Job, units: Sequence[Unit]) -> None:
    """In thought, as long as the statement is not committed."""
    for unit in units:
        for pod in unit.pods:
            if pod.pod not in session.state(unit.job).evicted:
                statement.evict(unit.job, pod, "", claimant.name)


def make_room(case: Case, wanted: Mapping[TaskGroup, int], units: Sequence[Unit]) -> bool:
    """Whether these pods, some of which may not exist yet, would have room if the units left."""
    session, job = case.session, case.job
    exists = all(session.state(job).left(group) >= count for group, count in wanted.items())
    with Statement(session) as statement:
        _evict(statement, session, job, units)
        if not exists:
            return not find_miss(session, job, wanted, later=True).missing
        with Statement(session) as gang:
            return place_gang(session, gang, job, later=True)


MAKES_ROOM = "would make room by the end of this cycle: it is tried again in the next one"
NOT_TOGETHER = "would make room, but no part of it that is enough may go together"


def effect(case: Case, units: Sequence[Unit]) -> str:
    """What the gang would have if these units left."""
    session, job = case.session, case.job
    with Statement(session) as statement:
        _evict(statement, session, job, units)
        before = session.state(job).allocated.copy()
        with Statement(session) as gang:
            if place_gang(session, gang, job, later=True):
                if refusal := session.refusal(job, "job_pipelined"):
                    return f"would make room, but {refusal}"
                more = session.state(job).allocated - before
                limit = session.may_start(session.queue_of(job), job, more, is_charged=True)
                if limit is not None:
                    return f"would make room, but {limit.message}"
                # If nothing happened in this cycle, the next one finds what this one has found.
                return MAKES_ROOM if session.placed or session.anything_leaving or session.resized else NOT_TOGETHER
        needed = session.job_need(job).total
        wanted = {group: min(needed, session.state(job).left(group)) for group in job.groups}
        miss = find_miss(session, job, wanted, later=True)
    where = f" in one {miss.level}" if miss.level else ""
    if miss.missing and miss.wanted > 1 and len(wanted) == 1:
        return f"would make room for {miss.fits} of {pods(miss.wanted)} only{where}"
    return f"would still not make room{' for all of it at once' * (miss.wanted > 1)}{where}"


class LowerPriority(Victims):
    """Pods of jobs with a lower priority in the gang's queue."""

    def pool(self, case: Case) -> Pool | str:
        queue = case.session.queue_of(case.job).name
        if not self.rules:
            return "no plugin of the policy says what may be preempted"
        jobs, count = case.holders.lower(case.job)
        if not jobs:
            return f"nothing of lower priority runs in queue {queue!r}"
        if all(map(case.holders.is_leaving, jobs)):
            return f"all of lower priority that runs in queue {queue!r} is leaving already"
        if not case.job.may_preempt:
            return "its PriorityClass says preemptionPolicy: Never"
        return Pool(f"of lower priority in queue {queue!r}", count, jobs)


class AboveShare(Victims):
    """Pods of other queues, for a queue that has a claim on them."""

    def pool(self, case: Case) -> Pool | str:
        session, holders = case.session, case.holders
        if not self.rules:
            return "no plugin of the policy says what may be reclaimed"
        if holders.kept.claims is None:
            return "no plugin of the policy says what queues deserve"
        others = set(holders.by_queue) - {case.job.queue}
        if not others:
            return "no other queue holds anything"
        queues = no_claim(holders, case.job) or lenders(holders, case.job, others)
        if isinstance(queues, str):
            return queues
        names = listed([repr(session.snapshot.queues[queue].name) for queue in queues])
        noun = f"of queue{'s' * (len(queues) > 1)} {names}"
        if all(map(holders.kept.is_above_share, queues)):
            noun += f", which hold{'s' * (len(queues) == 1)} more than deserved"
        jobs = chain.from_iterable(holders.by_queue[queue] for queue in queues)
        return Pool(noun, sum(holders.pods_by_queue[queue] for queue in queues), jobs)

    def alternatives(self, case: Case) -> Sequence[Sequence[VictimRule]]:
        claims = case.holders.kept.claims
        possible = [] if claims is None else [claims.rule(claim) for claim in claims.possible(case.job, is_last=True)]
        return [[*self.rules, rule] for rule in possible]


class Surplus(Victims):
    """Pods above the minimum of their job: of the gang's queue, and of queues on which its own has a claim."""

    is_surplus = True

    def pool(self, case: Case) -> Pool | str:
        by_queue, claims = case.holders.with_surplus, case.holders.kept.claims
        if not by_queue:
            is_gone = bool(case.holders.kept.shrunk)
            return "all surplus has been taken for others already" if is_gone else "no job has surplus"
        if case.job.queue not in by_queue and claims is not None:
            why = no_claim(case.holders, case.job) or lenders(case.holders, case.job, set(by_queue))
            if isinstance(why, str):
                return f"only other queues have surplus, and {why}"
        return Pool("surplus", sum(map(len, by_queue.values())), chain(*by_queue.values()))

    def alternatives(self, case: Case) -> Sequence[Sequence[VictimRule]]:
        def own(claimant: Job, candidates: Sequence[Victim]) -> list[Victim]:
            return [victim for victim in candidates if victim.job.queue == claimant.queue]

        claims = case.holders.kept.claims
        if claims is None:
            return [()]
        possible = claims.possible(case.job, claims.surplus_of(case.job.queue))
        return [[own], *([claims.rule(claim)] for claim in possible)]
