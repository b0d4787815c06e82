"""All there is to say about one job: its settings, replicas, ranks, sizes over time, conditions and events."""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from maniple.api import types
from maniple.api.gpu.assignment import parse_assignment
from maniple.kube.user.client import Event
from maniple.kube.user.replica_pod import ReplicaPod
from maniple.views.jobs import JobView, job_view

_SIZE = re.compile(r"\b(\d+) replicas? in generation (\d+)")  # the controller's event of a new size


class ReplicaView(msgspec.Struct, frozen=True, rename="camel"):
    pod: str
    role: str
    index: int
    state: str
    node: str
    gpus: list[str]
    message: str


class SizeView(msgspec.Struct, frozen=True, rename="camel"):
    """A size that the job has had."""

    time: str
    replicas: int
    generation: int


class EventView(msgspec.Struct, frozen=True, rename="camel"):
    time: str
    type: str
    reason: str
    count: int
    about: str
    note: str


class JobDetail(JobView, frozen=True, rename="camel"):
    """`maniple describe -o json`."""

    conditions: tuple[types.StatusCondition, ...]
    failures: int
    generation: types.JobGeneration
    speeds: tuple[types.MeasuredSpeed, ...]
    replicas: tuple[ReplicaView, ...]
    sizes: tuple[SizeView, ...]  # as far as its events are still there
    events: tuple[EventView, ...]


class RankView(msgspec.Struct, frozen=True, rename="camel"):
    """A member of the generation, and the ranks of its workers."""

    first: int
    last: int
    pod: str
    address: str


class JobDescription(msgspec.Struct, frozen=True, rename="camel"):
    """The detail, and what the text of `maniple describe` shows beside it."""

    detail: JobDetail
    spec: types.ElasticJobSpec
    status: types.ElasticJobStatus
    ranks: tuple[RankView, ...]
    replicas_created: tuple[datetime | None, ...]  # as in detail.replicas


def describe_job(job: types.ElasticJob, replicas: Iterable[ReplicaPod], events: Sequence[Event]) -> JobDescription:
    pods = sorted(replicas, key=lambda replica: (replica.role, replica.index))
    return JobDescription(
        detail=_detail(job, pods, events),
        spec=job.spec,
        status=job.status,
        ranks=_ranks(job.status.generation),
        replicas_created=tuple(replica.pod.metadata.creation_timestamp for replica in pods),
    )


def _detail(job: types.ElasticJob, pods: Sequence[ReplicaPod], events: Sequence[Event]) -> JobDetail:
    view, status = job_view(job, pods), job.status
    return JobDetail(
        **{name: getattr(view, name) for name in JobView.__struct_fields__},
        conditions=status.conditions,
        failures=status.failures.count,
        generation=status.generation,
        speeds=status.speeds,
        replicas=tuple(
            ReplicaView(
                pod=replica.name,
                role=replica.role,
                index=replica.index,
                state=replica.state,
                node=replica.node,
                gpus=parse_assignment(replica.gpus),
                message=replica.message,
            )
            for replica in pods
        ),
        sizes=sizes_over_time(events),
        events=tuple(
            EventView(event.time, event.type, event.reason, event.count, event.regarding.name, event.note)
            for event in events
        ),
    )


def sizes_over_time(events: Iterable[Event]) -> tuple[SizeView, ...]:
    """By generation."""
    sizes = []
    for event in events:
        match = _SIZE.search(event.note) if event.regarding.kind == "ElasticJob" else None
        if match is not None:
            sizes.append(SizeView(event.event_time or event.time, int(match[1]), int(match[2])))
    return tuple(sorted(sizes, key=lambda size: size.generation))


def _ranks(generation: types.JobGeneration) -> tuple[RankView, ...]:
    ranks, first = [], 0
    for member in generation.members:
        ranks.append(RankView(first, first + member.slots - 1, member.pod, member.address))
        first += member.slots
    return tuple(ranks)
