"""Which GPUs the pods on nodes hold.

Most pods have an annotation that names their devices. The devices of other pods are known only to the kubelet. Such a
pod is assumed to hold the lowest devices with enough free, after the pods of its node with the annotation.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from maniple.api import kubernetes
from maniple.api.gpu.assignment import parse_assignment, read_assignment
from maniple.api.gpu.requests import WHOLE
from maniple.api.keys import Key, key_of
from maniple.model.gpu.devices import GpuAsk, GpuGrant, GpuTable, Millis
from maniple.model.pod_shape import Shapes
from maniple.model.resources import RequestTable


@dataclass(slots=True, eq=False)
class HeldGpus:
    """The devices of one pod on a node."""

    pod: Key
    node: int
    asks: tuple[GpuAsk, ...]
    named: tuple[tuple[int, ...], ...]  # by ask: the devices in the pod's annotation
    is_leaving: bool
    gpus: tuple[GpuGrant, ...] = ()


class GpuHoldings:
    def __init__(self, tables: Mapping[int, GpuTable], shapes: Shapes, requests: RequestTable) -> None:
        self._tables = tables
        self._shapes = shapes
        self._requests = requests
        self._parsed: dict[tuple[int, str, tuple[str, ...], int], tuple[int, ...]] = {}
        self._granted: dict[object, tuple[GpuGrant, ...]] = {}

    def read(self, pod: kubernetes.Pod, node: int, request: int) -> tuple[HeldGpus | None, int]:
        """The devices of a pod on a node (None: it requested none), and the request that equals what it holds."""
        asks = self._shapes.asks(request)
        if not asks:
            return None, request
        meta = pod.metadata
        assignment = read_assignment(meta.annotations) if meta.annotations else ""
        named = tuple([self._named(node, ask, assignment) for ask in asks]) if assignment else ((),) * len(asks)
        held = HeldGpus(key_of(meta), node, asks, named, meta.deletion_timestamp is not None)
        if asks[0].memory:
            request = self._requests.held(request, self._by_memory(node, asks[0], held))
        return held, request

    def _named(self, node: int, ask: GpuAsk, assignment: str) -> tuple[int, ...]:
        """The devices in an annotation such as "0,1". Ids that the node does not have are ignored."""
        table = self._tables[ask.row]
        key = (ask.row, assignment, table.ids[node], ask.count)
        devices = self._parsed.get(key)
        if devices is None:
            ids = [device.removeprefix(f"{table.resource}/") for device in parse_assignment(assignment)]
            numbers = [table.number_of(node, device) for device in ids]
            devices = tuple(dict.fromkeys(number for number in numbers if number is not None))[: ask.count]
            self._parsed[key] = devices
        return devices

    def _by_memory(self, node: int, ask: GpuAsk, held: HeldGpus) -> int:
        """A request by memory in thousandths of its devices. Without named devices, of the first large enough."""
        milli = self._tables[ask.row].milli_for(ask.memory, np.array([node]))[0]
        if not len(milli):
            return WHOLE * ask.count  # the node has lost its GPUs
        devices = held.named[0] or (int(np.argmax(milli <= WHOLE)),)
        shares = [min(WHOLE, int(milli[device])) for device in devices]
        return sum(shares) + shares[0] * (ask.count - len(shares))

    def all_free(self) -> tuple[dict[int, Millis], dict[int, Millis]]:
        """(free, releasing) by row of the axis, without any pods."""
        free = {row: table.there.astype(np.int32) * WHOLE for row, table in self._tables.items()}
        return free, {row: np.zeros_like(array) for row, array in free.items()}

    def settle(self, pods: Iterable[HeldGpus], free: Mapping[int, Millis], releasing: Mapping[int, Millis]) -> None:
        """Subtracts from `free` what the pods hold, and adds to `releasing` what terminating pods hold.

        `pods` must be all pods of their nodes. For these nodes the arrays must be as `all_free` returns them.
        """
        by_node: dict[tuple[int, int], _NodeGpus] = {}
        unnamed = []
        for pod in pods:
            pod.gpus = ()
            if not any(pod.named):
                unnamed.append(pod)
                continue
            is_named = True
            for ask, named in zip(pod.asks, pod.named, strict=True):
                if named:
                    self._assign(pod, ask, named, self._node_gpus(by_node, ask.row, pod.node))
                is_named &= len(named) >= ask.count
            if not is_named:
                unnamed.append(pod)
        unnamed.sort(key=attrgetter("pod"))
        for pod in unnamed:
            for ask, named in zip(pod.asks, pod.named, strict=True):
                if len(named) < ask.count:
                    node_gpus = by_node.get((ask.row, pod.node)) or self._node_gpus(by_node, ask.row, pod.node)
                    self._assign(pod, ask, _lowest(node_gpus.free, ask, named), node_gpus)
        for row in self._tables:
            nodes = [node for of_row, node in by_node if of_row == row]
            if nodes:
                free[row][nodes] = [by_node[row, node].free for node in nodes]
                releasing[row][nodes] = [by_node[row, node].releasing for node in nodes]

    def _node_gpus(self, by_node: "dict[tuple[int, int], _NodeGpus]", row: int, node: int) -> "_NodeGpus":
        gpus = by_node.get((row, node))
        if gpus is None:
            there = self._tables[row].there[node].tolist()
            gpus = by_node[row, node] = _NodeGpus(there, [WHOLE * is_there for is_there in there], [0] * len(there))
        return gpus

    def _assign(self, pod: HeldGpus, ask: GpuAsk, devices: tuple[int, ...], node_gpus: "_NodeGpus") -> None:
        millis = (ask.milli,) * len(devices)
        if ask.memory:
            shares = self._tables[ask.row].milli_for(ask.memory, np.array([pod.node]))[0].tolist()
            millis = tuple([min(WHOLE, shares[device]) for device in devices])
        there, free, releasing = node_gpus
        for device, milli in zip(devices, millis, strict=True):
            # A pod may still hold a lost or unhealthy device, which no other pod can get.
            if there[device]:
                free[device] -= milli
                if pod.is_leaving:
                    releasing[device] += milli
        key = (pod.gpus, ask.row, devices, millis)
        granted = self._granted.get(key)
        if granted is None:
            more = (GpuGrant(ask.row, device, milli) for device, milli in zip(devices, millis, strict=True))
            granted = self._granted[key] = (*pod.gpus, *more)
        pod.gpus = granted


class _NodeGpus(NamedTuple):
    """The devices of one node while they are assigned to its pods."""

    there: list[bool]
    free: list[int]
    releasing: list[int]


def _lowest(free: Sequence[int], ask: GpuAsk, named: tuple[int, ...]) -> tuple[int, ...]:
    """Devices for what the annotation does not name: the lowest with enough free, then those with the most free."""
    missing = ask.count - len(named)
    if missing == 1 and not named:
        for device, left in enumerate(free):
            if left >= ask.milli:
                return (device,)
    others = [device for device in range(len(free)) if device not in named]
    chosen = [device for device in others if free[device] >= ask.milli][:missing]
    if len(chosen) < missing:
        rest = sorted((device for device in others if device not in chosen), key=lambda device: -free[device])
        chosen += rest[: missing - len(chosen)]
    return tuple(chosen)
