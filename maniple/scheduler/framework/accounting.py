"""What queues and jobs are weighed by: resources as they are, or GPUs by the speed of their model.

With speeds a GPU counts as its speed says, in the hands of whoever holds it and in the cluster's total. Which GPUs they
will be is not known of those that are only asked for: they count with the mean speed of the cluster's. Room and limits
are about GPUs as they are, and never look here.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from maniple.api.gpu.requests import ANY_MODEL, matches, read_models
from maniple.api.types import GpuModel
from maniple.model.gpu.devices import GpuTable, Granted, Millis
from maniple.model.job import Job, PlacedPod, Queue
from maniple.model.resources import BoolArray, FloatArray
from maniple.scheduler.framework.arguments import Arguments

if TYPE_CHECKING:
    from maniple.scheduler.framework.session import Session
    from maniple.scheduler.framework.statement import Placed

Speeds = tuple[GpuModel, ...]

_STEP = 1000  # speeds are whole numbers of thousandths
_FASTEST = 1000


def speeds_argument(arguments: Arguments) -> Speeds:
    """`gpu.speeds`, such as "H100=3, A100=1.5"; () if it is not given."""
    return arguments.parsed("gpu.speeds", (), _read_speeds)


def _read_speeds(text: str) -> Speeds:
    speeds = read_models(text)
    for entry in speeds:
        steps = entry.speed * _STEP
        if not 1 <= steps <= _FASTEST * _STEP or abs(steps - round(steps)) > 1e-6:
            expected = f"expected a speed between 0.001 and {_FASTEST} in steps of 0.001"
            raise ValueError(f"{entry.model}: {expected}, found {entry.speed:g}")
    return speeds


def speed_of(speeds: Speeds, product: str) -> int:
    """Thousandths: the first entry that means the product, else that of `*`, else 1."""
    found = next((entry for entry in speeds if entry.model != ANY_MODEL and matches(entry.model, product)), None)
    found = found or next((entry for entry in speeds if entry.model == ANY_MODEL), None)
    return _STEP if found is None else round(found.speed * _STEP)


class Measure:
    """Everything as it is: the session's own arrays. They are read only."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self.total = session.snapshot.total
        self.queues: Sequence[Queue] = session.snapshot.queues
        self.queue_held = session.queue_allocated  # [Q, R] with the queues below, always up to date

    def job_held(self, job: Job) -> FloatArray | None:
        """None: nothing."""
        # A job untouched this cycle has no state yet; most jobs in line hold nothing at all.
        state = self._session.states.get(job.key)
        return job.allocated if state is None else state.allocated

    def demand(self) -> FloatArray:
        """[Q, R] what the jobs of each queue itself held and asked for when the cycle began."""
        return self._session.snapshot.queue_allocated + self._session.snapshot.queue_pending

    def asked(self, amount: FloatArray) -> FloatArray:
        """What an amount counts that nobody holds yet."""
        return amount

    def of_pod(self, pod: PlacedPod) -> FloatArray:
        """What a placed pod holds; the same array for pods that count the same."""
        return pod.requests

    def note(self, counted: BoolArray) -> str:
        """What a reader must know who sees amounts of these resources."""
        del counted
        return ""


