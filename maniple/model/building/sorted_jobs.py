"""The jobs of a cluster, sorted by key, kept up to date without sorting all of them again."""

from bisect import bisect_left
from collections.abc import Callable, Mapping

from maniple.model.alike_jobs import AlikeJobs, WaitingJobs, kind_of
from maniple.model.job import Job
from maniple.model.pod_identity import JobKey
from maniple.model.running_columns import RunningJobs


class SortedJobs:
    """A list that `jobs` has returned is never changed."""

    def __init__(self) -> None:
        self._by_key: dict[JobKey, Job] = {}
        self._keys: list[JobKey] = []
        self._jobs: list[Job] = []

    def change(self, changes: Mapping[JobKey, Job | None]) -> None:
        """None: the job does not exist any more."""
        if len(changes) > 100 + len(self._keys) // 20:
            changed = {**self._by_key, **changes}
            self._by_key = {key: job for key, job in changed.items() if job is not None}
            self._keys = sorted(self._by_key)
            self._jobs = [self._by_key[key] for key in self._keys]
            return
        self._jobs = list(self._jobs)
        for key, job in changes.items():
            position = bisect_left(self._keys, key)
            if job is None:
                if self._by_key.pop(key, None) is not None:
                    del self._keys[position], self._jobs[position]
            elif key in self._by_key:
                self._by_key[key] = self._jobs[position] = job
            else:
                self._by_key[key] = job
                self._keys.insert(position, key)
                self._jobs.insert(position, job)

    def jobs(self) -> list[Job]:
        return self._jobs

    def __contains__(self, key: JobKey) -> bool:
        return key in self._by_key

    def get(self, key: JobKey) -> Job | None:
        return self._by_key.get(key)


class SortedWaitingJobs:
    """The same with equal jobs together."""

    def __init__(self) -> None:
        self._all = SortedJobs()
        self._others = SortedJobs()
        self._alike = AlikeJobs()
        self._jobs = WaitingJobs((), {}, ())

    def change(self, changes: Mapping[JobKey, Job | None]) -> None:
        before = {key: job for key in changes if (job := self._all.get(key)) is not None}
        after = {key: job for key, job in changes.items() if job is not None}
        self._all.change(changes)
        self._alike.change(before, after)
        others: dict[JobKey, Job | None] = {
            key: job if job is not None and kind_of(job) is None else None for key, job in changes.items()
        }
        self._others.change(others)
        self._jobs = WaitingJobs(self._all.jobs(), self._alike.by_kind, self._others.jobs())

    def jobs(self) -> WaitingJobs:
        return self._jobs

    def __contains__(self, key: JobKey) -> bool:
        return key in self._all


class SortedRunningJobs:
    """The same with what their pods hold as columns."""

    def __init__(self) -> None:
        self._all = SortedJobs()
        self._jobs = RunningJobs(())

    def change(self, changes: Mapping[JobKey, Job | None]) -> None:
        self._all.change(changes)
        self._jobs = RunningJobs(self._all.jobs(), self._jobs, changes)

    def jobs(self) -> RunningJobs:
        return self._jobs

    def __contains__(self, key: JobKey) -> bool:
        return key in self._all


_Part = SortedJobs | SortedWaitingJobs | SortedRunningJobs


class JobLists:
    """All jobs, and lists of those that a cycle looks for: it must not look at every settled job to find them."""

    def __init__(self) -> None:
        self.all = SortedJobs()
        self.waiting = SortedWaitingJobs()
        self.moved = SortedJobs()
        self.incomplete = SortedJobs()
        self.elastic = SortedJobs()
        self.guests = SortedJobs()
        self.running = SortedRunningJobs()
        self._parts: list[tuple[_Part, Callable[[Job], bool]]] = [
            (self.waiting, lambda job: bool(job.groups or job.gated)),
            (self.running, lambda job: bool(job.placed)),
            (self.moved, lambda job: job.moved is not None),
            (self.incomplete, lambda job: job.is_incomplete),
            (self.elastic, lambda job: job.elastic is not None),
            (self.guests, lambda job: any(pod.makes_way_for for pod in job.placed)),
        ]

    def change(self, changes: Mapping[JobKey, Job | None]) -> None:
        """None: the job does not exist any more."""
        if not changes:
            return
        self.all.change(changes)
        for jobs, belongs in self._parts:
            of_part: dict[JobKey, Job | None] = {}
            for key, job in changes.items():
                if job is not None and belongs(job):
                    of_part[key] = job
                elif key in jobs:
                    of_part[key] = None
            if of_part:
                jobs.change(of_part)
