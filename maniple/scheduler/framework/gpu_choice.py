"""Which devices of a node, and for how many pods: the arithmetic behind GpuRoom, on plain lists and arrays."""

from collections.abc import Mapping

import numpy as np

from maniple.api.gpu.requests import WHOLE
from maniple.model.gpu.devices import GpuAsk, Millis
from maniple.model.resources import FloatArray


def leaving_enough(devices: list[int], times: Mapping[int, int], count: int, pods: int) -> list[int]:
    """`devices`, best first, with those in front that must be taken so that all `pods` find `count` different ones.

    A device with room for every pod loses a place to this one in any case, taken or not. So of those there may be left
    untaken no more than there are places to spare.
    """
    roomy = [device for device in devices if times[device] >= pods]
    spare = sum(min(times[device], pods) for device in devices) - count * pods
    first = roomy[: max(0, len(roomy) - spare)]
    return first + [device for device in devices if device not in first]


def in_use_first(free: list[bool], now: list[int], count: int) -> list[bool]:
    """Of the free devices those that a promise takes. It does not say which they are, so it takes those that are still
    in use, and leaves to others what they can have now.
    """
    in_use = [is_free and left < WHOLE for is_free, left in zip(free, now, strict=True)]
    missing = count - sum(in_use)
    if missing > 0:
        rest = [at for at, is_free in enumerate(free) if is_free and not in_use[at]]
        for at in rest[:missing]:
            in_use[at] = True
    return in_use


def count_pods(ask: GpuAsk, usable: Millis, need: int | Millis) -> FloatArray:
    """How many pods fit on the devices of each row: each pod takes `count` different ones."""
    if ask.is_whole:
        return np.asarray((usable == WHOLE).sum(axis=1) // ask.count, dtype=np.float64)
    times = np.maximum(usable, 0) // need
    if ask.count == 1:
        return np.asarray(times.sum(axis=1), dtype=np.float64)
    # p pods fit if their shares can be dealt to different devices: sum of min(p, times) >= count * p.
    low = np.zeros(len(times), dtype=np.intp)
    high = times.sum(axis=1) // ask.count
    while (low < high).any():
        middle = (low + high + 1) // 2
        enough = np.minimum(times, middle[:, None]).sum(axis=1) >= ask.count * middle
        low, high = np.where(enough, middle, low), np.where(enough, high, middle - 1)
    return low.astype(np.float64)
