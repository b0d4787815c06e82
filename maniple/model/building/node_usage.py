"""What pods use of nodes: one PodUsage for each pod that counts, and sums over nodes that follow them.

A change marks its node as dirty; `settle` sums dirty nodes anew from their pods. Nothing is ever subtracted from a sum,
so sums cannot drift. A leaving pod becomes stuck by time alone: `pass_to` looks only at the pods whose time has come.
"""

from heapq import heappop, heappush
from math import inf

import msgspec
import numpy as np

from maniple.api import kubernetes
from maniple.api.labels import EVICTED_FOR_ANNOTATION
from maniple.api.phases import FINISHED
from maniple.model.building.cluster_tables import ClusterTables
from maniple.model.counting import count_down, count_up
from maniple.model.gpu.holdings import GpuHoldings, HeldGpus
from maniple.model.pod_affinity import AffinityInfo
from maniple.model.pod_identity import JobKey, pod_owner
from maniple.model.pod_shape import Exclusive
from maniple.model.resources import FloatArray
from maniple.model.stuck_pods import STUCK_AFTER_S, StuckPod, stuck_after


class PodUsage(msgspec.Struct, eq=False):
    """A pod that counts. `node` is -1 if it waits, has finished, or is on a node that is not known."""

    pod: kubernetes.Pod
    name: str
    job: JobKey | None
    request: int
    priority: int
    is_leaving: bool
    held: int  # the request that equals what it holds
    node: int = -1
    gpus: HeldGpus | None = None
    pod_affinity: AffinityInfo | None = None
    exclusives: tuple[Exclusive, ...] = ()
    owner: str = ""
    stuck_after: float = inf
    is_stuck: bool = False

    @property
    def makes_room(self) -> bool:
        """Whether what it holds is expected to come free."""
        return self.is_leaving and not self.is_stuck


