"""The units that an action may evict, as a table: one row a unit, cheapest first, with the pods of each.

An action builds the table once, in O(U log U + P) for U units of P pods, so that a search among thousands of units is
arithmetic on columns. The table never changes: evicted units are marked in a mask beside it. The rest of a job's units
stays valid, because an eviction never makes a surplus larger.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from maniple.model.job import Job, PlacedPod
from maniple.model.resources import BoolArray, FloatArray, IntArray
from maniple.model.running_columns import ranges
from maniple.scheduler.eviction.room_after import RoomAfter
from maniple.scheduler.eviction.units import Unit, UnitsOf, offered_units
from maniple.scheduler.framework.pod_columns import PodColumns
from maniple.scheduler.framework.session import Session

_NONE = -1


class UnitTable:
    """Units in order of cost. A unit has only the pods that no unit before it has.

    Some units have prerequisites, which must be evicted with them: a step of an elastic job has the steps above it, a
    whole gang has all its steps. `ordered` returns orders in which prerequisites come first, so that every prefix can
    be evicted as it is.
    """

    def __init__(self, session: Session, units: Iterable[Unit]) -> None:
        self._session = session
        self.units = _disjoint(sorted(units, key=lambda unit: unit.cost))
        numbers: dict[tuple[str, str], int] = {}
        self.jobs: list[Job] = []
        for unit in self.units:
            if numbers.setdefault(unit.job.key, len(numbers)) == len(self.jobs):
                self.jobs.append(unit.job)
        self.job_numbers = numbers
        self.job_of: IntArray = np.array([numbers[unit.job.key] for unit in self.units], dtype=np.intp)
        self.grades: FloatArray = np.array([unit.grade for unit in self.units], dtype=np.float64)
        self.losses: FloatArray = np.array([unit.loss for unit in self.units], dtype=np.float64)
        self.is_whole: BoolArray = np.array([unit.is_whole for unit in self.units], dtype=bool)
        self.counts: IntArray = np.array([len(unit.pods) for unit in self.units], dtype=np.intp)
        self._starts: IntArray = np.cumsum(self.counts) - self.counts
        self._whole_of: IntArray = np.full(len(self.jobs), _NONE, dtype=np.intp)  # job -> its whole unit
        self._whole_of[self.job_of[self.is_whole]] = np.flatnonzero(self.is_whole)
        # A chain is the steps of one role of an elastic job, the highest indices first.
        chains: dict[tuple[int, str], list[int]] = {}
        for number, unit in enumerate(self.units):
            if unit.size is not None:
                chains.setdefault((numbers[unit.job.key], unit.size[0]), []).append(number)
        # The chained units, chain by chain, and the chain of each.
        self._chained: IntArray = np.array([step for chain in chains.values() for step in chain], dtype=np.intp)
        self._chain: IntArray = np.repeat(np.arange(len(chains)), [len(chain) for chain in chains.values()])
        self.chain_of: IntArray = np.full(len(self.units), _NONE, dtype=np.intp)
        self.chain_of[self._chained] = self._chain
        self._below = {above: step for chain in chains.values() for above, step in itertools.pairwise(chain)}
        self._spare_held: tuple[BoolArray | None, FloatArray] = (None, np.zeros(0))
        self._freed_devices: dict[int, tuple[BoolArray | None, IntArray, IntArray]] = {}  # see freed_devices
        self.has_prerequisites = bool(self._below) or len(self.units) > len(self.jobs)

    def __len__(self) -> int:
        return len(self.units)

    @cached_property
    def room_after(self) -> RoomAfter:
        return RoomAfter(self._session, self)

    @cached_property
    def pods(self) -> PodColumns:
        """The pods, unit by unit."""
        queues = np.repeat(np.array([unit.job.queue for unit in self.units], dtype=np.intp), self.counts)
        return PodColumns(self._session, [pod for unit in self.units for pod in unit.pods], queues)

    @cached_property
    def unit_nodes(self) -> "UnitNodes":
        units = np.repeat(np.arange(len(self)), self.counts)
        width = int(self.pods.nodes.max(initial=0)) + 1
        pairs, of_pod = np.unique(units * width + self.pods.nodes, return_inverse=True)
        held = np.array([np.bincount(of_pod, weights=row, minlength=len(pairs)) for row in self.pods.requests])
        return UnitNodes(*np.divmod(pairs, width), held, of_pod)

    @property
    def spare_held(self) -> FloatArray:
        """[R, pairs] what units hold on nodes and no reservation counts on."""
        spare, pairs = self.pods.spare(), self.unit_nodes
        if spare is None:
            return pairs.held
        if self._spare_held[0] is not spare:
            rows = [np.bincount(pairs.of_pod, row, len(pairs.unit)) for row in self.pods.requests * spare]
            self._spare_held = spare, np.array(rows)
        return self._spare_held[1]

    def freed_devices(self, row: int) -> tuple[IntArray, IntArray]:
        """[pairs, G] thousandths of each device that units give back, and those no reservation counts on."""
        spare = self.pods.spare()
        known = self._freed_devices.get(row)
        if known is None or known[0] is not spare:
            parts = self.pods.device_parts
            is_row = parts.rows == row
            owners, devices, millis = parts.owners[is_row], parts.devices[is_row], parts.millis[is_row]
            freed = np.zeros((len(self.unit_nodes.unit), self._session.gpus.future[row].shape[1]), dtype=np.intp)
            freed_spare = freed.copy()
            np.add.at(freed, (self.unit_nodes.of_pod[owners], devices), millis)
            is_spare = np.ones(len(owners), dtype=bool) if spare is None else spare[owners]
            np.add.at(freed_spare, (self.unit_nodes.of_pod[owners], devices), np.where(is_spare, millis, 0))
            known = self._freed_devices[row] = spare, freed, freed_spare
        return known[1:]

    @cached_property
    def grade_codes(self) -> IntArray:
        """The grades as numbers 0, 1, … in the same order."""
        codes: IntArray = np.unique(self.grades, return_inverse=True)[1]
        return codes

    @cached_property
    def kinds(self) -> IntArray:
        """Rules on victims cannot tell units of the same kind apart."""
        numbers: dict[object, int] = {}
        demands = self._session.demands
        kinds = [(demands.of_victims(unit.job, unit.pods), demands.serial()) for unit in self.units]
        return np.array([numbers.setdefault(kind, len(numbers)) for kind in kinds], dtype=np.intp)

    def of_jobs(self, is_wanted: Callable[[Job], bool]) -> BoolArray:
        """[units] those of the jobs for which `is_wanted` holds."""
        return np.array([is_wanted(job) for job in self.jobs], dtype=bool)[self.job_of]

    def of_queue(self, queue: int, below: float = np.inf) -> BoolArray:
        """[units] those of the queue's jobs with a priority `below` that."""
        return np.asarray(((self._queues == queue) & (self._priorities < below))[self.job_of])

    @cached_property
    def _queues(self) -> IntArray:
        return np.array([job.queue for job in self.jobs], dtype=np.intp)

    @cached_property
    def _priorities(self) -> IntArray:
        return np.array([job.priority for job in self.jobs], dtype=np.int64)

    def pods_of(self, units: IntArray) -> IntArray:
        """Returns the numbers of the units' pods."""
        return ranges(self._starts[units], self.counts[units])

    # -- prerequisites

    def ordered(self, order: IntArray, left: BoolArray) -> IntArray:
        """Returns `order` with the prerequisites of each unit before it, without the units that are not in `left`."""
        if not self.has_prerequisites:
            return order
        place = np.full(len(self), len(self), dtype=np.intp)
        place[order] = np.arange(len(order))
        has_whole = self._whole_of >= 0
        place_of_whole = np.full(len(self.jobs), len(self), dtype=np.intp)
        place_of_whole[has_whole] = place[self._whole_of[has_whole]]
        np.minimum(place, place_of_whole[self.job_of], out=place)
        # A step moves up to the place of the step below it. `base` keeps the chains apart in one running minimum.
        chained, base = self._chained[::-1], self._chain[::-1] * (len(self) + 1)
        place[chained] = np.minimum.accumulate(place[chained] + base) - base
        units = np.flatnonzero((place < len(self)) & left)
        return units[np.argsort(place[units], kind="stable")]

    def dragged(self, left: BoolArray) -> IntArray:
        """Returns how many pods are evicted with each unit, those of its prerequisites in `left` included."""
        counts = self.counts * left
        if not self.has_prerequisites:
            return counts
        total = counts.copy()
        running = np.cumsum(counts[self._chained])
        starts = np.flatnonzero(np.diff(self._chain, prepend=_NONE))
        before = running[starts] - counts[self._chained[starts]]
        total[self._chained] = running - before[self._chain]
        of_job = np.bincount(self.job_of, weights=counts, minlength=len(self.jobs)).astype(np.intp)
        total[self.is_whole] = of_job[self.job_of[self.is_whole]]
        return total

    def is_needed(self, unit: int, chosen: BoolArray) -> bool:
        """Whether the unit is a prerequisite of one that is chosen."""
        whole, below = int(self._whole_of[self.job_of[unit]]), self._below.get(unit, _NONE)
        return bool((whole not in (_NONE, unit) and chosen[whole]) or (below != _NONE and chosen[below]))

    def with_dependents(self, units: IntArray) -> BoolArray:
        """Returns the mask of the units and of all units that have one of them as a prerequisite."""
        dependents = np.zeros(len(self), dtype=bool)
        dependents[units] = True
        wholes = self._whole_of[self.job_of[units]]
        dependents[wholes[wholes >= 0]] = True
        base = self._chain * 2  # keeps the chains apart in one running maximum
        dependents[self._chained] = np.maximum.accumulate(dependents[self._chained] + base) > base
        return dependents


