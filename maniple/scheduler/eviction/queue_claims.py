"""What a queue may take from other queues: claims, tried in this order for each gang that waits.

STRICT: the gang's queues stay within their dues, and every queue that loses pods keeps its due.
FAIRER: the outcome is strictly fairer. The measure of a level (the children of one queue, or the roots) is the sorted
list of min(1, held / due) over queues and scarce resources; the list whose first difference is higher is fairer. A
queue may fall below its due, and a gang may carry its queue above it.
GUARANTEED: a queue stays within its guarantee with the gang. Others then lose what is outside their own guarantees,
whatever they deserve and whether or not anything is scarce.

The first two claims leave alone what would come back by preempting more than it gives, and make its queue poorer.

Claimant and victim meet in their lowest common queue, or in the cluster. All rules look at the queues below that. What
is inside a guarantee is never taken (guaranteed_parts.py), nor pods of a queue with `reclaimable: false`. Plugins may
allow less than these rules, never more. docs/decisions/005-how-victims-are-chosen.md says why claims end.
"""

from bisect import insort
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from maniple.model.job import Job
from maniple.model.pod_identity import JobKey
from maniple.model.resources import BoolArray, FloatArray, IntArray
from maniple.scheduler.eviction.claim_outcome import GUARANTEES, Claim, Outcome, are_fairer, parts_of_due
from maniple.scheduler.eviction.guaranteed_parts import GuaranteedParts
from maniple.scheduler.eviction.unit_table import UnitTable
from maniple.scheduler.eviction.units import may_go_whole
from maniple.scheduler.framework.action import Ability
from maniple.scheduler.framework.due_rules import EPSILON, Due, Standing, standing_with
from maniple.scheduler.framework.hooks import Victim, VictimRule
from maniple.scheduler.framework.session import Session
from maniple.scheduler.reservation.reservation_book import Reservation

_NONE = -1


