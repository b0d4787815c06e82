"""Supposes units gone, thousands at a time, while a trial asks whether a gang fits.

Placement sees the room as if the units were evicted. Rules on victims read other state, so they must never be asked
inside the scope. On exit the session is as it was.
"""

from typing import Self

import numpy as np

from maniple.model.resources import BoolArray, IntArray
from maniple.scheduler.eviction.unit_table import UnitTable
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.supposition import Supposition


class SupposedGone:
    def __init__(self, session: Session, table: UnitTable, *, as_neighbours: bool) -> None:
        """`as_neighbours`: whether the gang's rules about other pods see them gone, too."""
        self._table = table
        self._as_neighbours = as_neighbours
        self._supposition = Supposition(session)
        self.units: BoolArray = np.zeros(len(table), dtype=bool)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove(np.flatnonzero(self.units))

    def add(self, units: IntArray) -> None:
        self.units[units] = True
        if len(units):
            self._leave(units, 1)

    def remove(self, units: IntArray) -> None:
        self.units[units] = False
        if len(units):
            self._leave(units, -1)

    def _leave(self, units: IntArray, sign: int) -> None:
        table = self._table
        self._supposition.leave(table.pods, table.pods_of(units), sign, as_neighbours=self._as_neighbours)
