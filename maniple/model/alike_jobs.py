"""Waiting jobs with equal ones together: they ask for the same in the same queue, and differ in name and age alone.

A cycle asks once for all that are alike (scheduler/framework/waiting_gangs.py). Ten thousand jobs of a few kinds are a
few lists, which are kept from cycle to cycle. One that holds something, was promised room or lacks pods is alone.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence

from maniple.model.job import Job
from maniple.model.pod_identity import JobKey


class WaitingJobs(list[Job]):
    """Jobs by key. Like a snapshot, it is never changed."""

    def __init__(self, jobs: Iterable[Job], alike: Mapping[Hashable, Sequence[Job]], others: Sequence[Job]) -> None:
        super().__init__(jobs)
        self.alike = alike  # what they have in common -> jobs by age and name
        self.others = others  # by key


def group_jobs(jobs: Sequence[Job]) -> WaitingJobs:
    if isinstance(jobs, WaitingJobs):
        return jobs
    groups = AlikeJobs()
    groups.change({}, {job.key: job for job in jobs})
    return WaitingJobs(jobs, groups.by_kind, [job for job in jobs if kind_of(job) is None])


class AlikeJobs:
    """Kept up to date. Maps and lists that were handed out are never changed."""

    def __init__(self) -> None:
        self.by_kind: dict[Hashable, list[Job]] = {}

    def change(self, before: Mapping[JobKey, Job], after: Mapping[JobKey, Job]) -> None:
        """Jobs that are no more what they were `before`, and what they are after."""
        gone: dict[Hashable, set[JobKey]] = {}
        come: dict[Hashable, list[Job]] = {}
        for job in before.values():
            gone.setdefault(kind_of(job), set()).add(job.key)
        for job in after.values():
            come.setdefault(kind_of(job), []).append(job)
        by_kind = dict(self.by_kind)
        for kind in gone.keys() | come.keys():
            if kind is None:
                continue
            left = gone.get(kind, set())
            jobs = [job for job in by_kind.get(kind, ()) if job.key not in left]
            jobs += come.get(kind, [])
            by_kind[kind] = sorted(jobs, key=age_and_name)
            if not jobs:
                del by_kind[kind]
        self.by_kind = by_kind


def age_and_name(job: Job) -> tuple[float, JobKey]:
    return job.created, job.key


def kind_of(job: Job) -> Hashable | None:
    """Equal for jobs that are alike, as long as no cycle gives them anything; None: it is like no other."""
    if (
        not job.groups
        or not job.exists
        or job.is_suspended
        or job.placed
        or job.succeeded
        or job.gated
        or job.strangers
        or job.was_promised
        or job.holds_reservation
        or job.nominated
        or job.moved is not None
        or job.bind_failures
    ):
        return None
    groups = [
        (
            group.number,
            group.role,
            group.priority,
            group.shape.number,
            group.pod_affinity,
            group.owner if len(job.groups) > 1 else "",
            len(group.pods),
            group.lasts_s,
            group.stays,
        )
        for group in job.groups
    ]
    return (
        job.queue,
        job.priority,
        job.may_preempt,
        job.preemptable,
        job.min_member,
        tuple(job.role_min.items()),
        job.min_runtime_s,
        (job.required, job.preferred, job.mixed_models),
        tuple(groups),
    )
