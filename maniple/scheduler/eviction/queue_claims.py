"""What a queue may take from other queues: claims, tried in this order for each gang that waits.

STRICT: the gang's queues stay within their dues, and every queue that loses pods keeps its due.
FAIRER: the outcome is strictly fairer. The measure of a level (the children of one queue, or the roots) is the sorted
list of min(1, held / due) over queues and scarce resources; the list whose first difference is higher is fairer. A
queue may fall below its due, and a gang may carry its queue above it.
GUARANTEED: a queue stays within its guarantee with the gang. Others then lose what leaves them as much inside their own
guarantees, whatever they deserve and whether or not anything is scarce. As a last resort it is enough that they hold
all that they are guaranteed.

The first two claims leave alone what would come back by preempting more than it gives, and make its queue poorer.

Claimant and victim meet in their lowest common queue, or in the cluster. All rules look at the queues below that. No
claim makes less what a queue holds inside its guarantee (guaranteed_parts.py), nor takes pods of a queue with
`reclaimable: false`. Plugins may allow less than these rules, never more.
docs/decisions/005-how-victims-are-chosen.md says why claims end.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property, partial

import numpy as np

from maniple.model.job import Job, PlacedPod
from maniple.model.pod_identity import JobKey
from maniple.model.resources import BoolArray, FloatArray, IntArray
from maniple.scheduler.eviction.claim_outcome import (
    GUARANTEES,
    Claim,
    DueLists,
    Outcome,
    are_fairer,
    parts_of_due,
)
from maniple.scheduler.eviction.entitlement import Entitlement, Kinds
from maniple.scheduler.eviction.guaranteed_parts import GuaranteedParts
from maniple.scheduler.eviction.running_by_priority import RunningByPriority, jobs_of
from maniple.scheduler.eviction.unit_table import UnitTable
from maniple.scheduler.eviction.units import surplus_steps
from maniple.scheduler.framework.due_rules import EPSILON, Due, Standing, standing_with
from maniple.scheduler.framework.hooks import Victim, VictimRule
from maniple.scheduler.framework.session import Session
from maniple.scheduler.reservation.reservation_book import Reservation

_NONE = -1
_MOST_STAND_INS = 8  # jobs that are tried as those that stay


class QueueClaims:
    """The claims in a session as it stood when `claims_of` was called: what is inside guarantees is found once."""

    def __init__(self, session: Session, due: Due, before: "QueueClaims | None" = None) -> None:
        """`before`: the claims until running jobs changed."""
        self._session = session
        self._due = due
        self.is_outdated = False  # a statement that changes running jobs says so
        self.parts: GuaranteedParts = GuaranteedParts(
            session, due, frozenset() if before is None else before.parts.less_inside
        )
        self.priorities = RunningByPriority(session, due)
        self._meetings: dict[tuple[int, int], tuple[int, list[int]]] = {}
        self._reclaimable: dict[tuple[int, int], bool] = {}  # (queue, how many of its path)
        self._meetings_by_claimant: dict[int, tuple[IntArray, IntArray]] = {}
        self._kinds_of: tuple[UnitTable, Kinds] | None = None
        self._waiting: set[int] | None = None  # queues of gangs that wait for a guarantee
        self._surplus: dict[int, FloatArray] = {}  # queue -> see surplus_of

    @cached_property
    def due_lists(self) -> DueLists:
        return DueLists(self._due)

    @cached_property
    def has_rivals(self) -> list[bool]:
        """[Q] whether a sibling of the queue holds or asks for anything. Else there are no claims at that level."""
        session, queues = self._session, self._session.snapshot.queues
        wants: BoolArray = np.asarray((self._due.accounting.demand() > 0).any(axis=1))
        for path in session.queue_paths:
            wants[path] |= wants[path[0]]
        below = Counter(queue.parent for queue in queues if wants[queue.index])
        return [below[queue.parent] > int(wants[queue.index]) for queue in queues]

    # -- which claims a gang has

    def possible(
        self, claimant: Job, given_back: FloatArray | None = None, *, is_last: bool = False
    ) -> Iterator[Claim]:
        """Yields the claims that its queues may have, if all that their own branches lend to others comes back.

        `given_back`: what its own queue may give back as well. `is_last`: with those that are a last resort.
        """
        due, path = self._due, self._session.queue_paths[claimant.queue]
        need = self.need(claimant)
        held = due.accounting.queue_held if given_back is None else due.accounting.queue_held - given_back
        stands = standing_with(due, path[0], held[path[0]] + need, need)
        if stands != Standing.BORROWING:
            yield Claim.STRICT
        if self._is_below_due(path[0], held[path[0]], need) is not False and any(
            self._is_below_due(queue, held[queue], need) for queue in path
        ):
            yield Claim.FAIRER
        is_guaranteed = stands == Standing.GUARANTEED or any(
            standing_with(due, queue, need, need) == Standing.GUARANTEED for queue in path[1:]
        )
        if is_guaranteed:
            yield Claim.GUARANTEED
        if stands == Standing.GUARANTEED and len(path) > 1:
            yield Claim.GUARANTEED_BELOW
        if is_guaranteed and is_last:
            yield Claim.GUARANTEED_LAST

    def _is_below_due(self, queue: int, held: FloatArray, need: FloatArray) -> bool | None:
        """Whether the queue holds less than its due of something scarce that is needed; None: nothing is scarce."""
        counted = self._due.scarce[queue] & (need > 0)
        return bool((held < self._due.deserved[queue] - EPSILON)[counted].any()) if counted.any() else None

    def surplus_of(self, queue: int) -> FloatArray:
        """What jobs of the queue hold above their minimums and may give back, or more: it is counted once."""
        if queue not in self._surplus:
            session, of_pod = self._session, self._due.accounting.of_pod
            pods: dict[tuple[int, int], list[PlacedPod]] = {}  # (queue, what each holds): equal pods share the array
            for job in session.snapshot.running:
                for step in surplus_steps(session, job) if job.placed else ():
                    for pod in step.pods:
                        pods.setdefault((job.queue, id(of_pod(pod))), []).append(pod)
            self._surplus = {each: np.zeros(len(session.snapshot.axis)) for each in range(len(session.queue_paths))}
            for (each, _), equal in pods.items():
                self._surplus[each] += of_pod(equal[0]) * len(equal)
        return self._surplus[queue]

    def given_back(self, claimant: Job, *, shrinks: bool, preempts: bool) -> FloatArray:
        """What its own queue may give back to it, by shrinking and by preempting."""
        given = np.zeros(len(self._session.snapshot.axis))
        if shrinks:
            given += self.surplus_of(claimant.queue)
        if preempts and claimant.may_preempt:
            given += self.priorities.lower_than(claimant)
        return given

    # -- which victims a claim allows

    def rule(self, claim: Claim) -> VictimRule:
        return partial(self.allowed, claim)

    def allowed(self, claim: Claim, claimant: Job, candidates: Sequence[Victim]) -> list[Victim]:
        """Candidates that may be evicted for the claimant, each given the ones before it that are nearer or as near.

        Nearer ones come first: what they give back is no longer held by the queues in which they meet the claimant.
        """
        return self._taken(claim, claimant, candidates)

    def displaceable(self, claimant: Job, candidates: Sequence[Victim]) -> list[Victim]:
        return self._taken(Claim.STRICT, claimant, candidates, of_guests=True)

    def preemptable(self, claimant: Job, candidates: Sequence[Victim]) -> list[Victim]:
        """Candidates of the claimant's queue that it may preempt, each given the ones before.

        Nothing inside the queue's guarantee is given up for a gang beside it while another queue waits for its own, nor
        if the victim could claim its guarantee again. Others would take the gang next, and so on for ever.
        """
        path = self._session.queue_paths[claimant.queue]
        if self.parts.is_empty or not any(self.parts.is_inside(queue, one.pod) for one in candidates for queue in path):
            return list(candidates)
        others_wait = self.others_wait_for_guarantee(claimant.queue)
        if not others_wait and not self._others_hold(claimant.queue):
            return list(candidates)
        need = self.need(claimant)
        gone: set[PlacedPod] = set()
        allowed: list[Victim] = []
        for victim in candidates:
            gone.add(victim.pod)
            is_less = self.parts.is_exchanged_for_less(path, gone, need)
            if is_less and (others_wait or self._claims_again(victim.job, claimant, gone)):
                gone.discard(victim.pod)
            else:
                allowed.append(victim)
        return allowed

    def _others_hold(self, queue: int) -> bool:
        """Whether queues hold anything that are neither this one nor above or below it."""
        held = self._due.accounting.queue_held
        above = [self._session.snapshot.queues[index].parent for index in self._session.queue_paths[queue]]
        siblings = [q.index for q in self._session.snapshot.queues if q.parent in above]
        return bool((held[siblings].sum(axis=0) > held[self._session.queue_paths[queue]].sum(axis=0) + EPSILON).any())

    def _claims_again(self, job: Job, claimant: Job, gone: set[PlacedPod]) -> bool:
        """Whether the job could claim a guarantee again beside the claimant, and that one would be outside.

        Their queue can give up surplus for the claim.
        """
        due, path = self._due, self._session.queue_paths[job.queue]
        own, need = self.parts.minimum_of(job), self.need(claimant)
        lost = np.sum([due.accounting.of_pod(pod) for pod in gone], axis=0)
        left = np.maximum(due.accounting.queue_held[path] - self.surplus_of(job.queue) - lost, 0.0) + need
        stands = [standing_with(due, queue, held, need) for queue, held in zip(path, left, strict=True)]
        if Standing.GUARANTEED in stands:
            return False
        again = [standing_with(due, queue, held, own) for queue, held in zip(path, left + own, strict=True)]
        return Standing.GUARANTEED in again

    def others_wait_for_guarantee(self, queue: int) -> bool:
        """Whether a gang of another queue waits within its guarantee."""
        if self._waiting is None:
            session, self._waiting = self._session, set()
            for job in session.waiting.one_of_each():
                may_wait = job.queue not in self._waiting and self._due.guaranteed[session.queue_paths[job.queue]].any()
                if not may_wait or not job.exists or job.is_suspended or session.is_promised(job):
                    continue
                if not session.job_ready(job) and not set(GUARANTEES).isdisjoint(self.possible(job)):
                    self._waiting.add(job.queue)
        return bool(self._waiting - {queue})

    def _taken(
        self, claim: Claim, claimant: Job, candidates: Sequence[Victim], *, of_guests: bool = False
    ) -> list[Victim]:
        nearest_first = sorted(candidates, key=lambda victim: self.meeting(claimant.queue, victim.job.queue)[0])
        staying = set() if claim in GUARANTEES else self.priorities.would_come_back(candidates)
        chosen: set[Victim] = set()
        # Two parts inside a guarantee may go where one may not: others then take the place of both.
        for are_together in (True, False) if self._may_go_together(claimant, candidates) else (False,):
            outcome = Outcome(
                self,
                self._session,
                self._due,
                claim,
                claimant,
                candidates,
                of_guests=of_guests,
                are_together=are_together,
            )
            chosen = {victim for victim in nearest_first if victim.job.key not in staying and outcome.take(victim)}
            if len(chosen) == len(candidates):
                break
        taken = [victim for victim in candidates if victim in chosen]
        if len(taken) == len(candidates) or claim in GUARANTEES:
            return taken
        # What a job could preempt when it comes back may be among those that stay.
        staying = self.priorities.would_come_back(taken)
        rest = [victim for victim in taken if victim.job.key not in staying]
        return taken if len(rest) == len(taken) else self._taken(claim, claimant, rest, of_guests=of_guests)

    def _may_go_together(self, claimant: Job, candidates: Sequence[Victim]) -> bool:
        """Whether some candidates are inside guarantees, and without them all the queues hold as much inside."""
        if self.parts.is_empty:
            return False
        gone = {victim.pod for victim in candidates}
        queues = {queue for job in jobs_of(candidates) for queue in self.meeting(claimant.queue, job.queue)[1]}
        touched = [queue for queue in queues if not gone.isdisjoint(self.parts.inside(queue))]
        return bool(touched) and all(self.parts.keeps(queue, gone) for queue in touched)

    def offered(self, claim: Claim, claimant: Job, table: UnitTable) -> BoolArray:
        """[units] those that the claim might allow if they went alone. Others are not worth a search."""
        kinds = self._kinds(table)
        wanted = self._offered_kinds(claim, claimant, kinds.queues, kinds.amounts)
        return np.asarray(wanted[kinds.of_unit] & ~self._staying(claimant.queue, table))

    def _offered_kinds(self, claim: Claim, claimant: Job, queues: IntArray, amounts: FloatArray) -> BoolArray:
        due = self._due
        levels, tops = self._meetings_of(claimant.queue)
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
        levels = levels[queues]
        for level in np.unique(levels[top != _NONE]).tolist():
            here, own = np.flatnonzero((levels == level) & (top != _NONE)), path[level - 1]
            before = [parts_of_due(due, held[[own]], own), parts_of_due(due, held[top[here]], top[here])]
            after = [
                parts_of_due(due, held[[own]] + need, own),
                parts_of_due(due, held[top[here]] - amounts[here], top[here]),
            ]
            fairer[here] = are_fairer(*(np.hstack([np.repeat(c, len(here), axis=0), w]) for c, w in (before, after)))
        return fairer

    def entitlement(self, claim: Claim, claimant: Job, table: UnitTable, units: BoolArray) -> Entitlement | None:
        """What has to leave before the claimant has the claim; None if there is nothing to choose: all are as near."""
        levels = self._levels(claimant, table)
        if claim == Claim.FAIRER or not units.any() or levels[units].min() == levels[units].max():
            return None
        kinds = self._kinds(table)
        return Entitlement(self._due, claim, self._session.queue_paths[claimant.queue], levels, kinds)

    def is_reclaimable(self, queue: int, below: Sequence[int]) -> bool:
        """The same for the queues above `queue` and below the one in which it meets a claimant."""
        key = (queue, len(below))
        if key not in self._reclaimable:
            self._reclaimable[key] = self.are_reclaimable(below)
        return self._reclaimable[key]

    def are_reclaimable(self, queues: Sequence[int]) -> bool:
        return all(self._session.snapshot.queues[queue].reclaimable for queue in queues)

    def may_claim(self, claim: Claim, claimant: Job, level: int) -> bool:
        """Whether its queues below the meeting queue at that level have the claim, with all that they hold now."""
        return Outcome(self, self._session, self._due, claim, claimant).may_claim_at(level)

    def _kinds(self, table: UnitTable) -> Kinds:
        """The units by queue and by what they hold. Equal pods share the array of what they hold."""
        if self._kinds_of is None or self._kinds_of[0] is not table:
            numbers: dict[tuple[object, ...], int] = {}
            queues: list[int] = []
            amounts: list[FloatArray] = []
            of_unit: list[int] = []
            of_pod = self._due.accounting.of_pod
            for unit in table.units:
                held = [of_pod(pod) for pod in unit.pods]
                key = (unit.job.queue, *sorted(map(id, held))) if len(held) > 1 else (unit.job.queue, id(held[0]))
                number = numbers.setdefault(key, len(numbers))
                of_unit.append(number)
                if number == len(amounts):
                    queues.append(unit.job.queue)
                    amounts.append(np.sum(held, axis=0) if len(held) > 1 else held[0])
            shape = (len(amounts), len(self._session.snapshot.axis))
            kinds = Kinds(np.array(queues, dtype=np.intp), np.array(amounts).reshape(shape), np.array(of_unit, np.intp))
            self._kinds_of = table, kinds
        return self._kinds_of[1]

    def _staying(self, claimant: int, table: UnitTable) -> BoolArray:
        """[units] those with a pod inside a guarantee, as the claimant's queue sees it, that no other could replace."""
        if self.parts.is_empty:
            return np.zeros(len(table), dtype=bool)
        staying: dict[int, frozenset[PlacedPod]] = {}
        for queue in {job.queue for job in table.jobs}:
            of_queues = [self.parts.stays_anyway(below) for below in self.meeting(claimant, queue)[1]]
            staying[queue] = frozenset[PlacedPod]().union(*of_queues)
        return np.array([not staying[unit.job.queue].isdisjoint(unit.pods) for unit in table.units], dtype=bool)

    def stand_ins(self, claim: Claim, claimant: Job, table: UnitTable) -> list[IntArray]:
        """Job by job, units outside guarantees. If these stay, others inside may be allowed to go in exchange."""
        if claim not in GUARANTEES or self.parts.is_empty:
            return []
        inside: dict[int, frozenset[PlacedPod]] = {}  # queue -> pods of it, if others could replace some of them
        for queue in {job.queue for job in table.jobs}:
            below = self.meeting(claimant.queue, queue)[1]
            pods = frozenset[PlacedPod]().union(*map(self.parts.inside, below))
            if not pods <= frozenset[PlacedPod]().union(*map(self.parts.stays_anyway, below)):
                inside[queue] = pods
        staying: dict[JobKey, list[int]] = {}
        for number in range(len(table) - 1, -1, -1):  # those that are expensive to evict first
            unit = table.units[number]
            if unit.job.queue in inside and inside[unit.job.queue].isdisjoint(unit.pods):
                if unit.job.key not in staying and len(staying) == _MOST_STAND_INS:
                    break
                staying.setdefault(unit.job.key, []).append(number)
        return [np.array(units, dtype=np.intp) for units in staying.values()]

    def reservations_below(self, claim: Claim) -> list[Reservation]:
        """The reservations that give way to such a claim: for gangs that no guarantee covers, and as a last resort all.

        A gang with a reservation that had a claim on the same victims would have made it.
        """
        if claim not in GUARANTEES:
            return []
        if claim == Claim.GUARANTEED_LAST:
            return list(self._session.reservations.values())
        held = self._due.accounting.queue_held
        giving_way = []
        for reservation in self._session.reservations.values():
            need, queue = self.need(reservation.job), reservation.job.queue
            if standing_with(self._due, queue, held[queue] + need, need) != Standing.GUARANTEED:
                giving_way.append(reservation)
        return giving_way

    def distance(self, claimant: Job, table: UnitTable) -> IntArray | None:
        """[units] how many queues the claimant is below the one in which it meets each; None: the same for all."""
        levels = self._levels(claimant, table)
        return levels if len(levels) and levels.min() < levels.max() else None

    def _levels(self, claimant: Job, table: UnitTable) -> IntArray:
        kinds = self._kinds(table)
        return np.asarray(self._meetings_of(claimant.queue)[0][kinds.queues[kinds.of_unit]])

    def _meetings_of(self, claimant: int) -> tuple[IntArray, IntArray]:
        """[Q] how many of the claimant's queues are below the one in which it meets each queue, and which of the
        other's is right below that; none, if the other's are not reclaimable or it is one of the claimant's.
        """
        known = self._meetings_by_claimant.get(claimant)
        if known is None:
            meetings = [self.meeting(claimant, queue.index) for queue in self._session.snapshot.queues]
            tops = [below[-1] if below and self.are_reclaimable(below) else _NONE for _, below in meetings]
            known = np.array([level for level, _ in meetings], dtype=np.intp), np.array(tops, dtype=np.intp)
            self._meetings_by_claimant[claimant] = known
        return known

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
    claims = session.queue_claims
    if session.due is not None and (claims is None or claims.is_outdated):
        claims = session.queue_claims = QueueClaims(session, session.due, claims)
    return claims


def displaceable(session: Session, claimant: Job, candidates: Sequence[Victim]) -> list[Victim]:
    """Candidates that run in the reservation of `claimant` and may be displaced, each given the ones before.

    They started there on the condition that they leave. Yet a claimant above its due must not bring another queue below
    its due, and no queue then holds less inside its guarantee.
    """
    claims = claims_of(session)
    return list(candidates) if claims is None else claims.displaceable(claimant, candidates)
