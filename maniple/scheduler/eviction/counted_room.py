"""The room of a gang whose pods are counted, as arithmetic: how many fit after each unit of an order has left.

Where free resources alone decide how many pods fit on a node, nothing has to be supposed gone. For P pairs of a unit
and a node, one pass of O(P log P) answers for every prefix of an order, and a unit that is put back touches its own
nodes only. All else (shares of GPUs, mixed nodes, limits of queues, rules about other pods) must be supposed.
"""

from collections.abc import Iterable
from math import floor, inf
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from maniple.api.gpu.requests import WHOLE
from maniple.model.job import TaskGroup
from maniple.model.resources import BoolArray, FloatArray, IntArray
from maniple.scheduler.eviction.running_sums import Runs
from maniple.scheduler.framework.session import Session

if TYPE_CHECKING:
    from maniple.scheduler.eviction.unit_table import UnitTable


def counts_alone(session: Session, table: "UnitTable", group: TaskGroup) -> bool:
    """Whether free resources alone decide how many pods of the group fit, whichever units leave."""
    gpus, shape, pods = session.gpus, group.shape, table.pods
    if not shape.requests.any() or pods.is_limited or session.reserved.most(group) is not None:
        return False
    if gpus.is_counted(shape) or gpus.has_mixed_nodes or any(ask.row not in gpus.tables for ask in shape.gpus):
        return False
    return not shape.gpus or bool((pods.device_parts.millis == WHOLE).all())


class Prefixes(NamedTuple):
    """What an order of units frees, unit by unit."""

    total: FloatArray  # [units + 1] how many pods of the gang fit after so many units
    # Pairs of a unit and a node, node by node: the position of the unit in the order, and what fits there after it.
    place: IntArray
    node: IntArray
    fits: FloatArray


class CountedRoom:
    def __init__(self, session: Session, table: "UnitTable", group: TaskGroup) -> None:
        """As the session stands now: it must not change as long as this is asked."""
        self.table = table
        self.before: FloatArray = session.room_for(group, later=True).copy()
        self.allowed = session.capacity.allowed(group)
        self.mask: BoolArray | None = session.reserved.mask
        # (row, amount) of what a pod requests
        rows = np.flatnonzero(group.shape.requests)
        self.asked: list[tuple[int, float]] = list(zip(rows.tolist(), group.shape.requests[rows].tolist(), strict=True))
        self.future = session.future
        self._session = session
        self._gpus = group.shape.gpus

    def after_each(self, order: IntArray) -> Prefixes:
        pairs, before = self.table.unit_nodes, self.before
        place_of = np.full(len(self.table), -1, dtype=np.intp)
        place_of[order] = np.arange(len(order))
        here = np.flatnonzero((place_of[pairs.unit] >= 0) & self.allowed[pairs.node])
        here = here[np.lexsort((place_of[pairs.unit[here]], pairs.node[here]))]
        place, node = place_of[pairs.unit[here]], pairs.node[here]
        starts, fits = self.fits_after(here)
        gained = fits.copy()
        gained[1:] -= fits[:-1]
        gained[starts] = fits[starts] - before[node[starts]]
        by_place = np.bincount(place, weights=gained, minlength=len(order))
        total = before.sum() + np.concatenate([[0.0], np.cumsum(by_place)])
        return Prefixes(total, place, node, fits)

    def after(self, units: IntArray) -> float:
        """How many pods fit when all these units have left."""
        return float(self.after_each(units).total[-1])

    def fits_after(self, here: IntArray) -> tuple[IntArray, FloatArray]:
        """For pairs of allowed nodes, node by node: where each node starts, and what fits after each of its pairs."""
        pairs = self.table.unit_nodes
        node = pairs.node[here]
        runs = Runs(node)
        fits = self._fits(here, runs, self.future, pairs.held)
        if self.mask is not None and (is_reserved := self.mask[node]).any():
            fits[is_reserved] = np.minimum(fits[is_reserved], self._fits_reserved(here[is_reserved]))
        return runs.starts, fits

    def _fits(self, here: IntArray, runs: Runs, free: FloatArray, held: FloatArray) -> FloatArray:
        node, fits = self.table.unit_nodes.node[here], np.full(len(here), np.inf)
        for row, asked in self.asked:
            np.minimum(fits, np.floor((free[row, node] + runs.summed(held[row, here])) / asked), out=fits)
        np.maximum(fits, 0.0, out=fits)
        return fits

    def _fits_reserved(self, here: IntArray) -> FloatArray:
        """The same within what reservations leave to others."""
        session, node = self._session, self.table.unit_nodes.node[here]
        runs, spare = Runs(node), session.reserved.spare
        assert spare is not None
        fits = self._fits(here, runs, spare, self.table.spare_held)
        for ask in self._gpus:
            freed, freed_spare = self.table.freed_devices(ask.row)
            usable = np.minimum(
                session.gpus.future[ask.row][node] + runs.summed(freed[here]),
                session.gpus.spare[ask.row][node] + runs.summed(freed_spare[here]),
            )
            np.minimum(fits, (usable == WHOLE).sum(axis=1) // ask.count, out=fits)
        return fits


class RoomLeft:
    """The room with some units gone, in plain numbers, while units are put back one by one."""

    def __init__(self, room: CountedRoom, units: Iterable[int], total: float) -> None:
        """`total`: how many pods fit with these units gone."""
        self._room = room
        self._pairs = room.table.unit_nodes
        self.total = total
        self._gone: dict[int, list[int]] = {}  # node -> its pairs that are gone
        self._of_unit: dict[int, list[tuple[int, int]]] = {}  # unit -> (pair, node)
        for unit in units:
            first, end = np.searchsorted(self._pairs.unit, (unit, unit + 1)).tolist()
            nodes: list[int] = self._pairs.node[first:end].tolist()
            of_unit = [(first + nth, node) for nth, node in enumerate(nodes) if room.allowed[node]]
            self._of_unit[unit] = of_unit
            for pair, node in of_unit:
                self._gone.setdefault(node, []).append(pair)
        self._free: dict[int, list[float]] = {}  # node -> what is free there of what is asked for
        self._fits: dict[int, float] = {}

    def without(self, unit: int) -> float:
        """How many pods would fit if the unit stayed."""
        return self.total + sum(self._count(node, pair) - self._fits_on(node) for pair, node in self._of_unit[unit])

    def put_back(self, unit: int) -> None:
        for pair, node in self._of_unit[unit]:
            fits = self._count(node, pair)
            self.total += fits - self._fits_on(node)
            self._fits[node] = fits
            self._gone[node].remove(pair)
            self._free.pop(node, None)

    def _fits_on(self, node: int) -> float:
        fits = self._fits.get(node)
        if fits is None:
            fits = self._fits[node] = self._count(node, None)
        return fits

    def _count(self, node: int, staying: int | None) -> float:
        """What fits on the node with its pairs gone except `staying`."""
        room, pairs = self._room, self._pairs
        if room.mask is not None and room.mask[node]:
            here = [pair for pair in self._gone[node] if pair != staying]
            return float(room.fits_after(np.array(here))[1][-1]) if here else float(room.before[node])
        free = self._free.get(node)
        if free is None:
            gone = self._gone[node]
            free = self._free[node] = [
                float(room.future[row, node]) + sum(pairs.held[row, gone].tolist()) for row, _ in room.asked
            ]
        times = inf
        for (row, asked), amount in zip(room.asked, free, strict=True):
            times = min(times, (amount if staying is None else amount - float(pairs.held[row, staying])) / asked)
        return float(max(floor(times), 0))
