"""A job in the table, in JSON and in the live view: its size now, its target, and why it waits."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from maniple.api import types
from maniple.api.keys import Key, key_of
from maniple.api.phases import FINISHED
from maniple.api.queue_names import queue_name
from maniple.api.timestamps import format_timestamp
from maniple.elastic.conditions import HINDERED
from maniple.kube.user.replica_pod import ReplicaPod
from maniple.model.elastic import current_sizes
from maniple.views.ages_and_amounts import counted, number

SCHEDULED = "Scheduled"
_WAITS = ("", "Pending", "Suspended")  # in other phases its minimum has been placed


class RoleView(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    running: int
    target: int
    min: int
    max: int
    pin: int | None = None

    @property
    def range(self) -> str:
        """`4:8`, or pinned `4:8=6`"""
        return f"{self.min}:{self.max}" + ("" if self.pin is None else f"={self.pin}")


class ProgressView(msgspec.Struct, frozen=True, rename="camel"):
    step: int
    total: int | None
    throughput: float | None
    time: datetime  # when its workers reported it

    def __str__(self) -> str:
        """`24%`, or `step 1200` if the total is unknown"""
        return f"{min(100, 100 * self.step // self.total)}%" if self.total else f"step {self.step}"


class JobView(msgspec.Struct, frozen=True, rename="camel"):
    namespace: str
    name: str
    queue: str
    phase: str
    framework: str
    roles: tuple[RoleView, ...]
    gpus: float
    restarts: int
    resizes: int
    created: str
    reason: str  # why it does not run, or not at its target; empty while it does
    message: str
    progress: ProgressView | None  # None: its workers do not report it

    @property
    def key(self) -> Key:
        return self.namespace, self.name

    @property
    def running(self) -> int:
        return sum(role.running for role in self.roles)

    @property
    def target(self) -> int:
        return sum(role.target for role in self.roles)

    @property
    def min(self) -> int:
        return sum(role.min for role in self.roles)

    @property
    def max(self) -> int:
        return sum(role.max for role in self.roles)

    @property
    def range(self) -> str:
        return self.roles[0].range if len(self.roles) == 1 else f"{self.min}:{self.max}"

    @property
    def size(self) -> str:
        """`4`, or while it changes `4→8`"""
        return str(self.running) if self.running == self.target else f"{self.running}→{self.target}"

    @property
    def is_finished(self) -> bool:
        return self.phase in FINISHED


def queue_of(job: types.ElasticJob) -> str:
    """The queue that the job names, else the one that `maniple serve` has found, such as that of its namespace."""
    return job.spec.queue or queue_name(job.metadata) or job.status.queue or types.DEFAULT_QUEUE


def job_view(job: types.ElasticJob, replicas: Iterable[ReplicaPod]) -> JobView:
    """`replicas` are the pods of this job."""
    pods = list(replicas)
    sizes = current_sizes(job, [replica.pod for replica in pods])
    has_size = job.status.phase not in FINISHED and not job.spec.suspend
    roles = tuple(
        RoleView(
            name=role.name,
            running=sum(1 for replica in pods if replica.role == role.name and replica.is_running),
            target=sizes[role.name] if has_size else 0,
            min=role.min,
            max=role.max,
            pin=role.pin,
        )
        for role in job.spec.roles
    )
    reason, message = waiting_reason(job)
    created, progress = job.metadata.creation_timestamp, job.status.progress
    return JobView(
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        queue=queue_of(job),
        phase=job.status.phase,
        framework=job.spec.framework,
        roles=roles,
        gpus=sum(replica.held_gpus for replica in pods),
        restarts=job.status.restarts,
        resizes=job.status.resizes,
        created="" if created is None else format_timestamp(created),
        reason=reason,
        message=message,
        progress=None
        if progress.time is None
        else ProgressView(progress.step, progress.total, progress.throughput, progress.time),
    )


def job_views(jobs: Iterable[types.ElasticJob], replicas: Iterable[ReplicaPod]) -> list[JobView]:
    """By namespace and name."""
    by_job: dict[Key, list[ReplicaPod]] = {}
    for replica in replicas:
        by_job.setdefault(replica.job, []).append(replica)
    views = [job_view(job, by_job.get(key_of(job.metadata), ())) for job in jobs]
    return sorted(views, key=lambda view: view.key)


def waiting_reason(job: types.ElasticJob) -> tuple[str, str]:
    """Reason and message of its failure or of what keeps it from its target; empty while all is well."""
    if job.status.phase == "Succeeded":
        return "", ""
    conditions = {condition.type: condition for condition in job.status.conditions}
    failed = conditions.get("Failed")
    if failed is not None and failed.status == "True":
        return failed.reason, failed.message
    hindered = conditions.get(HINDERED)
    if hindered is not None:
        return hindered.reason, hindered.message
    suspended = conditions.get("Suspended")
    if suspended is not None and suspended.status == "False" and suspended.reason == "Stopping":
        return suspended.reason, suspended.message
    if job.spec.suspend:
        return "Suspended", f"`maniple resume {job.metadata.name}` resumes it"
    restarting = conditions.get("Restarting")
    if job.status.phase == "Restarting" and restarting is not None and restarting.status == "True":
        return restarting.reason, restarting.message
    scheduled = conditions.get(SCHEDULED)
    if scheduled is not None and scheduled.status == "False" and job.status.phase in _WAITS:
        return scheduled.reason, scheduled.message
    if not job.status.phase and scheduled is None:
        return "NotSeen", "no `maniple serve` has seen it yet"
    return "", ""


def status_line(job: types.ElasticJob) -> str:
    """`Running with 4 of 8 replicas`, `Pending: InsufficientResources: needs …`"""
    phase = job.status.phase or "Submitted"
    reason, message = waiting_reason(job)
    running = job.status.replicas.running
    target = sum(current_sizes(job, []).values())
    if not job.status.target:  # nothing was decided: it keeps what it has
        target = max(target, running)
    size = f" with {running} of {counted(target, 'replica')}" if running and phase not in FINISHED else ""
    return ": ".join(filter(None, (f"{phase}{size}", reason if reason not in ("NotSeen", phase) else "", message)))


def changed_jobs(before: Mapping[Key, JobView], after: Mapping[Key, JobView]) -> list[tuple[Key, JobView | None]]:
    """Jobs whose phase, reason, size, GPUs or queue changed, by namespace and name; None: the job is gone."""
    changes: list[tuple[Key, JobView | None]] = []
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        if new is None or old is None or _watched_facts(old) != _watched_facts(new):
            changes.append((key, new))
    return changes


def _watched_facts(job: JobView) -> tuple[object, ...]:
    return job.phase, job.reason, job.size, job.range, number(job.gpus), job.queue


class SizeHistory:
    """The running replicas of each job, one sample for each call of `sample`."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._sizes: dict[Key, deque[int]] = {}

    def sample(self, jobs: Iterable[JobView]) -> None:
        sizes = {job.key: job.running for job in jobs}
        self._sizes = {key: self._sizes.get(key, deque(maxlen=self._length)) for key in sizes}
        for key, size in sizes.items():
            self._sizes[key].append(size)

    def of(self, job: JobView) -> Sequence[int]:
        return tuple(self._sizes.get(job.key, ()))
