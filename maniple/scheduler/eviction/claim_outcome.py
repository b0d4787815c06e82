"""What queues hold once a claimant has started and victims have left, and whether a claim allows the next victim.

Reads the session and changes nothing.
"""

from bisect import bisect_left
from collections.abc import Sequence
from enum import IntEnum
from functools import cached_property
from operator import add, sub
from typing import TYPE_CHECKING

import numpy as np

from maniple.model.job import Job, PlacedPod
from maniple.model.resources import BoolArray, FloatArray, IntArray
from maniple.scheduler.framework.due_rules import EPSILON, Due, Standing, standing_with
from maniple.scheduler.framework.hooks import Victim
from maniple.scheduler.framework.session import Session

if TYPE_CHECKING:
    from maniple.scheduler.eviction.queue_claims import QueueClaims


class Claim(IntEnum):
    STRICT = 0
    FAIRER = 1
    GUARANTEED = 2
    GUARANTEED_BELOW = 3  # the same, where the departments above that queue go beyond their guarantees with the gang
    GUARANTEED_LAST = 4  # the same; surplus inside may go, too, where its queue still holds all that it is guaranteed


GUARANTEES = (Claim.GUARANTEED, Claim.GUARANTEED_BELOW, Claim.GUARANTEED_LAST)


class DueLists:
    """A Due as lists by queue: for vectors of a few resources, one at a time, numbers are faster than arrays."""

    def __init__(self, due: Due) -> None:
        self.deserved: list[list[float]] = due.deserved.tolist()
        self.guaranteed: list[list[float]] = due.guaranteed.tolist()
        self.scarce: list[list[bool]] = due.scarce.tolist()
        # [Q] (resource, due) of what counts in the measure
        self._counted = [
            [(row, own[row]) for row, is_scarce in enumerate(scarce) if is_scarce and own[row] > EPSILON]
            for own, scarce in zip(self.deserved, self.scarce, strict=True)
        ]

    def parts(self, queue: int, held: Sequence[float]) -> list[float]:
        """See parts_of_due."""
        parts = [1.0] * len(held)
        for row, deserved in self._counted[queue]:
            part = held[row] / deserved
            if part < 1.0:
                parts[row] = part
        return parts


