"""Pods on nodes: what they use, whose they are, which devices, ports and neighbours they have, and what is leaving.

A hundred thousand pods pass through `place`: a handful of dictionary look-ups each; the arithmetic is left to numpy.
"""

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from maniple.api import core, types
from maniple.model.job import Job, PlacedPod, Queue
from maniple.model.nodes import NodeTable
from maniple.model.peers import PeerReader, Peers
from maniple.model.podinfo import group_name, pod_owner, pod_role
from maniple.model.priority import CRITICAL_CLASSES
from maniple.model.resources import Axis, FloatArray
from maniple.model.shape import Exclusive, Shapes, exclusives_of

MOST_GPUS = 1024  # of one node; more are a typing error, and would make the bit masks slow


class World(Protocol):
    """What has to be known already to put pods on nodes."""

    axis: Axis
    nodes: NodeTable
    shapes: Shapes
    reader: PeerReader
    queues: list[Queue]

    def job_of(self, pod: core.Pod) -> Job | None: ...

    def pod_priority(self, pod: core.Pod) -> int: ...

    def started(self, pod: core.Pod) -> float: ...


class Occupancy:
    def __init__(self, world: World, owners: set[str]) -> None:
        self.world = world
        self.exclusives: dict[int, list[Exclusive]] = {}
        self.owners: dict[str, dict[int, int]] = {owner: {} for owner in owners}
        self.peers: list[tuple[Peers, int]] = []
        self._staying: list[tuple[int, int]] = []  # (node, request)
        self._leaving: list[tuple[int, int]] = []
        self._foreign: list[tuple[int, int]] = []
        self._by_queue: dict[tuple[int, int], int] = {}
        self._gpu_rows: dict[int, list[tuple[int, int]]] = {}
        self._gpus: dict[tuple[int, int], int] = {}
        self._gpus_unnamed: list[tuple[tuple[int, int], int]] = []

    def place(self, pod: core.Pod, request: int) -> None:
        world, meta = self.world, pod.metadata
        if pod.status.phase in ("Succeeded", "Failed"):
            self._count_finished(pod)
            return
        node = world.nodes.index.get(pod.spec.node_name, -1)
        job = world.job_of(pod)
        if node >= 0:
            self._occupy(pod, node, request)
        if meta.deletion_timestamp is not None:
            world.started(pod)
            if node >= 0:
                self._leaving.append((node, request))
            return
        if job is None:
            if node >= 0:
                self._foreign.append((node, request))
            return
        vector = world.shapes.vector(request)
        role = pod_role(meta)
        job.placed.append(
            PlacedPod(
                pod=f"{meta.namespace}/{meta.name}",
                node=node,
                role=role,
                priority=job.priority if job.key[1] == "Pod" else world.pod_priority(pod),
                requests=vector,
                peers=self.peers[-1][0] if world.reader.anyone and node >= 0 else None,
                started=world.started(pod),
                is_critical=meta.namespace == "kube-system" or pod.spec.priority_class_name in CRITICAL_CLASSES,
                labels=meta.labels,
            )
        )
        job.placed_by_role[role] = job.placed_by_role.get(role, 0) + 1
        job.allocated = vector if job.allocated is None else job.allocated + vector
        key = (job.queue, request)
        self._by_queue[key] = self._by_queue.get(key, 0) + 1

    def _count_finished(self, pod: core.Pod) -> None:
        meta = pod.metadata
        if pod.status.phase != "Succeeded" or not (group_name(meta) or types.JOB_LABEL in meta.labels):
            return
        job = self.world.job_of(pod)
        if job is not None:
            role = pod_role(meta)
            job.succeeded += 1
            job.succeeded_by_role[role] = job.succeeded_by_role.get(role, 0) + 1

    def _occupy(self, pod: core.Pod, node: int, request: int) -> None:
        world = self.world
        self._staying.append((node, request))
        held = exclusives_of(pod.spec)
        if held:
            self.exclusives.setdefault(node, []).extend(held)
        if world.reader.anyone:
            self.peers.append((world.reader.read(pod), node))
        if self.owners:
            counts = self.owners.get(pod_owner(pod.metadata))
            if counts is not None:
                counts[node] = counts.get(node, 0) + 1
        for row, count in self._gpu_demand(request):
            written = pod.metadata.annotations.get(types.GPUS_ANNOTATION)
            there = min(MOST_GPUS, int(world.nodes.allocatable[row, node] // 1000)) if written else 0
            named = _device_ids(written, there)[:count] if written else []
            for device in named:
                self._gpus[node, row] = self._gpus.get((node, row), 0) | 1 << device
            if len(named) < count:
                self._gpus_unnamed.append(((node, row), min(count, MOST_GPUS) - len(named)))

    def _gpu_demand(self, request: int) -> list[tuple[int, int]]:
        found = self._gpu_rows.get(request)
        if found is None:
            found = self._gpu_rows[request] = self.world.axis.devices(self.world.shapes.vector(request))
        return found

    def gpus(self) -> Mapping[tuple[int, int], int]:
        """Device ids in use. Pods that do not say which they have are taken to have the lowest ones left."""
        for key, count in self._gpus_unnamed:
            _, self._gpus[key] = take_lowest(self._gpus.get(key, 0), count)
        return self._gpus

    def sums(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        queue_allocated = np.zeros((len(self.world.queues), len(self.world.axis)))
        for (queue, request), count in self._by_queue.items():
            queue_allocated[queue] += count * self.world.shapes.vector(request)
        return self._sum(self._staying), self._sum(self._leaving), self._sum(self._foreign), queue_allocated

    def _sum(self, pairs: list[tuple[int, int]]) -> FloatArray:
        """Requests summed by node: one count per distinct request, whatever the number of pods."""
        total = np.zeros((len(self.world.axis), len(self.world.nodes)))
        if pairs:
            nodes, requests = np.array(pairs, dtype=np.intp).T
            for request in np.unique(requests):
                counts = np.bincount(nodes[requests == request], minlength=total.shape[1])
                total += np.outer(self.world.shapes.vector(int(request)), counts)
        return total


def _device_ids(written: str, there: int) -> list[int]:
    """The ids in an annotation such as "0,1"; what names no device of the node (a UUID, say) has no name here."""
    words = [word.strip() for word in written.split(",")]
    return sorted({int(word) for word in words if word.isdecimal() and len(word) <= 4 and int(word) < there})


def take_lowest(taken: int, count: int) -> tuple[list[int], int]:
    """The `count` lowest device ids that are not in the bit mask `taken`, and the mask with them."""
    found: list[int] = []
    device = 0
    while len(found) < count:
        if not taken >> device & 1:
            found.append(device)
            taken |= 1 << device
        device += 1
    return found, taken
