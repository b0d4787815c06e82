"""One gang's trial evictions: whether it fits without some units, and the fewest of a given order that it needs gone.

A trial supposes units gone and leaves the session as it was; only `commit` evicts. More evictions do not make a gang
fit worse, so a search over the length of the order finds the shortest prefix of U units in O(log U) fits; putting units
back takes up to one fit each. A gang that needs other pods, by affinity or spread, is the exception: evictions may take
these away. For it _MOST_TRIED prefixes are tried one by one, then each twice as long.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import numpy as np

from maniple.model.job import Job, Queue, TaskGroup
from maniple.model.resources import BoolArray, FloatArray, IntArray
from maniple.scheduler.eviction.counted_room import CountedRoom, RoomLeft, counts_alone
from maniple.scheduler.eviction.room_after import RoomAfter
from maniple.scheduler.eviction.supposed_gone import SupposedGone
from maniple.scheduler.eviction.unit_table import UnitTable
from maniple.scheduler.eviction.units import Unit
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.statement import Statement
from maniple.scheduler.placement.domains_and_models import room_in, scopes
from maniple.scheduler.placement.placement_search import place_gang

_GROWTH = 8  # factor by which the prefix grows while the gang does not fit
_MOST_TRIED = 48  # units put back one by one where each means a placement of the whole gang
_ROUNDING = 1e-6


# The reason for which each of the units leaves for the claimant.
ReasonOf = Callable[[Job, Sequence[Unit]], Sequence[str]]


class Trial:
    def __init__(
        self,
        session: Session,
        table: UnitTable,
        queue: Queue,
        job: Job,
        may_take: Callable[[BoolArray], bool] | None = None,
        room_after: RoomAfter | None = None,
    ) -> None:
        """`may_take`: whether the gang may have these units gone; more of them never make that worse.

        `room_after`: counts of earlier trials, if nothing is supposed and no statement is open.
        """
        self._session = session
        self._table = table
        self._may_take = may_take
        self._room_after = room_after
        self._gone: BoolArray | None = None  # the units that are supposed gone
        self.queue = queue
        self.job = job
        self.need = session.job_need(job)
        self._groups = session.groups(job)
        self.group = _main_group(session, self._groups)
        affinities = [group.pod_affinity for group in self._groups if group.pod_affinity is not None]
        # Whether an eviction can make the gang, or another gang's promise, fit worse.
        self.needs_pods = bool(session.promised_pods) or any(affinity.needs_pods for affinity in affinities)
        self._company = [term for affinity in affinities for term in affinity.affinity]
        is_counted = len(self._groups) == 1 and _is_countable(session, self.group)
        self._is_counted = is_counted and not session.promised_pods
        self._is_unbound = not (job.required or job.preferred or session.gpus.is_mixed)  # to domains and models

    @property
    def is_single(self) -> bool:
        """Whether room for one pod is all that is missing."""
        return self._is_counted and self.need.total == 1

    @cached_property
    def _before(self) -> tuple[FloatArray, FloatArray]:
        """Returns how many pods fit on each node, and what is free there of the resources they request.

        The first call must come before any unit is supposed gone.
        """
        asked = np.flatnonzero(self.group.shape.requests)
        return self._session.room_for(self.group, later=True).copy(), self._session.future[asked]

    @property
    def room(self) -> FloatArray:
        """[N] how many pods fit without evictions."""
        return self._before[0]

    @property
    def missing(self) -> int:
        """How many pods of the gang do not fit without evictions; at least one."""
        return max(1, self.need.total - int(self.room.sum()))

    def is_fewest(self, units: IntArray) -> bool:
        """Whether it is certain that no smaller number of pods makes room."""
        return self._are_fewest(int(self._table.counts[units].sum()))

    def _are_fewest(self, pods: int) -> bool:
        return pods == 1 or pods <= self._fewest_pods

    @cached_property
    def _fewest_pods(self) -> int:
        """A lower bound for the number of evicted pods; 0 if there is none.

        On each node one resource is the shortest. Say it is enough for 2.3 pods of the gang, and each victim holds at
        most half of what such a pod requests: a third pod fits after two evictions, not before. The fraction 0.3 helps
        on at most as many nodes as pods are missing. So at least (missing - fractions) / (largest victim) pods go.
        """
        shape, gpus = self.group.shape, self._session.gpus
        is_plain = self._is_counted and self._is_unbound and self._session.reserved.mask is None
        rows = np.flatnonzero(shape.requests)
        if not is_plain or gpus.is_counted(shape) or not len(rows):
            return 0
        asked = shape.requests[rows]
        largest = self._table.pods.largest[rows] / asked
        order = np.argsort(largest)  # of two resources that are equally short, the one with the smaller victims counts
        times = (self._before[1] / asked[:, None])[order]
        shortest = times.min(axis=0)
        fractions = float(np.sort(shortest - np.floor(shortest))[::-1][: self.missing].sum())
        most = float(largest[order][np.unique(times.argmin(axis=0))].max())
        missing = self.need.total - int(self.room.sum())
        return math.ceil((missing - fractions) / most - _ROUNDING) if most > 0 and math.isfinite(fractions) else 0

    def fits(self, *, later: bool = True) -> bool:
        """Whether the gang could start: now, or (`later`) once all leaving pods are gone."""
        may_take = self._may_take is None or self._gone is None or self._may_take(self._gone)
        return may_take and self._has_room(later=later)

    def _has_room(self, *, later: bool = True) -> bool:
        session = self._session
        if not self._is_counted:
            return self._nodes(later=later) is not None
        # Equal pods without affinity to each other fit wherever there is room for their number.
        if session.may_start(self.queue, self.job, self.group.shape.requests * self.need.total) is not None:
            return False
        if self._is_unbound:
            if later and self._gone is None and self._room_after is not None:
                return self._room_after.count(self.group) >= self.need.total
            return bool(session.room_for(self.group, later=later).sum() >= self.need.total)
        return any(
            room_in(session, self.group, scope, later=later).sum() >= self.need.total
            for scope in scopes(session, self.job, self.need, self._groups, later=later)
        )

    def _nodes(self, *, later: bool = True) -> set[int] | None:
        """Returns the nodes the gang would use; None if it does not fit."""
        with Statement(self._session) as gang:
            return gang.nodes() if self.place(gang, later=later) else None

    def place(self, gang: Statement, *, later: bool = True) -> bool:
        """Places the gang; False if it could not start there."""
        session, job = self._session, self.job
        before = session.state(job).allocated.copy()
        if not place_gang(session, gang, job, later=later) or not session.job_pipelined(job):
            return False
        if not session.promised_pods.hold(gang.placed()):
            return False
        return session.may_start(self.queue, job, session.state(job).allocated - before, is_charged=True) is None

    def commit(self, units: IntArray, reason_of: ReasonOf) -> bool:
        """Evicts the units and nominates the gang for their room; does nothing and returns False if it does not fit."""
        with Statement(self._session) as statement:
            victims = [self._table.units[unit] for unit in units.tolist()]
            whole = {unit.job.key for unit in victims if unit.is_whole}
            reasons = reason_of(self.job, victims)
            for unit, reason in zip(victims, reasons, strict=True):
                for pod in unit.pods:
                    statement.evict(unit.job, pod, reason, self.job.name)
                if unit.size is not None and unit.job.key not in whole:
                    statement.resize(unit.job, *unit.size)
            # The gang has its own statement: a failed placement rolls that back, and must keep the evictions.
            with Statement(self._session) as gang:
                if not self.place(gang):
                    return False
                statement.commit()
                gang.commit()
                return True

    # -- the search

    def is_hopeless(self, units: BoolArray) -> bool:
        """Whether it is certain that the gang has no room although all these units leave: fewer make no more."""
        if not self._is_counted or self.needs_pods:
            return False
        is_long = np.count_nonzero(units) > _GROWTH * self.missing
        few = np.flatnonzero(units)[: self.missing] if is_long else None
        if few is not None and self._counted is not None and self._counted.after(few) >= self.need.total:
            return False  # a few of many are enough
        if self._room_after is None or not self._is_unbound:
            return not self.fits_without(np.flatnonzero(units))
        return self._room_after.count(self.group, units) < self.need.total

    def fewest(self, order: IntArray) -> IntArray | None:
        """Returns the shortest prefix of `order` that makes room, without its units that are not needed; or None."""
        first_look = min(self.missing, len(order))
        if (counted := self._counted) is not None:
            return self._fewest_counted(counted, order, first_look)
        with SupposedGone(self._session, self._table, as_neighbours=not self._is_counted) as gone:
            self._gone = gone.units
            if not self._take_enough(order, first_look, gone):
                return None
            if not self.is_fewest(order[gone.units[order]]):
                if self._is_counted or int(gone.units.sum()) > _MOST_TRIED:
                    self._put_back_idle(order, gone)
                self._put_back(order, gone)
            return order[gone.units[order]]

    @cached_property
    def _counted(self) -> CountedRoom | None:
        """The room as arithmetic, if nothing but free resources decides."""
        is_plain = self._is_counted and self._is_unbound and not self.needs_pods
        if not is_plain or not counts_alone(self._session, self._table, self.group):
            return None
        return CountedRoom(self._session, self._table, self.group)

    def _fewest_counted(self, counted: CountedRoom, order: IntArray, first_look: int) -> IntArray | None:
        """The same search without supposing anything gone."""
        more = self.group.shape.requests * self.need.total
        if self._session.may_start(self.queue, self.job, more) is not None:
            return None
        prefixes = counted.after_each(order[:first_look])
        gone = np.zeros(len(self._table), dtype=bool)

        def fits(length: int) -> bool:
            nonlocal prefixes
            if length >= len(prefixes.total):  # an order may have thousands of units of which a few are enough
                prefixes = counted.after_each(order[:length])
            if self._may_take is not None:
                gone[order] = np.arange(len(order)) < length
            return self._may_take_now(gone) and bool(prefixes.total[length] >= self.need.total)

        length = self._shortest(order, first_look, fits)
        if length is None:
            return None
        gone[order] = np.arange(len(order)) < length
        if not self.is_fewest(order[gone[order]]):
            is_there = prefixes.place < length
            is_used = np.zeros(len(self.room), dtype=bool)
            nodes = prefixes.node[is_there]
            is_used[nodes] = prefixes.fits[is_there] > self.room[nodes]  # the last of a node counts: it fits most
            self._keep_idle(order, gone, is_used)
            self._keep_spare(RoomLeft(counted, np.flatnonzero(gone), float(prefixes.total[length])), order, gone)
        return order[gone[order]]

    def _may_take_now(self, gone: BoolArray) -> bool:
        return self._may_take is None or self._may_take(gone)

    def _keep_idle(self, order: IntArray, gone: BoolArray, is_used: BoolArray) -> None:
        """Un-evicts, in one batch, victims on nodes the gang does not use. That takes none of its room."""
        idle = self._idle(order, gone, is_used)
        gone[idle] = False
        if len(idle) and not self._may_take_now(gone):
            gone[idle] = True

    def _keep_spare(self, left: RoomLeft, order: IntArray, gone: BoolArray) -> None:
        """Un-evicts, one by one and last first, each unit without which the gang still fits."""
        pods = int(self._table.counts[gone].sum())
        for unit in order[gone[order]][::-1].tolist():
            if self._table.is_needed(unit, gone):
                continue
            if self._are_fewest(pods):
                return
            gone[unit] = False
            if left.without(unit) >= self.need.total and self._may_take_now(gone):
                left.put_back(unit)
                pods -= int(self._table.counts[unit])
            else:
                gone[unit] = True

    def fits_without(self, units: IntArray) -> bool:
        """Whether the gang would have room if all these units were gone."""
        with SupposedGone(self._session, self._table, as_neighbours=not self._is_counted) as gone:
            gone.add(units)
            self._gone = gone.units
            return self._has_room()

    def is_company(self, unit: int) -> bool:
        """Whether the gang's required affinity may need a pod of the unit."""
        return bool(self._terms_met(unit))

    def company_sets(self, company: Sequence[int]) -> Iterator[IntArray]:
        """Units of `company` that may be enough for the gang's affinity if they stay. Later units are more expensive.

        First one unit for each term on every node. Then for each unit, the most expensive first: the unit, and one more
        for each term that it does not meet, on its own nodes if possible.
        """
        met = {unit: self._terms_met(unit) for unit in company}
        nodes = {unit: {pod.node for pod in self._table.units[unit].pods} for unit in company}
        for units in (company, company[::-1]):
            by_place = {(node, term): unit for unit in units for node in nodes[unit] for term in met[unit]}
            yield np.unique([*by_place.values()])
        for first in reversed(company):
            staying, missing = [first], set(range(len(self._company))) - met[first]
            near = [unit for unit in reversed(company) if not nodes[unit].isdisjoint(nodes[first])]
            for unit in [*near, *reversed(company)]:
                if not missing.isdisjoint(met[unit]):
                    staying.append(unit)
                    missing -= met[unit]
            yield np.array(staying)

    def _terms_met(self, unit: int) -> set[int]:
        """The required affinity terms for which a pod of the unit may be the company."""
        affinities = [pod.pod_affinity for pod in self._table.units[unit].pods if pod.pod_affinity is not None]
        return {number for number, term in enumerate(self._company) if any(a.match(term) for a in affinities)}

    def _take_enough(self, order: IntArray, first_look: int, gone: SupposedGone) -> bool:
        """Supposes the shortest prefix that makes room gone, trying `first_look` units first; False if none does."""
        if self.needs_pods:
            return self._take_one_by_one(order, gone)
        length = 0  # of the prefix that is supposed gone

        def suppose(wanted: int) -> None:
            nonlocal length
            gone.add(order[length:wanted])
            gone.remove(order[wanted:length])
            length = wanted

        def fits(wanted: int) -> bool:
            suppose(wanted)
            return self.fits()

        enough = self._shortest(order, first_look, fits)
        if enough is None:
            return False
        suppose(enough)
        return True

    def _shortest(self, order: IntArray, first_look: int, fits: Callable[[int], bool]) -> int | None:
        """The length of the shortest prefix that makes room, trying `first_look` units first; None if none does."""
        too_few, enough = 0, first_look
        while not fits(enough):
            if enough == len(order):
                return None
            too_few, enough = enough, min(enough * _GROWTH, len(order))
        while enough - too_few > 1 and not self.is_fewest(order[:enough]):
            middle = (too_few + enough) // 2
            if fits(middle):
                enough = middle
            else:
                too_few = middle
        return enough

    def _take_one_by_one(self, order: IntArray, gone: SupposedGone) -> bool:
        """The same where a longer prefix may fit worse, because a gang needs pods in it."""
        length = 0
        while length < len(order):
            longer = min(length + 1 if length < _MOST_TRIED else length * 2, len(order))
            gone.add(order[length:longer])
            length = longer
            if self.fits():
                return True
        return False

    def _put_back_idle(self, order: IntArray, gone: SupposedGone) -> None:
        """Un-evicts, in one batch, victims on nodes the gang does not use."""
        if self._is_counted:
            is_used = self._session.room_for(self.group, later=True) > self.room
        else:
            is_used = np.zeros(len(self.room), dtype=bool)
            is_used[list(self._nodes() or ())] = True
        idle = self._idle(order, gone.units, is_used)
        gone.remove(idle)
        if len(idle) and not self.fits():
            gone.add(idle)

    def _idle(self, order: IntArray, gone: BoolArray, is_used: BoolArray) -> IntArray:
        """The units that are gone, on nodes that are not used, and no prerequisites of others that stay gone."""
        table = self._table
        units = order[gone[order]]
        pods, owner = table.pods_of(units), np.repeat(np.arange(len(units)), table.counts[units])
        idle = units[np.bincount(owner, weights=is_used[table.pods.nodes[pods]], minlength=len(units)) == 0]
        return self._without_dependents(idle, gone) if table.has_prerequisites else idle

    def _without_dependents(self, units: IntArray, gone: BoolArray) -> IntArray:
        """Returns the units that are no prerequisite of a unit that stays evicted."""
        evicted = gone.copy()
        free = []
        for unit in units[::-1].tolist():
            if not self._table.is_needed(unit, evicted):
                evicted[unit] = False
                free.append(unit)
        return np.array(free, dtype=np.intp)

    def _put_back(self, order: IntArray, gone: SupposedGone) -> None:
        """Un-evicts, one by one and last first, each unit without which the gang still fits."""
        for unit in order[gone.units[order]][::-1].tolist():
            if self._table.is_needed(unit, gone.units):
                continue
            if self.is_fewest(np.flatnonzero(gone.units)):
                return
            alone = np.array([unit])
            gone.remove(alone)
            if not self.fits():
                gone.add(alone)


def _is_countable(session: Session, group: TaskGroup) -> bool:
    """Whether the number of pods that fit on each node is all there is to know about placing the group."""
    shape = group.shape
    return not session.depends_on_pods(group) and not shape.exclusives and not (shape.gpus and shape.gpus[0].memory)


def _main_group(session: Session, groups: list[TaskGroup]) -> TaskGroup:
    """Returns the group that is hardest to place: it stands for the gang."""
    if len(groups) == 1:
        return groups[0]
    total = np.maximum(session.snapshot.total, 1.0)
    return max(groups, key=lambda group: (float((group.shape.requests / total).max()), -group.number))
