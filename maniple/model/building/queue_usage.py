"""What the jobs of each queue hold and ask for, kept up to date as jobs come, change and go.

It counts pods by request and does not sum amounts: counting up and down is exact.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

import msgspec
import numpy as np

from maniple.api.types import GpuModel
from maniple.model.building.cluster_tables import ClusterTables
from maniple.model.gpu.devices import GpuPod, count_gpu_pods
from maniple.model.pod_identity import JobKey
from maniple.model.resources import FloatArray

_Counted = TypeVar("_Counted")
GpuKind = tuple[int, tuple[GpuModel, ...]]  # request, models that the pod may have


class JobUsage(msgspec.Struct, eq=False):
    """What one job adds to the usage of its queue."""

    queue: int
    allocated: Sequence[int]  # requests, one for each pod
    gpus: Sequence[tuple[GpuKind, int]]
    pending: Sequence[tuple[int, int]] = ()  # (request, pods)
    owners: Sequence[str] = ()  # of waiting groups
    groups: int = 0


class QueueUsage:
    def __init__(self, tables: ClusterTables) -> None:
        self._tables = tables
        self._by_job: dict[JobKey, JobUsage] = {}
        self._allocated: list[Counter[int]] = [Counter() for _ in tables.queues]
        self._pending: list[Counter[int]] = [Counter() for _ in tables.queues]
        self._gpus: Counter[GpuKind] = Counter()
        self.owners: Counter[str] = Counter()
        self.groups = 0

    def put(self, key: JobKey, usage: JobUsage | None) -> None:
        """Replaces the usage of the job; None: the job is gone."""
        if key in self._by_job:
            self._subtract(self._by_job.pop(key))
        if usage is not None:
            self._by_job[key] = usage
            self._add(usage)

    def _add(self, usage: JobUsage) -> None:
        allocated, gpus = self._allocated[usage.queue], self._gpus
        for request in usage.allocated:
            allocated[request] = allocated.get(request, 0) + 1
        for kind, pods in usage.gpus:
            gpus[kind] = gpus.get(kind, 0) + pods
        if usage.groups:
            for request, pods in usage.pending:
                self._pending[usage.queue][request] += pods
            self.owners.update(usage.owners)
            self.groups += usage.groups

    def _subtract(self, usage: JobUsage) -> None:
        for request in usage.allocated:
            _lower(self._allocated[usage.queue], request, 1)
        for request, pods in usage.pending:
            _lower(self._pending[usage.queue], request, pods)
        for kind, pods in usage.gpus:
            _lower(self._gpus, kind, pods)
        for owner in usage.owners:
            _lower(self.owners, owner, 1)
        self.groups -= usage.groups

    def sums(self, vectors: FloatArray) -> tuple[FloatArray, FloatArray]:
        """[Q, R] what the jobs of each queue hold, and what their waiting pods ask for. `vectors`: of all requests."""
        return _sums(self._allocated, vectors), _sums(self._pending, vectors)

    def gpu_pods(self) -> dict[GpuPod, int]:
        """What pods with GPUs ask for, and how many do."""
        counts: dict[GpuPod, int] = {}
        shapes = self._tables.shapes
        for (request, models), count in self._gpus.items():
            count_gpu_pods(counts, shapes.vector(request), shapes.asks(request), models, count)
        return counts


def _sums(counts: list[Counter[int]], vectors: FloatArray) -> FloatArray:
    sums = np.zeros((len(counts), vectors.shape[1]))
    for queue, pods in enumerate(counts):
        if pods:
            sums[queue] = np.array(list(pods.values()), dtype=np.float64) @ vectors[list(pods)]
    return sums


def _lower(counts: Counter[_Counted], key: _Counted, by: int) -> None:
    left = counts[key] - by
    if left:
        counts[key] = left
    else:
        del counts[key]
