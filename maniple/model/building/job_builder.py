"""Who belongs to which gang, and gangs as values: PodGroups, ElasticJobs, groups that nobody wrote, pods on their own.

What contradicts other objects (an unknown queue, level or class) is reported, and the caller decides what to do.
"""

from collections.abc import Callable, Container
from datetime import UTC, datetime
from math import inf

from maniple.api import kubernetes, types
from maniple.api.bind_failures import read_bind_failures
from maniple.api.decode.decode import Object
from maniple.api.errors import nearest
from maniple.api.gpu.requests import read_models
from maniple.api.labels import GPU_MODELS_ANNOTATION, JOB_LABEL, RESERVED_ANNOTATION
from maniple.api.meta import ObjectMeta
from maniple.model.building.cluster_tables import Frame, Ours
from maniple.model.elastic import read_elastic
from maniple.model.job import Job
from maniple.model.pod_identity import group_name, pod_role

JobKey = tuple[str, str]  # ns/name, kind
_OF_ITS_PODS = -(2**31)  # a priority that is known only when all pods have been seen


def job_key(meta: ObjectMeta, kind: str) -> JobKey:
    return f"{meta.namespace}/{meta.name}", kind


def key_of(
    pod: kubernetes.Pod, ours: Ours, declared: Container[JobKey], called: Container[JobKey], loose: Container[JobKey]
) -> JobKey | None:
    """The gang a pod belongs to; itself if it names none; None if it is no business of ours.

    `called`: groups that some pod of ours names. It is a group's member that makes a group, where nobody wrote one.
    `loose`: groups that are no gangs, see `is_loose`.
    """
    meta = pod.metadata
    name = meta.labels.get(JOB_LABEL)
    if name:
        key = (f"{meta.namespace}/{name}", "ElasticJob")
        if key in declared:
            return key
    group = group_name(pod)
    if group or name:
        key = (f"{meta.namespace}/{group or name}", "PodGroup" if group else "ElasticJob")
        if key not in loose:
            return key if key in declared or ours.claims(pod) or key in called else None
    return (f"{meta.namespace}/{meta.name}", "Pod") if ours.claims(pod) else None


def is_loose(group: types.PodGroup) -> bool:
    """Whether nobody in the group waits for anybody: each of its pods is on its own. Upstream has such groups."""
    return group.spec.min_member == 0


def called_by(pod: kubernetes.Pod) -> JobKey | None:
    """The group that a pod of ours brings into being by naming it; None if it names none, or is over and counts not."""
    meta = pod.metadata
    if pod.status.phase == "Failed" or (not pod.spec.node_name and not _waits(pod)):
        return None
    group, job = group_name(pod), meta.labels.get(JOB_LABEL)
    if not group and not job:
        return None
    return f"{meta.namespace}/{group or job}", "PodGroup" if group else "ElasticJob"


def _waits(pod: kubernetes.Pod) -> bool:
    return pod.status.phase != "Succeeded" and pod.metadata.deletion_timestamp is None


