"""Objects to Snapshot, from scratch. Collects every contradiction between objects and raises them together.

Jobs and waiting pods are sorted out here, pods that are on nodes in occupancy.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import Any

import numpy as np

from maniple.api import core, types
from maniple.api.bindfailures import read_bind_failures
from maniple.api.errors import InputError, nearest
from maniple.api.gpuwish import read_models
from maniple.api.meta import ObjectMeta
from maniple.model.budgets import find_budgets
from maniple.model.devices import MOST_GPUS, GpuAsk, GpuPod
from maniple.model.domains import Domains
from maniple.model.elastic import Elastic, current_sizes, read_elastic, replica_index
from maniple.model.job import Job, TaskGroup
from maniple.model.nodes import NodeTable
from maniple.model.objects import Objects, make_replica, pods_by_job
from maniple.model.occupancy import Occupancy, end_with
from maniple.model.peers import PeerReader, Peers, has_terms
from maniple.model.podinfo import group_name, lasts_s, pod_order, pod_owner, pod_role
from maniple.model.priority import Priorities, is_critical
from maniple.model.queues import build_queues, tree_problems, with_default
from maniple.model.resources import CPU, MEMORY, Axis, FloatArray, RequestTable
from maniple.model.shape import Shape, Shapes
from maniple.model.snapshot import Snapshot

DEFAULT_SCHEDULER = "maniple"


@dataclass(frozen=True)
class Ours:
    """Which pods this scheduler plans."""

    scheduler_name: str = DEFAULT_SCHEDULER
    every_pod: bool = False

    def claims(self, pod: core.Pod) -> bool:
        return self.every_pod or pod.spec.scheduler_name == self.scheduler_name


def build_snapshot(objects: Objects, ours: Ours | None = None, now: float | None = None) -> Snapshot:
    """The snapshot of `objects` at `now` (default: the newest moment that any of them mentions)."""
    return _Builder(objects, ours or Ours()).build(now)


class _Builder:
    def __init__(self, objects: Objects, ours: Ours) -> None:
        self.objects = objects
        self.ours = ours
        self.wrong: list[str] = []
        self.latest = 0.0
        self.requests = RequestTable()
        placed = [pod for pod in objects.pods if pod.spec.node_name]
        waiting = [*(pod for pod in objects.pods if not pod.spec.node_name), *objects.implied]
        self.placed_requests = [self.requests.number(pod) for pod in placed]
        self.sizes, self.growing = self._elastic_jobs()
        for pod in (*waiting, *(replica for _, _, replica in self.growing)):
            self.requests.number(pod)
        self.axis = Axis(self._resource_names())
        self.nodes = NodeTable(objects.nodes, self.axis)
        self.gpus = self.nodes.gpus
        self.domains = Domains(objects.topologies, self.nodes)
        self.priorities = Priorities(objects.priority_classes)
        written = with_default(objects.queues)
        self.wrong += [f"{objects.place_of(queue)}: {text}" for queue, text in tree_problems(written)]
        self._stop_if_wrong()
        self.queues, self.queue_index = build_queues(written, self.axis)
        self.shapes = Shapes(
            self.axis,
            self.requests,
            self.gpus,
            {(claim.metadata.namespace, claim.metadata.name): claim for claim in objects.claims},
            {volume.metadata.name: volume for volume in objects.volumes},
        )
        self.reader = PeerReader({ns.metadata.name: ns.metadata.labels for ns in objects.namespaces})
        for pod in (*objects.pods, *objects.implied, *(replica for _, _, replica in self.growing)):
            if has_terms(pod):
                self.reader.note(pod)
        self.budgets = find_budgets(objects)
        self.jobs: dict[tuple[str, str], Job] = {}
        self.placed, self.waiting = placed, waiting

    def _elastic_jobs(
        self,
    ) -> tuple[dict[tuple[str, str], dict[str, int]], list[tuple[tuple[str, str], types.ElasticRole, core.Pod]]]:
        """The sizes of each job by role, and of every role that may grow its next replica."""
        sizes, growing = {}, []
        jobs = self.objects.elastic_jobs
        there = pods_by_job((*self.objects.pods, *self.objects.implied)) if jobs else {}
        for job in jobs:
            key = _key(job.metadata, "ElasticJob")
            now = sizes[key] = current_sizes(job, there.get((job.metadata.namespace, job.metadata.name), []))
            if job.spec.suspend or job.status.phase in ("Succeeded", "Failed"):
                continue
            for role in job.spec.roles:
                if now[role.name] < role.max:
                    replica = make_replica(job, role, now[role.name], self.ours.scheduler_name)
                    growing.append((key, role, replica))
        return sizes, growing

    def _resource_names(self) -> set[str]:
        names = {name for request in self.requests.requests for name in request.amounts}
        for node in self.objects.nodes:
            names.update(node.status.allocatable or node.status.capacity)
        for queue in self.objects.queues:
            names.update(queue.spec.guaranteed, queue.spec.limit)
        return names

    def _stop_if_wrong(self) -> None:
        if self.wrong:
            raise InputError(dict.fromkeys(self.wrong))  # each once, in order

    def build(self, now: float | None) -> Snapshot:
        self._check_gpus()
        self._declare_jobs()
        groups = _Groups(self)
        for pod in self.waiting:
            groups.wait(pod)
        groups.finish()
        for key, role, replica in self.growing:
            groups.may_grow(self.jobs[key], role, replica)
        there = Occupancy(self, owners=groups.owners)
        for pod, request in zip(self.placed, self.placed_requests, strict=True):
            there.place(pod, request)
        self._stop_if_wrong()
        self._settle_priorities()
        for item in self.objects.elastic_jobs:
            end_with(self.jobs[_key(item.metadata, "ElasticJob")])
        jobs = sorted(self.jobs.values(), key=lambda job: job.key)
        waiting = [job for job in jobs if job.groups or job.gated]
        queue_pending = np.zeros((len(self.queues), len(self.axis)))
        for job in waiting:
            if job.pending is not None and job.exists and not job.is_suspended:
                queue_pending[job.queue] += job.pending
        used, releasing, foreign, queue_allocated = there.sums()
        gpus_free, gpus_releasing = there.gpus()
        return Snapshot(
            now=self.latest if now is None else now,
            axis=self.axis,
            nodes=self.nodes,
            free=self.nodes.allocatable - used,
            releasing=releasing,
            total=self._total(used, foreign),
            queues=self.queues,
            queue_allocated=queue_allocated,
            queue_pending=queue_pending,
            jobs=jobs,
            waiting=waiting,
            gpus=self.gpus,
            gpus_free=gpus_free,
            gpus_releasing=gpus_releasing,
            domains=self.domains,
            gpu_pods=self._gpu_pods(there, waiting),
            peers=there.peers,
            exclusives={node: tuple(held) for node, held in there.exclusives.items()},
            owners=there.owners,
            budgets=self.budgets,
        )

    def _gpu_pods(self, there: Occupancy, waiting: Sequence[Job]) -> dict[GpuPod, int]:
        """What pods with GPUs are like here, those that run and those that wait."""
        found: dict[GpuPod, int] = {}
        for (request, models), count in there.gpu_requests.items():
            _count(found, self.shapes.vector(request), self.shapes.asks(request), models, count)
        for group in (group for job in waiting for group in job.groups):
            shape = group.shape
            _count(found, shape.requests, shape.gpus, shape.constraint.gpu_models, len(group.pods))
        return found

    def _check_gpus(self) -> None:
        for row in self.axis.gpu_rows:
            written = self.nodes.written_gpus[row]
            for at in np.flatnonzero(written > MOST_GPUS * 1000):
                self.wrong.append(
                    f"Node {self.nodes.names[at]}: status.allocatable[{self.axis.names[row]}]: "
                    f"expected at most {MOST_GPUS}, got {self.axis.text(row, written[at])}"
                )

    def _total(self, used: FloatArray, foreign: FloatArray) -> FloatArray:
        """What queues share: of a node that takes no pods only what is in use counts, and nothing of others' pods."""
        usable = self.nodes.ready & ~self.nodes.unschedulable
        held = np.where(usable, np.where(np.isfinite(self.nodes.allocatable), self.nodes.allocatable, 0.0), used)
        total: FloatArray = np.maximum((held - foreign).sum(axis=1), 0.0)
        return total

    # -- jobs

    def _declare_jobs(self) -> None:
        levels = {level.name for topology in self.objects.topologies for level in topology.spec.levels}
        for group in self.objects.pod_groups:
            spec = group.spec
            self._check_levels(group, levels)
            self._declare(
                group,
                Job(
                    key=_key(group.metadata, "PodGroup"),
                    queue=self._queue(group, spec.queue),
                    priority=self._class(group, spec.priority_class_name),
                    created=self.time(group.metadata.creation_timestamp),
                    min_member=spec.min_member,
                    role_min={role.name: role.min_member for role in spec.roles},
                    preemptable=spec.preemptable,
                    min_runtime_s=spec.min_runtime_seconds,
                    required=spec.topology.required,
                    preferred=spec.topology.preferred,
                    mixed_models=spec.mixed_gpu_models,
                    role_models={role.name: role.gpu_models for role in spec.roles if role.gpu_models},
                ),
            )
        for job in self.objects.elastic_jobs:
            self._check_levels(job, levels)
            for at, role in enumerate(job.spec.roles):
                name = role.template.spec.priority_class_name
                if self.priorities.value(name) is None:
                    field = f"spec.roles[{at}].template.spec.priorityClassName"
                    self.wrong.append(f"{self.objects.place_of(job)}: {field}: {self.priorities.unknown(name)}")
            self._declare(
                job,
                Job(
                    key=_key(job.metadata, "ElasticJob"),
                    queue=self._queue(job, job.spec.queue),
                    priority=self._class(job, job.spec.priority_class_name),
                    created=self.time(job.metadata.creation_timestamp),
                    min_member=max(1, sum(role.min for role in job.spec.roles)),
                    role_min={role.name: role.min for role in job.spec.roles},
                    preemptable=job.spec.preemptable,
                    min_runtime_s=job.spec.min_runtime_seconds,
                    required=job.spec.topology.required,
                    preferred=job.spec.topology.preferred,
                    mixed_models=job.spec.mixed_gpu_models,
                    role_models={role.name: role.gpu_models for role in job.spec.roles if role.gpu_models},
                    elastic=read_elastic(job, self.sizes[_key(job.metadata, "ElasticJob")], self._resized(job)),
                    is_suspended=job.spec.suspend,
                    lasts_s=inf if job.spec.active_deadline_seconds is None else job.spec.active_deadline_seconds,
                ),
            )

    def _resized(self, job: types.ElasticJob) -> float | None:
        moment = job.status.last_resize_time
        return None if moment is None else self.time(moment)

    def _declare(self, item: types.PodGroup | types.ElasticJob, job: Job) -> None:
        self.jobs[job.key] = job
        self._note_annotations(item.metadata, job)
        # A pod group nobody gave a priority has that of its pods, known only when all have been seen.
        if not item.spec.priority_class_name:
            job.priority = -(2**31)

    def _note_annotations(self, meta: ObjectMeta, job: Job) -> None:
        if not meta.annotations:
            return
        job.holds_reservation = meta.annotations.get(types.RESERVED_ANNOTATION) == "true"
        failures = read_bind_failures(meta.annotations)
        if failures is not None:
            job.bind_failures = failures.count
            job.backs_off_until = self.time(failures.last) + failures.pause_s

    def _settle_priorities(self) -> None:
        for job in self.jobs.values():
            if job.priority == -(2**31):
                pods = [*(pod.priority for pod in job.placed), *(group.priority for group in job.groups)]
                job.priority = max(pods, default=self.priorities.default)

    def _check_levels(self, item: types.PodGroup | types.ElasticJob, levels: set[str]) -> None:
        for name in ("required", "preferred"):
            level = getattr(item.spec.topology, name)
            if level and level not in levels:
                known = nearest(level, levels) or "; no Topology object defines any level"
                self.wrong.append(
                    f"{self.objects.place_of(item)}: spec.topology.{name}: unknown level {level!r}{known}"
                )

    def _queue(self, item: types.PodGroup | types.ElasticJob, name: str) -> int:
        index = self.queue_index.get(name or types.DEFAULT_QUEUE)
        if index is None:
            near = nearest(name, self.queue_index)
            self.wrong.append(f"{self.objects.place_of(item)}: spec.queue: unknown queue {name!r}{near}")
            return 0
        if self.queues[index].children:
            below = ", ".join(self.queues[child].name for child in self.queues[index].children)
            self.wrong.append(
                f"{self.objects.place_of(item)}: spec.queue: queue {self.queues[index].name!r} has queues below it; "
                f"name one of those: {below}"
            )
        return index

    def _class(self, item: types.PodGroup | types.ElasticJob, name: str) -> int:
        value = self.priorities.value(name)
        if value is None:
            self.wrong.append(f"{self.objects.place_of(item)}: spec.priorityClassName: {self.priorities.unknown(name)}")
        return value or 0

    def pod_priority(self, pod: core.Pod) -> int:
        value = self.priorities.of_pod(pod)
        if value is None and not self._is_made_up(pod):
            problem = self.priorities.unknown(pod.spec.priority_class_name)
            self.wrong.append(f"{self.objects.place_of(pod)}: spec.priorityClassName: {problem}")
        return value or 0

    def _is_made_up(self, pod: core.Pod) -> bool:
        """Whether nobody wrote the pod: its ElasticJob is to blame, and has been."""
        return any(pod is other for other in (*self.objects.implied, *(replica for _, _, replica in self.growing)))

    def job_of(self, pod: core.Pod) -> Job | None:
        """The gang a pod belongs to; one of its own if it names none; None if it is no business of ours."""
        meta = pod.metadata
        name = meta.labels.get(types.JOB_LABEL)
        if name:
            job = self.jobs.get((f"{meta.namespace}/{name}", "ElasticJob"))
            if job is not None:
                return job
        group = group_name(meta)
        if group or name:
            key = (f"{meta.namespace}/{group or name}", "PodGroup" if group else "ElasticJob")
            job = self.jobs.get(key)
            if job is None and self.ours.claims(pod):
                job = self.jobs[key] = self._lone(key, pod)
                job.exists = False
            return job
        if not self.ours.claims(pod):
            return None
        key = (f"{meta.namespace}/{meta.name}", "Pod")
        job = self.jobs[key] = self._lone(key, pod)
        self._note_annotations(meta, job)
        return job

    def is_ours(self, pod: core.Pod) -> bool:
        return self.ours.claims(pod)

    def models_of(self, pod: core.Pod, job: Job) -> tuple[types.GpuModel, ...]:
        """GPU models that the pod may have: its own list, else that of its role."""
        written = pod.metadata.annotations.get(types.GPU_MODELS_ANNOTATION)
        if written:
            try:
                return read_models(written)
            except ValueError:
                return ()  # validation has said why
        return job.role_models.get(pod_role(pod.metadata), ()) if job.role_models else ()

    def _lone(self, key: tuple[str, str], pod: core.Pod) -> Job:
        return Job(
            key=key,
            queue=self.queue_index[types.DEFAULT_QUEUE],
            priority=self.pod_priority(pod),
            created=self.time(pod.metadata.creation_timestamp),
            min_member=1,
            role_min={},
        )

    def time(self, moment: datetime | None) -> float:
        if moment is None:
            return 0.0
        at = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        self.latest = max(self.latest, at)
        return at

    def started(self, pod: core.Pod) -> float:
        if pod.metadata.deletion_timestamp is not None:
            self.time(pod.metadata.deletion_timestamp)
        return self.time(pod.status.start_time or pod.metadata.creation_timestamp)