class QueueClaims:
    """The claims in a session as it stood when `claims_of` was called: what is inside guarantees is found once."""

    def __init__(self, session: Session, due: Due) -> None:
        self._session = session
        self._due = due
        self.parts = GuaranteedParts(session, due)
        self._meetings: dict[tuple[int, int], tuple[int, list[int]]] = {}
        self._kinds_of: tuple[UnitTable, _Kinds] | None = None
        self._running: dict[int, list[Job]] = {}  # queue -> see _by_priority
        self._seen: int | None = None  # how much of session.placed is in it

    # -- which claims a gang has

    def possible(self, claimant: Job) -> Iterator[Claim]:
        """Yields the claims that its queues may have, if all that their own branches lend to others comes back."""
        due, path = self._due, self._session.queue_paths[claimant.queue]
        need = self.need(claimant)
        held = due.accounting.queue_held
        stands = standing_with(due, path[0], held[path[0]] + need, need)
        if stands != Standing.BORROWING:
            yield Claim.STRICT
        if self._is_below_due(path[0], held[path[0]], need) is not False and any(
            self._is_below_due(queue, held[queue], need) for queue in path
        ):
            yield Claim.FAIRER
        if stands == Standing.GUARANTEED or any(
            standing_with(due, queue, need, need) == Standing.GUARANTEED for queue in path[1:]
        ):
            yield Claim.GUARANTEED
        if stands == Standing.GUARANTEED and len(path) > 1:
            yield Claim.GUARANTEED_BELOW

    def _is_below_due(self, queue: int, held: FloatArray, need: FloatArray) -> bool | None:
        """Whether the queue holds less than its due of something scarce that is needed; None: nothing is scarce."""
        counted = self._due.scarce[queue] & (need > 0)
        return bool((held < self._due.deserved[queue] - EPSILON)[counted].any()) if counted.any() else None

    # -- which victims a claim allows

    def rule(self, claim: Claim) -> VictimRule:
        return partial(self.allowed, claim)

    def allowed(self, claim: Claim, claimant: Job, candidates: Sequence[Victim]) -> list[Victim]:
        """Candidates that may be evicted for the claimant, each given the ones before it that are nearer or as near.

        Nearer ones come first: what they give back is no longer held by the queues in which they meet the claimant.
        """
        return self._taken(Outcome(self, self._session, self._due, claim, claimant), candidates)

    def displaceable(self, claimant: Job, candidates: Sequence[Victim]) -> list[Victim]:
        outcome = Outcome(self, self._session, self._due, Claim.STRICT, claimant, of_guests=True)
        return self._taken(outcome, candidates)

    def _taken(self, outcome: Outcome, candidates: Sequence[Victim]) -> list[Victim]:
        claimant = outcome.claimant.queue
        nearest_first = candidates
        if len(self._session.queue_paths[claimant]) > 1:
            nearest_first = sorted(candidates, key=lambda victim: self.meeting(claimant, victim.job.queue)[0])
        if not self.parts.is_empty and len(self._session.queue_paths[claimant]) > 1:
            outcome.without_candidates = self._due.accounting.queue_held.copy()
            for victim in candidates:
                path = self._session.queue_paths[victim.job.queue]
                outcome.without_candidates[path] -= self._due.accounting.of_pod(victim.pod)
        staying = set() if outcome.claim in GUARANTEES else self._would_come_back(candidates)
        chosen = {victim for victim in nearest_first if victim.job.key not in staying and outcome.take(victim)}
        return [victim for victim in candidates if victim in chosen]

    def _would_come_back(self, candidates: Sequence[Victim]) -> set[JobKey]:
        """Jobs that would go whole, and next preempt larger ones of their queue, so that it holds less than its due.

        Such a queue would then have a claim for what it lost, and it would go on for ever.
        """
        session = self._session
        if not session.has_action(Ability.PREEMPT) or not any(self._has_lower(job) for job in _jobs_of(candidates)):
            return set()
        pods = Counter(victim.job.key for victim in candidates)
        going = {
            victim.job.key: victim.job
            for victim in candidates
            if pods[victim.job.key] >= session.state(victim.job).placed_count
        }
        left: dict[int, FloatArray] = {}  # queue -> what it holds without the candidates
        for victim in candidates if going else ():
            held = left.get(victim.job.queue, self._due.accounting.queue_held[victim.job.queue])
            left[victim.job.queue] = held - self._due.accounting.of_pod(victim.pod)
        return {key for key, job in going.items() if self._displaces_larger(job, going, left[job.queue])}

    def _has_lower(self, job: Job) -> bool:
        """Whether anything of lower priority holds something in its queue."""
        lowest = next(iter(self._by_priority(job.queue)), job)
        return lowest.priority < job.priority

    def _displaces_larger(self, job: Job, going: Container[JobKey], left: FloatArray) -> bool:
        """Whether a job of lower priority stays without which its queue, with the job again, has less than its due."""
        scarce, deserved = self._due.scarce[job.queue], self._due.deserved[job.queue]
        own = self._held(job)
        for other in self._by_priority(job.queue):
            if other.priority >= job.priority:
                return False
            lost = self._held(other) - own
            if other.key not in going and (scarce & (lost > EPSILON) & (left - lost < deserved - EPSILON)).any():
                return True
        return False

    def _held(self, job: Job) -> FloatArray:
        held = self._due.accounting.job_held(job)
        return np.zeros(len(self._session.snapshot.axis)) if held is None else held

    def _by_priority(self, queue: int) -> list[Job]:
        """The jobs of the queue that hold something and that preempt may evict whole, the lowest priority first."""
        session = self._session
        if self._seen is None:
            self._seen = 0
            for job in sorted(session.snapshot.jobs, key=_priority):
                if job.placed and may_go_whole(session, job):
                    self._running.setdefault(job.queue, []).append(job)
        fresh = {done.job.key: done.job for done in session.placed[self._seen :]}
        self._seen = len(session.placed)
        for job in fresh.values():
            if not job.placed and may_go_whole(session, job):
                insort(self._running.setdefault(job.queue, []), job, key=_priority)
        return self._running.get(queue, [])

    def offered(self, claim: Claim, claimant: Job, table: UnitTable) -> BoolArray:
        """[units] those that the claim might allow if they went alone. Others are not worth a search."""
        kinds = self._kinds(table)
        wanted = self._offered_kinds(claim, claimant, kinds.queues, kinds.amounts)
        return np.asarray(wanted[kinds.of_unit] & ~self._inside(claimant.queue, table))

    def _offered_kinds(self, claim: Claim, claimant: Job, queues: IntArray, amounts: FloatArray) -> BoolArray:
        due = self._due
        tops = np.full(len(due.scarce), _NONE, dtype=np.intp)  # queue -> the one below the meeting queue
        for queue in np.unique(queues).tolist():
            below = self.meeting(claimant.queue, queue)[1]
            if below and self.are_reclaimable(below):
                tops[queue] = below[-1]
        top = tops[queues]
        held = due.accounting.queue_held
        if claim == Claim.STRICT:
            touched = due.scarce[queues] & (amounts > 0)
            is_short = touched & (held[queues] - amounts < due.deserved[queues] - EPSILON)
            return np.asarray((top != _NONE) & ~is_short.any(axis=1))
        if claim in GUARANTEES:
            return np.asarray(top != _NONE)
        need = self.need(claimant)
        fairer = np.zeros(len(queues), dtype=bool)
        path = self._session.queue_paths[claimant.queue]
        levels = np.array([self.meeting(claimant.queue, queue)[0] for queue in queues.tolist()], dtype=np.intp)
        for level in np.unique(levels[top != _NONE]).tolist():
            here, own = np.flatnonzero((levels == level) & (top != _NONE)), path[level - 1]
            before = [parts_of_due(due, held[[own]], own), parts_of_due(due, held[top[here]], top[here])]
            after = [
                parts_of_due(due, held[[own]] + need, own),
                parts_of_due(due, held[top[here]] - amounts[here], top[here]),
            ]
            fairer[here] = are_fairer(*(np.hstack([np.repeat(c, len(here), axis=0), w]) for c, w in (before, after)))
        return fairer

    def are_reclaimable(self, queues: Sequence[int]) -> bool:
        return all(self._session.snapshot.queues[queue].reclaimable for queue in queues)

    def may_claim(self, claim: Claim, claimant: Job, level: int) -> bool:
        """Whether its queues below the meeting queue at that level have the claim, with all that they hold now."""
        return Outcome(self, self._session, self._due, claim, claimant).may_claim_at(level)

    def _kinds(self, table: UnitTable) -> "_Kinds":
        """The units by queue and by what they hold. Equal pods share the array of what they hold."""
        if self._kinds_of is None or self._kinds_of[0] is not table:
            numbers: dict[tuple[object, ...], int] = {}
            queues: list[int] = []
            amounts: list[FloatArray] = []
            of_unit: list[int] = []
            for unit in table.units:
                held = [self._due.accounting.of_pod(pod) for pod in unit.pods]
                key = (unit.job.queue, *sorted(map(id, held))) if len(held) > 1 else (unit.job.queue, id(held[0]))
                number = numbers.setdefault(key, len(numbers))
                of_unit.append(number)
                if number == len(amounts):
                    queues.append(unit.job.queue)
                    amounts.append(np.sum(held, axis=0) if len(held) > 1 else held[0])
            shape = (len(amounts), len(self._session.snapshot.axis))
            kinds = _Kinds(
                np.array(queues, dtype=np.intp), np.array(amounts).reshape(shape), np.array(of_unit, np.intp)
            )
            self._kinds_of = table, kinds
        return self._kinds_of[1]

    def _inside(self, claimant: int, table: UnitTable) -> BoolArray:
        """[units] those with a pod that is inside a guarantee, as seen from the claimant's queue."""
        if self.parts.is_empty:
            return np.zeros(len(table), dtype=bool)
        tops = {job.queue: self.meeting(claimant, job.queue)[1][-1:] for job in table.jobs}
        inside = {queue: self.parts.inside(top[0]) if top else frozenset() for queue, top in tops.items()}
        return np.array([not inside[unit.job.queue].isdisjoint(unit.pods) for unit in table.units], dtype=bool)

    def reservations_below(self, claim: Claim) -> list[Reservation]:
        """The reservations that give way to such a claim: for gangs that no guarantee covers."""
        if claim not in GUARANTEES:
            return []
        held = self._due.accounting.queue_held
        giving_way = []
        for reservation in self._session.reservations.values():
            need, queue = self.need(reservation.job), reservation.job.queue
            if standing_with(self._due, queue, held[queue] + need, need) != Standing.GUARANTEED:
                giving_way.append(reservation)
        return giving_way

    def distance(self, claimant: Job, table: UnitTable) -> IntArray | None:
        """[units] how many queues the claimant is below the one in which it meets each; None: the same for all."""
        if len(self._session.queue_paths[claimant.queue]) == 1:
            return None
        levels = [self.meeting(claimant.queue, job.queue)[0] for job in table.jobs]
        return np.array(levels, dtype=np.intp)[table.job_of]

    def meeting(self, claimant: int, victim: int) -> tuple[int, list[int]]:
        """How many of the claimant's queues are below the one in which the two meet, and which of the victim's are."""
        key = (claimant, victim)
        if key not in self._meetings:
            mine, theirs = self._session.queue_paths[claimant], self._session.queue_paths[victim]
            below = [queue for queue in theirs if queue not in mine]
            shared = len(theirs) - len(below)
            self._meetings[key] = len(mine) - shared, below
        return self._meetings[key]

    def need(self, claimant: Job) -> FloatArray:
        return self._due.accounting.asked(self._session.needed_resources(claimant))


def claims_of(session: Session) -> QueueClaims | None:
    """The claims as the session stands now. Each action asks when it starts. None: nobody says what queues deserve.

    They are made once for as long as running jobs stay as they are (Statement.commit).
    """
    if session.queue_claims is None and session.due is not None:
        session.queue_claims = QueueClaims(session, session.due)
    return session.queue_claims


def displaceable(session: Session, claimant: Job, candidates: Sequence[Victim]) -> list[Victim]:
    """Candidates that run in the reservation of `claimant` and may be displaced, each given the ones before.

    They started there on the condition that they leave. Yet a claimant above its due must not bring another queue below
    its due, and nothing takes what is inside a guarantee.
    """
    claims = claims_of(session)
    return list(candidates) if claims is None else claims.displaceable(claimant, candidates)


def _jobs_of(victims: Sequence[Victim]) -> Iterator[Job]:
    """The jobs of the victims. Pods of one job stand together."""
    last = None
    for victim in victims:
        if victim.job is not last:
            last = victim.job
            yield last


def _priority(job: Job) -> int:
    return job.priority


class _Kinds(NamedTuple):
    queues: IntArray  # [kinds]
    amounts: FloatArray  # [kinds, R]
    of_unit: IntArray
