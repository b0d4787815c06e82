"""PodGroups, ElasticJobs, gangs without an object and single pods as Jobs, still without their pods.

Contradictions between objects (an unknown queue, level or class) are reported; the caller decides what to do.
"""

from collections.abc import Callable
from datetime import datetime
from math import inf

from maniple.api import kubernetes, types
from maniple.api.bind_failures import read_bind_failures
from maniple.api.decode.decode import Object
from maniple.api.errors import nearest
from maniple.api.gpu.requests import read_models
from maniple.api.incomplete_since import stale_at
from maniple.api.keys import split_name
from maniple.api.labels import GPU_MODELS_ANNOTATION, RESERVED_ANNOTATION
from maniple.api.meta import ObjectMeta
from maniple.api.moves import Move, read_move
from maniple.api.timestamps import to_seconds
from maniple.model.building.cluster_tables import ClusterTables
from maniple.model.elastic import read_elastic
from maniple.model.job import Job
from maniple.model.plugin_reads import pick
from maniple.model.pod_identity import JobKey, job_key, pod_role

_CLOCKS_DIFFER_S = 60.0  # at most, between a node and us
_OF_ITS_PODS = -(2**31)  # a priority that is known only when all pods have been seen


def is_gang(group: types.PodGroup) -> bool:
    """False: its pods do not wait for each other, so each is a gang of its own. Upstream has such groups."""
    return group.spec.min_member > 0


