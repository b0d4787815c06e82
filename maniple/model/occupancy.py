"""Pods on nodes: what they use, whose they are, which devices, ports and neighbours they have, and what is leaving.

A hundred thousand pods pass through `place`: a handful of dictionary look-ups each; the arithmetic is left to numpy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol

import numpy as np

from maniple.api import core, types
from maniple.api.gpuwish import WHOLE
from maniple.api.types import GpuModel
from maniple.model.devices import GpuAsk, Gpus, Granted, Millis
from maniple.model.job import Job, PlacedPod, Queue
from maniple.model.nodes import NodeTable
from maniple.model.peers import PeerReader, Peers
from maniple.model.podinfo import group_name, lasts_s, pod_owner, pod_role
from maniple.model.priority import is_critical
from maniple.model.resources import Axis, FloatArray, RequestTable
from maniple.model.shape import Exclusive, Shapes, exclusives_of


class World(Protocol):
    """What has to be known already to put pods on nodes."""

    axis: Axis
    nodes: NodeTable
    gpus: Gpus
    requests: RequestTable
    shapes: Shapes
    reader: PeerReader
    queues: list[Queue]

    def is_ours(self, pod: core.Pod) -> bool: ...

    def job_of(self, pod: core.Pod) -> Job | None: ...

    def pod_priority(self, pod: core.Pod) -> int: ...

    def started(self, pod: core.Pod) -> float: ...

    def models_of(self, pod: core.Pod, job: Job) -> tuple[GpuModel, ...]: ...


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
        self._held = Held(world.gpus)
        self.gpu_requests: dict[tuple[int, tuple[GpuModel, ...]], int] = {}  # (request, models) of pods with GPUs

    def place(self, pod: core.Pod, request: int) -> None:
        world, meta = self.world, pod.metadata
        if pod.status.phase in ("Succeeded", "Failed"):
            self._count_finished(pod)
            return
        node = world.nodes.index.get(pod.spec.node_name, -1)
        job = world.job_of(pod)
        started = world.started(pod)
        hand: Hand | None = None
        asked = request
        if node >= 0:
            asks = world.shapes.asks(request)
            if asks:
                name = (meta.namespace, meta.name)
                hand = self._held.take(name, node, asks, meta.annotations.get(types.GPUS_ANNOTATION, ""))
                if asks[0].memory:
                    request = world.requests.held(request, self._held.by_memory(node, asks[0], hand))
            self._occupy(pod, node, request)
        if meta.deletion_timestamp is not None:
            if node >= 0:
                self._leaving.append((node, request))
                if hand is not None:
                    hand.is_leaving = True
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
                started=started,
                is_critical=is_critical(pod),
                labels=meta.labels,
                ends=inf if pod.spec.active_deadline_seconds is None else started + lasts_s(pod),
                makes_way_for=meta.annotations.get(types.BACKFILL_ANNOTATION, "") if meta.annotations else "",
                is_ours=world.is_ours(pod),
            )
        )
        if hand is not None:
            hand.pod = job.placed[-1]
            hand.pod.gpu_models = models = world.models_of(pod, job)
            self.gpu_requests[asked, models] = self.gpu_requests.get((asked, models), 0) + 1
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

    def gpus(self) -> tuple[Mapping[int, Millis], Mapping[int, Millis]]:
        """What of each device is free, and what leaving pods will give back, by row of the axis."""
        return self._held.settle()

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


def end_with(job: Job) -> None:
    """A job that says how long it takes ends with all its pods."""
    if job.placed and job.lasts_s != inf:
        end = min(pod.started for pod in job.placed) + job.lasts_s
        for pod in job.placed:
            pod.ends = min(pod.ends, end)


@dataclass(slots=True, eq=False)
class Hand:
    """Devices of one pod that is on a node."""

    name: tuple[str, str]
    node: int
    asks: tuple[GpuAsk, ...]
    named: tuple[tuple[int, ...], ...]  # for each ask: the devices that the pod's annotation names
    pod: PlacedPod | None = None
    is_leaving: bool = False


class Held:
    """Which devices placed pods hold.

    Most say it in an annotation. One that does not is taken to have the lowest devices with room, once all who do
    have theirs: what the kubelet gave it nobody else knows.
    """

    def __init__(self, gpus: Gpus) -> None:
        self._gpus = gpus
        self._hands: list[Hand] = []
        self._read: dict[tuple[int, str, tuple[str, ...], int], tuple[int, ...]] = {}
        self._granted: dict[tuple[Granted, ...], tuple[Granted, ...]] = {}

    def take(self, name: tuple[str, str], node: int, asks: tuple[GpuAsk, ...], written: str) -> Hand:
        named = tuple(self._named(node, ask, written) for ask in asks) if written else ((),) * len(asks)
        hand = Hand(name, node, asks, named)
        self._hands.append(hand)
        return hand

    def _named(self, node: int, ask: GpuAsk, written: str) -> tuple[int, ...]:
        """The devices in an annotation such as "0,1"; what names no device of the node has no name here."""
        table = self._gpus.tables[ask.row]
        key = (ask.row, written, table.ids[node], ask.count)
        found = self._read.get(key)
        if found is None:
            words = [word.strip().removeprefix(f"{table.resource}/") for word in written.split(",")]
            numbers = [table.number_of(node, word) for word in words]
            found = tuple(dict.fromkeys(number for number in numbers if number is not None))[: ask.count]
            self._read[key] = found
        return found

    def by_memory(self, node: int, ask: GpuAsk, hand: Hand) -> int:
        """Thousandths that a request by memory is on the node; without names, on the first device that holds it."""
        milli = self._gpus.tables[ask.row].milli_for(ask.memory, np.array([node]))[0]
        if not len(milli):
            return WHOLE * ask.count  # a node that has lost its GPUs
        devices = hand.named[0] or (int(np.argmax(milli <= WHOLE)),)
        shares = [min(WHOLE, int(milli[device])) for device in devices]
        return sum(shares) + shares[0] * (ask.count - len(shares))

    def settle(self) -> tuple[Mapping[int, Millis], Mapping[int, Millis]]:
        free = {row: table.there.astype(np.int32) * WHOLE for row, table in self._gpus.tables.items()}
        releasing = {row: np.zeros_like(array) for row, array in free.items()}
        # Devices that are lost or unhealthy may still be in somebody's hands: nobody else gets them, so nothing counts.
        for hand in self._hands:
            for ask, named in zip(hand.asks, hand.named, strict=True):
                if named:
                    self._give(hand, ask, named, free, releasing)
        rows: dict[tuple[int, int], list[int]] = {}
        unnamed = [
            hand for hand in self._hands if any(len(n) < a.count for n, a in zip(hand.named, hand.asks, strict=True))
        ]
        for hand in sorted(unnamed, key=lambda hand: hand.name):
            for ask, named in zip(hand.asks, hand.named, strict=True):
                if len(named) < ask.count:
                    left = rows.get((ask.row, hand.node))
                    if left is None:
                        left = rows[ask.row, hand.node] = free[ask.row][hand.node].tolist()
                    self._give(hand, ask, _lowest(left, ask, named), free, releasing, left)
        return free, releasing

    def _give(
        self,
        hand: Hand,
        ask: GpuAsk,
        devices: Sequence[int],
        free: Mapping[int, Millis],
        releasing: Mapping[int, Millis],
        left: list[int] | None = None,
    ) -> None:
        table = self._gpus.tables[ask.row]
        granted = []
        for device in devices:
            milli = ask.milli
            if ask.memory:
                milli = min(WHOLE, int(table.milli_for(ask.memory, np.array([hand.node]))[0, device]))
            if table.there[hand.node, device]:
                free[ask.row][hand.node, device] -= milli
                if left is not None:
                    left[device] -= milli
                if hand.is_leaving:
                    releasing[ask.row][hand.node, device] += milli
            granted.append(Granted(ask.row, device, milli))
        if hand.pod is not None:
            key = (*hand.pod.gpus, *granted)
            hand.pod.gpus = self._granted.setdefault(key, key)


def _lowest(left: Sequence[int], ask: GpuAsk, named: tuple[int, ...]) -> list[int]:
    """The lowest devices with room for what is not named, else those with the most left."""
    missing = ask.count - len(named)
    others = [device for device in range(len(left)) if device not in named]
    roomy = [device for device in others if left[device] >= ask.milli][:missing]
    if len(roomy) < missing:
        rest = sorted((device for device in others if device not in roomy), key=lambda device: -left[device])
        roomy += rest[: missing - len(roomy)]
    return roomy