class Outcome:
    """What queues hold after a claimant started and victims left, while victims are taken one by one."""

    def __init__(
        self,
        claims: "QueueClaims",
        session: Session,
        due: Due,
        claim: Claim,
        claimant: Job,
        candidates: Sequence[Victim] = (),
        *,
        of_guests: bool = False,
        are_together: bool = False,
    ) -> None:
        """`are_together`: with all candidates gone every queue holds as much inside its guarantee as before."""
        self._claims = claims
        self._session = session
        self._due = due
        self._lists = claims.due_lists
        self.claim = claim
        self.claimant = claimant
        self._candidates = candidates
        self._of_guests = of_guests  # the victims run where they are on the condition that they leave
        self._are_together = are_together
        self._path: list[int] = session.queue_paths[claimant.queue]
        self._need = claims.need(claimant)
        self._needed: list[float] = self._need.tolist()
        self._held: dict[int, list[float]] = {}  # queue -> what it holds now
        self._left: dict[int, list[float]] = {}  # without the victims, and without the claimant
        self._amounts: dict[int, list[float]] = {}  # by the id of an array
        self._gone: set[PlacedPod] = set()  # victims of other queues
        self._exchanged: set[int] = set()  # queues that lose something inside their guarantee, in exchange for others
        self._level = 0  # at which the last victim meets the claimant
        self._is_entitled = True
        self._gives_back = False  # whether victims are of the claimant's own queue
        self._refused: set[tuple[int, int]] = set()  # (queue, amount): refused once, refused later too
        # (queue, amount) -> what each of the queues below must keep of the resources that count
        self._floors: dict[tuple[int, int], list[list[tuple[int, float]]]] = {}
        # Parts of dues that the victims of this level have changed: queue -> after; and all of them, sorted.
        self._changed: dict[int, list[float]] = {}
        self._before: list[float] = []
        self._after: list[float] = []

    def take(self, victim: Victim) -> bool:
        """Takes the victim if the claim allows it, and returns whether it did."""
        queue, array = victim.job.queue, self._due.accounting.of_pod(victim.pod)
        level, below = self._claims.meeting(self.claimant.queue, queue)
        if level != self._level:
            self._is_entitled = self.may_claim_at(level)
        kind = (queue, id(array))
        if kind in self._refused:
            return False
        amount = self._amounts.get(id(array))
        if amount is None:
            amount = self._amounts[id(array)] = array.tolist()
        if below:
            if not self._of_guests and not self._claims.is_reclaimable(queue, below):
                return False
            if not self._allows(below, amount, kind):
                self._refused.add(kind)
                return False
            if self._leaves_guarantee(victim, level) or not self._keeps_inside(victim.pod, below):
                return False
        self._gives_back |= not below and not self._of_guests
        for charged in self._session.queue_paths[queue]:
            self._left[charged] = list(map(sub, self._left_of(charged), amount))
        return True

    def may_claim_at(self, level: int) -> bool:
        """Goes on to victims of that level. Returns whether the claimant's queues have such a claim on them."""
        self._level, self._changed = level, {}
        self._refused.clear()
        mine = self._path[: self._level]
        own = self._path[self._level - 1]
        if self.claim != Claim.FAIRER:
            held = np.array([self._with_need(queue) for queue in mine]).reshape(len(mine), len(self._needed))
            is_able = is_entitled(self._due, self.claim, mine, held, self._need)
            if not is_able or self.claim != Claim.STRICT or not self._gives_back:
                return is_able
            # What its own queue gives back may not be more than what the queue gains.
            before, after = self._parts(own, self._held_of(own)), self._parts(own, self._with_need(own))
            is_more = any(part > less + EPSILON for part, less in zip(after, before, strict=True))
            return is_more and not any(map(_is_less, after, before))
        before, after = self._parts(own, self._held_of(own)), self._parts(own, self._with_need(own))
        self._changed[own] = after
        self._before, self._after = sorted(before), sorted(after)
        return _is_fairer(self._before, self._after)

    def _allows(self, below: list[int], amount: list[float], kind: tuple[int, int]) -> bool:
        """Whether the claim allows a victim with this amount from queues that are not the claimant's."""
        if self._of_guests:
            return self._is_entitled or self._keep_dues(below, amount, kind)
        if not self._is_entitled or self.claim in GUARANTEES:
            return self._is_entitled
        if self.claim == Claim.STRICT:
            keeps = self._keep_dues(below, amount, kind) and self._keep_guarantees(below, amount)
            is_scarce = bool(self._floors[kind][-1])  # where claimant and victim meet
            return keeps and is_scarce and not self._is_poorer_above(amount)
        if not self._keep_guarantees(below, amount) or self._is_poorer_above(amount):
            return False
        return self._makes_fairer(below[-1], amount)

    def _makes_fairer(self, top: int, amount: list[float]) -> bool:
        """Whether the outcome is fairer if the queue loses this as well. Then it counts as lost."""
        after = self._parts(top, list(map(sub, self._left_of(top), amount)))
        all_before, all_after = self._before, self._after.copy()
        if top in self._changed:
            for part in self._changed[top]:
                del all_after[bisect_left(all_after, part)]
        else:
            all_before = sorted(all_before + self._parts(top, self._held_of(top)))
        all_after += after
        all_after.sort()  # of two sorted runs: they are merged
        if not _is_fairer(all_before, all_after):
            return False
        self._changed[top], self._before, self._after = after, all_before, all_after
        return True

    def _is_poorer_above(self, amount: list[float]) -> bool:
        """Whether a queue in which the two meet, or one above it, would hold a smaller part of its due.

        It could then claim from its siblings, and so on for ever.
        """
        for queue in self._path[self._level :]:
            if self._claims.has_rivals[queue]:
                left = map(sub, self._left_of(queue), amount)
                after = self._parts(queue, list(map(add, left, self._needed)))
                if any(map(_is_less, after, self._parts(queue, self._held_of(queue)))):
                    return True
        return False

    def _keeps_inside(self, pod: PlacedPod, below: list[int]) -> bool:
        """Whether the queues hold as much inside their guarantees without the pod and the victims before it."""
        parts = self._claims.parts
        if parts.is_empty or self._are_together:
            return True
        touched = [queue for queue in below if queue in self._exchanged or parts.is_watched(queue, pod)]
        self._gone.add(pod)
        # Strict and fairer claims leave the queue what it is guaranteed, so surplus goes before gangs.
        may_be_outside = self.claim not in (Claim.GUARANTEED, Claim.GUARANTEED_BELOW)
        if not all(parts.keeps(queue, self._gone, may_be_outside=may_be_outside) for queue in touched):
            self._gone.discard(pod)
            return False
        self._exchanged.update(touched)
        return True

    def _leaves_guarantee(self, victim: Victim, level: int) -> bool:
        """Whether a claim in a department would replace a gang inside its guarantee by one that is outside.

        The guarantee of another department could then take that one again, if there is another that wants anything.
        """
        parts = self._claims.parts
        if self._of_guests or self.claim in GUARANTEES or parts.is_empty:
            return False
        mine = self._path[:level]
        if any(
            standing_with(self._due, own, np.array(self._with_need(own)), self._need) == Standing.GUARANTEED
            for own in mine
        ):
            return False  # what is inside a child's guarantee is the first inside its parent's
        for height, queue in enumerate(self._path[level:], level):
            if not any(self._claims.has_rivals[above] for above in self._path[height:]):
                continue
            guaranteed = self._due.guaranteed[queue]
            is_over = (guaranteed > 0) & (self._without_candidates[queue] + self._need > guaranteed + EPSILON)
            if is_over.any() and victim.pod in parts.inside(queue) and not parts.is_surplus(victim.pod):
                return True  # surplus would claim nothing back
        return False

    @cached_property
    def _without_candidates(self) -> FloatArray:
        """What queues would hold if all candidates became victims."""
        held = self._due.accounting.queue_held.copy()
        for victim in self._candidates:
            held[self._session.queue_paths[victim.job.queue]] -= self._due.accounting.of_pod(victim.pod)
        return held

    def _keep_guarantees(self, below: list[int], amount: list[float]) -> bool:
        """Whether no queue gets less than it is guaranteed, or than it has of that: it would claim it back."""
        if self._claims.parts.is_empty:
            return True
        for queue in below:
            held, left = self._held_of(queue), self._left_of(queue)
            for row, guaranteed in enumerate(self._lists.guaranteed[queue]):
                is_touched = guaranteed > 0 and amount[row] > 0
                if is_touched and left[row] - amount[row] < min(guaranteed, held[row]) - EPSILON:
                    return False
        return True

    def _keep_dues(self, below: list[int], amount: list[float], kind: tuple[int, int]) -> bool:
        """Whether each queue still holds its due of all that is scarce and that the victim holds."""
        floors = self._floors.get(kind)
        if floors is None:
            floors = self._floors[kind] = [self._floor(queue, amount) for queue in below]
        for queue, floor in zip(below, floors, strict=True):
            left = self._left_of(queue)
            for row, least in floor:
                if left[row] < least:
                    return False
        return True

    def _floor(self, queue: int, amount: list[float]) -> list[tuple[int, float]]:
        deserved, scarce = self._lists.deserved[queue], self._lists.scarce[queue]
        return [(row, deserved[row] - EPSILON + held) for row, held in enumerate(amount) if held > 0 and scarce[row]]

    def _held_of(self, queue: int) -> list[float]:
        held = self._held.get(queue)
        if held is None:
            held = self._held[queue] = self._due.accounting.queue_held[queue].tolist()
        return held

    def _left_of(self, queue: int) -> list[float]:
        left = self._left.get(queue)
        return self._held_of(queue) if left is None else left

    def _with_need(self, queue: int) -> list[float]:
        return list(map(add, self._left_of(queue), self._needed))

    def _parts(self, queue: int, held: list[float]) -> list[float]:
        return self._lists.parts(queue, held)


