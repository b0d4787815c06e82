"""Which GPUs the pods on nodes hold.

Most pods have an annotation that names their devices. The devices of other pods are known only to the kubelet. Such a
pod is assumed to hold the lowest devices with enough free, after the pods of its node with the annotation.
"""

from collections.abc import Mapping, Sequence
from operator import attrgetter

import msgspec
import numpy as np

from maniple.api import kubernetes
from maniple.api.gpu.assignment import parse_assignment, read_assignment
from maniple.api.gpu.requests import WHOLE
from maniple.api.keys import Key, key_of
from maniple.model.gpu.devices import GpuAsk, GpuGrant, GpuTable, Millis
from maniple.model.pod_requests import RequestTable
from maniple.model.pod_shape import Shapes


class HeldGpus(msgspec.Struct, eq=False):  # created several times faster than a dataclass
    """The devices of one pod on a node."""

    pod: Key
    request: int
    named: tuple[tuple[int, ...], ...]  # by ask: the devices in the pod's annotation
    makes_room: bool  # it is leaving, and not stuck
    gpus: tuple[GpuGrant, ...] = ()


class GpuHoldings:
    def __init__(self, tables: Mapping[int, GpuTable], shapes: Shapes, requests: RequestTable) -> None:
        self._tables = tables
        self._shapes = shapes
        self._requests = requests
        self._parsed: dict[tuple[int, str, tuple[str, ...], int], tuple[int, ...]] = {}
        self._granted: dict[object, tuple[GpuGrant, ...]] = {}  # one object for equal ones

    def read(self, pod: kubernetes.Pod, node: int, request: int) -> tuple[HeldGpus | None, int]:
        """The devices of a pod on a node (None: it requested none), and the request that equals what it holds."""
        asks = self._shapes.asks(request)
        if not asks:
            return None, request
        meta = pod.metadata
        assignment = read_assignment(meta.annotations) if meta.annotations else ""
        named = tuple([self._named(node, ask, assignment) for ask in asks]) if assignment else ((),) * len(asks)
        held = HeldGpus(key_of(meta), request, named, meta.deletion_timestamp is not None)
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

    def settle(
        self, by_node: Mapping[int, list[HeldGpus]], free: Mapping[int, Millis], releasing: Mapping[int, Millis]
    ) -> None:
        """Subtracts from `free` what the pods hold, and adds to `releasing` what those hold that make room.

        `by_node`: all pods of each node. For these nodes the arrays must be as `all_free` returns them.
        """
        settled: dict[object, tuple[int, _NodeGpus]] = {}  # equal pods on equal nodes hold equal devices
        nodes: list[int] = []
        numbers: list[int] = []
        tables = list(self._tables.values())
        for node, pods in by_node.items():
            if not pods:
                continue
            if len(pods) > 1:
                pods.sort(key=attrgetter("pod"))
            content = (
                *[table.kind[node] for table in tables],
                *[(pod.request, pod.named, pod.makes_room) for pod in pods],
            )
            if content not in settled:
                settled[content] = len(settled), self._settle(node, pods)
            number, gpus = settled[content]
            for pod, granted in zip(pods, gpus.granted, strict=True):
                pod.gpus = granted
            nodes.append(node)
            numbers.append(number)
        for row in self._tables if nodes else ():
            free[row][nodes] = np.array([gpus.free[row] for _, gpus in settled.values()])[numbers]
            releasing[row][nodes] = np.array([gpus.releasing[row] for _, gpus in settled.values()])[numbers]

    def _settle(self, node: int, pods: Sequence[HeldGpus]) -> "_NodeGpus":
        gpus = _NodeGpus(self._tables, node)
        granted: list[tuple[GpuGrant, ...]] = [()] * len(pods)
        unnamed: list[tuple[int, GpuAsk, tuple[int, ...]]] = []
        for number, pod in enumerate(pods):
            for ask, named in zip(self._shapes.asks(pod.request), pod.named, strict=True):
                if named:
                    millis = gpus.assign(ask, named, pod.makes_room)
                    granted[number] = self._with_grants(granted[number], ask.row, named, millis)
                if len(named) < ask.count:
                    unnamed.append((number, ask, named))
        for number, ask, named in unnamed:
            devices = _lowest(gpus.free[ask.row], ask, named)
            millis = gpus.assign(ask, devices, pods[number].makes_room)
            granted[number] = self._with_grants(granted[number], ask.row, devices, millis)
        gpus.granted = granted
        return gpus

    def _with_grants(
        self, before: tuple[GpuGrant, ...], row: int, devices: tuple[int, ...], millis: tuple[int, ...]
    ) -> tuple[GpuGrant, ...]:
        key = (before, row, devices, millis)
        granted = self._granted.get(key)
        if granted is None:
            grants = [GpuGrant(row, device, milli) for device, milli in zip(devices, millis, strict=True)]
            granted = self._granted[key] = (*before, *grants)
        return granted


class _NodeGpus:
    """The devices of one node while they are assigned to its pods, by row of the axis."""

    def __init__(self, tables: Mapping[int, GpuTable], node: int) -> None:
        self._tables = tables
        self._node = node
        self._there: dict[int, list[bool]] = {}
        self.free: dict[int, list[int]] = {}
        self.releasing: dict[int, list[int]] = {}
        for row, table in tables.items():
            there = self._there[row] = table.there[node].tolist()
            self.free[row] = [WHOLE * is_there for is_there in there]
            self.releasing[row] = [0] * len(there)
        self.granted: list[tuple[GpuGrant, ...]] = []  # by pod

    def assign(self, ask: GpuAsk, devices: tuple[int, ...], makes_room: bool) -> tuple[int, ...]:
        """Returns the thousandths of each device."""
        there, free, releasing = self._there[ask.row], self.free[ask.row], self.releasing[ask.row]
        millis = (ask.milli,) * len(devices)
        if ask.memory:
            shares = self._tables[ask.row].milli_for(ask.memory, np.array([self._node]))[0].tolist()
            millis = tuple([min(WHOLE, shares[device]) for device in devices])
        for device, milli in zip(devices, millis, strict=True):
            # A pod may still hold a lost or unhealthy device, which no other pod can get.
            if there[device]:
                free[device] -= milli
                if makes_room:
                    releasing[device] += milli
        return millis


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
        rest = [device for device in others if device not in chosen]
        rest.sort(key=free.__getitem__, reverse=True)
        chosen += rest[: missing - len(chosen)]
    return tuple(chosen)
