"""A Snapshot built from scratch, in the simplest way: what the incremental builder is compared with.

It shares with that the tables, the reading of single objects, and the sorting of waiting pods into groups. Which pods
belong to which gang, what is used where, and all sums are computed here on their own.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import inf

import numpy as np

from maniple.api import kubernetes, types
from maniple.api.decode.decode import Object
from maniple.api.errors import InputError
from maniple.api.gpu.requests import WHOLE
from maniple.api.labels import BACKFILL_ANNOTATION, JOB_LABEL
from maniple.model.building.cluster_tables import ClusterTables
from maniple.model.building.implied_pods import next_replicas, pods_by_job
from maniple.model.building.input_objects import Objects
from maniple.model.building.job_builder import JobBuilder, gpu_models
from maniple.model.building.task_groups import TaskGroups
from maniple.model.disruption_budgets import find_budgets
from maniple.model.elastic import current_sizes
from maniple.model.gpu.devices import GpuPod, count_gpu_pods, gpu_problems
from maniple.model.gpu.holdings import GpuHoldings, HeldGpus
from maniple.model.job import Job, PlacedPod
from maniple.model.plugin_reads import Reads, pick
from maniple.model.pod_affinity import AffinityInfo, AffinityReader, term_keys
from maniple.model.pod_identity import OF_NO_GANG, group_name, lasts_s, may_wait, pod_owner, pod_role
from maniple.model.pod_requests import RequestTable
from maniple.model.pod_shape import Exclusive
from maniple.model.pods_we_schedule import Ours, matters
from maniple.model.priority import is_critical
from maniple.model.queues import tree_problems, with_default
from maniple.model.resources import BoolArray, FloatArray
from maniple.model.snapshot import Snapshot
from maniple.model.stuck_pods import StuckPod
from maniple.model.volume_claims import Storage

JobKey = tuple[str, str]
FINISHED = ("Succeeded", "Failed")
MINUTE, UNKNOWN = timedelta(seconds=60), datetime(1970, 1, 1, tzinfo=UTC)


def build_from_scratch(objects: Objects, ours: Ours, now: float, reads: Reads | None = None) -> Snapshot:
    return _Oracle(objects, ours, reads or Reads()).build(now)


def _lacks_pods(job: Job) -> bool:
    roles = [pod.role for pod in job.placed]
    for role, count in job.succeeded_by_role.items():
        roles += [role] * count
    return len(roles) < job.min_member or any(roles.count(role) < least for role, least in job.role_min.items())


def key_of(item: Object, kind: str = "") -> JobKey:
    return f"{item.metadata.namespace}/{item.metadata.name}", kind or type(item).__name__


def _storage(objects: Objects) -> Storage:
    storage = Storage()
    items: list[Object] = [*objects.claims, *objects.volumes, *objects.storage_classes]
    for item in items:
        storage.put(type(item), (item.metadata.namespace, item.metadata.name), item)
    for node in objects.csi_nodes:
        storage.put_csi_node(node.metadata.name, node)
    return storage


class _Oracle:
    def __init__(self, objects: Objects, ours: Ours, reads: Reads) -> None:
        self.objects = objects
        self.ours = ours
        self.wrong: list[str] = []
        pods = [pod for pod in objects.pods if matters(pod, ours)]
        self.placed = [pod for pod in pods if pod.spec.node_name]
        self.waiting = [*(pod for pod in pods if not pod.spec.node_name), *objects.implied]
        self.requests = RequestTable()
        self.sizes: dict[JobKey, dict[str, int]] = {}
        self.growing: list[tuple[JobKey, types.ElasticRole, kubernetes.Pod]] = []
        by_job = pods_by_job((*objects.pods, *objects.implied))
        for job in objects.elastic_jobs:
            key = key_of(job)
            self.sizes[key] = current_sizes(job, by_job.get((job.metadata.namespace, job.metadata.name), []))
            self.growing += [
                (key, role, replica) for role, replica in next_replicas(job, self.sizes[key], ours.scheduler_name)
            ]
        everyone = [*self.placed, *self.waiting, *(replica for _, _, replica in self.growing)]
        for pod in everyone:
            self.requests.number(pod)
        queues = with_default(objects.queues)
        for queue, text in tree_problems(queues):
            self.report(queue, text)
        self.stop_if_wrong()
        self.tables = ClusterTables(
            ours,
            reads,
            self.requests,
            nodes=objects.nodes,
            queues=queues,
            priority_classes=objects.priority_classes,
            topologies=objects.topologies,
            storage=_storage(objects),
        )
        terms = [keys for pod in everyone if (keys := term_keys(pod)) is not None]
        namespaces = {namespace.metadata.name: namespace.metadata.labels for namespace in objects.namespaces}
        self.tables.reader = AffinityReader(namespaces, has_terms=bool(terms), keys=frozenset().union(*terms))
        self.tables.budgets = find_budgets(objects.budgets, objects.pods)
        self.builder = JobBuilder(self.tables, self.report)
        self.jobs: dict[JobKey, Job] = {}
        self.declared: set[JobKey] = set()
        self.gangless: set[JobKey] = set()
        self.called = {self.called_by(pod) for pod in (*self.waiting, *self.placed) if ours.claims(pod)}

    def report(self, item: Object, text: str) -> None:
        implied = (*self.objects.implied, *(replica for _, _, replica in self.growing))
        if not any(item is pod for pod in implied):
            self.wrong.append(f"{self.objects.place_of(item)}: {text}")

    def stop_if_wrong(self) -> None:
        if self.wrong:
            raise InputError(dict.fromkeys(self.wrong))

    def build(self, now: float) -> Snapshot:
        self.declare_jobs()
        groups: dict[JobKey, TaskGroups] = {}
        for pod in self.waiting:
            job = self.job_of(pod) if may_wait(pod) else None
            if job is not None:
                waiting = groups.setdefault(job.key, TaskGroups(job, self.tables))
                is_read = self.ours.claims(pod) and not pod.spec.scheduling_gates
                waiting.add(key_of(pod)[0], pod, self.requests.number(pod), self.priority(pod) if is_read else 0)
        for waiting in groups.values():
            waiting.finish()
        for key, role, replica in self.growing:
            growing = groups.get(key) or TaskGroups(self.jobs[key], self.tables)
            growing.add_growth(role, replica, self.requests.number(replica), self.priority(replica))
        usage = _Usage(self, now)
        for pod in self.placed:
            if pod.status.phase in FINISHED:
                self.count_succeeded(pod)
            else:
                usage.place(pod, self.job_of(pod))
        self.stop_if_wrong()
        for job in self.jobs.values():
            self.builder.settle(job)
        return self.snapshot(usage, now)

    def snapshot(self, usage: _Usage, now: float) -> Snapshot:
        tables = self.tables
        jobs = sorted(self.jobs.values(), key=lambda job: job.key)
        waiting = [job for job in jobs if job.groups or job.gated]
        queue_pending = np.zeros((len(tables.queues), len(tables.axis)))
        for job in jobs:
            if job.exists and not job.is_suspended:
                for group in (*job.groups, *job.growth.values()):
                    queue_pending[job.queue] += group.shape.requests * len(group.pods)
        gpus_free, gpus_releasing = usage.gpus()
        owners = {group.owner for job in jobs for group in job.groups if group.owner}
        return Snapshot(
            now=now,
            axis=tables.axis,
            nodes=tables.nodes,
            free=tables.nodes.allocatable - usage.used,
            releasing=usage.releasing,
            total=tables.total(usage.used, usage.foreign),
            queues=tables.queues,
            queue_allocated=usage.queue_allocated,
            queue_pending=queue_pending,
            indivisible=tables.axis.extended & self.in_whole_units(jobs),
            jobs=jobs,
            running=[job for job in jobs if job.placed],
            waiting=waiting,
            moved=[job for job in jobs if job.moved is not None],
            incomplete=[job for job in jobs if (job.placed and _lacks_pods(job)) or job.stale_at < inf],
            elastic=[job for job in jobs if job.elastic is not None],
            gpus=tables.gpus,
            gpus_free=gpus_free,
            gpus_releasing=gpus_releasing,
            domains=tables.domains,
            gpu_pods=self.gpu_pods(usage, waiting),
            pod_affinity=usage.pod_affinity,
            exclusives={node: tuple(held) for node, held in usage.exclusives.items()},
            leaving_affinity=usage.leaving_affinity,
            leaving_exclusives={node: tuple(held) for node, held in usage.leaving_exclusives.items()},
            leaving_for=usage.leaving_for,
            stuck={node: tuple(sorted(pods)) for node, pods in usage.stuck.items()},
            owners={owner: usage.owners.get(owner, {}) for owner in owners},
            budgets=tables.budgets,
        )

    def in_whole_units(self, jobs: list[Job]) -> BoolArray:
        asking = [job for job in jobs if job.exists and not job.is_suspended]
        asked = [group.shape.requests for job in asking for group in (*job.groups, *job.growth.values())]
        held = [pod.requests for job in jobs for pod in job.placed]
        vectors = np.array([*asked, *held]).reshape(-1, len(self.tables.axis))
        whole: BoolArray = (vectors % WHOLE == 0).all(axis=0)
        return whole

    def gpu_pods(self, usage: _Usage, waiting: list[Job]) -> dict[GpuPod, int]:
        counts: dict[GpuPod, int] = {}
        shapes = self.tables.shapes
        for request, models in usage.gpu_requests:
            count_gpu_pods(counts, shapes.vector(request), shapes.asks(request), models, 1)
        for group in (group for job in waiting for group in job.groups):
            shape = group.shape
            count_gpu_pods(counts, shape.requests, shape.gpus, shape.constraint.gpu_models, len(group.pods))
        return counts

    def declare_jobs(self) -> None:
        for node in self.objects.nodes:
            for problem in gpu_problems(node):
                self.report(node, problem)
        for group in self.objects.pod_groups:
            job = self.builder.of_group(group)
            if group.spec.min_member == 0:
                self.gangless.add(job.key)
            else:
                self.jobs[job.key] = job
        for item in self.objects.elastic_jobs:
            self.jobs[key_of(item)] = self.builder.of_elastic(item, self.sizes[key_of(item)])
        self.declared.update(self.jobs)

    def called_by(self, pod: kubernetes.Pod) -> JobKey | None:
        """The gang that a pod of ours brings into being by naming it."""
        is_over = pod.status.phase == "Failed" or (not pod.spec.node_name and not may_wait(pod))
        group, job = group_name(pod), pod.metadata.labels.get(JOB_LABEL)
        if is_over or not (group or job):
            return None
        return f"{pod.metadata.namespace}/{group or job}", "PodGroup" if group else "ElasticJob"

    def gang_of(self, pod: kubernetes.Pod) -> JobKey | None:
        if OF_NO_GANG in pod.metadata.annotations:
            return None
        namespace, name, group = pod.metadata.namespace, pod.metadata.labels.get(JOB_LABEL), group_name(pod)
        if name and (f"{namespace}/{name}", "ElasticJob") in self.declared:
            return f"{namespace}/{name}", "ElasticJob"
        if group or name:
            key = (f"{namespace}/{group or name}", "PodGroup" if group else "ElasticJob")
            if key not in self.gangless:
                return key if key in self.declared or self.ours.claims(pod) or key in self.called else None
        return key_of(pod, "Pod") if self.ours.claims(pod) else None

    def job_of(self, pod: kubernetes.Pod) -> Job | None:
        key = self.gang_of(pod)
        if key is None:
            return None
        job = self.jobs.get(key)
        if job is None:
            is_pod = key[1] == "Pod"
            job = self.builder.of_pod(key, pod, self.priority(pod)) if is_pod else self.builder.missing(key)
            self.jobs[key] = job
        self.builder.note_age(job, pod)
        return job

    def priority(self, pod: kubernetes.Pod) -> int:
        priority = self.tables.priorities.of_pod(pod)
        if priority is None:
            problem = self.tables.priorities.unknown(pod.spec.priority_class_name)
            self.report(pod, f"spec.priorityClassName: {problem}")
        return priority or 0

    def count_succeeded(self, pod: kubernetes.Pod) -> None:
        key = self.gang_of(pod) if pod.status.phase == "Succeeded" else None
        job = None if key is None or key[1] == "Pod" else self.job_of(pod)
        if job is not None:
            role = pod_role(pod.metadata)
            job.succeeded += 1
            job.succeeded_by_role[role] = job.succeeded_by_role.get(role, 0) + 1


class _Usage:
    """Pods on nodes, and what they use."""

    def __init__(self, oracle: _Oracle, now: float) -> None:
        self.oracle = oracle
        self.now = datetime.fromtimestamp(now, UTC)
        self.stuck: dict[int, list[StuckPod]] = {}
        self.tables = tables = oracle.tables
        shape = len(tables.axis), len(tables.nodes)
        self.used, self.releasing, self.foreign = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        self.queue_allocated = np.zeros((len(tables.queues), len(tables.axis)))
        self.exclusives: dict[int, list[Exclusive]] = {}
        self.leaving_exclusives: dict[int, list[Exclusive]] = {}
        self.leaving_affinity: dict[tuple[AffinityInfo, int], int] = {}
        self.leaving_for: dict[str, dict[int, FloatArray]] = {}
        self.owners: dict[str, dict[int, int]] = {}
        self.pod_affinity: dict[tuple[AffinityInfo, int], int] = {}
        self.gpu_requests: list[tuple[int, tuple[types.GpuModel, ...]]] = []
        self.holdings = GpuHoldings(tables.gpus.tables, tables.shapes, tables.requests)
        self.held: dict[int, list[tuple[HeldGpus, PlacedPod | None]]] = {}

    def place(self, pod: kubernetes.Pod, job: Job | None) -> None:
        """`pod` is on a node and not finished."""
        node = self.tables.nodes.index.get(pod.spec.node_name, -1)
        request = self.tables.requests.number(pod)
        gpus, held = self.holdings.read(pod, node, request) if node >= 0 else (None, request)
        vector = self.tables.shapes.vector(held)
        is_leaving = pod.metadata.deletion_timestamp is not None
        makes_room = is_leaving and not self.is_stuck(pod)
        if gpus is not None:
            gpus.makes_room = makes_room
        pod_affinity = self.occupy(pod, node, vector) if node >= 0 else None
        if node >= 0 and is_leaving and not makes_room:
            ends = pod.metadata.deletion_timestamp
            assert ends is not None
            name = f"{pod.metadata.namespace}/{pod.metadata.name}"
            self.stuck.setdefault(node, []).append(StuckPod(name, ends.timestamp(), vector))
        if node >= 0 and (is_leaving or job is None):
            (self.releasing if makes_room else self.foreign)[:, node] += vector
        if node >= 0 and makes_room and (gang := pod.metadata.annotations.get("maniple.dev/evicted-for")):
            by_node = self.leaving_for.setdefault(gang, {})
            by_node[node] = by_node.get(node, 0.0) + vector
        if job is None or is_leaving:
            if gpus is not None:
                self.held.setdefault(node, []).append((gpus, None))
            return
        placed = self.placed_pod(pod, job, node, vector, pod_affinity)
        if gpus is not None:
            self.held.setdefault(node, []).append((gpus, placed))
            placed.gpu_models = gpu_models(pod, job)
            self.gpu_requests.append((request, placed.gpu_models))
        if job.is_movable:
            placed.shape = self.tables.shapes.of(pod, request, gpu_models(pod, job))
            placed.owner = pod_owner(pod.metadata) if node >= 0 else ""
            seconds = pod.spec.termination_grace_period_seconds
            placed.grace_s = 30.0 if seconds is None else float(max(0, min(seconds, 86_400)))
        job.placed.append(placed)
        job.placed_by_role[placed.role] = job.placed_by_role.get(placed.role, 0) + 1
        job.allocated = vector if job.allocated is None else job.allocated + vector
        self.queue_allocated[job.queue] += vector

    def is_stuck(self, pod: kubernetes.Pod) -> bool:
        ends = pod.metadata.deletion_timestamp
        return ends not in (None, UNKNOWN) and ends + MINUTE < self.now

    def placed_pod(
        self, pod: kubernetes.Pod, job: Job, node: int, vector: FloatArray, pod_affinity: AffinityInfo | None
    ) -> PlacedPod:
        meta = pod.metadata
        started = self.oracle.builder.started(pod)
        return PlacedPod(
            pod=f"{meta.namespace}/{meta.name}",
            node=node,
            role=pod_role(meta),
            priority=job.priority if job.key[1] == "Pod" else self.oracle.priority(pod),
            requests=vector,
            pod_affinity=pod_affinity,
            started=started,
            is_critical=is_critical(pod),
            labels=meta.labels,
            ends=inf if pod.spec.active_deadline_seconds is None else started + lasts_s(pod),
            makes_way_for=meta.annotations.get(BACKFILL_ANNOTATION, ""),
            exclusives=self.tables.shapes.exclusives(pod) if node >= 0 else (),
            is_ours=self.oracle.ours.claims(pod),
            annotations=pick(self.tables.reads.pod_annotations, meta.annotations),
        )

    def occupy(self, pod: kubernetes.Pod, node: int, vector: FloatArray) -> AffinityInfo | None:
        self.used[:, node] += vector
        is_leaving = pod.metadata.deletion_timestamp is not None and not self.is_stuck(pod)
        if exclusives := self.tables.shapes.exclusives(pod):
            self.exclusives.setdefault(node, []).extend(exclusives)
            if is_leaving:
                self.leaving_exclusives.setdefault(node, []).extend(exclusives)
        counts = self.owners.setdefault(pod_owner(pod.metadata), {})
        counts[node] = counts.get(node, 0) + 1
        if not self.tables.reader.has_terms:
            return None
        pod_affinity = self.tables.reader.read(pod)
        self.pod_affinity[pod_affinity, node] = self.pod_affinity.get((pod_affinity, node), 0) + 1
        if is_leaving:
            self.leaving_affinity[pod_affinity, node] = self.leaving_affinity.get((pod_affinity, node), 0) + 1
        return pod_affinity

    def gpus(self) -> tuple[dict[int, np.ndarray], dict[int, np.ndarray]]:
        free, releasing = self.holdings.all_free()
        for node, held in self.held.items():
            self.holdings.settle({node: [gpus for gpus, _ in held]}, free, releasing)
            for gpus, placed in held:
                if placed is not None:
                    placed.gpus = gpus.gpus
        return free, releasing
