"""A Snapshot that is kept up to date: objects come, change and go, and only what depends on them is built again.

The units of work are the job and the node. A pod that changes makes its gang and its node dirty, and these are built
again from their pods. A Snapshot that was returned never changes. If the cluster itself changes (nodes, queues,
classes, topologies, which resources exist), or if most numbered requests and shapes are dead, all is built again.

Objects that contradict others are left out and do not hold up the rest; `wrong` says why.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from maniple.api import kubernetes, types
from maniple.api.decode.decode import Object
from maniple.api.keys import Key, ObjectKey, join_key, name_of, split_name
from maniple.api.meta import LabelSelector
from maniple.api.phases import FINISHED
from maniple.model.building.cluster_tables import ClusterTables, fixed_names
from maniple.model.building.job_assembly import assemble_job
from maniple.model.building.job_builder import JobBuilder
from maniple.model.building.job_specs import JobSpecs
from maniple.model.building.node_usage import NodeUsage
from maniple.model.building.pod_index import PodIndex
from maniple.model.building.queue_choice import has_same_queue
from maniple.model.building.queue_usage import JobUsage, QueueUsage
from maniple.model.building.snapshot_assembly import assemble_snapshot
from maniple.model.building.sorted_jobs import JobLists
from maniple.model.disruption_budgets import Budget, find_budgets
from maniple.model.gpu.devices import gpu_problems
from maniple.model.job import Job
from maniple.model.nodes import same_resources
from maniple.model.plugin_reads import Reads
from maniple.model.pod_affinity import AffinityReader
from maniple.model.pod_identity import JobKey, job_key, may_wait
from maniple.model.pod_requests import RequestTable
from maniple.model.pods_we_schedule import Ours
from maniple.model.queues import sound_queues
from maniple.model.resources import axis_names
from maniple.model.snapshot import Snapshot
from maniple.model.topology_domains import Domains
from maniple.model.volume_claims import STORAGE_KINDS, Storage

_KINDS = (
    kubernetes.Node,
    kubernetes.PriorityClass,
    types.Queue,
    types.Topology,
    *STORAGE_KINDS,
    kubernetes.CSINode,
    kubernetes.Namespace,
    kubernetes.PodDisruptionBudget,
    types.PodGroup,
    types.ElasticJob,
)
# Tables are built again when they hold more numbers than this, and a multiple of those in use.
_FEW_NUMBERS = 1000
_MOST_NUMBERS_PER_USED = 4


def key_of_object(item: Object) -> ObjectKey:
    return type(item), item.metadata.namespace, item.metadata.name


class SnapshotBuilder:
    def __init__(self, ours: Ours, reads: Reads | None = None, *, has_all_shapes: bool = False) -> None:
        """`has_all_shapes`: placed pods have their shapes whether they may be moved or not."""
        self._ours = ours
        self._has_all_shapes = has_all_shapes
        self._reads = reads or Reads()
        self.index = PodIndex(ours)
        self._objects: dict[type, dict[Key, Any]] = {kind: {} for kind in _KINDS}
        self.wrong: dict[ObjectKey, list[str]] = {}
        self._specs = JobSpecs(ours, self.index)
        self._wrong_jobs: set[JobKey] = set()
        self._touched_nodes: set[str] = set()
        self._touched_budgets: set[str] = set()  # namespaces
        self._storage = Storage()
        self._tables: ClusterTables | None = None
        self._are_tables_stale = True
        self._last: Snapshot | None = None
        self._is_updated = False  # since the last snapshot

    @property
    def is_changed(self) -> bool:
        """Whether the next snapshot will differ from the last in more than the time."""
        return self._is_updated or self._has_touched

    @property
    def latest(self) -> float:
        """The latest time, in seconds, that an object mentions, as of the last snapshot. Needs no clock."""
        return max(self._checker.latest, self._builder.latest)

    @property
    def _has_touched(self) -> bool:
        touched = (self.index.touched, self._specs.touched, self._touched_nodes, self._touched_budgets)
        return self._are_tables_stale or any(touched)

    # -- objects

    def put(self, item: Object) -> None:
        """Adds an object, or replaces the one of its name."""
        if isinstance(item, kubernetes.Pod):
            self.index.put(name_of(item.metadata), item)
        else:
            self._set(key_of_object(item), item)

    def remove(self, key: ObjectKey) -> None:
        if key[0] is kubernetes.Pod:
            self.index.put(join_key(key[1:]), None)
        else:
            self._set(key, None)

    def _set(self, key: ObjectKey, item: Any) -> None:
        kind, namespace, name = key
        objects = self._objects[kind]
        old = objects.get((namespace, name))
        if old == item:
            return
        if item is None:
            del objects[namespace, name]
            self.wrong.pop(key, None)
        else:
            objects[namespace, name] = item
        self._touch(key, old, item)

    def _touch(self, key: ObjectKey, old: Any, item: Any) -> None:
        kind, namespace, name = key
        if kind in (types.PodGroup, types.ElasticJob):
            if item is None:
                self._specs.remove((join_key((namespace, name)), kind.__name__))
            else:
                self._specs.put(item)
        elif kind is kubernetes.PodDisruptionBudget:
            self._touched_budgets.add(namespace)
        elif kind in STORAGE_KINDS:
            self._touch_users(self._storage.put(kind, (namespace, name), item))
        elif kind is kubernetes.CSINode:
            self._are_tables_stale |= self._storage.put_csi_node(name, item)
        elif kind is kubernetes.Namespace and has_same_queue(old, item):
            self._touch_counted(self.index.minding)
        elif kind is kubernetes.Node and old is not None and item is not None and same_resources(old, item):
            self._touched_nodes.add(name)
        else:
            self._are_tables_stale = True

    def _touch_users(self, claims: Iterable[Key]) -> None:
        for claim in claims:
            self._touch_counted(self.index.users.get(claim, ()))

    def _touch_counted(self, names: Iterable[str]) -> None:
        """Touches pods by name. A replica to come is touched with its job."""
        for name in names:
            if name in self.index.pods:
                self.index.touched.add(name)
            else:
                self._specs.touched[name.split(" ")[0], "ElasticJob"] = None

    # -- the snapshot

    def snapshot(self, now: float | None = None) -> Snapshot:
        """The cluster at `now`; None: at the latest time that an object mentions."""
        self.update()
        assert self._tables is not None
        moment = self.latest if now is None else now
        self._is_updated |= self._node_usage.pass_to(moment)
        if self._last is None or self._is_updated:
            usages = self._node_usage, self._queue_usage
            self._last = assemble_snapshot(self._tables, *usages, self._jobs)
            self._is_updated = False
        return replace(self._last, now=moment)

    def update(self) -> None:
        """Builds again what depends on changed objects."""
        if not self._has_touched:
            return
        self._is_updated, is_done = True, False
        try:
            if self._are_tables_stale or not self._fit_tables():
                self._build_tables()
                touched: Iterable[tuple[str, kubernetes.Pod | None]] = self.index.pods.items()
            else:
                touched = [(name, self.index.pods.get(name)) for name in sorted(self.index.touched)]  # by gang
            self._refresh_budgets()
            self._count_pods(touched)
            self._node_usage.settle()
            self._build_jobs()
            self.index.is_tracking = is_done = True
        finally:
            self._are_tables_stale = not is_done  # what was left half done is built again next time

    def _fit_tables(self) -> bool:
        """Counts what has changed. False: the tables cannot hold it, or most of what they hold is dead."""
        assert self._tables is not None
        index, tables = self.index, self._tables
        self._specs.touch_named(index.touched_gangs)
        index.touched_gangs.clear()
        self._node_usage.dirty_jobs |= dict.fromkeys(sorted(self._check_jobs()))
        self._count_requests((name, index.pods.get(name)) for name in sorted(index.touched))
        if index.has_new_requests:
            index.has_new_requests = False
            if axis_names(self._fixed_names, index.resource_names()) != tables.axis.names:
                return False
        if bool(index.minding) != tables.reader.has_terms:
            return False
        if len(index.requests.requests) > _FEW_NUMBERS + _MOST_NUMBERS_PER_USED * len(index.live):
            return False
        if len(tables.shapes) > _FEW_NUMBERS + _MOST_NUMBERS_PER_USED * self._queue_usage.groups:
            return False
        self._refresh_reader()
        self._refresh_nodes()
        return True

    def _refresh_reader(self) -> None:
        assert self._tables is not None
        index, reader = self.index, self._tables.reader
        if not index.minding:
            return
        if reader.keys != index.keys.keys():
            index.touched |= index.labelled(reader.keys ^ index.keys.keys())
            self._node_usage.dirty_jobs |= dict.fromkeys(self._specs.growing)
        self._tables.reader = self._new_reader()

    def _new_reader(self) -> AffinityReader:
        index = self.index
        namespaces = {name: item.metadata.labels for (_, name), item in self._objects[kubernetes.Namespace].items()}
        return AffinityReader(namespaces, has_terms=bool(index.minding), keys=frozenset(index.keys))

    def _refresh_nodes(self) -> None:
        assert self._tables is not None
        if not self._touched_nodes:
            return
        tables, before = self._tables, self._tables.nodes
        nodes = self._objects[kubernetes.Node]
        changes = {before.index[name]: nodes["", name] for name in self._touched_nodes if name in before.index}
        tables.nodes = before.changed(changes)
        if any(before.labels(number) != node.metadata.labels for number, node in changes.items()):
            tables.domains = Domains(tables.topologies, tables.nodes)
        self._touched_nodes.clear()

    def _build_tables(self) -> None:
        index, objects = self.index, self._objects
        self.wrong.clear()
        queues, wrong_queues = sound_queues(_sorted(objects[types.Queue]))
        self.wrong |= {(types.Queue, "", name): problems for name, problems in wrong_queues.items()}
        nodes = []
        for node in _sorted(objects[kubernetes.Node]):
            problems = gpu_problems(node)
            if problems:
                self.wrong[key_of_object(node)] = problems
            else:
                nodes.append(node)
        rest: dict[str, Any] = {
            "queues": queues,
            "priority_classes": _sorted(objects[kubernetes.PriorityClass]),
            "topologies": _sorted(objects[types.Topology]),
            "storage": self._storage,
            "namespaces": _sorted(objects[kubernetes.Namespace]),
            "has_all_shapes": self._has_all_shapes,
        }
        index.forget_requests()
        # Which resources exist depends on jobs. Whether a job is valid depends on neither nodes nor pods.
        checking = ClusterTables(self._ours, self._reads, RequestTable(), nodes=[], **rest)
        self._checker = JobBuilder(checking, self._report)
        self._specs.queue_choice = checking.queue_choice
        self.wrong |= {(kubernetes.Namespace, "", name): [why] for name, why in checking.queue_choice.wrong.items()}
        self._specs.touch_all()
        checked = self._check_jobs()
        self._count_requests(index.pods.items())
        index.has_new_requests = False
        self._fixed_names = {"cpu", "memory", "pods"} | fixed_names(nodes, queues)
        self._tables = ClusterTables(self._ours, self._reads, index.requests, nodes=nodes, **rest)
        self._tables.reader = self._new_reader()
        self._builder = JobBuilder(self._tables, lambda _item, _problem: None)  # the checker has reported every problem
        self._node_usage = NodeUsage(self._tables)
        self._queue_usage = QueueUsage(self._tables)
        self._jobs = JobLists()
        index.touched_gangs.clear()
        self._touched_nodes.clear()
        self._touched_budgets = {namespace for namespace, _ in objects[kubernetes.PodDisruptionBudget]}
        self._node_usage.dirty_jobs |= dict.fromkeys(sorted(key for key in checked if key in self._specs.gangs))
        self._are_tables_stale = False

    def _check_jobs(self) -> dict[JobKey, None]:
        for name, kind in self._specs.touched if self.wrong else ():
            self.wrong.pop((types.PodGroup if kind == "PodGroup" else types.ElasticJob, *split_name(name)), None)
        return self._specs.check(self._checker, self._wrong_jobs)

    def _report(self, item: Object, problem: str) -> None:
        self.wrong.setdefault(key_of_object(item), []).append(problem)
        if isinstance(item, types.PodGroup | types.ElasticJob):
            self._wrong_jobs.add(job_key(item.metadata, type(item).__name__))

    def _count_requests(self, pods: Iterable[tuple[str, kubernetes.Pod | None]]) -> None:
        """Counts what pods ask for. A waiting pod that is left out asks for nothing."""
        count, contradiction = self.index.count_request, self._specs.contradiction
        for name, pod in pods:
            is_left_out = pod is not None and not pod.spec.node_name and contradiction(name, pod)
            count(name, None if is_left_out else pod)

    def _refresh_budgets(self) -> None:
        assert self._tables is not None
        budgets = self._objects[kubernetes.PodDisruptionBudget]
        is_counted = any(budget.status.disruptions_allowed is None for budget in budgets.values())
        if not self._touched_budgets and not (is_counted and self.index.touched):
            return
        before, after = self._tables.budgets, find_budgets(_sorted(budgets), self.index.pods.values())
        self._tables.budgets = after
        # Waiting groups depend on whether a budget covers them, and not on what it allows.
        for namespace in self._touched_budgets:
            if _selectors(before, namespace) != _selectors(after, namespace):
                jobs = (job for job in self._jobs.waiting.jobs() if split_name(job.name)[0] == namespace)
                self._node_usage.dirty_jobs |= dict.fromkeys(job.key for job in jobs)
        self._touched_budgets = set()

    # -- pods and jobs

    def _count_pods(self, touched: Iterable[tuple[str, kubernetes.Pod | None]]) -> None:
        """Counts touched pods where they are now. None: the pod is gone."""
        assert self._tables is not None
        index, usage, specs, priorities = self.index, self._node_usage, self._specs, self._tables.priorities
        for name, pod in touched:
            if index.is_tracking:
                usage.remove(name)
                if self.wrong:
                    self.wrong.pop((kubernetes.Pod, *split_name(name)), None)
            if pod is None:
                continue
            contradiction = specs.contradiction(name, pod)
            if contradiction:
                self._report(pod, contradiction)
            is_finished, is_placed = pod.status.phase in FINISHED, bool(pod.spec.node_name)
            if not (is_placed and not is_finished) and not self._counts(name, pod):
                continue
            job = None if contradiction else specs.gang_of(name, pod)
            if (is_finished or not is_placed) if job is None else (is_finished and job[1] == "Pod"):
                continue
            priority = priorities.of_pod(pod)
            if priority is None and job is not None and not is_finished and self._needs_priority(pod):
                self._report(pod, f"spec.priorityClassName: {priorities.unknown(pod.spec.priority_class_name)}")
                if not is_placed:
                    continue
            if job is None or (is_placed and pod.metadata.deletion_timestamp is not None):
                self._builder.started(pod)  # its times count for `latest`; those of others are read with their job
            usage.add(name, pod, job, index.numbers[name], priority or 0)
        index.touched.clear()

    def _counts(self, name: str, pod: kubernetes.Pod) -> bool:
        """Whether the pod is on a node, waits for one, or has succeeded in a gang."""
        if not pod.spec.node_name:
            return may_wait(pod)
        phase = pod.status.phase
        return phase not in FINISHED or (phase == "Succeeded" and name in self.index.gangs)

    def _needs_priority(self, pod: kubernetes.Pod) -> bool:
        """Whether any decision depends on the priority of a pod in a gang."""
        if pod.spec.node_name:
            return pod.metadata.deletion_timestamp is None
        return self._ours.claims(pod) and not pod.spec.scheduling_gates

    def _build_jobs(self) -> None:
        jobs: dict[JobKey, Job | None] = {}
        for key in self._node_usage.dirty_jobs:
            jobs[key], usage = self._build_job(key)
            self._queue_usage.put(key, usage)
        self._node_usage.dirty_jobs.clear()
        self._jobs.change(jobs)

    def _build_job(self, key: JobKey) -> tuple[Job | None, JobUsage | None]:
        """(None, None): the job does not exist any more."""
        assert self._tables is not None
        members = self._node_usage.members(key)
        if key[1] == "Pod":
            job = self._builder.of_pod(key, members[0].pod, members[0].priority) if members else None
        else:
            job = self._specs.build(key, self._builder) or (self._builder.missing(key) if members else None)
        if job is None:
            return None, None
        return job, assemble_job(job, members, self._specs.growing.get(key, ()), self._builder, self._tables)

    def job_of(self, pod: str) -> Job | None:
        """The job of a pod, as of the last update."""
        item = self.index.pods.get(pod)
        if item is None or self._tables is None or self._specs.contradiction(pod, item):
            return None
        key = self._specs.gang_of(pod, item)
        return None if key is None else self._jobs.all.get(key)


def _sorted(objects: Mapping[Key, Any]) -> list[Any]:
    return [objects[key] for key in sorted(objects)]


def _selectors(budgets: Sequence[Budget], namespace: str) -> list[LabelSelector | None]:
    return [budget.selector for budget in budgets if budget.namespace == namespace]
