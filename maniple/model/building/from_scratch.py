"""Objects to Snapshot in one step: the incremental builder, run once. Raises the contradictions it reports."""

from collections.abc import Sequence, Set
from dataclasses import replace

from maniple.api.types import ElasticJob, PodGroup
from maniple.model.building.incremental import SnapshotBuilder, key_of_object
from maniple.model.building.input_objects import Objects
from maniple.model.disruption_budgets import find_budgets
from maniple.model.job import Job
from maniple.model.paused_gc import paused_gc
from maniple.model.plugin_reads import Reads
from maniple.model.pod_identity import JobKey, job_key, named_gangs
from maniple.model.pods_we_schedule import Ours
from maniple.model.queues import tree_problems, with_default
from maniple.model.snapshot import Snapshot

_GANGS = (PodGroup, ElasticJob)


def build_snapshot(
    objects: Objects,
    ours: Ours | None = None,
    now: float | None = None,
    reads: Reads | None = None,
    had_pods: Set[JobKey] = frozenset(),
    *,
    has_all_shapes: bool = False,
) -> Snapshot:
    """The snapshot of `objects` at `now` (default: the latest time that any of them mentions).

    `had_pods`: gangs whose pods were there and are gone. `has_all_shapes`: placed pods have their shapes whether they
    may be moved or not, so that explanations can name moves of any job. Raises InputError with every contradiction
    between objects.
    """
    # What else is wrong depends on the queues, so a broken tree is reported alone.
    objects.refuse(tree_problems(with_default(objects.queues)))
    builder = SnapshotBuilder(ours or Ours(), reads, has_all_shapes=has_all_shapes)
    with paused_gc():
        for items in objects.by_kind().values():
            for item in items:
                builder.put(item)
        for pod in objects.implied:
            builder.put(pod)
        snapshot = builder.snapshot(now)
    if builder.wrong:
        # Problems of implied pods are left out: the problem is their ElasticJob's, which is reported.
        items = [*objects.nodes, *objects.pod_groups, *objects.elastic_jobs, *objects.pods]
        for some in (objects.namespaces, items):  # a namespace's queue is wrong for all of its pods: that is said once
            objects.refuse((item, text) for item in some for text in builder.wrong.get(key_of_object(item), ()))
        gangs = {job_key(item.metadata, type(item).__name__): item for item in items if isinstance(item, _GANGS)}
        for job in snapshot.jobs:
            if not job.exists and job.key in gangs:
                job.set_aside = "; ".join(builder.wrong.get(key_of_object(gangs[job.key]), ()))
    # Budgets count all existing pods: also those that no decision depends on, and none that are still to be created.
    waiting = _with_podless_groups(snapshot, objects, had_pods)
    return replace(snapshot, budgets=find_budgets(objects.budgets, objects.pods), waiting=waiting)


def gangs_with_pods(objects: Objects) -> set[JobKey]:
    return {gang for pod in objects.pods for gang in named_gangs(pod)} if objects.pod_groups else set()


def _with_podless_groups(snapshot: Snapshot, objects: Objects, had_pods: Set[JobKey]) -> Sequence[Job]:
    """The waiting jobs, and PodGroups that wait for their pods to be created: none of them was in the input."""
    if not objects.pod_groups:
        return snapshot.waiting
    named = gangs_with_pods(objects) | had_pods
    groups = {job_key(group.metadata, "PodGroup"): group for group in objects.pod_groups}
    podless = [
        job
        for job in snapshot.jobs
        if job.key in groups and job.key not in named and groups[job.key].status.phase != "Finished"
    ]
    return sorted([*snapshot.waiting, *podless], key=lambda job: job.key) if podless else snapshot.waiting
