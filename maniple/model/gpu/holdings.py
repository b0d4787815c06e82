"""Which devices the pods on nodes hold.

Most say it in an annotation. One that does not is taken to have the lowest devices with room, once all on its node who
do have theirs: what the kubelet gave it nobody else knows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from maniple.api import kubernetes
from maniple.api.gpu.requests import WHOLE
from maniple.api.labels import GPUS_ANNOTATION
from maniple.model.building.cluster_tables import Frame
from maniple.model.gpu.devices import GpuAsk, Granted, Millis


@dataclass(slots=True, eq=False)
class Hand:
    """Devices of one pod that is on a node."""

    name: tuple[str, str]
    node: int
    asks: tuple[GpuAsk, ...]
    named: tuple[tuple[int, ...], ...]  # for each ask: the devices that the pod's annotation names
    is_leaving: bool
    gpus: tuple[Granted, ...] = ()


class Devices:
    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._tables = frame.gpus.tables
        self._read: dict[tuple[int, str, tuple[str, ...], int], tuple[int, ...]] = {}
        self._granted: dict[object, tuple[Granted, ...]] = {}

    def hand(self, pod: kubernetes.Pod, node: int, request: int) -> tuple[Hand | None, int]:
        """What a pod on a node has in its hands, if it asked for devices; and the request that is what it holds."""
        asks = self._frame.shapes.asks(request)
        if not asks:
            return None, request
        meta = pod.metadata
        written = meta.annotations.get(GPUS_ANNOTATION, "")
        named = tuple([self._named(node, ask, written) for ask in asks]) if written else ((),) * len(asks)
        hand = Hand((meta.namespace, meta.name), node, asks, named, meta.deletion_timestamp is not None)
        if asks[0].memory:
            request = self._frame.requests.held(request, self._by_memory(node, asks[0], hand))
        return hand, request

    def _named(self, node: int, ask: GpuAsk, written: str) -> tuple[int, ...]:
        """The devices in an annotation such as "0,1"; what names no device of the node has no name here."""
        table = self._tables[ask.row]
        key = (ask.row, written, table.ids[node], ask.count)
        found = self._read.get(key)
        if found is None:
            words = [word.strip().removeprefix(f"{table.resource}/") for word in written.split(",")]
            numbers = [table.number_of(node, word) for word in words]
            found = tuple(dict.fromkeys(number for number in numbers if number is not None))[: ask.count]
            self._read[key] = found
        return found

    def _by_memory(self, node: int, ask: GpuAsk, hand: Hand) -> int:
        """Thousandths that a request by memory is on the node; without names, on the first device that holds it."""
        milli = self._tables[ask.row].milli_for(ask.memory, np.array([node]))[0]
        if not len(milli):
            return WHOLE * ask.count  # a node that has lost its GPUs
        devices = hand.named[0] or (int(np.argmax(milli <= WHOLE)),)
        shares = [min(WHOLE, int(milli[device])) for device in devices]
        return sum(shares) + shares[0] * (ask.count - len(shares))

    def all_free(self) -> tuple[dict[int, Millis], dict[int, Millis]]:
        """(free, releasing) by row of the axis, as they are without any pods."""
        free = {row: table.there.astype(np.int32) * WHOLE for row, table in self._tables.items()}
        return free, {row: np.zeros_like(array) for row, array in free.items()}

    def settle(self, hands: Iterable[Hand], free: Mapping[int, Millis], releasing: Mapping[int, Millis]) -> None:
        """Takes from `free` what the hands hold, and adds to `releasing` what those who leave do.

        They must be all hands on their nodes, and the nodes must be as `all_free` has them.
        """
        trays: dict[tuple[int, int], _Tray] = {}
        unnamed = []
        for hand in hands:
            hand.gpus = ()
            is_named = True
            for ask, named in zip(hand.asks, hand.named, strict=True):
                if named:
                    self._give(hand, ask, named, self._tray(trays, ask.row, hand.node))
                is_named &= len(named) >= ask.count
            if not is_named:
                unnamed.append(hand)
        for hand in sorted(unnamed, key=lambda hand: hand.name):
            for ask, named in zip(hand.asks, hand.named, strict=True):
                if len(named) < ask.count:
                    tray = self._tray(trays, ask.row, hand.node)
                    self._give(hand, ask, _lowest(tray.free, ask, named), tray)
        for row in self._tables:
            nodes = [node for of, node in trays if of == row]
            if nodes:
                free[row][nodes] = [trays[row, node].free for node in nodes]
                releasing[row][nodes] = [trays[row, node].releasing for node in nodes]

    def _tray(self, trays: "dict[tuple[int, int], _Tray]", row: int, node: int) -> "_Tray":
        found = trays.get((row, node))
        if found is None:
            there = self._tables[row].there[node].tolist()
            found = trays[row, node] = _Tray(there, [WHOLE * is_there for is_there in there], [0] * len(there))
        return found

    def _give(self, hand: Hand, ask: GpuAsk, devices: Sequence[int], tray: "_Tray") -> None:
        millis = [ask.milli] * len(devices)
        if ask.memory:
            shares = self._tables[ask.row].milli_for(ask.memory, np.array([hand.node]))[0].tolist()
            millis = [min(WHOLE, shares[device]) for device in devices]
        for device, milli in zip(devices, millis, strict=True):
            # Devices that are lost or unhealthy may still be in somebody's hands: nobody else gets them.
            if tray.there[device]:
                tray.free[device] -= milli
                if hand.is_leaving:
                    tray.releasing[device] += milli
        key = (hand.gpus, ask.row, tuple(devices), tuple(millis))
        granted = self._granted.get(key)
        if granted is None:
            more = (Granted(ask.row, device, milli) for device, milli in zip(devices, millis, strict=True))
            granted = self._granted[key] = (*hand.gpus, *more)
        hand.gpus = granted


class _Tray(NamedTuple):
    """The devices of one node while they are handed out."""

    there: list[bool]
    free: list[int]
    releasing: list[int]


def _lowest(left: Sequence[int], ask: GpuAsk, named: tuple[int, ...]) -> list[int]:
    """The lowest devices with room for what is not named, else those with the most left."""
    missing = ask.count - len(named)
    others = [device for device in range(len(left)) if device not in named]
    roomy = [device for device in others if left[device] >= ask.milli][:missing]
    if len(roomy) < missing:
        rest = sorted((device for device in others if device not in roomy), key=lambda device: -left[device])
        roomy += rest[: missing - len(roomy)]
    return roomy
