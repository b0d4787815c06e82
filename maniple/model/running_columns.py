"""The pods on nodes of all jobs as columns, kept from cycle to cycle: what changes costs the jobs that change.

They are made when a cycle first asks for them. From then on a list of jobs knows in which jobs it differs from the last
one whose columns were made. Only those are looked at; all others are moved within arrays.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Self

import numpy as np

from maniple.model.job import Job, PlacedPod
from maniple.model.pod_identity import JobKey
from maniple.model.resources import BoolArray, FloatArray, IntArray

_FEW = 100  # jobs that changed; of more, and of more than a part of all, the columns are made anew
_PART = 8
_KEY = attrgetter("key")


@dataclass(frozen=True, slots=True, eq=False)
class RunningColumns:
    """Never changed. Pods on nodes without an object are left out."""

    jobs: list[Job]  # by key, those with pods
    starts: IntArray  # [jobs + 1] the first pod of each
    queues: IntArray  # [jobs]
    priorities: IntArray  # [jobs]
    have_surplus: BoolArray  # [jobs] whether they hold more than their minimum
    pods: list[PlacedPod]  # job by job
    nodes: IntArray  # [pods]
    started: FloatArray  # [pods]
    ends: FloatArray  # [pods]
    requests: FloatArray  # [R, pods]; [0, 0] without pods
    part_starts: IntArray  # [pods + 1] the first part of each
    parts: IntArray  # [3, parts] the row, device and thousandths of each GPU that a pod holds

    @classmethod
    def of(cls, jobs: Iterable[Job]) -> Self:
        with_pods = [(job, there) for job in jobs if (there := [pod for pod in job.placed if pod.node >= 0])]
        held, pods = [job for job, _ in with_pods], [pod for _, there in with_pods for pod in there]
        parts = [part for pod in pods for part in pod.gpus]
        return cls(
            jobs=held,
            starts=_starts([len(there) for _, there in with_pods]),
            queues=np.array([job.queue for job in held], dtype=np.intp),
            priorities=np.array([job.priority for job in held], dtype=np.int64),
            have_surplus=np.array([len(job.placed) + job.succeeded > job.min_member for job in held], dtype=bool),
            pods=pods,
            nodes=np.array([pod.node for pod in pods], dtype=np.intp),
            started=np.array([pod.started for pod in pods], dtype=np.float64),
            ends=np.array([pod.ends for pod in pods], dtype=np.float64),
            requests=np.ascontiguousarray(stacked_requests(pods).T) if pods else np.zeros((0, 0)),
            part_starts=_starts([len(pod.gpus) for pod in pods]),
            parts=np.array(parts, dtype=np.intp).reshape(-1, 3).T,
        )

    def number_of(self, key: JobKey) -> int | None:
        number = bisect_left(self.jobs, key, key=_KEY)
        return number if number < len(self.jobs) and self.jobs[number].key == key else None

    def changed_to(self, jobs: Sequence[Job], changed: Iterable[JobKey]) -> "RunningColumns":
        """The columns of `jobs`, by key, which differ from those of these columns in the changed ones only."""
        keys = sorted(changed)
        after = [bisect_left(jobs, key, key=_KEY) for key in keys]
        fresh = RunningColumns.of(
            jobs[at] for at, key in zip(after, keys, strict=True) if at < len(jobs) and jobs[at].key == key
        )
        if not self.pods or (fresh.pods and len(fresh.requests) != len(self.requests)):
            return RunningColumns.of(jobs)
        stays = np.ones(len(self.jobs), dtype=bool)
        stays[[number for key in keys if (number := self.number_of(key)) is not None]] = False
        before = [bisect_left(self.jobs, job.key, key=_KEY) for job in fresh.jobs]
        kept = np.flatnonzero(stays)
        order = np.insert(kept, np.searchsorted(kept, before), np.arange(len(fresh.jobs)) + len(self.jobs))
        both = np.append(self.starts[:-1], fresh.starts[:-1] + len(self.pods))[order]
        counts = np.append(np.diff(self.starts), np.diff(fresh.starts))[order]
        rows = ranges(both, counts)
        of_rows = np.append(np.diff(self.part_starts), np.diff(fresh.part_starts))[rows]
        first = np.append(self.part_starts[:-1], fresh.part_starts[:-1] + self.parts.shape[1])[rows]
        requests = np.concatenate([self.requests, fresh.requests], axis=1) if fresh.pods else self.requests
        return RunningColumns(
            jobs=list(map((self.jobs + fresh.jobs).__getitem__, order.tolist())),
            starts=_starts(counts),
            queues=np.append(self.queues, fresh.queues)[order],
            priorities=np.append(self.priorities, fresh.priorities)[order],
            have_surplus=np.append(self.have_surplus, fresh.have_surplus)[order],
            pods=list(map((self.pods + fresh.pods).__getitem__, rows.tolist())),
            nodes=np.append(self.nodes, fresh.nodes)[rows],
            started=np.append(self.started, fresh.started)[rows],
            ends=np.append(self.ends, fresh.ends)[rows],
            requests=np.ascontiguousarray(requests[:, rows]),
            part_starts=_starts(of_rows),
            parts=np.concatenate([self.parts, fresh.parts], axis=1)[:, ranges(first, of_rows)],
        )


class RunningJobs(list[Job]):
    """Jobs by key. Like a snapshot, it is never changed."""

    def __init__(
        self, jobs: Iterable[Job], before: "RunningJobs | None" = None, changed: Collection[JobKey] = ()
    ) -> None:
        """`changed`: in which jobs it differs from the one `before`."""
        super().__init__(jobs)
        self._columns: RunningColumns | None = None
        # The last columns that were made, and the jobs that changed since.
        self._base: RunningColumns | None = None
        self._changed: frozenset[JobKey] = frozenset()
        if before is None:
            return
        base = before._columns or before._base
        since = before._changed.union(changed)
        if base is not None and len(since) <= _FEW + len(base.jobs) // _PART:
            self._base, self._changed = base, since

    @property
    def columns(self) -> RunningColumns:
        if self._columns is None:
            base = self._base
            self._columns = RunningColumns.of(self) if base is None else base.changed_to(self, self._changed)
            self._base, self._changed = None, frozenset()
        return self._columns


def running_columns(jobs: Sequence[Job]) -> RunningColumns:
    return jobs.columns if isinstance(jobs, RunningJobs) else RunningColumns.of(jobs)


def has_surplus(jobs: Sequence[Job]) -> bool:
    """Whether one of the running jobs may hold more than its minimum."""
    columns = running_columns(jobs)
    return len(columns.jobs) < len(jobs) or bool(columns.have_surplus.any())


def stacked_requests(pods: Sequence[PlacedPod]) -> FloatArray:
    """[pods, R] what the pods request. Equal pods share one vector, so few vectors are converted."""
    requests = [pod.requests for pod in pods]
    ids = list(map(id, requests))
    vectors = dict(zip(ids, requests, strict=True))
    number_of = {vector: number for number, vector in enumerate(vectors)}
    return np.array(list(vectors.values()))[[number_of[vector] for vector in ids]]


def ranges(starts: IntArray, counts: IntArray) -> IntArray:
    """Returns counts[0] numbers from starts[0] on, then counts[1] from starts[1] on, and so on."""
    if (counts == 1).all():
        return starts
    ends = np.cumsum(counts)
    return np.repeat(starts - ends + counts, counts) + np.arange(int(counts.sum()))


def _starts(counts: Sequence[int] | IntArray) -> IntArray:
    starts = np.zeros(len(counts) + 1, dtype=np.intp)
    np.cumsum(np.asarray(counts, dtype=np.intp), out=starts[1:])
    return starts
