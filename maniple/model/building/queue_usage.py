"""What the jobs of each queue hold and ask for, kept up to date as jobs come, change and go.

It counts pods by request and does not sum amounts: counting up and down is exact.
"""

from collections.abc import Sequence
from typing import TypeVar

import msgspec
import numpy as np

from maniple.api.gpu.requests import WHOLE
from maniple.api.types import GpuModel
from maniple.model.building.cluster_tables import ClusterTables
from maniple.model.gpu.devices import GpuPod, count_gpu_pods
from maniple.model.pod_identity import JobKey
from maniple.model.resources import BoolArray, FloatArray

_Counted = TypeVar("_Counted")
GpuKind = tuple[int, tuple[GpuModel, ...]]  # request, models that the pod may have


class JobUsage(msgspec.Struct, eq=False):
    """What one job adds to the usage of its queue. The second of each pair is a number of pods."""

    queue: int
    allocated: Sequence[tuple[int, int]]  # by request
    gpus: Sequence[tuple[GpuKind, int]]
    pending: Sequence[tuple[int, int]] = ()  # by request
    owners: Sequence[tuple[str, int]] = ()  # of waiting groups, 1 each
    groups: int = 0


class QueueUsage:
    def __init__(self, tables: ClusterTables) -> None:
        self._tables = tables
        self._by_job: dict[JobKey, JobUsage] = {}
        self._allocated: list[dict[int, int]] = [{} for _ in tables.queues]
        self._pending: list[dict[int, int]] = [{} for _ in tables.queues]
        self._gpus: dict[GpuKind, int] = {}
        self.owners: dict[str, int] = {}
        self.groups = 0

    def put(self, key: JobKey, usage: JobUsage | None) -> None:
        """Replaces the usage of the job; None: the job is gone."""
        if key in self._by_job:
            self._count(self._by_job.pop(key), -1)
        if usage is not None:
            self._by_job[key] = usage
            self._count(usage, 1)

    def _count(self, usage: JobUsage, sign: int) -> None:
        _add(self._allocated[usage.queue], usage.allocated, sign)
        _add(self._gpus, usage.gpus, sign)
        _add(self._pending[usage.queue], usage.pending, sign)
        if usage.groups:
            _add(self.owners, usage.owners, sign)
            self.groups += sign * usage.groups

    def sums(self, vectors: FloatArray) -> tuple[FloatArray, FloatArray]:
        """[Q, R] what the jobs of each queue hold, and what their waiting pods ask for. `vectors`: of all requests."""
        return _sums(self._allocated, vectors), _sums(self._pending, vectors)

    def in_whole_units(self, vectors: FloatArray) -> BoolArray:
        """[R] whether no pod that counts holds or asks for a part of a unit. `vectors`: of all requests."""
        requests = sorted(set[int]().union(*self._allocated, *self._pending))
        whole: BoolArray = (vectors[requests] % WHOLE == 0).all(axis=0)
        return whole

    def gpu_pods(self) -> dict[GpuPod, int]:
        """What pods with GPUs ask for, and how many do."""
        counts: dict[GpuPod, int] = {}
        shapes = self._tables.shapes
        for (request, models), count in self._gpus.items():
            count_gpu_pods(counts, shapes.vector(request), shapes.asks(request), models, count)
        return counts


def _sums(counts: list[dict[int, int]], vectors: FloatArray) -> FloatArray:
    sums = np.zeros((len(counts), vectors.shape[1]))
    for queue, pods in enumerate(counts):
        if pods:
            sums[queue] = np.array(list(pods.values()), dtype=np.float64) @ vectors[list(pods)]
    return sums


def _add(counts: dict[_Counted, int], more: Sequence[tuple[_Counted, int]], sign: int) -> None:
    for key, pods in more:
        total = counts.get(key, 0) + sign * pods
        if total:
            counts[key] = total
        else:
            counts.pop(key, None)