class JobMaker:
    def __init__(self, frame: Frame, report: Callable[[Object, str], None]) -> None:
        self.frame = frame
        self._report = report
        self.latest = 0.0  # the newest moment that was read

    def of_group(self, group: types.PodGroup) -> Job:
        spec = group.spec
        self._check_levels(group)
        job = Job(
            key=job_key(group.metadata, "PodGroup"),
            queue=self._queue(group, spec.queue),
            priority=self._class(group, spec.priority_class_name),
            created=self.time(group.metadata.creation_timestamp),
            min_member=spec.min_member,
            role_min={role.name: role.min_member for role in spec.roles},
            preemptable=spec.preemptable,
            min_runtime_s=spec.min_runtime_seconds,
            required=self._level(spec.topology.required),
            preferred=self._level(spec.topology.preferred),
            mixed_models=spec.mixed_gpu_models,
            role_models={role.name: role.gpu_models for role in spec.roles if role.gpu_models},
        )
        self._note_annotations(group.metadata, job)
        return job

    def of_elastic(self, item: types.ElasticJob, sizes: dict[str, int]) -> Job:
        spec, resized, grow_after = item.spec, item.status.last_resize_time, item.status.grow_after
        self._check_levels(item)
        for at, role in enumerate(spec.roles):
            name = role.template.spec.priority_class_name
            if self.frame.priorities.value(name) is None:
                field = f"spec.roles[{at}].template.spec.priorityClassName"
                self._report(item, f"{field}: {self.frame.priorities.unknown(name)}")
        job = Job(
            key=job_key(item.metadata, "ElasticJob"),
            queue=self._queue(item, spec.queue),
            priority=self._class(item, spec.priority_class_name),
            created=self.time(item.metadata.creation_timestamp),
            min_member=max(1, sum(role.least for role in spec.roles)),
            role_min={role.name: role.least for role in spec.roles},
            preemptable=spec.preemptable,
            min_runtime_s=spec.min_runtime_seconds,
            required=self._level(spec.topology.required),
            preferred=self._level(spec.topology.preferred),
            mixed_models=spec.mixed_gpu_models,
            role_models={role.name: role.gpu_models for role in spec.roles if role.gpu_models},
            elastic=read_elastic(
                item,
                sizes,
                None if resized is None else self.time(resized),
                0.0 if grow_after is None else _seconds(grow_after),  # to come: it says nothing of what time it is
            ),
            is_suspended=spec.suspend,
            lasts_s=inf if spec.active_deadline_seconds is None else spec.active_deadline_seconds,
        )
        self._note_annotations(item.metadata, job)
        return job

    def of_pod(self, pod: kubernetes.Pod) -> Job:
        """The gang that a pod without a group is."""
        job = self._lone(job_key(pod.metadata, "Pod"))
        job.priority = self.pod_priority(pod)
        job.created = self.time(pod.metadata.creation_timestamp)
        if pod.metadata.annotations:
            self._note_annotations(pod.metadata, job)
        return job

    def unwritten(self, key: JobKey) -> Job:
        """A group that pods name and nobody wrote; as old as the oldest of the pods, see `note_age`."""
        job = self._lone(key)
        job.exists = False
        return job

    def note_age(self, job: Job, pod: kubernetes.Pod) -> None:
        if not job.exists and self.frame.ours.claims(pod):
            job.created = min(job.created, self.time(pod.metadata.creation_timestamp))

    def _lone(self, key: JobKey) -> Job:
        queue = self.frame.queue_index[types.DEFAULT_QUEUE]
        return Job(key=key, queue=queue, priority=_OF_ITS_PODS, created=inf, min_member=1, role_min={})

    def settle(self, job: Job) -> None:
        """What is known of a job when all of its pods have been seen."""
        if job.priority == _OF_ITS_PODS:
            pods = [*(pod.priority for pod in job.placed), *(group.priority for group in job.groups)]
            job.priority = max(pods, default=self.frame.priorities.default)
        if job.created == inf:
            job.created = 0.0
        if job.lasts_s != inf and job.placed:
            # A job that says how long it takes ends with all its pods.
            end = min(pod.started for pod in job.placed) + job.lasts_s
            for pod in job.placed:
                pod.ends = min(pod.ends, end)

    def _note_annotations(self, meta: ObjectMeta, job: Job) -> None:
        if not meta.annotations:
            return
        job.holds_reservation = meta.annotations.get(RESERVED_ANNOTATION) == "true"
        failures = read_bind_failures(meta.annotations)
        if failures is not None:
            job.bind_failures = failures.count
            job.backs_off_until = self.time(failures.last) + failures.pause_s

    def _check_levels(self, item: types.PodGroup | types.ElasticJob) -> None:
        levels = self.frame.levels
        for name in ("required", "preferred"):
            level = getattr(item.spec.topology, name)
            if "/" in level and self._level(level) not in levels:
                self._report(item, f"topology: no Topology object has a level of the node label {level!r}; write one")
            elif level and self._level(level) not in levels:
                known = nearest(level, levels) or "; no Topology object defines any level"
                self._report(item, f"spec.topology.{name}: unknown level {level!r}{known}")

    def _level(self, name: str) -> str:
        """The level of this name, or of this node label, which is how upstream names levels."""
        frame = self.frame
        return name if name in frame.levels else frame.level_of_label.get(name, name)

    def _queue(self, item: types.PodGroup | types.ElasticJob, name: str) -> int:
        queues, index = self.frame.queues, self.frame.queue_index.get(name or types.DEFAULT_QUEUE)
        if index is None:
            self._report(item, f"spec.queue: unknown queue {name!r}{nearest(name, self.frame.queue_index)}")
            return 0
        if queues[index].children:
            below = ", ".join(queues[child].name for child in queues[index].children)
            self._report(
                item,
                f"spec.queue: queue {queues[index].name!r} has queues below it; name one of those: {below}",
            )
        return index

    def _class(self, item: types.PodGroup | types.ElasticJob, name: str) -> int:
        if not name:
            return _OF_ITS_PODS  # what nobody gave a priority has that of its pods
        value = self.frame.priorities.value(name)
        if value is None:
            self._report(item, f"spec.priorityClassName: {self.frame.priorities.unknown(name)}")
        return value or 0

    def pod_priority(self, pod: kubernetes.Pod) -> int:
        value = self.frame.priorities.of_pod(pod)
        if value is None:
            problem = self.frame.priorities.unknown(pod.spec.priority_class_name)
            self._report(pod, f"spec.priorityClassName: {problem}")
        return value or 0

    def models_of(self, pod: kubernetes.Pod, job: Job) -> tuple[types.GpuModel, ...]:
        """GPU models that the pod may have: its own list, else that of its role."""
        written = pod.metadata.annotations.get(GPU_MODELS_ANNOTATION)
        if written:
            try:
                return read_models(written)
            except ValueError:
                return ()  # validation has said why
        return job.role_models.get(pod_role(pod.metadata), ()) if job.role_models else ()

    def time(self, moment: datetime | None) -> float:
        if moment is None:
            return 0.0
        at = _seconds(moment)
        self.latest = max(self.latest, at)
        return at

    def started(self, pod: kubernetes.Pod) -> float:
        if pod.metadata.deletion_timestamp is not None:
            self.time(pod.metadata.deletion_timestamp)
        return self.time(pod.status.start_time or pod.metadata.creation_timestamp)


def _seconds(moment: datetime) -> float:
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