def _is_less(part: float, other: float) -> bool:
    return part < other - EPSILON


def is_entitled(due: Due, claim: Claim, queues: Sequence[int], held: FloatArray, need: FloatArray) -> bool:
    """Whether the claimant's queues below the meeting queue, the lowest first, may make such a claim.

    `held`: what each of them would hold with `need`. A claim of the kind FAIRER depends on the victims as well.
    """
    return entitles(claim, [standing_with(due, *of_queue, need) for of_queue in zip(queues, held, strict=True)])


def entitles(claim: Claim, stands: Sequence[Standing]) -> bool:
    """The same for how each of these queues would stand."""
    if claim == Claim.STRICT:
        return Standing.BORROWING not in stands
    if claim == Claim.GUARANTEED:
        return stands[-1:] == [Standing.GUARANTEED]
    return claim == Claim.FAIRER or Standing.GUARANTEED in stands


def parts_of_due(due: Due, held: FloatArray, queue: int | IntArray) -> FloatArray:
    """min(1, held / due) of each resource; 1 for what does not count in the measure."""
    deserved = due.deserved[queue]
    counts = due.scarce[queue] & (deserved > EPSILON)
    return np.minimum(1.0, np.divide(held, deserved, out=np.ones_like(held), where=counts))


def _is_fairer(before: Sequence[float], after: Sequence[float]) -> bool:
    """Whether the sorted list `after` is higher where they first differ."""
    for part, other in zip(after, before, strict=True):
        change = part - other
        if change > EPSILON or change < -EPSILON:
            return change > 0
    return False


def are_fairer(before: FloatArray, after: FloatArray) -> BoolArray:
    """[rows] whether the sorted row is higher where it first differs."""
    change = np.sort(after, axis=1) - np.sort(before, axis=1)
    differs = np.abs(change) > EPSILON
    first = differs.argmax(axis=1)
    return np.asarray(differs.any(axis=1) & (change[np.arange(len(change)), first] > 0))
