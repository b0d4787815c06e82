"""GPU fragmentation: how much of a node's free GPU capacity future pods cannot use. It packs shares and saves CPU.

`fragmentation` is a potential, in ten-thousandths of a GPU. The cost of a pod on a node is the potential with the pod
minus the potential without it. The node with the least cost is chosen. The potential has two parts.

Waste: 190 free thousandths of a device are useless if all pods request 320. The value of a remainder follows from the
best way to cut devices into the requested shares: the prices in the solution of a cutting-stock problem. Two pods of
470 share a device, one of 320 joins a 650 and not a 470, and one of 160 fills the rest of an 810.

Starvation: free GPUs are useless without CPU and memory. For each typical pod, it is how much of the free GPU capacity
such pods could not use, given the node's free CPU and memory. Pods that need little CPU for their GPUs therefore go
where CPU is short. Pods that need much CPU, or no GPU, go where it is plentiful.

All terms are whole numbers (in float64): sums are exact, and equal nodes have equal scores on every machine. The mix is
learned only from pods that have arrived.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from maniple.model.resources import BoolArray, FloatArray

WHOLE = 1000
# A remainder is worth less than its price, because the pods that fit it may not come. Between equal prices this prefers
# filling a device in use to opening a free one.
_TRUST = 0.95
# Waste is certain. Starvation is a guess about the mix of pods that a node will get.
_WASTE_WEIGHT = 10
# Rare pods add little information and cost time. But few pods may be much of the demand, so both are covered.
_COVERED = 0.95
_MOST_TYPICAL = 256
_MOST_SIZES = 64
_MOST_PIVOTS = 500
_SUM_OF_WEIGHTS = 2**20

Millis = NDArray[np.int32]


class PodRequests(NamedTuple):
    """What a pod requests. CPU and memory are in the units of the nodes' free CPU and memory."""

    cpu: float
    memory: float
    gpus: int
    milli: int  # of each GPU
    models: tuple[bool, ...] | None = None  # by model code: whether it may run there; None: on any model


@dataclass(frozen=True, eq=False, slots=True)
class Mix:
    """The typical pods [T], and the value of a device to them by its free thousandths [0..1000]."""

    cpu: FloatArray
    memory: FloatArray
    by_cpu: FloatArray  # GPU thousandths used per unit of CPU
    by_memory: FloatArray
    free_of_cpu: FloatArray  # infinite where the pod requests no CPU, else 0
    free_of_memory: FloatArray
    gpus: FloatArray
    several: NDArray[np.intp]  # the typical pods with more than one GPU
    allowed: (
        BoolArray | None
    )  # [models + 2, T]; the last two rows: nodes of several models (-2) and of an unknown model (-1)
    weight: FloatArray  # whole numbers
    worth: FloatArray

    @property
    def is_empty(self) -> bool:
        return not len(self.cpu)


def learn(counts: Mapping[PodRequests, int], models: int = 0) -> Mix:
    """The mix of pods seen so far. `models`: the number of GPU model codes."""
    kinds = sorted(((kind, n) for kind, n in counts.items() if n > 0 and kind.gpus), key=_common_first)
    sizes: dict[int, int] = {}
    for kind, n in kinds:
        if kind.milli < WHOLE:
            sizes[kind.milli] = sizes.get(kind.milli, 0) + n * kind.gpus
    worth = np.floor(_TRUST * WHOLE * share_prices(sizes) + 1e-6)
    worth[WHOLE] = WHOLE
    typical = _typical(kinds)
    cpu, memory, gpus, milli = (np.array([kind[field] for kind, _ in typical], dtype=np.float64) for field in range(4))
    # Between the number of pods and their demand in GPUs. By number, whole nodes that large pods need would be broken
    # up. By demand, whole nodes would be kept for large pods while small pods wait.
    share = np.array([n for _, n in typical], dtype=np.float64) * np.sqrt(gpus)
    weight = np.floor(share / max(share.sum(), 1) * _SUM_OF_WEIGHTS)
    allowed = None
    if any(kind.models is not None for kind, _ in typical):
        allowed = np.ones((models + 2, len(typical)), dtype=np.bool_)
        for column, (kind, _) in enumerate(typical):
            if kind.models is not None:
                allowed[:models, column] = kind.models
                allowed[models:, column] = False
    return Mix(
        cpu=cpu,
        memory=memory,
        by_cpu=np.divide(gpus * milli, cpu, out=np.zeros_like(cpu), where=cpu > 0),
        by_memory=np.divide(gpus * milli, memory, out=np.zeros_like(cpu), where=memory > 0),
        free_of_cpu=np.where(cpu > 0, 0.0, np.inf),
        free_of_memory=np.where(memory > 0, 0.0, np.inf),
        gpus=gpus,
        several=np.flatnonzero(gpus > 1),
        allowed=allowed,
        weight=weight,
        worth=worth,
    )


