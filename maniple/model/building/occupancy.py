"""Pods on nodes: what they use, whose they are, which ports and neighbours they have, and what is leaving.

A hundred thousand pods pass through `place`: a handful of dictionary look-ups each; the arithmetic is left to numpy.
"""

from collections.abc import Mapping
from math import inf

import numpy as np

from maniple.api import kubernetes
from maniple.api.labels import BACKFILL_ANNOTATION
from maniple.api.types import GpuModel
from maniple.model.building.job_builder import JobMaker
from maniple.model.gpu.devices import Millis
from maniple.model.gpu.holdings import Devices, Hand
from maniple.model.job import Job, PlacedPod
from maniple.model.pod_affinity import Peers
from maniple.model.pod_identity import lasts_s, pod_owner, pod_role
from maniple.model.priority import is_critical
from maniple.model.resources import FloatArray
from maniple.model.shape import Exclusive, exclusives_of


class Occupancy:
    def __init__(self, maker: JobMaker, owners: set[str]) -> None:
        self.maker = maker
        self.frame = maker.frame
        self.exclusives: dict[int, list[Exclusive]] = {}
        self.owners: dict[str, dict[int, int]] = {owner: {} for owner in owners}
        self.peers: dict[tuple[Peers, int], int] = {}
        self._staying: list[tuple[int, int]] = []  # (node, request)
        self._leaving: list[tuple[int, int]] = []
        self._foreign: list[tuple[int, int]] = []
        self._by_queue: dict[tuple[int, int], int] = {}
        self._devices = Devices(self.frame)
        self._hands: list[tuple[Hand, PlacedPod | None]] = []
        self.gpu_requests: dict[tuple[int, tuple[GpuModel, ...]], int] = {}  # (request, models) of pods with GPUs

    def place(self, pod: kubernetes.Pod, request: int, job: Job | None) -> None:
        """`pod` is on a node, and not over; `job`: the one that it belongs to, if it belongs to any of ours."""
        node = self.frame.nodes.index.get(pod.spec.node_name, -1)
        hand, held = self._devices.hand(pod, node, request) if node >= 0 else (None, request)
        peers = self._occupy(pod, node, held) if node >= 0 else None
        if job is None or pod.metadata.deletion_timestamp is not None:
            self.maker.started(pod)
            if node >= 0:
                (self._foreign if pod.metadata.deletion_timestamp is None else self._leaving).append((node, held))
            if hand is not None:
                self._hands.append((hand, None))
            return
        vector = self.frame.shapes.vector(held)
        placed = placed_pod(self.maker, pod, job, node, vector, peers)
        if hand is not None:
            self._hands.append((hand, placed))
            placed.gpu_models = models = self.maker.models_of(pod, job)
            self.gpu_requests[request, models] = self.gpu_requests.get((request, models), 0) + 1
        join(job, placed)
        key = (job.queue, held)
        self._by_queue[key] = self._by_queue.get(key, 0) + 1

    def _occupy(self, pod: kubernetes.Pod, node: int, request: int) -> Peers | None:
        self._staying.append((node, request))
        held = exclusives_of(pod.spec)
        if held:
            self.exclusives.setdefault(node, []).extend(held)
        if self.owners:
            counts = self.owners.get(pod_owner(pod.metadata))
            if counts is not None:
                counts[node] = counts.get(node, 0) + 1
        if not self.frame.reader.anyone:
            return None
        peers = self.frame.reader.read(pod)
        self.peers[peers, node] = self.peers.get((peers, node), 0) + 1
        return peers

    def gpus(self) -> tuple[Mapping[int, Millis], Mapping[int, Millis]]:
        """What of each device is free, and what leaving pods will give back, by row of the axis."""
        free, releasing = self._devices.all_free()
        self._devices.settle([hand for hand, _ in self._hands], free, releasing)
        for hand, placed in self._hands:
            if placed is not None:
                placed.gpus = hand.gpus
        return free, releasing

    def sums(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        queue_allocated = np.zeros((len(self.frame.queues), len(self.frame.axis)))
        for (queue, request), count in self._by_queue.items():
            queue_allocated[queue] += count * self.frame.shapes.vector(request)
        return self._sum(self._staying), self._sum(self._leaving), self._sum(self._foreign), queue_allocated

    def _sum(self, pairs: list[tuple[int, int]]) -> FloatArray:
        """Requests summed by node: one count per distinct request, whatever the number of pods."""
        total = np.zeros((len(self.frame.axis), len(self.frame.nodes)))
        if pairs:
            nodes, requests = np.array(pairs, dtype=np.intp).T
            for request in np.unique(requests):
                counts = np.bincount(nodes[requests == request], minlength=total.shape[1])
                total += np.outer(self.frame.shapes.vector(int(request)), counts)
        return total


def placed_pod(
    maker: JobMaker, pod: kubernetes.Pod, job: Job, node: int, vector: FloatArray, peers: Peers | None
) -> PlacedPod:
    meta = pod.metadata
    started = maker.started(pod)
    return PlacedPod(
        pod=f"{meta.namespace}/{meta.name}",
        node=node,
        role=pod_role(meta),
        priority=job.priority if job.key[1] == "Pod" else maker.pod_priority(pod),
        requests=vector,
        peers=peers,
        started=started,
        is_critical=is_critical(pod),
        labels=meta.labels,
        ends=inf if pod.spec.active_deadline_seconds is None else started + lasts_s(pod),
        makes_way_for=meta.annotations.get(BACKFILL_ANNOTATION, "") if meta.annotations else "",
        is_ours=maker.frame.ours.claims(pod),
    )


def join(job: Job, pod: PlacedPod) -> None:
    """The pod is one of those that the job has on nodes."""
    job.placed.append(pod)
    job.placed_by_role[pod.role] = job.placed_by_role.get(pod.role, 0) + 1
    job.allocated = pod.requests if job.allocated is None else job.allocated + pod.requests


def count_succeeded(job: Job, pod: kubernetes.Pod) -> None:
    role = pod_role(pod.metadata)
    job.succeeded += 1
    job.succeeded_by_role[role] = job.succeeded_by_role.get(role, 0) + 1
