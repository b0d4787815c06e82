"""A job in the words of the table, of JSON and of the live view: what it has, what it is to have, and why it waits."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from maniple.api import types
from maniple.model.elastic import current_sizes

if TYPE_CHECKING:
    from maniple.kube.user.replica_view import Replica

ENDED = ("Succeeded", "Failed")
SCHEDULED, HINDERED = "Scheduled", "Hindered"
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
        """`24%`, or `step 1200` where nobody knows how many there will be"""
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
    reason: str  # why it does not run, or not as it is to; empty while it does
    message: str
    progress: ProgressView | None  # None: its workers do not report it

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


def view(job: types.ElasticJob, replicas: "Iterable[Replica]") -> JobView:
    """`replicas` are the pods of this job."""
    mine = list(replicas)
    sizes = current_sizes(job, [replica.pod for replica in mine])
    has_size = job.status.phase not in ENDED and not job.spec.suspend
    roles = tuple(
        RoleView(
            name=role.name,
            running=sum(1 for replica in mine if replica.role == role.name and replica.is_running),
            target=sizes[role.name] if has_size else 0,
            min=role.min,
            max=role.max,
            pin=role.pin,
        )
        for role in job.spec.roles
    )
    reason, message = why(job)
    created = job.metadata.creation_timestamp
    return JobView(
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        queue=job.spec.queue or types.DEFAULT_QUEUE,
        phase=job.status.phase,
        framework=job.spec.framework,
        roles=roles,
        gpus=sum(replica.holds_gpus for replica in mine),
        restarts=job.status.restarts,
        resizes=job.status.resizes,
        created="" if created is None else created.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        reason=reason,
        message=message,
        progress=_progress(job.status.progress),
    )


def _progress(said: types.JobProgress) -> ProgressView | None:
    return None if said.time is None else ProgressView(said.step, said.total, said.throughput, said.time)


def views(jobs: Iterable[types.ElasticJob], replicas: "Iterable[Replica]") -> list[JobView]:
    """By namespace and name."""
    by_job: dict[tuple[str, str], list[Replica]] = {}
    for replica in replicas:
        by_job.setdefault(replica.job, []).append(replica)
    made = [view(job, by_job.get((job.metadata.namespace, job.metadata.name), ())) for job in jobs]
    return sorted(made, key=lambda one: (one.namespace, one.name))


def why(job: types.ElasticJob) -> tuple[str, str]:
    """Reason and message of what keeps the job from what it is to be, or of its failure; nothing while all is well."""
    if job.status.phase == "Succeeded":
        return "", ""
    conditions = {one.type: one for one in job.status.conditions}
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
        return "Suspended", f"`maniple resume {job.metadata.name}` lets it go on"
    restarting = conditions.get("Restarting")
    if job.status.phase == "Restarting" and restarting is not None and restarting.status == "True":
        return restarting.reason, restarting.message
    waits = conditions.get(SCHEDULED)
    if waits is not None and waits.status == "False" and job.status.phase in _WAITS:
        return waits.reason, waits.message
    if not job.status.phase and waits is None:
        return "NotSeen", "no `maniple serve` has said anything of it yet"
    return "", ""


def age(since: str | datetime | None, now: datetime) -> str:
    """`45s`, `12m`, `3h20m`, `5d` — as kubectl writes it."""
    if not since:
        return "-"
    then = datetime.fromisoformat(since) if isinstance(since, str) else since
    seconds = max(0, int((now - then).total_seconds()))
    if seconds < 120:
        return f"{seconds}s"
    minutes = seconds // 60
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    if hours < 24:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    return f"{hours // 24}d"


def counted(amount: int, noun: str) -> str:
    """`1 replica`, `2 replicas`"""
    return f"{amount} {noun}" if amount == 1 else f"{amount} {noun}s"


def number(value: float) -> str:
    """`4`, `0.25`"""
    return f"{value:.2f}".rstrip("0").rstrip(".")
