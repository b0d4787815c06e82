"""Where a shape may go, how many of it fit on each node and how good each node is: arrays over the nodes, by shape.

A cycle decides thousands of gangs of a few dozen shapes, and each decision touches a few nodes. So a Room is computed
once and then brought up to date only at the nodes that changed since it was last looked at.
"""

from collections.abc import Callable, Sequence

import numpy as np

from maniple.model.job import TaskGroup
from maniple.model.resources import BoolArray, FloatArray, IntArray
from maniple.scheduler.hooks import Check, Hooks, Rows

_MANY = 1e9  # stands for "no limit" where a pod asks for nothing that is counted


class Room:
    """One shape's view of the nodes. `fits` and `score` are valid where `allowed`."""

    __slots__ = ("allowed", "fits", "score", "seen")

    def __init__(self, allowed: BoolArray, fits: FloatArray, score: FloatArray, seen: int) -> None:
        self.allowed = allowed
        self.fits = fits
        self.score = score
        self.seen = seen


def capacity(requests: FloatArray, free: FloatArray) -> FloatArray:
    """How many pods with `requests` fit into each column of `free`."""
    fits = np.full(free.shape[1], _MANY)
    for row in np.flatnonzero(requests):
        np.minimum(fits, np.floor(free[row] / requests[row]), out=fits)
    np.maximum(fits, 0.0, out=fits)
    return fits


class Rooms:
    def __init__(
        self,
        free: Callable[[IntArray | None], tuple[FloatArray, FloatArray]],
        count: int,
        hooks: Sequence[Hooks],
    ) -> None:
        self._free = free  # nodes (None: all) -> (usable now, free)
        self._every: IntArray = np.arange(count, dtype=np.intp)
        self._predicates = [hook.predicate for hook in hooks if hook.predicate]
        self._orders = [hook.node_order for hook in hooks if hook.node_order]
        self._rooms: dict[int, Room] = {}
        self._allowed: dict[int, BoolArray] = {}
        self.changed: list[int] = []  # nodes in the order in which they were touched

    def allowed(self, group: TaskGroup) -> BoolArray:
        """Nodes whose own attributes permit the group's pods."""
        number = group.shape.constraint.number
        mask = self._allowed.get(number)
        if mask is None:
            mask = np.ones(len(self._every), dtype=bool)
            for check in self.checks(group):
                mask &= check.passes
            self._allowed[number] = mask
        return mask

    def checks(self, group: TaskGroup) -> list[Check]:
        return [check for predicate in self._predicates for check in predicate(group)]

    def of(self, group: TaskGroup) -> Room:
        """The up-to-date Room for the group's shape."""
        shape = group.shape
        room = self._rooms.get(shape.number)
        if room is None:
            room = Room(self.allowed(group), np.empty(0), np.empty(0), -1)
            self._rooms[shape.number] = room
        if room.seen == len(self.changed):
            return room
        touched = set(self.changed[room.seen :]) if room.seen >= 0 else None
        if touched is None or len(touched) * 4 > len(self._every):
            usable, free = self._free(None)
            room.fits = np.where(room.allowed, capacity(shape.requests, usable), 0.0)
            room.score = self.score(group, Rows(self._every, free))
        else:
            nodes = np.fromiter(touched, dtype=np.intp, count=len(touched))
            usable, free = self._free(nodes)
            room.fits[nodes] = np.where(room.allowed[nodes], capacity(shape.requests, usable), 0.0)
            room.score[nodes] = self.score(group, Rows(nodes, free))
        room.seen = len(self.changed)
        return room

    def score(self, group: TaskGroup, rows: Rows) -> FloatArray:
        total = np.zeros(len(rows.nodes))
        for order in self._orders:
            part = order(group, rows)
            if part is not None:
                total += part
        return total