def fragmentation(
    mix: Mix, cpu: FloatArray, memory: FloatArray, gpu: Millis, model: NDArray[np.integer] | None = None
) -> FloatArray:
    """The potential of each node [n], from its free CPU and memory [n], devices [n, G] and model code [n].

    `gpu`: free thousandths of each device, 0 where there is no device. `model`: -1 if unknown, -2 for several models.
    """
    free = gpu.sum(axis=1, dtype=np.float64)
    worth = mix.worth[gpu].sum(axis=1)
    waste = free - worth
    if mix.is_empty:
        return np.asarray(waste * _WASTE_WEIGHT)
    usable = cpu[:, None] * mix.by_cpu + mix.free_of_cpu
    np.minimum(usable, memory[:, None] * mix.by_memory + mix.free_of_memory, out=usable)
    np.minimum(usable, worth[:, None], out=usable)
    if len(mix.several):
        count = mix.gpus[mix.several]
        groups = np.floor((gpu == WHOLE).sum(axis=1)[:, None] / count)
        usable[:, mix.several] = np.minimum(usable[:, mix.several], groups * (count * WHOLE))
    fits = (cpu[:, None] >= mix.cpu) & (memory[:, None] >= mix.memory)
    if mix.allowed is not None and model is not None:
        fits &= mix.allowed[model]
    np.floor(usable, out=usable)
    usable *= fits
    starved = free * (mix.weight.sum() / _SUM_OF_WEIGHTS) - usable @ mix.weight / _SUM_OF_WEIGHTS
    return np.asarray(waste * _WASTE_WEIGHT + starved)


def choose_devices(mix: Mix, gpu: Millis, count: int, milli: int | Millis) -> BoolArray:
    """[n, G] the `count` devices of each node that cost least. None on a node where fewer have `milli` free.

    `milli` may differ by device [n, G]. Among equal devices the one with the least free is chosen, then the first.
    Links are ignored: whole devices are chosen by links elsewhere.
    """
    enough = gpu >= milli
    left = np.where(enough, gpu - milli, 0)
    cost = np.where(enough, (mix.worth[gpu] - mix.worth[left]) * (2 * WHOLE) + gpu, np.inf)
    chosen = np.zeros(gpu.shape, dtype=np.bool_)
    if count == 1:
        np.put_along_axis(chosen, cost.argmin(axis=1)[:, None], True, axis=1)
    else:
        np.put_along_axis(chosen, np.argsort(cost, axis=1, kind="stable")[:, :count], True, axis=1)
    return np.asarray(chosen & (enough.sum(axis=1) >= count)[:, None])


