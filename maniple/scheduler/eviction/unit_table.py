"""The units that an action may take, as a table: one row a unit, cheapest first, and the pods that go with each.

Made once for an action, so that a search among thousands of units is arithmetic on columns. What has been taken is
crossed out. What is left of a job after that can still be taken as it was offered: its surplus is no larger for it.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from maniple.model.job import Job, PlacedPod
from maniple.model.resources import BoolArray, FloatArray, IntArray
from maniple.scheduler.eviction.units import Unit, UnitsOf, offered_units
from maniple.scheduler.framework.session import Session
from maniple.scheduler.reservation.book import Reservation

_NONE = -1


class UnitTable:
    """Units in order of cost; each has the pods that no unit before it has.

    Some need others gone: a step of an elastic job those above it, a gang whole all its steps. An order that respects
    this is made by `ordered`; in one of those, every part from the front can be evicted as it is.
    """

    def __init__(self, session: Session, units: Iterable[Unit]) -> None:
        self._session = session
        self._spare: tuple[tuple[Reservation, ...], BoolArray] = ((), np.zeros(0, dtype=bool))
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
        self._whole_of: IntArray = np.full(len(self.jobs), _NONE, dtype=np.intp)  # job -> its unit that is a gang whole
        self._whole_of[self.job_of[self.is_whole]] = np.flatnonzero(self.is_whole)
        # Steps with a size, chain by chain, and the number of the chain; within one from the upper end down.
        chains: dict[tuple[int, str], list[int]] = {}
        for number, unit in enumerate(self.units):
            if unit.size is not None:
                chains.setdefault((numbers[unit.job.key], unit.size[0]), []).append(number)
        self._links: IntArray = np.array([step for chain in chains.values() for step in chain], dtype=np.intp)
        self._chain: IntArray = np.repeat(np.arange(len(chains)), [len(chain) for chain in chains.values()])
        self.chain_of: IntArray = np.full(len(self.units), _NONE, dtype=np.intp)
        self.chain_of[self._links] = self._chain
        self._below = {above: step for chain in chains.values() for above, step in itertools.pairwise(chain)}
        self.is_linked = bool(self._below) or len(self.units) > len(self.jobs)

    def __len__(self) -> int:
        return len(self.units)

    # -- pods, unit by unit

    @cached_property
    def pods(self) -> list[PlacedPod]:
        return [pod for unit in self.units for pod in unit.pods]

    @cached_property
    def nodes(self) -> IntArray:
        return np.array([pod.node for pod in self.pods], dtype=np.intp)

    @cached_property
    def requests(self) -> FloatArray:
        """[R, pods]; pods that ask for the same share a vector, so there are few."""
        kinds: dict[int, int] = {}
        vectors: list[FloatArray] = []
        number_of = []
        for pod in self.pods:
            kind = kinds.setdefault(id(pod.requests), len(vectors))
            if kind == len(vectors):
                vectors.append(pod.requests)
            number_of.append(kind)
        return np.ascontiguousarray(np.array(vectors)[number_of].T)

    @cached_property
    def largest(self) -> FloatArray:
        """[R] the most that any of the pods holds."""
        return np.asarray(self.requests.max(axis=1, initial=0.0))

    @cached_property
    def rows(self) -> list[int]:
        """The resources that any of the pods holds."""
        held: list[int] = np.flatnonzero(self.requests.any(axis=1)).tolist()
        return held

    @cached_property
    def queues(self) -> IntArray:
        """The queue that each pod is charged to."""
        return np.repeat(np.array([unit.job.queue for unit in self.units], dtype=np.intp), self.counts)

    @cached_property
    def places(self) -> "Places":
        units = np.repeat(np.arange(len(self)), self.counts)
        width = int(self.nodes.max(initial=0)) + 1
        pairs, of_pod = np.unique(units * width + self.nodes, return_inverse=True)
        held = np.array([np.bincount(of_pod, weights=row, minlength=len(pairs)) for row in self.requests])
        return Places(*np.divmod(pairs, width), held, of_pod)

    @cached_property
    def grade_codes(self) -> IntArray:
        """Grades as numbers 0, 1, … in their order."""
        codes: IntArray = np.unique(self.grades, return_inverse=True)[1]
        return codes

    @cached_property
    def kinds(self) -> IntArray:
        """Units with the same number are the same to every rule on victims."""
        numbers: dict[object, int] = {}
        demands = self._session.demands
        kinds = [(demands.of_victims(unit.job, unit.pods), demands.serial()) for unit in self.units]
        return np.array([numbers.setdefault(kind, len(numbers)) for kind in kinds], dtype=np.intp)

    @cached_property
    def is_limited(self) -> bool:
        """Whether any queue may hold so much and no more."""
        return any(np.isfinite(queue.limit).any() for queue in self._session.snapshot.queues)

    @cached_property
    def device_parts(self) -> "DeviceParts":
        return DeviceParts(self._session, self.pods)

    def spare(self) -> BoolArray | None:
        """Which pods have room that no reservation has counted on; None: all, for there is none."""
        reserved = self._session.reserved
        made = tuple(reserved.by_job.values())
        if not made:
            return None
        if made != self._spare[0]:
            self._spare = made, np.array([not reserved.counts_on(pod.pod, pod.node) for pod in self.pods], dtype=bool)
        return self._spare[1]

    def pods_of(self, units: IntArray) -> IntArray:
        """The numbers of the units' pods."""
        return ranges(self._starts[units], self.counts[units])

    # -- what goes with what

    def ordered(self, order: IntArray, left: BoolArray) -> IntArray:
        """`order` with every unit behind those that it needs gone; of these the ones that are left are added."""
        if not self.is_linked:
            return order
        place = np.full(len(self), len(self), dtype=np.intp)
        place[order] = np.arange(len(order))
        has_whole = self._whole_of >= 0
        pulled = np.full(len(self.jobs), len(self), dtype=np.intp)
        pulled[has_whole] = place[self._whole_of[has_whole]]
        np.minimum(place, pulled[self.job_of], out=place)
        # From the lower end of each chain up: a step is no later than the one below it.
        links, base = self._links[::-1], self._chain[::-1] * (len(self) + 1)
        place[links] = np.minimum.accumulate(place[links] + base) - base
        found = np.flatnonzero((place < len(self)) & left)
        return found[np.argsort(place[found], kind="stable")]

    def dragged(self, left: BoolArray) -> IntArray:
        """How many pods go with each unit, those of the units that it needs gone included."""
        counts = self.counts * left
        if not self.is_linked:
            return counts
        total = counts.copy()
        running = np.cumsum(counts[self._links])
        starts = np.flatnonzero(np.diff(self._chain, prepend=_NONE))
        before = running[starts] - counts[self._links[starts]]
        total[self._links] = running - before[self._chain]
        of_job = np.bincount(self.job_of, weights=counts, minlength=len(self.jobs)).astype(np.intp)
        total[self.is_whole] = of_job[self.job_of[self.is_whole]]
        return total

    def is_needed(self, unit: int, chosen: BoolArray) -> bool:
        """Whether one of the chosen units cannot go without this one."""
        whole, below = int(self._whole_of[self.job_of[unit]]), self._below.get(unit, _NONE)
        return bool((whole not in (_NONE, unit) and chosen[whole]) or (below != _NONE and chosen[below]))

    def with_dependents(self, units: IntArray) -> BoolArray:
        """The units, and all that cannot go without them."""
        found = np.zeros(len(self), dtype=bool)
        found[units] = True
        wholes = self._whole_of[self.job_of[units]]
        found[wholes[wholes >= 0]] = True
        base = self._chain * 2
        found[self._links] = np.maximum.accumulate(found[self._links] + base) > base
        return found