class JobBuilder:
    def __init__(self, tables: ClusterTables, report: Callable[[Object, str], None]) -> None:
        self._tables = tables
        self._report = report
        self.latest = 0.0  # the latest timestamp seen, in seconds
        self._last_timestamp: datetime | None = None
        self._last_seconds = 0.0

    def of_group(self, group: types.PodGroup) -> Job:
        self._check_levels(group)
        job = self._of_object(group, group.spec.min_member, {role.name: role.min_member for role in group.spec.roles})
        job.stale_at = stale_at(group)
        return job

    def of_elastic(self, item: types.ElasticJob, sizes: dict[str, int]) -> Job:
        spec, resized, grow_after = item.spec, item.status.last_resize_time, item.status.grow_after
        self._check_levels(item)
        for index, role in enumerate(spec.roles):
            name = role.template.spec.priority_class_name
            if self._tables.priorities.value(name) is None:
                field = f"spec.roles[{index}].template.spec.priorityClassName"
                self._report(item, f"{field}: {self._tables.priorities.unknown(name)}")
        role_min = {role.name: role.least for role in spec.roles}
        job = self._of_object(item, max(1, sum(role_min.values())), role_min)
        job.elastic = read_elastic(
            item,
            sizes,
            None if resized is None else self.time(resized),
            to_seconds(grow_after),  # in the future: it must not count as the latest time
        )
        job.is_suspended = spec.suspend
        job.lasts_s = inf if spec.active_deadline_seconds is None else spec.active_deadline_seconds
        return job

    def _of_object(self, item: types.PodGroup | types.ElasticJob, min_member: int, role_min: dict[str, int]) -> Job:
        spec, queue = item.spec, self._queue(item)
        job = Job(
            key=job_key(item.metadata, type(item).__name__),
            queue=queue,
            priority=self._class(item, spec.priority_class_name),
            created=self.time(item.metadata.creation_timestamp),
            min_member=min_member,
            role_min=role_min,
            preemptable=spec.preemptable,
            min_runtime_s=self._min_runtime_s(queue, spec.min_runtime_seconds),
            is_movable=spec.movable if isinstance(spec, types.PodGroupSpec) else spec.is_movable,
            required=self._level(spec.topology.required),
            preferred=self._level(spec.topology.preferred),
            mixed_models=spec.mixed_gpu_models,
            role_models={role.name: role.gpu_models for role in spec.roles if role.gpu_models},
        )
        self._read_metadata(item.metadata, job)
        return job

    def of_pod(self, key: JobKey, pod: kubernetes.Pod, priority: int) -> Job:
        """A pod without a group is a gang of one."""
        job = self._without_object(key)
        job.queue = self._tables.queue_choice.find(pod.metadata)[0]
        job.min_runtime_s = self._min_runtime_s(job.queue)
        job.priority = priority
        job.created = self.time(pod.metadata.creation_timestamp)
        self._read_metadata(pod.metadata, job)
        return job

    def missing(self, key: JobKey) -> Job:
        """A gang that pods name and that has no object. It is as old as the oldest of its pods, see `note_age`."""
        job = self._without_object(key)
        job.exists = False
        return job

    def note_age(self, job: Job, pod: kubernetes.Pod) -> None:
        if not job.exists and self._tables.ours.claims(pod):
            job.created = min(job.created, self.time(pod.metadata.creation_timestamp))

    def _without_object(self, key: JobKey) -> Job:
        queue, _ = self._tables.queue_choice.find(ObjectMeta(namespace=split_name(key[0])[0]))
        least = self._min_runtime_s(queue)
        return Job(key, queue, _OF_ITS_PODS, created=inf, min_member=1, role_min={}, min_runtime_s=least)

    def _min_runtime_s(self, queue: int, own: int | None = None) -> float:
        """How long pods of a job run at least: what the job says, else what its queue says."""
        return self._tables.queues[queue].min_runtime_s if own is None else own

    def settle(self, job: Job) -> None:
        """Fills in what depends on all pods of the job."""
        if job.priority == _OF_ITS_PODS:
            priorities = [pod.priority for pod in job.placed] + [group.priority for group in job.groups]
            job.priority = max(priorities, default=self._tables.priorities.default)
        if job.created == inf:
            job.created = 0.0
        if job.lasts_s != inf and job.placed:
            # The deadline of a job ends all of its pods.
            end = min(pod.started for pod in job.placed) + job.lasts_s
            for pod in job.placed:
                pod.ends = min(pod.ends, end)
        if job.moved is not None and _is_all_there(job, job.moved):
            job.moved = None

    def _read_metadata(self, meta: ObjectMeta, job: Job) -> None:
        job.labels = pick(self._tables.reads.job_labels, meta.labels)
        if not meta.annotations:
            return
        job.annotations = pick(self._tables.reads.job_annotations, meta.annotations)
        job.holds_reservation = meta.annotations.get(RESERVED_ANNOTATION) == "true"
        job.moved = read_move(meta.annotations)
        if job.moved is not None:
            self.time(job.moved.at)
        failures = read_bind_failures(meta.annotations)
        if failures is not None:
            job.bind_failures = failures.count
            job.backs_off_until = self.time(failures.last) + failures.pause_s

    def _check_levels(self, item: types.PodGroup | types.ElasticJob) -> None:
        levels, topology = self._tables.levels, item.spec.topology
        for name, level in (("required", topology.required), ("preferred", topology.preferred)):
            if not level:
                continue
            if "/" in level and self._level(level) not in levels:
                self._report(item, f"topology: no Topology object has a level of the node label {level!r}; write one")
            elif self._level(level) not in levels:
                known = nearest(level, levels) or "; no Topology object defines any level"
                self._report(item, f"spec.topology.{name}: unknown level {level!r}{known}")

    def _level(self, name: str) -> str:
        """The level of this name, or of this node label: upstream names levels by label."""
        tables = self._tables
        return name if name in tables.levels else tables.level_of_label.get(name, name)

    def _queue(self, item: types.PodGroup | types.ElasticJob) -> int:
        queue, problem = self._tables.queue_choice.find(item.metadata, item.spec.queue)
        if problem:
            self._report(item, problem)
        return queue

    def _class(self, item: types.PodGroup | types.ElasticJob, name: str) -> int:
        if not name:
            return _OF_ITS_PODS
        value = self._tables.priorities.value(name)
        if value is None and self._tables.priorities.is_left_out(item.metadata):
            return _OF_ITS_PODS
        if value is None:
            self._report(item, f"spec.priorityClassName: {self._tables.priorities.unknown(name)}")
        return value or 0

    def time(self, timestamp: datetime | None) -> float:
        if timestamp != self._last_timestamp:  # pods of a gang mostly have the same
            self._last_timestamp, self._last_seconds = timestamp, to_seconds(timestamp)
            self.latest = max(self.latest, self._last_seconds)
        return self._last_seconds

    def started(self, pod: kubernetes.Pod) -> float:
        if pod.metadata.deletion_timestamp is not None:
            self.time(pod.metadata.deletion_timestamp)
        return self.time(pod.status.start_time or pod.metadata.creation_timestamp)


def _is_all_there(job: Job, move: Move) -> bool:
    """Whether no pod has left with the move: it was announced, and its evictions were refused or never sent."""
    before = move.at_s - _CLOCKS_DIFFER_S
    return len(job.placed) + job.succeeded >= move.size and all(pod.started < before for pod in job.placed)


def gpu_models(pod: kubernetes.Pod, job: Job) -> tuple[types.GpuModel, ...]:
    """GPU models that the pod may have: its own list, else that of its role."""
    written = pod.metadata.annotations.get(GPU_MODELS_ANNOTATION)
    if written:
        try:
            return read_models(written)
        except ValueError:
            return ()  # validation has reported it
    return job.role_models.get(pod_role(pod.metadata), ()) if job.role_models else ()
