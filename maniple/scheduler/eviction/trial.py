"""One gang's search for the fewest units that must go, in an order that is given: whether it fits, and who can stay."""

import math
from functools import cached_property

import numpy as np

from maniple.model.job import Job, Queue, TaskGroup
from maniple.model.resources import FloatArray, IntArray
from maniple.scheduler.eviction.supposed_gone import SupposedGone
from maniple.scheduler.eviction.unit_table import UnitTable
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.statement import Statement
from maniple.scheduler.placement.domains_and_models import room_in, scopes
from maniple.scheduler.placement.search import place_gang

_GROWTH = 8  # so many times as many units are looked at when some were not enough
_MOST_TRIED = 48  # units that are put back one by one where that means to look for places for all of the gang
_ROUNDING = 1e-6


class Trial:
    def __init__(self, session: Session, table: UnitTable, queue: Queue, job: Job) -> None:
        self._session = session
        self._table = table
        self.queue = queue
        self.job = job
        self.need = session.job_need(job)
        self._groups = session.groups(job)
        self.group = _main_group(session, self._groups)
        self._is_counted = len(self._groups) == 1 and _says_all(self.group)
        self._is_unbound = not (job.required or job.preferred or session.gpus.is_mixed)  # to domains and models

    @property
    def is_single(self) -> bool:
        """Whether room for one pod is all that is missing."""
        return self._is_counted and self.need.total == 1

    @cached_property
    def _before(self) -> tuple[FloatArray, FloatArray]:
        """How many pods fit on each node, and what is free there of all that they ask for. To be asked for the first
        time before anybody is supposed to be gone.
        """
        asked = np.flatnonzero(self.group.shape.requests)
        return self._session.room_for(self.group, later=True).copy(), self._session.future[asked]

    @property
    def room(self) -> FloatArray:
        """How many pods fit on each node before anybody leaves."""
        return self._before[0]

    @property
    def missing(self) -> int:
        """How many pods of the gang there is no room for before anybody leaves; at least one does not fit."""
        return max(1, self.need.total - int(self.room.sum()))

    def is_fewest(self, units: IntArray) -> bool:
        """Whether it is known that no fewer pods than those of the units can make room."""
        pods = int(self._table.counts[units].sum())
        return pods == 1 or pods <= self._fewest_pods

    @cached_property
    def _fewest_pods(self) -> int:
        """So many pods must go at least; 0: that cannot be said.

        On each node one resource is the shortest. A node that has enough of it for 2.3 pods of the gang, and loses pods
        that have at most half as much of it as one of them, takes in a third when two have gone, and not before. At
        most as many nodes as pods are missing can help with such a rest.
        """
        shape, gpus = self.group.shape, self._session.gpus
        is_plain = self._is_counted and self._is_unbound and self._session.reserved.mask is None
        rows = np.flatnonzero(shape.requests)
        if not is_plain or gpus.is_counted(shape) or not len(rows):
            return 0
        asked = shape.requests[rows]
        helps = self._table.largest[rows] / asked
        order = np.argsort(helps)  # of two resources that are as short the one counts that helps less
        times = (self._before[1] / asked[:, None])[order]
        shortest = times.min(axis=0)
        rests = float(np.sort(shortest - np.floor(shortest))[::-1][: self.missing].sum())
        most = float(helps[order][np.unique(times.argmin(axis=0))].max())
        missing = self.need.total - int(self.room.sum())
        return math.ceil((missing - rests) / most - _ROUNDING) if most > 0 and math.isfinite(rests) else 0

    def fits(self, *, later: bool = True) -> bool:
        """Whether the gang would start, now or if those who are leaving had left."""
        session = self._session
        if not self._is_counted:
            return self._nodes(later=later) is not None
        # Pods that are alike and do not mind each other fit wherever there is room for so many.
        if session.admissible(self.queue, self.group.shape.requests * self.need.total) is not None:
            return False
        if self._is_unbound:
            return bool(session.room_for(self.group, later=later).sum() >= self.need.total)
        return any(
            room_in(session, self.group, scope, later=later).sum() >= self.need.total
            for scope in scopes(session, self.job, self.need, self._groups, later=later)
        )

    def _nodes(self, *, later: bool = True) -> set[int] | None:
        """The nodes to which the gang would go; None: it does not fit."""
        with Statement(self._session) as gang:
            return gang.nodes() if self._place(gang, later=later) else None

    def _place(self, gang: Statement, *, later: bool = True) -> bool:
        session, job = self._session, self.job
        before = session.state(job).allocated.copy()
        if not place_gang(session, gang, job, later=later) or not session.job_pipelined(job):
            return False
        return session.admissible(self.queue, session.state(job).allocated - before, is_charged=True) is None

    def commit(self, units: IntArray, reason: str) -> bool:
        """Evicts the units and promises the gang its room, if it does fit then."""
        with Statement(self._session) as statement:
            going = [self._table.units[unit] for unit in units.tolist()]
            whole = {unit.job.key for unit in going if unit.is_whole}
            for unit in going:
                for pod in unit.pods:
                    statement.evict(unit.job, pod, reason, self.job.name)
                if unit.size is not None and unit.job.key not in whole:
                    statement.resize(unit.job, *unit.size)
            # A search that fails rolls back what it placed itself, never the evictions before it.
            with Statement(self._session) as gang:
                if not self._place(gang):
                    return False
                statement.commit()
                gang.commit()
                return True

    # -- the search

    def fewest(self, order: IntArray) -> IntArray | None:
        """The fewest units from the front of `order` that make room, without those that are not needed for it."""
        first_look = min(self.missing, len(order))
        with SupposedGone(self._session, self._table) as gone:
            if not self._take_enough(order, first_look, gone):
                return None
            if not self.is_fewest(order[gone.units[order]]):
                if self._is_counted or int(gone.units.sum()) > _MOST_TRIED:
                    self._put_back_idle(order, gone)
                self._put_back(order, gone)
            return order[gone.units[order]]

    def _take_enough(self, order: IntArray, first_look: int, gone: SupposedGone) -> bool:
        """As many as are needed leave, from the front; so many are tried first."""
        too_few, enough = 0, first_look
        gone.add(order[:enough])
        while not self.fits():
            if enough == len(order):
                return False
            too_few, enough = enough, min(enough * _GROWTH, len(order))
            gone.add(order[too_few:enough])
        there = enough
        while enough - too_few > 1 and not self.is_fewest(order[:enough]):
            middle = (too_few + enough) // 2
            gone.add(order[there:middle])
            gone.remove(order[middle:there])
            there = middle
            if self.fits():
                enough = middle
            else:
                too_few = middle
        gone.add(order[there:enough])
        return True

    def _put_back_idle(self, order: IntArray, gone: SupposedGone) -> None:
        """Those leave not after all who are only on nodes that do not matter: many, and all at once."""
        if self._is_counted:
            matters = self._session.room_for(self.group, later=True) > self.room
        else:
            matters = np.zeros(len(self.room), dtype=bool)
            matters[list(self._nodes() or ())] = True
        table = self._table
        units = order[gone.units[order]]
        pods, owner = table.pods_of(units), np.repeat(np.arange(len(units)), table.counts[units])
        idle = units[np.bincount(owner, weights=matters[table.nodes[pods]], minlength=len(units)) == 0]
        if table.is_linked:
            idle = self._free_to_stay(idle, gone)
        gone.remove(idle)
        if len(idle) and not self.fits():
            gone.add(idle)

    def _free_to_stay(self, units: IntArray, gone: SupposedGone) -> IntArray:
        """Those of the units that none of the others which go needs gone."""
        going = gone.units.copy()
        free = []
        for unit in units[::-1].tolist():
            if not self._table.is_needed(unit, going):
                going[unit] = False
                free.append(unit)
        return np.array(free, dtype=np.intp)

    def _put_back(self, order: IntArray, gone: SupposedGone) -> None:
        """One by one, last first."""
        for unit in order[gone.units[order]][::-1].tolist():
            if self._table.is_needed(unit, gone.units):
                continue
            if self.is_fewest(np.flatnonzero(gone.units)):
                return
            one = np.array([unit])
            gone.remove(one)
            if not self.fits():
                gone.add(one)


def _says_all(group: TaskGroup) -> bool:
    """Whether how many of its pods fit on each node says all about where they can go, and what they will hold there."""
    shape = group.shape
    return group.pod_affinity is None and not shape.exclusives and not (shape.gpus and shape.gpus[0].memory)


def _main_group(session: Session, groups: list[TaskGroup]) -> TaskGroup:
    """The group that is hardest to place speaks for the gang."""
    if len(groups) == 1:
        return groups[0]
    total = np.maximum(session.snapshot.total, 1.0)
    return max(groups, key=lambda group: (float((group.shape.requests / total).max()), -group.number))
