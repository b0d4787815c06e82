"""How much of a node's free GPU is worth little to the pods to come: the score that packs shares and spares CPU.

`fragmentation` is a potential, in ten-thousandths of a GPU: what a pod costs on a node is the potential after it less
the potential before it, and the node with the least increase is taken. It has two parts.

Waste: a device of which 190 thousandths are free is of no use where everybody asks for 320. What a remainder is worth
follows from the best way of cutting devices into the shares that are asked for (a cutting-stock problem; the prices of
its solution). So two 470s go together, a 320 goes with the 650 and not with the 470, and a 160 fills what an 810 left.

Starvation: free GPUs are of no use without CPU and memory to feed them. For each typical pod: how much of the free GPU
could pods like it use, given what else the node has? So pods that need little CPU for their GPU go where it is
short, and those that need much, or no GPU at all, go where it is plentiful.

All terms are whole numbers (in float64), so that sums are exact and equal nodes score equal on every machine. Nothing
here knows what is to come: a mix is learnt from pods that have arrived.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from maniple.model.resources import BoolArray, FloatArray

WHOLE = 1000
# A remainder is worth less than its price: whether the right pods come is not sure. It also decides between equal
# prices: to fill a device that is open comes before opening one.
_TRUST = 0.95
# Waste is certain, starvation is a guess about the mix of pods that one node will get.
_WASTE_WEIGHT = 10
# The rarest pods say little and cost time; but few pods may be much of the demand, so both are covered.
_COVERED = 0.95
_MOST_TYPICAL = 256
_MOST_SIZES = 64
_MOST_PIVOTS = 500
_SUM_OF_WEIGHTS = 2**20

Millis = NDArray[np.int32]


class Kind(NamedTuple):
    """What a pod asks for, as far as it matters here. CPU and memory in the units of the nodes' free CPU and memory."""

    cpu: float
    memory: float
    gpus: int
    milli: int  # of each GPU
    models: tuple[bool, ...] | None = None  # by code of the model: may it run there; None: on any


@dataclass(frozen=True, eq=False, slots=True)
class Mix:
    """The pods that are typical [T], and what a device is worth to them by its free thousandths [0..1000]."""

    cpu: FloatArray
    memory: FloatArray
    by_cpu: FloatArray  # GPU thousandths used with a unit of CPU
    by_memory: FloatArray
    free_of_cpu: FloatArray  # infinite where the pod asks for none, else 0
    free_of_memory: FloatArray
    gpus: FloatArray
    several: NDArray[np.intp]  # which ask for more than one GPU
    allowed: BoolArray | None  # [models + 2, T]; the last two for nodes of several models (-2) and of none known (-1)
    weight: FloatArray  # whole numbers
    worth: FloatArray

    @property
    def is_empty(self) -> bool:
        return not len(self.cpu)


def learn(counts: Mapping[Kind, int], models: int = 0) -> Mix:
    """The mix of pods seen so far; `models` is how many codes of GPU models there are."""
    kinds = sorted(((kind, n) for kind, n in counts.items() if n > 0 and kind.gpus), key=_common_first)
    sizes: dict[int, int] = {}
    for kind, n in kinds:
        if kind.milli < WHOLE:
            sizes[kind.milli] = sizes.get(kind.milli, 0) + n * kind.gpus
    worth = np.floor(_TRUST * WHOLE * share_prices(sizes) + 1e-6)
    worth[WHOLE] = WHOLE
    typical = _typical(kinds)
    cpu, memory, gpus, milli = (np.array([kind[at] for kind, _ in typical], dtype=np.float64) for at in range(4))
    # Pods with many GPUs count for more than their number, or nodes would be broken up that only they need whole, and
    # for less than their demand, or whole nodes would be kept for them while others find no place.
    number = np.array([n for _, n in typical], dtype=np.float64) * np.sqrt(gpus)
    weight = np.floor(number / max(number.sum(), 1) * _SUM_OF_WEIGHTS)
    allowed = None
    if any(kind.models is not None for kind, _ in typical):
        allowed = np.ones((models + 2, len(typical)), dtype=np.bool_)
        for at, (kind, _) in enumerate(typical):
            if kind.models is not None:
                allowed[:models, at] = kind.models
                allowed[models:, at] = False
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
    """The potential of each node [n], from its free CPU and memory [n], devices [n, G] and code of model [n].

    `gpu` is what is free of each device in thousandths, 0 where there is none. The code of the model is
    -1 where it is unknown and -2 where a node has several.
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
    """[n, G] the devices of each node whose loss costs least, where `count` of them have `milli` free; else none.

    `milli` may differ by device [n, G]. Equal: the one with the least free, then the first. Whole devices are all the
    same here; who cares about their links chooses among them by other means.
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
    """What a device with 0..1000 thousandths free is worth, in whole devices, to shares of these sizes (size → number).

    The fewest devices that hold them all are found by column generation (Gilmore and Gomory): begin with devices
    cut into equal shares; price each share by what it costs in devices; look for a cut that is worth more than a
    device at these prices; let it replace a cut in use; stop where there is none. A remainder is then worth the
    best cut that it holds. Ends because each step lowers the cost (the numbers are made unequal by a trifle, so that
    no step is empty), and after 500 steps in any case: prices are then near the best.
    """
    often = sorted(sizes, key=lambda size: (-size * sizes[size], size))[:_MOST_SIZES]
    size = np.array(sorted(often, reverse=True), dtype=np.intp)
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
        if price[cheapest] < -1e-9:  # more shares of that size than are asked for do no harm
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
    """[0..1000] the most that shares at these prices bring on a device with so much free: an unbounded knapsack."""
    best = np.zeros(WHOLE + 1)
    for one, worth in zip(size.tolist(), price.tolist(), strict=True):
        times = 1
        while worth > 0 and one * times <= WHOLE:  # once, twice, four times, …: every number is a sum of these
            np.maximum(best[one * times :], best[: WHOLE + 1 - one * times] + worth * times, out=best[one * times :])
            times *= 2
    return best


def _cut_of(size: NDArray[np.intp], price: FloatArray, best: FloatArray) -> FloatArray:
    """The cut of a whole device that brings `best`."""
    cut = np.zeros(len(size))
    free = WHOLE
    while best[free] > 1e-12:
        fitting = np.flatnonzero((size <= free) & (price > 0))
        right = fitting[best[free - size[fitting]] + price[fitting] >= best[free] - 1e-10]
        if len(right):
            cut[right[0]] += 1
            free -= int(size[right[0]])
        else:  # the last thousandths bring nothing
            free = min(int(np.searchsorted(best, best[free] - 1e-12)), free - 1)
    return cut


def _common_first(item: tuple[Kind, int]) -> tuple[int, tuple[float, float, int, int], tuple[bool, ...]]:
    kind, n = item
    return -n, kind[:4], kind.models or ()


def _typical(kinds: list[tuple[Kind, int]]) -> list[tuple[Kind, int]]:
    """The most common kinds, and those with the most demand, until each covers most of all."""
    chosen: set[Kind] = set()
    for amounts in ([n for _, n in kinds], [n * kind.gpus * kind.milli for kind, n in kinds]):
        missing = _COVERED * sum(amounts)
        for at in np.argsort([-amount for amount in amounts], kind="stable")[:_MOST_TYPICAL]:
            if missing <= 0:
                break
            chosen.add(kinds[at][0])
            missing -= amounts[at]
    return [item for item in kinds if item[0] in chosen]
