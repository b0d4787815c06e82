"""A Job with its pods: waiting, placed and finished ones; and what the job adds to the usage of its queue."""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import inf

from maniple.api import kubernetes, types
from maniple.api.phases import FINISHED
from maniple.model.building.cluster_tables import ClusterTables
from maniple.model.building.job_builder import JobBuilder, gpu_models
from maniple.model.building.node_usage import PodUsage
from maniple.model.building.queue_usage import GpuKind, JobUsage
from maniple.model.building.task_groups import TaskGroups
from maniple.model.job import Job, PlacedPod
from maniple.model.pod_identity import lasts_s, pod_role
from maniple.model.priority import is_critical
from maniple.model.reads import pick


def assemble_job(
    job: Job,
    members: Sequence[PodUsage],
    growing: Iterable[tuple[types.ElasticRole, kubernetes.Pod]],
    builder: JobBuilder,
    tables: ClusterTables,
) -> JobUsage:
    """Puts the members, sorted by name, into a job that has no pods yet."""
    groups = TaskGroups(job, tables)
    placed: list[PodUsage] = []
    for usage in members:
        pod = usage.pod
        if not job.exists:
            builder.note_age(job, pod)
        if pod.status.phase in FINISHED:
            role_name = pod_role(pod.metadata)
            job.succeeded += 1
            job.succeeded_by_role[role_name] = job.succeeded_by_role.get(role_name, 0) + 1
        elif not pod.spec.node_name:
            if groups.add(pod, usage.request, usage.priority):
                builder.time(pod.metadata.creation_timestamp)
        elif not usage.is_leaving:
            placed.append(usage)
    groups.finish()
    for role, replica in growing:
        priority = tables.priorities.of_pod(replica) or 0
        groups.add_growth(role, replica, tables.requests.number(replica), priority)
    gpus: list[tuple[GpuKind, int]] = []
    for usage in placed:
        placed_pod = _placed_pod(usage, job, builder, tables)
        job.placed.append(placed_pod)
        job.placed_by_role[placed_pod.role] = job.placed_by_role.get(placed_pod.role, 0) + 1
        if usage.gpus is not None:
            gpus.append(((usage.request, placed_pod.gpu_models), 1))
    builder.settle(job)
    allocated = [usage.held for usage in placed]
    _sum_allocated(job, allocated, tables)
    for group in job.groups:
        if group.shape.gpus:
            gpus += [((group.shape.request, group.shape.constraint.gpu_models), len(group.pods))]
    is_pending = job.exists and not job.is_suspended
    return JobUsage(
        queue=job.queue,
        allocated=allocated,
        pending=[(group.shape.request, len(group.pods)) for group in job.groups] if is_pending else (),
        gpus=gpus,
        owners=tuple({group.owner: None for group in job.groups if group.owner}),
        groups=len(job.groups),
    )


def _placed_pod(usage: PodUsage, job: Job, builder: JobBuilder, tables: ClusterTables) -> PlacedPod:
    pod = usage.pod
    meta, started = pod.metadata, builder.started(pod)
    placed = PlacedPod(
        pod=usage.name,
        node=usage.node,
        role=pod_role(meta),
        priority=usage.priority,
        requests=tables.shapes.vector(usage.held),
        peers=usage.peers,
        started=started,
        is_critical=is_critical(pod),
        labels=meta.labels,
        ends=inf if pod.spec.active_deadline_seconds is None else started + lasts_s(pod),
        is_ours=tables.ours.claims(pod),
    )
    if meta.annotations:
        placed.makes_way_for = meta.annotations.get(types.BACKFILL_ANNOTATION, "")
        placed.annotations = pick(tables.reads.pod_annotations, meta.annotations)
    if usage.gpus is not None:
        placed.gpus = usage.gpus.gpus
        placed.gpu_models = gpu_models(pod, job)
    return placed


def _sum_allocated(job: Job, allocated: Sequence[int], tables: ClusterTables) -> None:
    if len(allocated) == 1:
        job.allocated = tables.shapes.vector(allocated[0])
        return
    for request, count in Counter(allocated).items():
        held = tables.shapes.vector(request) * count
        job.allocated = held if job.allocated is None else job.allocated + held
