"""How many pods of a group fit once certain units have left: one count for all claimants that differ only in number.

A gang that has no room although everything on offer leaves needs no search. Waiting gangs are of a few shapes and are
offered the same units again and again, so a count is kept until the session changes for good.
"""

from collections.abc import Hashable
from typing import TYPE_CHECKING

import numpy as np

from maniple.model.job import TaskGroup
from maniple.model.resources import BoolArray
from maniple.scheduler.eviction.counted_room import CountedRoom, counts_alone
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.supposition import Supposition

if TYPE_CHECKING:
    from maniple.scheduler.eviction.unit_table import UnitTable


class RoomAfter:
    """Must be asked only while nothing is supposed and no statement is open."""

    def __init__(self, session: Session, table: "UnitTable") -> None:
        self._session = session
        self._table = table
        self._state: Hashable = None
        self._counts: dict[Hashable, float] = {}

    def count(self, group: TaskGroup, gone: BoolArray | None = None) -> float:
        """How many pods of the group fit when these units and all leaving pods have left, if only room counts."""
        session = self._session
        state = (len(session.placed), len(session.evicted), len(session.moved), session.reserved.binding)
        if state != self._state:
            self._state = state
            self._counts.clear()
        key = (session.demands.of_group(group), b"" if gone is None else gone.tobytes())
        count = self._counts.get(key)
        if count is None:
            count = self._counts[key] = self._count(group, gone)
        return count

    def _count(self, group: TaskGroup, gone: BoolArray | None) -> float:
        if gone is None or not gone.any():
            return float(self._session.room_for(group, later=True).sum())
        pods = self._table.pods_of(np.flatnonzero(gone))
        if counts_alone(self._session, self._table, group):
            return CountedRoom(self._session, self._table, group).after(np.flatnonzero(gone))
        supposition = Supposition(self._session)
        supposition.leave(self._table.pods, pods, 1, as_neighbours=False)
        count = float(self._session.room_for(group, later=True).sum())
        supposition.leave(self._table.pods, pods, -1, as_neighbours=False)
        return count