class _Groups:
    """Pending pods, sorted into jobs and groups of like pods."""

    def __init__(self, builder: _Builder) -> None:
        self.builder = builder
        self.owners: set[str] = set()
        self._members: dict[Any, list[tuple[tuple[str, int, str], str]]] = {}
        self._made: dict[Any, tuple[Job, str, int, Shape, Peers | None, str]] = {}
        self._lasts: dict[Any, float] = {}
        self._staying: set[Any] = set()
        self._grown = 0

    def wait(self, pod: core.Pod) -> None:
        builder, meta = self.builder, pod.metadata
        if pod.status.phase in ("Succeeded", "Failed") or meta.deletion_timestamp:
            return
        job = builder.job_of(pod)
        if job is None:
            return
        if not builder.ours.claims(pod):
            job.strangers += 1
            return
        if job.elastic is not None and _is_beyond(job.elastic, pod):
            return
        if pod.spec.scheduling_gates:
            job.gated += 1
            return
        if nominated := pod.status.nominated_node_name:
            job.was_promised = True
            node = builder.nodes.index.get(nominated)
            if node is not None:
                job.nominated[node] = job.nominated.get(node, 0) + 1
        job.may_preempt &= not builder.priorities.never_preempts(pod)
        shape = builder.shapes.of(pod, builder.models_of(pod, job))
        role = pod_role(meta)
        priority = builder.pod_priority(pod)
        peers = builder.reader.read(pod) if builder.reader.anyone else None
        owner = pod_owner(meta)
        key = (job.key, role, priority, shape.number, peers, owner)
        if key not in self._made:
            self._made[key] = (job, role, priority, shape, peers, owner)
            self._members[key] = []
            if owner:
                self.owners.add(owner)
        self._lasts[key] = max(self._lasts.get(key, 0.0), lasts_s(pod))
        if is_critical(pod) or any(b.covers(f"{meta.namespace}/", meta.labels) for b in builder.budgets):
            self._staying.add(key)
        self._members[key].append((pod_order(meta.name, meta.labels), f"{meta.namespace}/{meta.name}"))
        builder.time(meta.creation_timestamp)
        job.pending = shape.requests if job.pending is None else job.pending + shape.requests

    def may_grow(self, job: Job, role: types.ElasticRole, replica: core.Pod) -> None:
        """`replica` is the first that the role of the job would have if it grew."""
        builder, meta = self.builder, replica.metadata
        if job.elastic is None:
            return
        shape = builder.shapes.of(replica, builder.models_of(replica, job))
        peers = builder.reader.read(replica) if builder.reader.anyone else None
        prefix = f"{meta.namespace}/{meta.name.rsplit('-', 1)[0]}"
        names = tuple(f"{prefix}-{index}" for index in range(job.elastic.roles[role.name].size, role.max))
        number = len(self._made) + self._grown
        self._grown += 1
        job.growth[role.name] = TaskGroup(
            number, role.name, builder.pod_priority(replica), shape, peers, pod_owner(meta), names
        )

    def finish(self) -> None:
        for number, (key, (job, role, priority, shape, peers, owner)) in enumerate(self._made.items()):
            pods = tuple(name for _, name in sorted(self._members[key]))
            lasts = min(self._lasts[key], job.lasts_s)
            job.groups.append(TaskGroup(number, role, priority, shape, peers, owner, pods, lasts, key in self._staying))


def _is_beyond(elastic: Elastic, pod: core.Pod) -> bool:
    """Whether the job has been made smaller than to have the pod."""
    role = elastic.roles.get(pod_role(pod.metadata))
    return role is not None and replica_index(pod) >= role.size


def _key(meta: ObjectMeta, kind: str) -> tuple[str, str]:
    return f"{meta.namespace}/{meta.name}", kind


def _count(
    found: dict[GpuPod, int],
    vector: FloatArray,
    asks: tuple[GpuAsk, ...],
    models: tuple[types.GpuModel, ...],
    count: int,
) -> None:
    if asks:
        kind = GpuPod(float(vector[CPU]), float(vector[MEMORY]), asks[0], models)
        found[kind] = found.get(kind, 0) + count