class NodeUsage:
    def __init__(self, tables: ClusterTables) -> None:
        self._tables = tables
        self._holdings = GpuHoldings(tables.gpus.tables, tables.shapes, tables.requests)
        self._empty, _ = self._holdings.all_free()
        self.gpus_free, self.gpus_releasing = self._holdings.all_free()
        shape = len(tables.axis), len(tables.nodes)
        self.used, self.releasing, self.foreign = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        self._members: dict[JobKey, dict[str, PodUsage]] = {}  # without pods that are jobs of their own
        self.exclusives: dict[int, tuple[Exclusive, ...]] = {}
        self.leaving_exclusives: dict[int, tuple[Exclusive, ...]] = {}
        self.pod_affinity: dict[tuple[AffinityInfo, int], int] = {}
        self.leaving_affinity: dict[tuple[AffinityInfo, int], int] = {}
        self.owners: dict[str, dict[int, int]] = {}
        self.dirty_jobs: dict[JobKey, None] = {}  # in the order in which they are built
        self._dirty_nodes: set[int] = set()
        self._by_name: dict[str, PodUsage] = {}
        self._by_node: dict[int, dict[str, PodUsage]] = {}
        self._victims: dict[str, tuple[str, PodUsage]] = {}  # terminating pods -> the gang that they were evicted for
        self._vectors: FloatArray = np.zeros((0, len(tables.axis)))
        self._now = -inf
        self._leaving: list[tuple[float, str]] = []  # heap: when each leaving pod is stuck, if it is still there then
        self._stuck: dict[str, PodUsage] = {}

    def add(self, name: str, pod: kubernetes.Pod, job: JobKey | None, request: int, priority: int) -> None:
        tables, meta = self._tables, pod.metadata
        usage = PodUsage(pod, name, job, request, priority, meta.deletion_timestamp is not None, request)
        self._by_name[name] = usage
        if job is not None:
            if job[1] != "Pod":
                members = self._members.get(job)
                if members is None:
                    self._members[job] = {name: usage}
                else:
                    members[name] = usage
            self.dirty_jobs[job] = None
        node = tables.nodes.index.get(pod.spec.node_name, -1) if pod.spec.node_name else -1
        if node < 0 or pod.status.phase in FINISHED:
            return
        usage.node = node
        usage.gpus, usage.held = self._holdings.read(pod, node, request)
        usage.stuck_after = stuck_after(meta)
        if usage.stuck_after < self._now:
            self._stuck[name] = usage
            self._set_stuck(usage, is_stuck=True)
        elif usage.stuck_after < inf:
            heappush(self._leaving, (usage.stuck_after, name))
        usage.exclusives = tables.shapes.exclusives(pod)
        if meta.owner_references:
            owner = usage.owner = pod_owner(meta)
            if owner:
                counts = self.owners.get(owner)
                if counts is None:
                    self.owners[owner] = {node: 1}
                else:
                    counts[node] = counts.get(node, 0) + 1
        if tables.reader.has_terms:
            usage.pod_affinity = tables.reader.read(pod)
            count_up(self.pod_affinity, (usage.pod_affinity, node))
            if usage.makes_room:
                count_up(self.leaving_affinity, (usage.pod_affinity, node))
        on_node = self._by_node.get(node)
        if on_node is None:
            self._by_node[node] = {name: usage}
        else:
            on_node[name] = usage
        if usage.is_leaving and (gang := meta.annotations.get(EVICTED_FOR_ANNOTATION)):
            self._victims[name] = (gang, usage)
        self._dirty_nodes.add(node)

    def remove(self, name: str) -> None:
        usage = self._by_name.pop(name, None)
        if usage is None:
            return
        if usage.job is not None:
            if usage.job[1] != "Pod":
                members = self._members[usage.job]
                del members[name]
                if not members:
                    del self._members[usage.job]
            self.dirty_jobs[usage.job] = None
        if usage.node < 0:
            return
        if usage.pod_affinity is not None:
            count_down(self.pod_affinity, (usage.pod_affinity, usage.node))
            if usage.makes_room:
                count_down(self.leaving_affinity, (usage.pod_affinity, usage.node))
        if usage.owner:
            counts = self.owners[usage.owner]
            count_down(counts, usage.node)
            if not counts:
                del self.owners[usage.owner]
        self._victims.pop(name, None)
        self._stuck.pop(name, None)
        del self._by_node[usage.node][name]
        self._dirty_nodes.add(usage.node)

    def members(self, job: JobKey) -> list[PodUsage]:
        """The pods of a job, by name."""
        if job[1] == "Pod":
            usage = self._by_name.get(job[0])
            return [usage] if usage is not None and usage.job == job else []
        members = self._members.get(job, {})
        if len(members) < 2:
            return list(members.values())
        return [members[name] for name in sorted(members)]

    def leaving_for(self) -> dict[str, dict[int, FloatArray]]:
        """Gang -> node -> [R] what terminating pods hold that were evicted for it."""
        vectors, sums = self.vectors(), dict[str, dict[int, FloatArray]]()
        for gang, usage in self._victims.values():
            if usage.is_stuck:
                continue
            by_node = sums.setdefault(gang, {})
            by_node[usage.node] = by_node.get(usage.node, 0.0) + vectors[usage.held]
        return sums

    def stuck(self) -> dict[int, tuple[StuckPod, ...]]:
        """Node -> the stuck pods on it, by name."""
        vectors, by_node = self.vectors(), dict[int, list[StuckPod]]()
        for name, usage in sorted(self._stuck.items()):
            pod = StuckPod(name, usage.stuck_after - STUCK_AFTER_S, vectors[usage.held])
            by_node.setdefault(usage.node, []).append(pod)
        return {node: tuple(pods) for node, pods in by_node.items()}

    def pass_to(self, now: float) -> bool:
        """It is `now`. Returns whether pods are stuck that were not before. A clock that was set back is followed."""
        turned: dict[str, PodUsage] = {}
        if now < self._now:
            turned = {name: usage for name, usage in self._stuck.items() if usage.stuck_after >= now}
            for name, usage in turned.items():
                del self._stuck[name]
                heappush(self._leaving, (usage.stuck_after, name))
        self._now = now
        while self._leaving and self._leaving[0][0] < now:
            moment, name = heappop(self._leaving)
            leaving = self._by_name.get(name)
            if leaving is not None and leaving.stuck_after == moment:  # else it is gone, or is another pod
                turned[name] = self._stuck[name] = leaving
        for usage in turned.values():
            self._turn(usage)
        self.settle()
        return bool(turned)

    def _turn(self, usage: PodUsage) -> None:
        self._set_stuck(usage, is_stuck=not usage.is_stuck)
        if usage.pod_affinity is not None:
            count = count_up if usage.makes_room else count_down
            count(self.leaving_affinity, (usage.pod_affinity, usage.node))
        self._dirty_nodes.add(usage.node)

    @staticmethod
    def _set_stuck(usage: PodUsage, *, is_stuck: bool) -> None:
        usage.is_stuck = is_stuck
        if usage.gpus is not None:
            usage.gpus.makes_room = usage.makes_room

    def settle(self) -> None:
        """Sums the nodes whose pods have changed."""
        if not self._dirty_nodes:
            return
        nodes = sorted(self._dirty_nodes)
        self._dirty_nodes.clear()
        by_node = [list(self._by_node.get(node, {}).values()) for node in nodes]
        self._sum(nodes, by_node)
        self._settle_gpus(nodes, by_node)
        for node, pods in zip(nodes, by_node, strict=True):
            holders = [pod for pod in pods if pod.exclusives]
            holders.sort(key=lambda pod: pod.name)
            leavers = [pod for pod in holders if pod.makes_room]
            for total, held_by in ((self.exclusives, holders), (self.leaving_exclusives, leavers)):
                if held_by:
                    total[node] = tuple(exclusive for pod in held_by for exclusive in pod.exclusives)
                else:
                    total.pop(node, None)

    def _sum(self, nodes: list[int], by_node: list[list[PodUsage]]) -> None:
        columns = np.array(nodes, dtype=np.intp)
        rows = np.repeat(np.arange(len(nodes)), [len(pods) for pods in by_node])
        pods = [pod for on_node in by_node for pod in on_node]
        held = np.array([pod.held for pod in pods], dtype=np.intp)
        is_leaving = np.array([pod.makes_room for pod in pods], dtype=bool)
        is_foreign = np.array([pod.job is None or pod.is_stuck for pod in pods], dtype=bool) & ~is_leaving
        vectors = self.vectors()
        for total, chosen in ((self.used, None), (self.releasing, is_leaving), (self.foreign, is_foreign)):
            if chosen is not None and not chosen.any():
                total[:, columns] = 0.0
                continue
            chosen_rows, chosen_held = (rows, held) if chosen is None else (rows[chosen], held[chosen])
            for resource, amounts in enumerate(vectors.T):
                total[resource, columns] = np.bincount(chosen_rows, amounts[chosen_held], len(nodes))

    def _settle_gpus(self, nodes: list[int], by_node: list[list[PodUsage]]) -> None:
        columns = np.array(nodes, dtype=np.intp)
        for row, empty in self._empty.items():
            self.gpus_free[row][columns] = empty[columns]
            self.gpus_releasing[row][columns] = 0
        before = [
            (pod.job, pod.gpus, pod.gpus.gpus)
            for pods in by_node
            for pod in pods
            if pod.gpus is not None and pod.job is not None and pod.job not in self.dirty_jobs
        ]
        holders = {
            node: [pod.gpus for pod in pods if pod.gpus is not None] for node, pods in zip(nodes, by_node, strict=True)
        }
        self._holdings.settle(holders, self.gpus_free, self.gpus_releasing)
        for job, held, gpus in before:
            # A pod that does not name its devices may be taken to hold others than before.
            if held.gpus != gpus:
                self.dirty_jobs[job] = None

    def vectors(self) -> FloatArray:
        """[request, R] of all requests."""
        known, count = len(self._vectors), len(self._tables.requests.requests)
        if known < count:
            more = [self._tables.shapes.vector(request) for request in range(known, count)]
            self._vectors = np.concatenate([self._vectors, np.array(more)])
        return self._vectors
