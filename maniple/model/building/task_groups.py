"""The waiting pods of one job, sorted into groups of like pods."""

from msgspec import Struct, field

from maniple.api import kubernetes, types
from maniple.api.keys import name_of
from maniple.api.labels import HAS_EVICTED_ANNOTATION
from maniple.model.building.cluster_tables import ClusterTables
from maniple.model.building.job_builder import gpu_models
from maniple.model.elastic import Elastic, replica_index
from maniple.model.job import Job, TaskGroup, no_nodes
from maniple.model.pod_affinity import AffinityInfo
from maniple.model.pod_identity import lasts_s, pod_order, pod_owner, pod_role
from maniple.model.pod_shape import Shape
from maniple.model.priority import is_critical


class _Draft(Struct, eq=False):
    role: str
    priority: int
    shape: Shape
    pod_affinity: AffinityInfo | None
    owner: str
    pods: list[tuple[tuple[str, int, str], str]] = field(default_factory=list)  # (order, name)
    lasts_s: float = 0.0
    stays: bool = False
    nominated: dict[int, int] | None = None


class TaskGroups:
    def __init__(self, job: Job, tables: ClusterTables) -> None:
        self._job = job
        self._tables = tables
        self._drafts: dict[tuple[str, int, int, AffinityInfo | None, str], _Draft] = {}

    def add(self, name: str, pod: kubernetes.Pod, request: int, priority: int) -> bool:
        """Adds a pod of the job that waits. False: the pod is not to be placed."""
        job, tables, meta = self._job, self._tables, pod.metadata
        if not tables.ours.claims(pod):
            job.strangers += 1
            return False
        if job.elastic is not None and _is_beyond(job.elastic, pod):
            return False
        if pod.spec.scheduling_gates:
            job.gated += 1
            return False
        job.may_preempt &= not tables.priorities.never_preempts(pod)
        shape = tables.shapes.of(pod, request, gpu_models(pod, job))
        pod_affinity = tables.reader.read(pod) if tables.reader.has_terms else None
        role, owner = pod_role(meta), pod_owner(meta)
        key = (role, priority, shape.number, pod_affinity, owner)
        draft = self._drafts.get(key)
        if draft is None:
            draft = self._drafts[key] = _Draft(role, priority, shape, pod_affinity, owner)
        if nominated := pod.status.nominated_node_name:
            job.was_promised = True
            job.has_evicted |= HAS_EVICTED_ANNOTATION in meta.annotations
            node = tables.nodes.index.get(nominated)
            if node is not None:
                job.nominated[node] = job.nominated.get(node, 0) + 1
                draft.nominated = draft.nominated or {}
                draft.nominated[node] = draft.nominated.get(node, 0) + 1
        draft.lasts_s = max(draft.lasts_s, lasts_s(pod))
        if is_critical(pod) or (tables.budgets and any(b.covers(name, meta.labels) for b in tables.budgets)):
            draft.stays = True
        draft.pods.append((pod_order(meta.name, meta.labels), name))
        return True

    def finish(self) -> None:
        """Puts the groups into the job."""
        job = self._job
        for draft in self._drafts.values():
            draft.pods.sort()
            job.groups.append(
                TaskGroup(
                    number=len(job.groups),
                    role=draft.role,
                    priority=draft.priority,
                    shape=draft.shape,
                    pod_affinity=draft.pod_affinity,
                    owner=draft.owner,
                    pods=tuple(name for _, name in draft.pods),
                    lasts_s=min(draft.lasts_s, job.lasts_s),
                    stays=draft.stays,
                    nominated=draft.nominated or no_nodes(),
                )
            )
            requests = draft.shape.requests
            asked = requests if len(draft.pods) == 1 else requests * len(draft.pods)
            job.pending = asked if job.pending is None else job.pending + asked

    def add_growth(self, role: types.ElasticRole, replica: kubernetes.Pod, request: int, priority: int) -> None:
        """Adds the replicas that the role may grow by; `replica` is the first of them. After `finish`."""
        job, tables, meta = self._job, self._tables, replica.metadata
        if job.elastic is None:
            return
        prefix = name_of(meta).rsplit("-", 1)[0]
        job.growth[role.name] = TaskGroup(
            number=len(job.groups) + len(job.growth),
            role=role.name,
            priority=priority,
            shape=tables.shapes.of(replica, request, gpu_models(replica, job)),
            pod_affinity=tables.reader.read(replica) if tables.reader.has_terms else None,
            owner=pod_owner(meta),
            pods=tuple(f"{prefix}-{index}" for index in range(job.elastic.roles[role.name].size, role.most)),
        )


def _is_beyond(elastic: Elastic, pod: kubernetes.Pod) -> bool:
    """Whether the pod's index is beyond the size of its role."""
    role = elastic.roles.get(pod_role(pod.metadata))
    return role is not None and replica_index(pod) >= role.size
