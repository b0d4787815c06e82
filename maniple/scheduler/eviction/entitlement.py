"""What has to leave before a claimant has its claim on what is farther away: what is nearer, its own surplus first.

Reads the session and changes nothing.
"""

from collections.abc import Callable, Sequence
from operator import add, sub
from typing import NamedTuple

import numpy as np

from maniple.model.resources import BoolArray, FloatArray, IntArray
from maniple.scheduler.eviction.claim_outcome import Claim, entitles
from maniple.scheduler.framework.due_rules import Due, Stand


class Kinds(NamedTuple):
    queues: IntArray  # [kinds]
    amounts: FloatArray  # [kinds, R]
    of_unit: IntArray


class Entitlement:
    """Whether a claimant has its claim once some units have left."""

    def __init__(self, due: Due, claim: Claim, path: Sequence[int], levels: IntArray, kinds: Kinds) -> None:
        self.due = due
        self.claim = claim
        self.path = path
        self.levels = levels
        self.kinds = kinds

    def able(self, need: FloatArray, units: BoolArray) -> BoolArray:
        """[units] those that it could claim if all that is nearer left."""
        able, levels = units.copy(), np.unique(self.levels[units]).tolist()
        for level in levels:
            if level and not _Condition(self, need).holds_at(level, able):
                able &= self.levels != level
        return able

    def condition(self, need: FloatArray) -> Callable[[BoolArray], bool]:
        """Returns whether it has its claim with some units gone, as queues stand now.

        While a trial supposes units gone, its queues may be charged less already.
        """
        return _Condition(self, need).holds


class _Condition:
    """Asked about one set of units after the other: only the units that differ are counted anew."""

    def __init__(self, terms: Entitlement, need: FloatArray) -> None:
        self._terms = terms
        # What its queues would hold if it started and nobody left.
        self._held: list[list[float]] = (terms.due.accounting.queue_held[terms.path] + need).tolist()
        self._stands = [Stand.of(terms.due, queue, need) for queue in terms.path]
        self._seen: BoolArray = np.zeros(len(terms.levels), dtype=bool)
        self._units = [0] * (len(terms.path) + 1)  # level -> how many are gone
        self._freed = [[0.0] * len(need) for _ in self._units]  # level -> what these hold

    def holds(self, gone: BoolArray) -> bool:
        self._see(gone)
        return all(self._entitles(level) for level in range(1, len(self._units)) if self._units[level])

    def holds_at(self, level: int, gone: BoolArray) -> bool:
        self._see(gone)
        return self._entitles(level)

    def _see(self, gone: BoolArray) -> None:
        levels, kinds = self._terms.levels, self._terms.kinds
        changed = np.flatnonzero(gone != self._seen)
        if len(changed) == 1:  # while units are put back one by one
            (unit,) = changed.tolist()
            sign = 1 if gone[unit] else -1
            self._count(int(levels[unit]), sign, kinds.amounts[kinds.of_unit[unit]] * sign)
        elif len(changed):
            signs = np.where(gone[changed], 1, -1)
            for level in np.unique(levels[changed]).tolist():
                here = levels[changed] == level
                amounts = kinds.amounts[kinds.of_unit[changed[here]]] * signs[here][:, None]
                self._count(level, int(signs[here].sum()), amounts.sum(axis=0))
        self._seen[changed] = gone[changed]

    def _count(self, level: int, units: int, amount: FloatArray) -> None:
        self._units[level] += units
        self._freed[level] = list(map(add, self._freed[level], amount.tolist()))

    def _entitles(self, level: int) -> bool:
        stands, freed = [], self._freed[0]
        for height, (held, stand) in enumerate(zip(self._held[:level], self._stands[:level], strict=True)):
            if height:
                freed = list(map(add, freed, self._freed[height]))
            stands.append(stand.standing(list(map(sub, held, freed))))
        return entitles(self._terms.claim, stands)
