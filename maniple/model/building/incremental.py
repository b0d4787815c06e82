"""A Snapshot kept up to date: objects come, change and go, and only what follows from that is made anew.

The unit of work is the job and the node: a pod that changes makes its gang and its node dirty, and those are made again
from their pods, by the same code that makes a snapshot from scratch (build.py). What a Snapshot was given is never
changed afterwards. If the cluster itself changes (nodes, queues, classes, topologies, which resources there are), or if
most of what was numbered is dead, everything is made anew.

Objects that contradict others are left out, and `wrong` says why; nobody else is held up by them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from maniple.api import kubernetes, types
from maniple.api.decode.decode import Object
from maniple.api.meta import LabelSelector
from maniple.api.phases import FINISHED
from maniple.model.budgets import Budget, find_budgets
from maniple.model.building.cluster_tables import Frame, fixed_names
from maniple.model.building.job_assembly import fill
from maniple.model.building.job_builder import JobKey, JobMaker, job_key
from maniple.model.building.job_specs import Declared
from maniple.model.building.node_usage import Seats
from maniple.model.building.pod_index import Census, gangs_named
from maniple.model.building.queue_usage import Line, Tallies, Tally
from maniple.model.building.task_groups import may_wait
from maniple.model.domains import Domains
from maniple.model.gpu.devices import gpu_problems
from maniple.model.job import Job
from maniple.model.nodes import same_resources
from maniple.model.ownership import Ours
from maniple.model.pod_affinity import PeerReader
from maniple.model.queues import sound_queues
from maniple.model.resources import RequestTable
from maniple.model.snapshot import Snapshot
from maniple.model.storage import ClaimKey, Storage

Key = tuple[type, str, str]  # kind, namespace, name

_FRAMED = (kubernetes.Node, kubernetes.PriorityClass, types.Queue, types.Topology)
_KINDS = (
    *_FRAMED,
    kubernetes.PersistentVolume,
    kubernetes.PersistentVolumeClaim,
    kubernetes.Namespace,
    kubernetes.PodDisruptionBudget,
    types.PodGroup,
    types.ElasticJob,
)
_FEW = 1000  # numbers that may be dead, whatever is alive
_MOSTLY = 4


def key_of_object(item: Object) -> Key:
    return type(item), item.metadata.namespace, item.metadata.name


class Ledger:
    def __init__(self, ours: Ours) -> None:
        self._ours = ours
        self.census = Census(ours)
        self._things: dict[type, dict[tuple[str, str], Any]] = {kind: {} for kind in _KINDS}
        self.wrong: dict[Key, list[str]] = {}
        self._declared = Declared(ours, self.census)
        self._wrong_jobs: set[JobKey] = set()
        self._touched_nodes: set[str] = set()
        self._touched_budgets: set[str] = set()  # namespaces
        self._storage = Storage()
        self._frame: Frame | None = None
        self._is_stale = True  # the frame is
        self._last: Snapshot | None = None
        self._is_updated = False  # since the last snapshot

    @property
    def is_changed(self) -> bool:
        """Whether the next snapshot will differ from the last in more than the time."""
        return self._is_updated or self._has_touched

    @property
    def _has_touched(self) -> bool:
        census = self.census
        touched = (census.touched, self._declared.touched, self._touched_nodes, self._touched_budgets)
        return self._is_stale or any(touched)

    # -- objects

    def put(self, item: Object) -> None:
        """Added, or in the place of the one that was there under its name."""
        self._set(key_of_object(item), item)

    def remove(self, key: Key) -> None:
        self._set(key, None)

    def _set(self, key: Key, item: Any) -> None:
        kind, namespace, name = key
        if kind is kubernetes.Pod:
            self.census.put(f"{namespace}/{name}", item)
            return
        things = self._things[kind]
        old = things.get((namespace, name))
        if old == item:
            return
        if item is None:
            del things[namespace, name]
            self.wrong.pop(key, None)
        else:
            things[namespace, name] = item
        self._touch(key, old, item)

    def _touch(self, key: Key, old: Any, item: Any) -> None:
        kind, namespace, name = key
        if isinstance(item, types.PodGroup | types.ElasticJob):
            self._declared.put(item)
        elif kind in (types.PodGroup, types.ElasticJob):
            self._declared.remove((f"{namespace}/{name}", kind.__name__))
        elif kind is kubernetes.PodDisruptionBudget:
            self._touched_budgets.add(namespace)
        elif kind is kubernetes.PersistentVolumeClaim:
            self._storage.put_claim((namespace, name), item)
            self._touch_users({(namespace, name)})
        elif kind is kubernetes.PersistentVolume:
            self._touch_users(self._storage.put_volume(name, item))
        elif kind is kubernetes.Namespace:
            self._touch_counted(self.census.minding)
        elif kind is kubernetes.Node and old is not None and item is not None and same_resources(old, item):
            self._touched_nodes.add(name)
        else:
            self._is_stale = True

    def _touch_users(self, claims: Iterable[ClaimKey]) -> None:
        for claim in claims:
            self._touch_counted(self.census.users.get(claim, ()))

    def _touch_counted(self, names: Iterable[str]) -> None:
        """Pods, and replicas that might be: those are looked at with their jobs."""
        for name in names:
            if name in self.census.pods:
                self.census.touched.add(name)
            else:
                self._declared.touched.add((name.split(" ")[0], "ElasticJob"))

    # -- the snapshot

    def snapshot(self, now: float) -> Snapshot:
        self.update()
        if self._last is None or self._is_updated:
            self._last = self._assemble(now)
            self._is_updated = False
        return replace(self._last, now=now)

    def update(self) -> None:
        """Makes anew what follows from the objects that have changed."""
        if not self._has_touched:
            return
        self._is_updated = True
        is_done = False
        try:
            if self._is_stale or not self._fits_frame():
                self._start_over()
            self._refresh_budgets()
            self._seat()
            self._seats.settle()
            self._make_jobs()
            is_done = True
        finally:
            self._is_stale = not is_done  # whatever was left half done is made anew next time

    def _fits_frame(self) -> bool:
        """Counts what has changed; False if the tables cannot hold it, or hold mostly what is dead."""
        assert self._frame is not None
        census, frame = self.census, self._frame
        self._declared.touch_named(census.touched_gangs)
        census.touched_gangs.clear()
        self._seats.dirty_jobs |= self._look()
        for name in sorted(census.touched):
            self._number(name)
        if census.has_new_requests:
            census.has_new_requests = False
            if self._fixed | census.resource_names() != set(frame.axis.names):
                return False
        if bool(census.minding) != frame.reader.anyone:
            return False
        requests, shapes = len(census.requests.requests), len(frame.shapes)
        if requests > _FEW + _MOSTLY * len(census.live) or shapes > _FEW + _MOSTLY * self._tallies.groups:
            return False
        self._read_peers()
        self._change_nodes()
        return True

    def _read_peers(self) -> None:
        assert self._frame is not None
        census, reader = self.census, self._frame.reader
        if not census.minding:
            return
        if reader.keys != census.keys.keys():
            census.touched |= census.labelled(reader.keys ^ census.keys.keys())
            self._seats.dirty_jobs.update(self._declared.growing)
        self._frame.reader = self._reader()

    def _reader(self) -> PeerReader:
        census = self.census
        namespaces = {name: item.metadata.labels for (_, name), item in self._things[kubernetes.Namespace].items()}
        return PeerReader(namespaces, anyone=bool(census.minding), keys=frozenset(census.keys))

    def _change_nodes(self) -> None:
        assert self._frame is not None
        if not self._touched_nodes:
            return
        frame, before = self._frame, self._frame.nodes
        nodes = self._things[kubernetes.Node]
        changes = {before.index[name]: nodes["", name] for name in self._touched_nodes if name in before.index}
        frame.nodes = before.changed(changes)
        if any(before.labels(at) != node.metadata.labels for at, node in changes.items()):
            frame.domains = Domains(frame.topologies, frame.nodes)
        self._touched_nodes.clear()

    def _start_over(self) -> None:
        census, things = self.census, self._things
        self.wrong.clear()
        queues, wrong = sound_queues(_ordered(things[types.Queue]))
        for name, texts in wrong.items():
            self.wrong[types.Queue, "", name] = texts
        nodes = []
        for item in _ordered(things[kubernetes.Node]):
            problems = gpu_problems(item)
            if problems:
                self.wrong[key_of_object(item)] = problems
            else:
                nodes.append(item)
        rest: dict[str, Any] = {
            "queues": queues,
            "priority_classes": _ordered(things[kubernetes.PriorityClass]),
            "topologies": _ordered(things[types.Topology]),
            "claims": self._storage.claims,
            "volumes": self._storage.volumes,
        }
        census.forget_numbers()
        # Whether a job is right does not depend on nodes or pods, but which resources there are depends on jobs.
        self._checker = JobMaker(Frame(self._ours, RequestTable(), nodes=[], **rest), self._note)
        self._declared.touch_all()
        self._look()
        for name in census.pods:
            self._number(name)
        census.has_new_requests = False
        self._fixed = {"cpu", "memory", "pods"} | fixed_names(nodes, queues)
        self._frame = Frame(self._ours, census.requests, nodes=nodes, **rest)
        self._frame.reader = self._reader()
        self._maker = JobMaker(self._frame, _silent)  # what is wrong has been noted before
        self._seats = Seats(self._frame)
        self._tallies = Tallies(self._frame)
        self._line, self._waiting = Line(), Line()
        census.touched.update(census.pods)
        census.touched_gangs.clear()
        self._touched_nodes.clear()
        self._touched_budgets = {namespace for namespace, _ in things[kubernetes.PodDisruptionBudget]}
        self._seats.dirty_jobs |= self._declared.right
        self._is_stale = False

    def _look(self) -> set[JobKey]:
        for name, kind in self._declared.touched:
            namespace, own = name.split("/", 1)
            self.wrong.pop((types.PodGroup if kind == "PodGroup" else types.ElasticJob, namespace, own), None)
        return self._declared.look(self._checker, self._wrong_jobs)

    def _note(self, item: Object, text: str) -> None:
        self.wrong.setdefault(key_of_object(item), []).append(text)
        if isinstance(item, types.PodGroup | types.ElasticJob):
            self._wrong_jobs.add(job_key(item.metadata, type(item).__name__))

    def _number(self, name: str) -> None:
        """Counts what a pod asks for. What is set aside asks for nothing, and holds what it has."""
        pod = self.census.pods.get(name)
        if pod is not None and not pod.spec.node_name and self._declared.contradiction(pod):
            pod = None
        self.census.number(name, pod)

    def _refresh_budgets(self) -> None:
        assert self._frame is not None
        budgets = self._things[kubernetes.PodDisruptionBudget]
        is_counted = any(budget.status.disruptions_allowed is None for budget in budgets.values())
        if not self._touched_budgets and not (is_counted and self.census.touched):
            return
        before, after = self._frame.budgets, find_budgets(_ordered(budgets), self.census.pods.values())
        self._frame.budgets = after
        # Whose pods may be evicted is asked later; who is covered at all is part of the groups that wait.
        for namespace in self._touched_budgets:
            if _covers(before, namespace) != _covers(after, namespace):
                jobs = (job for job in self._waiting.jobs() if job.name.startswith(f"{namespace}/"))
                self._seats.dirty_jobs.update(job.key for job in jobs)
        self._touched_budgets = set()

    # -- pods and jobs

    def _seat(self) -> None:
        assert self._frame is not None
        census, seats, priorities = self.census, self._seats, self._frame.priorities
        for name in sorted(census.touched):  # neighbours in memory are neighbours by name
            seats.leave(name)
            if self.wrong:
                namespace, own = name.split("/", 1)
                self.wrong.pop((kubernetes.Pod, namespace, own), None)
            pod = census.pods.get(name)
            if pod is None:
                continue
            contradiction = self._declared.contradiction(pod)
            if contradiction:
                self._note(pod, contradiction)
            if not _counts(pod):
                continue
            job, is_over = self._declared.key_of(pod), pod.status.phase in FINISHED
            is_held = pod.spec.node_name and not is_over
            if (job is None and not is_held) or (is_over and job is not None and job[1] == "Pod"):
                continue
            if priorities.of_pod(pod) is None and not is_over:
                self._note(pod, f"spec.priorityClassName: {priorities.unknown(pod.spec.priority_class_name)}")
                if not is_held:
                    continue
            seats.take(name, pod, job, census.numbers[name])
        census.touched.clear()

    def _make_jobs(self) -> None:
        dirty = self._seats.dirty_jobs
        changes: dict[JobKey, Job | None] = {}
        for key in sorted(dirty):
            made = self._make(key)
            self._tallies.put(key, made[1] if made else None)
            changes[key] = made[0] if made else None
        dirty.clear()
        if changes:
            self._line.change(changes)
            waits = {
                key: job if job is not None and (job.groups or job.gated) else None for key, job in changes.items()
            }
            self._waiting.change(waits)

    def _make(self, key: JobKey) -> tuple[Job, Tally] | None:
        """None if the job is not there any more."""
        members = [seat for _, seat in sorted(self._seats.members.get(key, {}).items())]
        job = self._declared.begin(key, self._maker)
        if job is None and members:
            job = self._maker.of_pod(members[0].pod) if key[1] == "Pod" else self._maker.unwritten(key)
        if job is None:
            return None
        return job, fill(job, members, self._declared.growing.get(key, ()), self._maker)

    def _assemble(self, now: float) -> Snapshot:
        assert self._frame is not None
        frame, seats, tallies = self._frame, self._seats, self._tallies
        queue_allocated, queue_pending = tallies.sums(seats.vectors())
        return Snapshot(
            now=now,
            axis=frame.axis,
            nodes=frame.nodes,
            free=frame.nodes.allocatable - seats.used,
            releasing=seats.releasing.copy(),
            total=frame.total(seats.used, seats.foreign),
            queues=frame.queues,
            queue_allocated=queue_allocated,
            queue_pending=queue_pending,
            jobs=self._line.jobs(),
            waiting=self._waiting.jobs(),
            gpus=frame.gpus,
            gpus_free={row: free.copy() for row, free in seats.gpus_free.items()},
            gpus_releasing={row: releasing.copy() for row, releasing in seats.gpus_releasing.items()},
            domains=frame.domains,
            gpu_pods=tallies.gpu_pods(),
            peers=dict(seats.peers),
            exclusives=dict(seats.exclusives),
            owners={owner: dict(seats.owners.get(owner, {})) for owner in tallies.owners},
            budgets=frame.budgets,
        )

    def job(self, pod: str) -> Job | None:
        """The job of a pod, as of the last update."""
        held = self.census.pods.get(pod)
        key = None if held is None else self._declared.key_of(held)
        return None if key is None or self._frame is None else self._line.get(key)


def _silent(_item: Object, _text: str) -> None:
    pass


def _ordered(things: Mapping[tuple[str, str], Any]) -> list[Any]:
    return [things[key] for key in sorted(things)]


def _counts(pod: kubernetes.Pod) -> bool:
    """Whether the pod is on a node, waits for one, or has done its part in a gang."""
    if not pod.spec.node_name:
        return may_wait(pod)
    phase = pod.status.phase
    return phase not in FINISHED or (phase == "Succeeded" and bool(gangs_named(pod)))


def _covers(budgets: Sequence[Budget], namespace: str) -> list[LabelSelector | None]:
    return [budget.selector for budget in budgets if budget.namespace == namespace]
