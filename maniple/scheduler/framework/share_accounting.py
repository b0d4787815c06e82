"""The units in which shares of queues and jobs are counted: resources as they are, or GPUs times their model's speed.

With speeds, a held GPU counts by its own speed, also in the cluster's total. A GPU that is only asked for counts by the
cluster's mean speed, because it is not known which one it will be. Fit and limits count GPUs as they are and must never
use this module.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from maniple.api.gpu.requests import ANY_MODEL, matches, read_models
from maniple.api.types import GpuModel
from maniple.model.gpu.devices import GpuGrant, GpuTable, Millis
from maniple.model.job import Job, PlacedPod, Queue
from maniple.model.pod_identity import JobKey
from maniple.model.resources import BoolArray, FloatArray
from maniple.scheduler.framework.plugin_arguments import Arguments

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
    """In thousandths: that of the first entry that matches the product, else of `*`, else 1."""
    named = (entry for entry in speeds if entry.model != ANY_MODEL and matches(entry.model, product))
    others = (entry for entry in speeds if entry.model == ANY_MODEL)
    entry = next(chain(named, others), None)
    return _STEP if entry is None else round(entry.speed * _STEP)


class Accounting:
    """Counts resources as they are. Its arrays are the session's own: read only."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self.extended: BoolArray = session.snapshot.axis.extended
        self.total = session.snapshot.total
        self.indivisible = session.snapshot.indivisible  # [R] what queues share in whole units
        self.queues: Sequence[Queue] = session.snapshot.queues
        self.queue_held = session.queue_allocated  # [Q, R] with the queues below, always up to date

    def job_held(self, job: Job) -> FloatArray | None:
        """What the job holds; None: nothing."""
        # A job untouched in this cycle has no state yet. Most waiting jobs hold nothing.
        state = self._session.states.get(job.key)
        return job.allocated if state is None else state.allocated

    def demand(self) -> FloatArray:
        """[Q, R] what each queue's own jobs held and asked for when the cycle began."""
        return self._session.snapshot.queue_allocated + self._session.snapshot.queue_pending

    def asked(self, amount: FloatArray) -> FloatArray:
        """The value of an amount that no pod holds yet."""
        return amount

    def of_pod(self, pod: PlacedPod) -> FloatArray:
        """What a placed pod holds; equal pods share one array."""
        return pod.requests

    def note(self, counted: BoolArray) -> str:
        """A note for messages that show amounts of these resources."""
        del counted
        return ""


