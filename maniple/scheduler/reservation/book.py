"""Room that is kept for gangs which cannot start yet, and what others may use of it meanwhile.

On a reserved node others may use what will be free when the gang can start, less what it takes there. Statements keep
these sums up to date, as they do the session's own. The owner of a reservation is not bound by it, nor are those who
come before the owner in its queue; whoever may go beyond it for other reasons lifts it for the time of the attempt.

A node is reserved for one gang at most, and each queue has one reservation at most.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from maniple.api.gpu.requests import WHOLE
from maniple.model.gpu.devices import Millis
from maniple.model.job import Job, PlacedPod
from maniple.model.resources import BoolArray, FloatArray, IntArray
from maniple.scheduler.framework.gpus import GpuRoom

if TYPE_CHECKING:
    from maniple.scheduler.reservation.departures import Running

JobKey = tuple[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class Reservation:
    job: Job
    order: tuple[Any, ...]  # its place in line (Session.job_key)
    nodes: dict[int, int]  # node -> pods of the gang
    pods: tuple[tuple[str, int], ...]  # each pod and its node
    expected: float  # when it will start, as far as one can tell
    # When it could start at the soonest: who does not say how long it runs may end at any moment.
    ready: float
    spare: FloatArray  # [R, nodes] what others may use
    devices: dict[int, Millis]  # row -> [nodes, G] … of each GPU
    leaving: frozenset[str]  # pods on its nodes that are taken to be gone by then

    @property
    def places(self) -> IntArray:
        return np.fromiter(self.nodes, dtype=np.intp, count=len(self.nodes))


class Reserved:
    def __init__(self, gpus: GpuRoom, shape: tuple[int, int], order: Callable[[Job], tuple[Any, ...]]) -> None:
        self._gpus = gpus
        self._shape = shape  # resources, nodes
        self._order = order
        self.by_job: dict[JobKey, Reservation] = {}
        self.by_queue: dict[int, Reservation] = {}
        self._holders: dict[int, Reservation] = {}  # by node
        self.spare: FloatArray | None = None  # [R, N], inf where nothing is reserved; None: nowhere
        self.settled: set[int] = set()  # queues in which nobody else gets a reservation in this cycle
        self.searches: dict[int, int] = {}  # queue -> searches in this cycle
        self.running: Running | None = None  # for those searches
        # Gang -> those who run in its room and make way for it, each with its pods there.
        self.guests: dict[str, dict[JobKey, tuple[Job, list[PlacedPod]]]] = {}
        # Job -> how many of its pods have come into the room of which gang in this cycle.
        self.newcomers: dict[JobKey, Counter[str]] = {}
        self.is_open = False  # whether the reservations of earlier cycles have been taken up
        self._lifted: tuple[Reservation, ...] = ()
        self._most: FloatArray | None = None
        self._mask: BoolArray | None = None
        self._is_stale = False

    # -- which there are

    def add(self, made: Reservation) -> None:
        if self.spare is None:
            self.spare = np.full(self._shape, np.inf)
            self._gpus.open_spare()
        self.by_job[made.job.key] = self.by_queue[made.job.queue] = made
        self._holders.update(dict.fromkeys(made.nodes, made))
        self.spare[:, made.places] = made.spare
        self._gpus.set_spare(made.places, made.devices)
        self._is_stale = True

    def drop(self, key: JobKey) -> None:
        """Its gang has room elsewhere, or is not the first of its queue any more."""
        made = self.by_job.pop(key)
        del self.by_queue[made.job.queue]
        for node in made.nodes:
            del self._holders[node]
        if self.spare is not None:
            self.spare[:, made.places] = np.inf
            self._gpus.set_spare(made.places, {})
        self._is_stale = True

    def holder(self, node: int) -> Reservation | None:
        return self._holders.get(node)

    # -- whom they bind

    @property
    def mask(self) -> BoolArray | None:
        """[N] the nodes of which whoever is asking may not use all; None: there are none."""
        if self._is_stale:
            binding = [made for made in self.by_job.values() if made not in self._lifted]
            self._mask = np.zeros(self._shape[1], dtype=bool) if binding else None
            for made in binding:
                self._mask[made.places] = True  # type: ignore[index]
            self._is_stale = False
        return self._mask

    @property
    def most(self) -> FloatArray | None:
        """[N] how many pods at most may go to each node in the attempt that is going on; None: as many as fit."""
        return self._most

    @property
    def is_usual(self) -> bool:
        """Whether what is asked now is asked under the conditions that hold for everybody."""
        return self._most is None and not self._lifted

    def exempts(self, job: Job) -> bool:
        """Whether the reservation of the job's queue is its own, or that of one behind it."""
        made = self.by_queue.get(job.queue)
        return made is not None and (made.job is job or self._order(job) < made.order)

    def is_past(self, job: Job) -> bool:
        """Whether the job is known, without a look at its order, to be bound like everybody else."""
        made = self.by_queue.get(job.queue)
        return made is None or (job.queue in self.settled and made.job is not job)

    @contextmanager
    def lifted(self, lifted: Iterable[Reservation], most: FloatArray | None = None) -> Iterator[None]:
        """These do not bind, on top of those that were lifted before; `most` replaces what was said before."""
        before = self._lifted, self._most
        self._lifted += tuple(lifted)
        self._most = before[1] if most is None else most
        self._is_stale = True
        try:
            yield
        finally:
            self._lifted, self._most = before
            self._is_stale = True

    @contextmanager
    def seen_by(self, job: Job) -> Iterator[None]:
        if self.by_queue and self.exempts(job):
            with self.lifted([self.by_queue[job.queue]]):
                yield
        else:
            yield

    # -- changes, by statements only

    def take(self, nodes: IntArray, used: FloatArray) -> None:
        """`used` [R, nodes] is taken, or given back if it is negative."""
        if self.spare is not None:
            self.spare[:, nodes] -= used

    def give_back(self, nodes: IntArray, amounts: FloatArray, spare: BoolArray | None) -> None:
        """Pods on `nodes` leave, which may name a node twice, and give back `amounts` [R, pods]; `spare`: those that no
        reservation has counted on, None: all.
        """
        if self.spare is not None:
            counts = np.isfinite(self.spare[0, nodes]) if spare is None else spare & np.isfinite(self.spare[0, nodes])
            np.add.at(self.spare.T, nodes[counts], amounts[:, counts].T)

    def counts_on(self, pod: str, node: int) -> bool:
        """Whether the pod's room has been given to a reservation already, so that its leaving brings others nothing."""
        made = self.holder(node)
        return made is not None and pod in made.leaving


def devices_left(
    free: dict[int, Millis],
    usable: dict[int, Millis],
    exact: Iterable[tuple[int, int, int, int]],
    whole: Iterable[tuple[int, int, int]],
) -> dict[int, Millis]:
    """What of each GPU is left to others when the gang has taken its own out of `free` [nodes, G] by row.

    `exact` are (row, position, device, thousandths) that the gang was given; of `whole`, (row, position, count), it
    does not matter which: so they are GPUs that nobody can use now, as far as there are such, and others may go on
    using those that are free.
    """
    left = {row: array.copy() for row, array in free.items()}
    for row, at, device, milli in exact:
        left[row][at, device] -= milli
    for row, at, count in whole:
        choice = np.flatnonzero(left[row][at] >= WHOLE)
        in_use = choice[usable[row][at, choice] < WHOLE]
        rest = choice[usable[row][at, choice] >= WHOLE]
        left[row][at, np.concatenate([in_use, rest])[:count]] -= WHOLE
    return left