def share_prices(sizes: Mapping[int, int]) -> FloatArray:
    """The value of 0..1000 free thousandths of a device, in whole devices, to shares of these sizes (size → number).

    Column generation (Gilmore and Gomory) finds the fewest devices that hold all shares. It starts with devices cut
    into equal shares. It prices each share by its cost in devices, looks for a cut that is worth more than a device at
    these prices, and replaces a cut in use by it. It stops when there is no such cut. The value of a remainder is then
    the best cut that fits it. Each step lowers the cost, because the numbers are perturbed so that no step is empty.
    After 500 steps it stops in any case, with prices near the best.
    """
    common = sorted(sizes, key=lambda size: (-size * sizes[size], size))[:_MOST_SIZES]
    size = np.array(sorted(common, reverse=True), dtype=np.intp)
    number = np.array([sizes[int(s)] for s in size], dtype=np.float64)
    if not len(size):
        return np.where(np.arange(WHOLE + 1) == WHOLE, 1.0, 0.0)
    number = number / number.sum() + 1e-7 * np.arange(1, len(size) + 1) / len(size)
    cuts = np.diag((WHOLE // size).astype(np.float64))  # a column is a cut: how many shares of each size
    cost = np.ones(len(size))
    price = np.zeros(len(size))
    for _ in range(_MOST_PIVOTS):
        inverse = np.linalg.inv(cuts)
        price = cost @ inverse
        cheapest = int(price.argmin())
        if price[cheapest] < -1e-9:  # a surplus of shares of that size is allowed
            cut, cut_cost = -np.eye(len(size))[cheapest], 0.0
        else:
            price = np.maximum(price, 0.0)
            best = _best_cuts(size, price)
            if best[WHOLE] <= 1 + 1e-9:
                break
            cut, cut_cost = _cut_of(size, price, best), 1.0
        change = inverse @ cut
        steps = np.divide(inverse @ number, change, out=np.full(len(size), np.inf), where=change > 1e-9)
        leaving = int(steps.argmin())
        cuts[:, leaving], cost[leaving] = cut, cut_cost
    worth = np.minimum(_best_cuts(size, np.maximum(price, 0.0)), 1.0)
    worth[WHOLE] = 1.0
    return worth


def _best_cuts(size: NDArray[np.intp], price: FloatArray) -> FloatArray:
    """[0..1000] the most that shares at these prices are worth on that many free thousandths: an unbounded knapsack."""
    best = np.zeros(WHOLE + 1)
    for share, worth in zip(size.tolist(), price.tolist(), strict=True):
        times = 1
        while worth > 0 and share * times <= WHOLE:  # powers of two: every number is a sum of them
            milli = share * times
            np.maximum(best[milli:], best[: WHOLE + 1 - milli] + worth * times, out=best[milli:])
            times *= 2
    return best


def _cut_of(size: NDArray[np.intp], price: FloatArray, best: FloatArray) -> FloatArray:
    """The cut of a whole device that is worth `best`."""
    cut = np.zeros(len(size))
    free = WHOLE
    while best[free] > 1e-12:
        fitting = np.flatnonzero((size <= free) & (price > 0))
        optimal = fitting[best[free - size[fitting]] + price[fitting] >= best[free] - 1e-10]
        if len(optimal):
            cut[optimal[0]] += 1
            free -= int(size[optimal[0]])
        else:  # the last thousandths are worth nothing
            free = min(int(np.searchsorted(best, best[free] - 1e-12)), free - 1)
    return cut


def _common_first(item: tuple[PodRequests, int]) -> tuple[int, tuple[float, float, int, int], tuple[bool, ...]]:
    kind, n = item
    return -n, kind[:4], kind.models or ()


def _typical(kinds: list[tuple[PodRequests, int]]) -> list[tuple[PodRequests, int]]:
    """The most common kinds, and the kinds with the most demand, until each of both covers 95%."""
    chosen: set[PodRequests] = set()
    for amounts in ([n for _, n in kinds], [n * kind.gpus * kind.milli for kind, n in kinds]):
        missing = _COVERED * sum(amounts)
        for index in np.argsort([-amount for amount in amounts], kind="stable")[:_MOST_TYPICAL]:
            if missing <= 0:
                break
            chosen.add(kinds[index][0])
            missing -= amounts[index]
    return [item for item in kinds if item[0] in chosen]