class SpeedAccounting(Accounting):
    """Counts GPUs times speed.

    Sums are whole numbers (thousandths of a GPU times thousandths of a speed), so that a rollback leaves no residue.
    They are divided only when read.
    """

    def __init__(self, session: "Session", speeds: Speeds) -> None:
        super().__init__(session)
        snapshot = session.snapshot
        self._tables = {row: _Table(table, snapshot.gpus.models, speeds) for row, table in snapshot.gpus.tables.items()}
        self._rows = list(self._tables)
        self._unit = np.ones(len(snapshot.axis))
        self._unit[self._rows] = _STEP
        self.indivisible = self.indivisible.copy()
        for row, table in self._tables.items():
            self.indivisible[row] &= table.is_plain  # else speed is shared, which can be divided
        self._asked: dict[int, tuple[int, ...]] = {}
        self._vectors: dict[tuple[object, ...], tuple[FloatArray, FloatArray]] = {}
        self._jobs: dict[JobKey, FloatArray] = {}
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
        """Adds up what placed pods hold, by job and by queue. Returns the sum over pods on known nodes."""
        gone = np.zeros(own.shape[1])
        for job in self._session.snapshot.running:
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
        """What the cluster shares out beside what pods hold: what is free on usable nodes, and what is being freed."""
        snapshot = self._session.snapshot
        usable = snapshot.nodes.ready & ~snapshot.nodes.unschedulable
        free = np.where(usable, snapshot.free[row], 0.0) @ table.node_speed(snapshot.gpus_free[row])
        return float(free + snapshot.releasing[row] @ table.node_speed(snapshot.gpus_releasing[row]))

    def _weighed(self, queue: Queue) -> Queue:
        """The queue with its guarantee and its limit in these units.

        A queue below its limit may keep its GPUs, fast or slow, and take the rest of its limit at mean speed.
        """
        held, weighed = self._session.queue_allocated[queue.index], self.queue_held[queue.index]
        limit = queue.limit.copy()
        for row in self._rows:
            if limit[row] < held[row]:
                limit[row] = weighed[row] * limit[row] / held[row]
            else:
                limit[row] = weighed[row] + (limit[row] - held[row]) * self._mean[row]
        return replace(queue, guaranteed=self.asked(queue.guaranteed), limit=limit)

    # -- readers

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
        """What the pod holds, in whole numbers and divided."""
        kind = id(pod.requests)
        asked = self._asked.get(kind)
        if asked is None:
            asked = self._asked[kind] = tuple(map(int, pod.requests[self._rows].tolist()))
        units = [
            table.units(pod.node, pod.gpus, amount) if amount else 0
            for table, amount in zip(self._tables.values(), asked, strict=True)
        ]
        key = (kind, *units)
        vectors = self._vectors.get(key)
        if vectors is None:
            vector = pod.requests.copy()
            vector[self._rows] = units
            vectors = self._vectors[key] = (vector, vector / self._unit)
        return vectors

    # -- changes, by statements only

    def take(self, done: "Placed", used: FloatArray) -> None:
        """Pods were placed on the nodes of `done.spot`, or (negative `used` [R, nodes]) removed again."""
        amount = used.sum(axis=1)
        for row, table in self._tables.items():
            if not amount[row]:
                continue
            speeds = table.alike[done.spot.nodes]
            if speeds.all():
                amount[row] = used[row] @ speeds
            else:
                units = sum(table.units(node, grants, 0) for node, grants in done.slots())
                amount[row] = units if amount[row] > 0 else -units
        self._charge(done.job, amount)

    def leave(self, job: Job, pod: PlacedPod, sign: int) -> None:
        """The pod will leave (1), or will stay after all (-1)."""
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
        # A missing or unhealthy device has the code -1: the last of the list.
        device = np.array([*(speed_of(speeds, name) for name in models), 0], dtype=np.float64)[table.model]
        count = table.there.sum(axis=1)
        self.is_plain = bool(np.isin(device, (0, _STEP)).all())  # every GPU counts as one
        self.mean = round(device.sum() / count.sum()) if count.sum() else _STEP
        self._node_mean = np.divide(
            device.sum(axis=1), count, out=np.full(len(count), float(self.mean)), where=count > 0
        )
        # [N] the speed of all GPUs of the node; 0: they differ.
        highest = device.max(axis=1, initial=0)
        lowest = np.where(device > 0, device, np.inf).min(axis=1, initial=np.inf)
        self.alike = np.where(count == 0, self.mean, np.where(highest == lowest, highest, 0.0))
        # An unknown node has the index -1: the last of this list.
        self._alike = [*map(int, self.alike.tolist()), self.mean]
        self._device = np.where(device > 0, device, np.rint(self._node_mean)[:, None])

    def units(self, node: int, grants: tuple[GpuGrant, ...], amount: int) -> int:
        """What a pod with these devices holds, if it asked for `amount`."""
        alike = self._alike[node]
        if alike and amount:
            return amount * alike
        own = [grant for grant in grants if grant.row == self._row]
        units = sum(grant.milli * int(self._device[node, grant.device]) for grant in own)
        # An amount without a device counts by the mean speed.
        return units + max(0, amount - sum(grant.milli for grant in own)) * self.mean

    def node_speed(self, millis: Millis) -> FloatArray:
        """[N] the mean speed of the parts of devices in `millis` [N, G]; of all devices where there are none."""
        if self.alike.all():
            return self.alike
        amount = millis.sum(axis=1)
        mean = np.divide((millis * self._device).sum(axis=1), amount, out=self._node_mean.copy(), where=amount > 0)
        return np.where(self.alike > 0, self.alike, mean)
