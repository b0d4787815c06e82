"""The room of a gang whose pods are counted, as arithmetic: how many fit after each unit of an order has left.

Where free resources alone decide how many pods fit on a node, nothing has to be supposed gone. For P pairs of a unit
and a node, one pass of O(P log P) answers for every prefix of an order, and a unit that is put back touches its own
nodes only. All else (shares of GPUs, mixed nodes, limits of queues, rules about other pods) must be supposed.
"""

from math import floor
from operator import sub, truediv
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
        self.rows: IntArray = np.flatnonzero(group.shape.requests)  # that a pod asks for, and how much
        self.amounts: list[float] = group.shape.requests[self.rows].tolist()
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
        for row, asked in zip(self.rows.tolist(), self.amounts, strict=True):
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

    def __init__(self, room: CountedRoom, units: IntArray, total: float) -> None:
        """`total`: how many pods fit with these units gone."""
        self._room = room
        self.total = total
        pairs = room.table.unit_nodes
        is_gone = np.zeros(len(room.table), dtype=bool)
        is_gone[units] = True
        gone = np.flatnonzero(is_gone[pairs.unit] & room.allowed[pairs.node])
        held = pairs.held[np.ix_(room.rows, gone)]
        self._held: dict[int, list[float]] = dict(zip(gone.tolist(), held.T.tolist(), strict=True))  # by pair
        self._gone: dict[int, list[int]] = {}  # node -> its pairs that are gone
        self._of_unit: dict[int, list[tuple[int, int]]] = {unit: [] for unit in units.tolist()}  # unit -> (pair, node)
        nodes, of_node = np.unique(pairs.node[gone], return_inverse=True)
        for pair, unit, node in zip(gone.tolist(), pairs.unit[gone].tolist(), pairs.node[gone].tolist(), strict=True):
            self._of_unit[unit].append((pair, node))
            self._gone.setdefault(node, []).append(pair)
        freed = np.array([np.bincount(of_node, weights=row, minlength=len(nodes)) for row in held])
        free = (room.future[np.ix_(room.rows, nodes)] + freed.reshape(len(room.rows), len(nodes))).T.tolist()
        # What is free on nodes of the resources that are asked for. Reserved nodes are counted anew each time.
        self._free: dict[int, list[float]] = dict(zip(nodes.tolist(), free, strict=True))
        self._reserved: set[int] = set() if room.mask is None else set(nodes[room.mask[nodes]].tolist())
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
            self._free[node] = list(map(sub, self._free[node], self._held[pair]))

    def _fits_on(self, node: int) -> float:
        fits = self._fits.get(node)
        if fits is None:
            fits = self._fits[node] = self._count(node, None)
        return fits

    def _count(self, node: int, staying: int | None) -> float:
        """What fits on the node with its pairs gone except `staying`."""
        room = self._room
        if node in self._reserved:
            here = [pair for pair in self._gone[node] if pair != staying]
            return float(room.fits_after(np.array(here))[1][-1]) if here else float(room.before[node])
        free = self._free[node]
        if staying is not None:
            free = list(map(sub, free, self._held[staying]))
        return float(max(floor(min(map(truediv, free, room.amounts))), 0))