def _disjoint(units: Sequence[Unit]) -> list[Unit]:
    """Returns the units, each without the pods of those before it; units without pods are left out."""
    seen: set[PlacedPod] = set()
    disjoint = []
    for unit in units:
        is_disjoint = seen.isdisjoint(unit.pods)
        own = unit if is_disjoint else replace(unit, pods=tuple(pod for pod in unit.pods if pod not in seen))
        if own.pods:
            disjoint.append(own)
            seen.update(own.pods)
    return disjoint


@dataclass(frozen=True, slots=True, eq=False)
class UnitNodes:
    """The pairs of a unit and a node that it has pods on, as columns."""

    unit: IntArray
    node: IntArray
    held: FloatArray  # [R, pairs] what the unit's pods on the node hold
    of_pod: IntArray  # pod -> its pair


class OfferedUnits:
    """The units that an action may evict, and which of them are left. The first claimant builds the table."""

    def __init__(self, session: Session, jobs: Iterable[Job], units_of: UnitsOf = offered_units) -> None:
        self._session = session
        self._jobs = jobs
        self._units_of = units_of

    @cached_property
    def table(self) -> UnitTable:
        session = self._session
        return UnitTable(session, (unit for job in self._jobs if job.placed for unit in self._units_of(session, job)))

    @cached_property
    def left(self) -> BoolArray:
        """[units] those that are neither evicted nor withdrawn."""
        return np.ones(len(self.table), dtype=bool)

    def of_others(self, job: Job) -> BoolArray:
        """[units] all but the job's own."""
        return np.asarray(self.table.job_of != self.table.job_numbers.get(job.key, _NONE))

    def take(self, units: IntArray) -> None:
        self.left[units] = False

    def withdraw(self, job: Job) -> None:
        """Takes what the job holds off the offer."""
        if job.key in self.table.job_numbers:
            self.left[~self.of_others(job)] = False
