"""A Job with its pods: waiting, placed and finished ones; and what the job adds to the usage of its queue."""

from collections.abc import Iterable, Mapping, Sequence
from math import inf

import numpy as np

from maniple.api import kubernetes
from maniple.api.labels import BACKFILL_ANNOTATION
from maniple.api.phases import FINISHED
from maniple.model.building.cluster_tables import ClusterTables
from maniple.model.building.implied_pods import NextReplica
from maniple.model.building.job_builder import JobBuilder, gpu_models
from maniple.model.building.node_usage import PodUsage
from maniple.model.building.queue_usage import GpuKind, JobUsage
from maniple.model.building.task_groups import TaskGroups
from maniple.model.job import Job, PlacedPod
from maniple.model.plugin_reads import pick
from maniple.model.pod_identity import grace_s, lasts_s, pod_role
from maniple.model.priority import is_critical
from maniple.model.resources import FloatArray


def assemble_job(
    job: Job,
    members: Sequence[PodUsage],
    growing: Sequence[NextReplica],
    builder: JobBuilder,
    tables: ClusterTables,
) -> JobUsage:
    """Puts the members, sorted by name, into a job that has no pods yet."""
    waiting: list[PodUsage] = []
    placed: list[PodUsage] = []
    for usage in members:
        pod = usage.pod
        if not job.exists:
            builder.note_age(job, pod)
        if pod.status.phase in FINISHED:
            _count_succeeded(job, pod)
        elif not pod.spec.node_name:
            waiting.append(usage)
        elif not usage.is_leaving:
            placed.append(usage)
    if waiting or growing:
        _group_waiting(job, waiting, growing, builder, tables)
    held: dict[int, int] = {}
    gpus: dict[GpuKind, int] = {}
    for usage in placed:
        placed_pod = _placed_pod(usage, job, builder, tables)
        job.placed.append(placed_pod)
        job.placed_by_role[placed_pod.role] = job.placed_by_role.get(placed_pod.role, 0) + 1
        held[usage.held] = held.get(usage.held, 0) + 1
        if usage.gpus is not None:
            kind = (usage.request, placed_pod.gpu_models)
            gpus[kind] = gpus.get(kind, 0) + 1
    builder.settle(job)
    if held:
        job.allocated = _allocated(held, tables)
    if not job.groups and not job.growth:
        return JobUsage(job.queue, tuple(held.items()), tuple(gpus.items()), groups=_placed_shapes(job))
    pending: dict[int, int] = {}
    if job.exists and not job.is_suspended:
        # What a job may grow by it asks for, whether it has it or not: growing changes nobody's due.
        for group in (*job.groups, *job.growth.values()):
            pending[group.shape.request] = pending.get(group.shape.request, 0) + len(group.pods)
    for group in job.groups:
        shape, pods = group.shape, len(group.pods)
        if shape.gpus:
            kind = (shape.request, shape.constraint.gpu_models)
            gpus[kind] = gpus.get(kind, 0) + pods
    return JobUsage(
        queue=job.queue,
        allocated=tuple(held.items()),
        gpus=tuple(gpus.items()),
        pending=tuple(pending.items()),
        owners=tuple([(owner, 1) for owner in {group.owner: None for group in job.groups if group.owner}]),
        groups=len(job.groups) + _placed_shapes(job),
    )


def _placed_shapes(job: Job) -> int:
    """The shapes that its placed pods keep in use."""
    return len({id(pod.shape) for pod in job.placed}) if job.is_movable else 0


def _group_waiting(
    job: Job, waiting: Iterable[PodUsage], growing: Iterable[NextReplica], builder: JobBuilder, tables: ClusterTables
) -> None:
    groups = TaskGroups(job, tables)
    for usage in waiting:
        if groups.add(usage.name, usage.pod, usage.request, usage.priority):
            builder.time(usage.pod.metadata.creation_timestamp)
    groups.finish()
    for role, replica in growing:
        priority = tables.priorities.of_pod(replica) or 0
        groups.add_growth(role, replica, tables.requests.number(replica), priority)


def _count_succeeded(job: Job, pod: kubernetes.Pod) -> None:
    role = pod_role(pod.metadata)
    job.succeeded += 1
    job.succeeded_by_role[role] = job.succeeded_by_role.get(role, 0) + 1


def _placed_pod(usage: PodUsage, job: Job, builder: JobBuilder, tables: ClusterTables) -> PlacedPod:
    pod = usage.pod
    meta, started = pod.metadata, builder.started(pod)
    placed = PlacedPod(
        pod=usage.name,
        node=usage.node,
        role=pod_role(meta),
        priority=usage.priority,
        requests=tables.shapes.vector(usage.held),
        pod_affinity=usage.pod_affinity,
        started=started,
        is_critical=is_critical(pod),
        labels=meta.labels,
        ends=inf if pod.spec.active_deadline_seconds is None else started + lasts_s(pod),
        makes_way_for=meta.annotations.get(BACKFILL_ANNOTATION, ""),
        exclusives=usage.exclusives,
        is_ours=tables.ours.claims(pod),
        annotations=pick(tables.reads.pod_annotations, meta.annotations),
    )
    if usage.gpus is not None:
        placed.gpus = usage.gpus.gpus
        placed.gpu_models = gpu_models(pod, job)
    if job.is_movable or tables.has_all_shapes:
        placed.shape = tables.shapes.of(pod, usage.request, gpu_models(pod, job))
        placed.owner = usage.owner
        placed.grace_s = grace_s(pod)
    return placed


def _allocated(held: Mapping[int, int], tables: ClusterTables) -> FloatArray:
    """The sum of the requests: a gang has few different ones."""
    vector = tables.shapes.vector
    sums = [vector(request) if count == 1 else vector(request) * count for request, count in held.items()]
    total: FloatArray = sums[0] if len(sums) == 1 else np.add.reduce(sums)
    return total
