"""What has to leave before a claimant has its claim on what is farther away: what is nearer, its own surplus first.

Reads the session and changes nothing.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from maniple.model.resources import BoolArray, FloatArray, IntArray
from maniple.scheduler.eviction.claim_outcome import Claim, is_entitled
from maniple.scheduler.framework.due_rules import Due


class Kinds(NamedTuple):
    queues: IntArray  # [kinds]
    amounts: FloatArray  # [kinds, R]
    of_unit: IntArray


class Entitlement:
    """Whether a claimant has its claim once some units have left."""

    def __init__(self, due: Due, claim: Claim, path: Sequence[int], levels: IntArray, kinds: Kinds) -> None:
        self._due = due
        self._claim = claim
        self._path = path
        self._levels = levels
        self._kinds = kinds

    def able(self, need: FloatArray, units: BoolArray) -> BoolArray:
        """[units] those that it could claim if all that is nearer left."""
        able, held = units.copy(), self._held_with(need)
        for level in self._present(units):
            if not self._holds_at(level, need, held, np.flatnonzero(able)):
                able &= self._levels != level
        return able

    def condition(self, need: FloatArray) -> Callable[[BoolArray], bool]:
        """Returns whether it has its claim with some units gone, as queues stand now.

        While a trial supposes units gone, its queues may be charged less already.
        """
        return partial(self._holds, need, self._held_with(need))

    def _holds(self, need: FloatArray, held: FloatArray, gone: BoolArray) -> bool:
        units = np.flatnonzero(gone)
        return all(self._holds_at(level, need, held, units) for level in self._present(gone))

    def _held_with(self, need: FloatArray) -> FloatArray:
        """[path, R] what its queues would hold if it started and nobody left."""
        return np.asarray(self._due.accounting.queue_held[self._path] + need)

    def _present(self, units: BoolArray) -> list[int]:
        return [level for level in np.unique(self._levels[units]).tolist() if level]

    def _holds_at(self, level: int, need: FloatArray, held_with: FloatArray, gone: IntArray) -> bool:
        held = held_with[:level].copy()
        levels, kinds = self._levels[gone], self._kinds
        for height in range(level):
            held[height] -= kinds.amounts[kinds.of_unit[gone[levels <= height]]].sum(axis=0)
        return is_entitled(self._due, self._claim, self._path[:level], held, need)
