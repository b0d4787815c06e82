"""Arithmetic on the devices of nodes: which of them a pod takes, and how many pods fit."""

from collections.abc import Mapping, Sequence

import numpy as np

from maniple.api.gpu.requests import WHOLE
from maniple.model.gpu.devices import GpuAsk, Millis
from maniple.model.resources import FloatArray

_FEW = 16  # parts of devices; numpy is faster with more


def subtract(amounts: Millis, parts: Sequence[tuple[int, int, int]]) -> None:
    """Subtracts from `amounts` [N, G]: node, device, and thousandths of it."""
    if len(parts) <= _FEW:
        for node, device, milli in parts:
            amounts[node, device] -= milli
    else:
        nodes, devices, millis = np.array(parts, dtype=np.intp).T
        np.subtract.at(amounts, (nodes, devices), millis)


def devices_in(mask: int) -> list[int]:
    return [device for device in range(mask.bit_length()) if mask >> device & 1]


def leaving_enough(devices: list[int], times: Mapping[int, int], count: int, pods: int) -> list[int]:
    """Reorders `devices` (best first): in front are those that must be taken so that all `pods` find `count` each.

    A device with room for every pod loses one place to this pod, taken or not. So this pod may leave at most as many
    of these devices untaken as there are places to spare.
    """
    roomy = [device for device in devices if times[device] >= pods]
    spare = sum(min(times[device], pods) for device in devices) - count * pods
    first = roomy[: max(0, len(roomy) - spare)]
    return first + [device for device in devices if device not in first]


def in_use_first(free: list[bool], now: list[int], count: int) -> list[bool]:
    """The free devices that a promise takes. A promise names no devices, so it takes those that are still in use and
    leaves the others to pods that can start now.
    """
    in_use = [is_free and left < WHOLE for is_free, left in zip(free, now, strict=True)]
    missing = count - sum(in_use)
    if missing > 0:
        rest = [device for device, is_free in enumerate(free) if is_free and not in_use[device]]
        for device in rest[:missing]:
            in_use[device] = True
    return in_use


def count_pods(ask: GpuAsk, usable: Millis, need: int | Millis) -> FloatArray:
    """How many pods fit on the devices of each row: each pod takes `count` different ones."""
    if ask.is_whole:
        return np.asarray((usable == WHOLE).sum(axis=1) // ask.count, dtype=np.float64)
    times = np.maximum(usable, 0) // need
    if ask.count == 1:
        return np.asarray(times.sum(axis=1), dtype=np.float64)
    # p pods fit if their shares go to different devices: sum of min(p, times) >= count * p.
    low = np.zeros(len(times), dtype=np.intp)
    high = times.sum(axis=1) // ask.count
    while (low < high).any():
        middle = (low + high + 1) // 2
        enough = np.minimum(times, middle[:, None]).sum(axis=1) >= ask.count * middle
        low, high = np.where(enough, middle, low), np.where(enough, high, middle - 1)
    return low.astype(np.float64)