def _disjoint(units: Sequence[Unit]) -> list[Unit]:
    """The units without the pods that one before them has."""
    seen: set[PlacedPod] = set()
    made = []
    for unit in units:
        is_disjoint = seen.isdisjoint(unit.pods)
        own = unit if is_disjoint else replace(unit, pods=tuple(pod for pod in unit.pods if pod not in seen))
        if own.pods:
            made.append(own)
            seen.update(own.pods)
    return made


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """One for each unit on each node that it is on."""

    unit: IntArray
    node: IntArray
    held: FloatArray  # [R, places] what its pods there hold
    of_pod: IntArray  # the place of each pod


class DeviceParts:
    """The devices that pods hold and that are still there, as columns."""

    def __init__(self, session: Session, pods: Sequence[PlacedPod]) -> None:
        held = [(at, part.row, part.device, part.milli) for at, pod in enumerate(pods) for part in pod.gpus]
        owners, rows, devices, millis = np.array(held, dtype=np.intp).reshape(-1, 4).T
        nodes = np.array([pod.node for pod in pods], dtype=np.intp)
        there = np.zeros(len(held), dtype=bool)
        for row in np.unique(rows).tolist():
            mine = rows == row
            there[mine] = session.gpus.tables[row].there[nodes[owners[mine]], devices[mine]]
        self.owners, self.rows, self.devices, self.millis = (part[there] for part in (owners, rows, devices, millis))
        self.resources = np.unique(self.rows).tolist()
        self._counts: IntArray = np.bincount(self.owners, minlength=len(pods))
        self._starts: IntArray = np.cumsum(self._counts) - self._counts

    def of(self, pods: IntArray) -> tuple[IntArray, IntArray]:
        """(the numbers of the pods' grants, for each of them the position of its pod in `pods`)."""
        counts = self._counts[pods]
        return ranges(self._starts[pods], counts), np.repeat(np.arange(len(pods)), counts)


def ranges(starts: IntArray, counts: IntArray) -> IntArray:
    """starts[0], starts[0] + 1, … as many as counts[0], then from starts[1] and so on."""
    if (counts == 1).all():
        return starts
    ends = np.cumsum(counts)
    return np.repeat(starts - ends + counts, counts) + np.arange(int(counts.sum()))


class Market:
    """What an action may take. The table is made when the first claimant asks."""

    def __init__(self, session: Session, jobs: Iterable[Job], units_of: UnitsOf = offered_units) -> None:
        self._session = session
        self._jobs = jobs
        self._units_of = units_of
        self._left: BoolArray = np.zeros(0, dtype=bool)

    @cached_property
    def table(self) -> UnitTable:
        session = self._session
        table = UnitTable(session, (unit for job in self._jobs if job.placed for unit in self._units_of(session, job)))
        self._left = np.ones(len(table), dtype=bool)
        return table

    @property
    def left(self) -> BoolArray:
        """Which units nobody has taken yet."""
        return self._left

    def offer(self, belongs: Callable[[Job], bool]) -> BoolArray:
        """The units of the jobs of which somebody may take, whether they are left or not."""
        return np.array([belongs(job) for job in self.table.jobs], dtype=bool)[self.table.job_of]

    def of_others(self, job: Job) -> BoolArray:
        """All units but the job's own."""
        return np.asarray(self.table.job_of != self.table.job_numbers.get(job.key, _NONE))

    def take(self, units: IntArray) -> None:
        self._left[units] = False

    def withdraw(self, job: Job) -> None:
        """What the job holds is not to be had any more."""
        number = self.table.job_numbers.get(job.key)
        if number is not None:
            self._left[self.table.job_of == number] = False
