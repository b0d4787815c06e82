"""What jobs ask for and hold, added up over queues as jobs come, change and go; and the jobs in order.

Counts of pods by request are kept, not sums of amounts: counting up and down is exact.
"""

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from maniple.api.types import GpuModel
from maniple.model.building.cluster_tables import Frame
from maniple.model.building.job_builder import JobKey
from maniple.model.gpu.devices import GpuPod, count_gpu_pods
from maniple.model.job import Job
from maniple.model.resources import FloatArray

Key = TypeVar("Key")
GpuKind = tuple[int, tuple[GpuModel, ...]]  # request, models that it may have


@dataclass(slots=True)
class Tally:
    """What one job counts for."""

    queue: int
    allocated: list[int] = field(default_factory=list)  # requests, one for each pod
    pending: list[tuple[int, int]] = field(default_factory=list)  # (request, pods)
    gpus: list[tuple[GpuKind, int]] = field(default_factory=list)
    owners: list[str] = field(default_factory=list)  # of groups that wait
    groups: int = 0


class Tallies:
    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._by_job: dict[JobKey, Tally] = {}
        self._allocated: list[Counter[int]] = [Counter() for _ in frame.queues]
        self._pending: list[Counter[int]] = [Counter() for _ in frame.queues]
        self._gpus: Counter[GpuKind] = Counter()
        self.owners: Counter[str] = Counter()
        self.groups = 0

    def put(self, key: JobKey, tally: Tally | None) -> None:
        """In the place of what the job counted for before; None: it is gone."""
        old = self._by_job.pop(key, None)
        if old is not None:
            self._count(old, -1)
        if tally is not None:
            self._by_job[key] = tally
            self._count(tally, 1)

    def _count(self, tally: Tally, sign: int) -> None:
        for request in tally.allocated:
            _change(self._allocated[tally.queue], request, sign)
        for request, pods in tally.pending:
            _change(self._pending[tally.queue], request, sign * pods)
        for kind, pods in tally.gpus:
            _change(self._gpus, kind, sign * pods)
        for owner in tally.owners:
            _change(self.owners, owner, sign)
        self.groups += sign * tally.groups

    def sums(self, vectors: FloatArray) -> tuple[FloatArray, FloatArray]:
        """[Q, R] what the jobs of each queue hold, and what their waiting pods ask for."""
        return _sums(self._allocated, vectors), _sums(self._pending, vectors)

    def gpu_pods(self) -> dict[GpuPod, int]:
        found: dict[GpuPod, int] = {}
        shapes = self._frame.shapes
        for (request, models), count in self._gpus.items():
            count_gpu_pods(found, shapes.vector(request), shapes.asks(request), models, count)
        return found


def _sums(counts: list[Counter[int]], vectors: FloatArray) -> FloatArray:
    made = np.zeros((len(counts), vectors.shape[1]))
    for queue, pods in enumerate(counts):
        if pods:
            made[queue] = np.array(list(pods.values()), dtype=np.float64) @ vectors[list(pods)]
    return made


def _change(counts: Counter[Key], key: Key, by: int) -> None:
    left = counts[key] + by
    if left:
        counts[key] = left
    else:
        del counts[key]


class Line:
    """Jobs by key, in order. What `jobs` has handed out does not change any more."""

    def __init__(self) -> None:
        self._by_key: dict[JobKey, Job] = {}
        self._keys: list[JobKey] = []
        self._jobs: list[Job] = []

    def change(self, changes: dict[JobKey, Job | None]) -> None:
        """None: the job is gone, or never was."""
        if len(changes) > 100 + len(self._keys) // 20:
            self._by_key.update((key, job) for key, job in changes.items() if job is not None)
            for key in [key for key, job in changes.items() if job is None]:
                self._by_key.pop(key, None)
            self._keys = sorted(self._by_key)
            self._jobs = [self._by_key[key] for key in self._keys]
            return
        self._jobs = list(self._jobs)
        for key, job in changes.items():
            at = bisect_left(self._keys, key)
            if job is None:
                if self._by_key.pop(key, None) is not None:
                    del self._keys[at], self._jobs[at]
            elif key in self._by_key:
                self._by_key[key] = self._jobs[at] = job
            else:
                self._by_key[key] = job
                self._keys.insert(at, key)
                self._jobs.insert(at, job)

    def jobs(self) -> list[Job]:
        return self._jobs

    def get(self, key: JobKey) -> Job | None:
        return self._by_key.get(key)
