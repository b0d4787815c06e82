"""Pods that wait, sorted into groups of like pods by job."""

from typing import Any

from maniple.api import kubernetes, types
from maniple.api.phases import FINISHED
from maniple.model.building.job_builder import JobMaker
from maniple.model.elastic import Elastic, replica_index
from maniple.model.job import Job, TaskGroup
from maniple.model.pod_affinity import Peers
from maniple.model.pod_identity import lasts_s, pod_order, pod_owner, pod_role
from maniple.model.priority import is_critical
from maniple.model.shape import Shape


def may_wait(pod: kubernetes.Pod) -> bool:
    """Whether a pod without a node waits for one."""
    return pod.status.phase not in FINISHED and pod.metadata.deletion_timestamp is None


class Groups:
    def __init__(self, maker: JobMaker) -> None:
        self.maker = maker
        self.owners: set[str] = set()
        self._members: dict[Any, list[tuple[tuple[str, int, str], str]]] = {}
        self._made: dict[Any, tuple[Job, str, int, Shape, Peers | None, str]] = {}
        self._lasts: dict[Any, float] = {}
        self._staying: set[Any] = set()

    def wait(self, pod: kubernetes.Pod, job: Job) -> None:
        """`pod` waits, and is the job's."""
        maker, meta, frame = self.maker, pod.metadata, self.maker.frame
        if not frame.ours.claims(pod):
            job.strangers += 1
            return
        if job.elastic is not None and _is_beyond(job.elastic, pod):
            return
        if pod.spec.scheduling_gates:
            job.gated += 1
            return
        if nominated := pod.status.nominated_node_name:
            job.was_promised = True
            node = frame.nodes.index.get(nominated)
            if node is not None:
                job.nominated[node] = job.nominated.get(node, 0) + 1
        job.may_preempt &= not frame.priorities.never_preempts(pod)
        shape = frame.shapes.of(pod, maker.models_of(pod, job))
        role = pod_role(meta)
        priority = maker.pod_priority(pod)
        peers = frame.reader.read(pod) if frame.reader.anyone else None
        owner = pod_owner(meta)
        key = (job.key, role, priority, shape.number, peers, owner)
        if key not in self._made:
            self._made[key] = (job, role, priority, shape, peers, owner)
            self._members[key] = []
            if owner:
                self.owners.add(owner)
        self._lasts[key] = max(self._lasts.get(key, 0.0), lasts_s(pod))
        if is_critical(pod) or any(b.covers(f"{meta.namespace}/", meta.labels) for b in frame.budgets):
            self._staying.add(key)
        self._members[key].append((pod_order(meta.name, meta.labels), f"{meta.namespace}/{meta.name}"))
        maker.time(meta.creation_timestamp)
        job.pending = shape.requests if job.pending is None else job.pending + shape.requests

    def finish(self) -> None:
        for key, (job, role, priority, shape, peers, owner) in self._made.items():
            pods = tuple(name for _, name in sorted(self._members[key]))
            lasts, number = min(self._lasts[key], job.lasts_s), len(job.groups)
            job.groups.append(TaskGroup(number, role, priority, shape, peers, owner, pods, lasts, key in self._staying))

    def may_grow(self, job: Job, role: types.ElasticRole, replica: kubernetes.Pod) -> None:
        """`replica` is the first that the role of the job would have if it grew. After `finish`."""
        maker, meta, reader = self.maker, replica.metadata, self.maker.frame.reader
        if job.elastic is None:
            return
        shape = maker.frame.shapes.of(replica, maker.models_of(replica, job))
        peers = reader.read(replica) if reader.anyone else None
        prefix = f"{meta.namespace}/{meta.name.rsplit('-', 1)[0]}"
        names = tuple(f"{prefix}-{index}" for index in range(job.elastic.roles[role.name].size, role.most))
        number, priority = len(job.groups) + len(job.growth), maker.pod_priority(replica)
        job.growth[role.name] = TaskGroup(number, role.name, priority, shape, peers, pod_owner(meta), names)


def _is_beyond(elastic: Elastic, pod: kubernetes.Pod) -> bool:
    """Whether the job has been made smaller than to have the pod."""
    role = elastic.roles.get(pod_role(pod.metadata))
    return role is not None and replica_index(pod) >= role.size