class BySpeed(Measure):
    """GPUs times speed.

    Sums are kept in whole numbers (thousandths of a GPU times thousandths of a speed), so that a statement that is
    rolled back leaves no residue, and divided only when somebody reads them.
    """

    def __init__(self, session: "Session", speeds: Speeds) -> None:
        super().__init__(session)
        snapshot = session.snapshot
        self._tables = {row: _Table(table, snapshot.gpus.models, speeds) for row, table in snapshot.gpus.tables.items()}
        self._rows = list(self._tables)
        self._unit = np.ones(len(snapshot.axis))
        self._unit[self._rows] = _STEP
        self._asked: dict[int, tuple[int, ...]] = {}
        self._vectors: dict[tuple[object, ...], tuple[FloatArray, FloatArray]] = {}
        self._jobs: dict[tuple[str, str], FloatArray] = {}
        own = np.zeros_like(snapshot.queue_allocated)
        on_nodes = self._count_placed(own)
        self._own = own / self._unit
        self._queues = np.zeros_like(own)
        for queue in snapshot.queues:
            self._queues[session.queue_paths[queue.index]] += own[queue.index]
        self.queue_held = self._queues / self._unit
        self.total = snapshot.total.copy()
        self._mean = np.ones(len(snapshot.axis))
        for row, table in self._tables.items():
            self.total[row] = max(0.0, on_nodes[row] + self._unused(row, table)) / _STEP
            real = snapshot.total[row]
            self._mean[row] = self.total[row] / real if real > 0 else table.mean / _STEP
        self.queues = [self._weighed(queue) for queue in snapshot.queues]

    def _count_placed(self, own: FloatArray) -> FloatArray:
        """Adds up what placed pods hold, by job and by queue; returns the sum of those whose node is there."""
        gone = np.zeros(own.shape[1])
        for job in self._session.snapshot.jobs:
            held: FloatArray | None = None
            for pod in job.placed:
                units = self._of_pod(pod)[0]
                held = units if held is None else held + units
                if pod.node < 0:
                    gone += units
            if held is not None:
                self._jobs[job.key] = held
                own[job.queue] += held
        there: FloatArray = own.sum(axis=0) - gone
        return there

    def _unused(self, row: int, table: "_Table") -> float:
        """What the cluster shares beside what our pods hold: what is free where pods may go, and what is leaving."""
        snapshot = self._session.snapshot
        usable = snapshot.nodes.ready & ~snapshot.nodes.unschedulable
        free = np.where(usable, snapshot.free[row], 0.0) @ table.node_speed(snapshot.gpus_free[row])
        return float(free + snapshot.releasing[row] @ table.node_speed(snapshot.gpus_releasing[row]))

    def _weighed(self, queue: Queue) -> Queue:
        """The queue with its guarantee and its limit in what is counted here.

        A limit lets it keep the GPUs that it has, fast or slow, and take as many more as it leaves of mean speed.
        """
        held, weighed = self._session.queue_allocated[queue.index], self.queue_held[queue.index]
        limit = queue.limit.copy()
        for row in self._rows:
            if limit[row] < held[row]:
                limit[row] = weighed[row] * limit[row] / held[row]
            else:
                limit[row] = weighed[row] + (limit[row] - held[row]) * self._mean[row]
        return replace(queue, guaranteed=self.asked(queue.guaranteed), limit=limit)

    # -- what is counted

    def job_held(self, job: Job) -> FloatArray | None:
        held = self._jobs.get(job.key)
        return None if held is None else held / self._unit

    def demand(self) -> FloatArray:
        return self._own + self.asked(self._session.snapshot.queue_pending)

    def asked(self, amount: FloatArray) -> FloatArray:
        return amount * self._mean

    def of_pod(self, pod: PlacedPod) -> FloatArray:
        return self._of_pod(pod)[1]

    def note(self, counted: BoolArray) -> str:
        return " (GPUs count by their speed)" if counted[self._rows].any() else ""

    def _of_pod(self, pod: PlacedPod) -> tuple[FloatArray, FloatArray]:
        """What the pod holds in whole numbers, and as it is read."""
        kind = id(pod.requests)
        asked = self._asked.get(kind)
        if asked is None:
            asked = self._asked[kind] = tuple(map(int, pod.requests[self._rows].tolist()))
        units = [
            table.units(pod.node, pod.gpus, amount) if amount else 0
            for table, amount in zip(self._tables.values(), asked, strict=True)
        ]
        key = (kind, *units)
        found = self._vectors.get(key)
        if found is None:
            vector = pod.requests.copy()
            vector[self._rows] = units
            found = self._vectors[key] = (vector, vector / self._unit)
        return found

    # -- changes, by statements only

    def take(self, done: "Placed", used: FloatArray) -> None:
        """Pods have come to the nodes of `done.spot`, or have not after all; `used` [R, nodes] has the sign."""
        amount = used.sum(axis=1)
        for row, table in self._tables.items():
            if not amount[row]:
                continue
            speeds = table.alike[done.spot.nodes]
            if speeds.all():
                amount[row] = used[row] @ speeds
            else:
                units = sum(table.units(node, hand, 0) for node, hand in done.slots())
                amount[row] = units if amount[row] > 0 else -units
        self._charge(done.job, amount)

    def leave(self, job: Job, pod: PlacedPod, sign: int) -> None:
        """The pod will leave (1), or will not after all (-1)."""
        self._charge(job, self._of_pod(pod)[0] * -sign)

    def _charge(self, job: Job, amount: FloatArray) -> None:
        held = self._jobs.get(job.key)
        self._jobs[job.key] = amount if held is None else held + amount
        path = self._session.queue_paths[job.queue]
        self._queues[path] += amount
        self.queue_held[path] = self._queues[path] / self._unit


class _Table:
    """The speeds of one GPU resource, in thousandths."""

    def __init__(self, table: GpuTable, models: Sequence[str], speeds: Speeds) -> None:
        self._row = table.row
        # The code of a device that is not there, or not healthy, is -1: the last of the list.
        device = np.array([*(speed_of(speeds, name) for name in models), 0], dtype=np.float64)[table.model]
        count = table.there.sum(axis=1)
        self.mean = round(device.sum() / count.sum()) if count.sum() else _STEP
        self._node_mean = np.divide(
            device.sum(axis=1), count, out=np.full(len(count), float(self.mean)), where=count > 0
        )
        # [N] the speed of all its GPUs; 0: they are unlike.
        highest = device.max(axis=1, initial=0)
        lowest = np.where(device > 0, device, np.inf).min(axis=1, initial=np.inf)
        self.alike = np.where(count == 0, self.mean, np.where(highest == lowest, highest, 0.0))
        # A node that is gone has the number -1: the last of this list.
        self._alike = [*map(int, self.alike.tolist()), self.mean]
        self._device = np.where(device > 0, device, np.rint(self._node_mean)[:, None])

    def units(self, node: int, grants: tuple[Granted, ...], amount: int) -> int:
        """What a pod holds that asked for `amount` and has these devices."""
        alike = self._alike[node]
        if alike and amount:
            return amount * alike
        own = [granted for granted in grants if granted.row == self._row]
        units = sum(granted.milli * int(self._device[node, granted.device]) for granted in own)
        # What it asked for and has no device for counts like any GPU.
        return units + max(0, amount - sum(granted.milli for granted in own)) * self.mean

    def node_speed(self, millis: Millis) -> FloatArray:
        """[N] the speed of what of its devices is in `millis` [N, G]; of all, where nothing is."""
        if self.alike.all():
            return self.alike
        amount = millis.sum(axis=1)
        mean = np.divide((millis * self._device).sum(axis=1), amount, out=self._node_mean.copy(), where=amount > 0)
        return np.where(self.alike > 0, self.alike, mean)
