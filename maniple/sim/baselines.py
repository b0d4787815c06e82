"""Published placement policies, to compare ours with.

Each has its own fleet and caches scores by what a pod asks for: after a placement only that node is scored again. Of
equal scores the first node by name wins, as in the published runs, where this matters a lot.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maniple.model.gpu.fragmentation import Millis, PodRequests
from maniple.model.resources import BoolArray, FloatArray, IntArray
from maniple.sim.openb_benchmark import WHOLE, Node, Placer, Pod

_TYPICAL = 0.95


class Fleet:
    """Free resources of each node."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.models = sorted({node.model for node in nodes})
        self.cpu = np.array([node.cpu_milli for node in nodes], dtype=np.float64)
        self.memory = np.array([node.memory_mib for node in nodes], dtype=np.float64)
        self.model = np.array([self.models.index(node.model) for node in nodes], dtype=np.intp)
        most = max(node.gpus for node in nodes)
        has = np.arange(most) < np.array([[node.gpus] for node in nodes])
        self.gpu: Millis = np.where(has, WHOLE, 0).astype(np.int32)

    def kind(self, pod: Pod) -> PodRequests:
        models = tuple(model in pod.models for model in self.models) if pod.models else None
        return PodRequests(pod.cpu_milli, pod.memory_mib, pod.gpus, pod.gpu_milli, models)

    def fits(self, kind: PodRequests, rows: IntArray) -> BoolArray:
        fits = (self.cpu[rows] >= kind.cpu) & (self.memory[rows] >= kind.memory)
        if kind.gpus:
            fits &= (self.gpu[rows] >= kind.milli).sum(axis=1) >= kind.gpus
        if kind.models is not None:
            fits &= np.array(kind.models)[self.model[rows]]
        return np.asarray(fits)

    def take(self, kind: PodRequests, row: int, devices: IntArray) -> None:
        self.cpu[row] -= kind.cpu
        self.memory[row] -= kind.memory
        self.gpu[row, devices] -= kind.milli
        taken = self.gpu[row].min(initial=0) >= 0 and self.cpu[row] >= 0 and self.memory[row] >= 0
        if not taken or len(set(devices.tolist())) != kind.gpus:
            raise AssertionError(f"{kind} does not fit node {row}")  # a bug of the placer, never wrong input


class Score(ABC):
    """Scores nodes for a pod. Higher is better."""

    is_random = False  # whether every pod gets new scores

    @abstractmethod
    def score(self, fleet: Fleet, kind: PodRequests, rows: IntArray) -> FloatArray:
        """Scores of nodes that the pod fits on."""

    def devices(self, fleet: Fleet, kind: PodRequests, row: int) -> IntArray:
        """The devices of the node with the least free capacity that is enough."""
        return np.asarray(_tightest(fleet.gpu[[row]], kind)[0])


class ScoredPlacer:
    """Places each pod on the node with the best score."""

    def __init__(self, nodes: Sequence[Node], pods: Sequence[Pod], score: Score) -> None:
        self.fleet = Fleet(nodes)
        self._kinds = [self.fleet.kind(pod) for pod in pods]
        self._score = score
        self._scores: dict[PodRequests, FloatArray] = {}
        self._scored_at: dict[PodRequests, int] = {}
        self._changed: list[int] = []
        self._all = np.arange(len(nodes))

    def place(self, pod: int) -> bool:
        kind = self._kinds[pod]
        if self._score.is_random:
            self._scores.clear()
        scores = self._scores_of(kind)
        row = int(scores.argmax())
        if scores[row] == -np.inf:
            return False
        self.fleet.take(kind, row, self._score.devices(self.fleet, kind, row) if kind.gpus else self._all[:0])
        self._changed.append(row)
        return True

    def _scores_of(self, kind: PodRequests) -> FloatArray:
        scores = self._scores.get(kind)
        if scores is None:
            scores = self._scores[kind] = np.full(len(self._all), -np.inf)
            rows = self._all
        else:
            rows = np.array(sorted(set(self._changed[self._scored_at[kind] :])), dtype=np.intp)
        self._scored_at[kind] = len(self._changed)
        if len(rows):
            fits = self.fleet.fits(kind, rows)
            scores[rows[~fits]] = -np.inf
            if fits.any():
                rows = rows[fits]
                scores[rows] = self._score.score(self.fleet, kind, rows)
        return scores


def _tightest(gpu: Millis, kind: PodRequests) -> IntArray:
    """[n, gpus] the devices of each node with the least free capacity that is enough."""
    order = np.argsort(np.where(gpu >= kind.milli, gpu, 2 * WHOLE), axis=1, kind="stable")
    return np.asarray(order[:, : kind.gpus])


class BestFit(Score):
    """Minimises the CPU and GPU left over, each as a share of the largest node, rounded to hundredths as published."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._most_cpu = max(node.cpu_milli for node in nodes)
        self._most_gpu = WHOLE * max(node.gpus for node in nodes)

    def score(self, fleet: Fleet, kind: PodRequests, rows: IntArray) -> FloatArray:
        cpu = (fleet.cpu[rows] - kind.cpu) / self._most_cpu
        gpu = (fleet.gpu[rows].sum(axis=1) - kind.gpus * kind.milli) / self._most_gpu
        return np.asarray(np.floor(100 * (1 - 0.5 * cpu - 0.5 * gpu)))


class Random(Score):
    """A random node that fits, and random devices of it that fit."""

    is_random = True

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def score(self, fleet: Fleet, kind: PodRequests, rows: IntArray) -> FloatArray:  # noqa: ARG002
        return self._random.random(len(rows))

    def devices(self, fleet: Fleet, kind: PodRequests, row: int) -> IntArray:
        enough = np.flatnonzero(fleet.gpu[row] >= kind.milli)
        return np.asarray(self._random.permutation(enough)[: kind.gpus])


class Fgd(Score):
    """Fragmentation gradient descent: minimises the increase of GPU capacity that the typical pod cannot use.

    As published, it knows the typical pods of the whole list, also of pods that have not arrived, and rounds its score
    to hundredths of a sigmoid. The rounding matters: without it the loss is a quarter higher.
    """

    def __init__(self, nodes: Sequence[Node], pods: Sequence[Pod]) -> None:
        fleet = Fleet(nodes)
        missing = _TYPICAL * len(pods)
        typical = []
        for kind, count in Counter(map(fleet.kind, pods)).most_common():
            if missing <= 0:
                break
            typical.append((kind, count))
            missing -= count
        total = sum(count for _, count in typical)
        self._weight = np.array([count / total for _, count in typical])
        self._cpu = np.array([kind.cpu for kind, _ in typical])
        self._gpus = np.array([kind.gpus for kind, _ in typical])
        milli = np.array([kind.milli for kind, _ in typical])
        anywhere = (True,) * len(fleet.models)
        self._allowed = np.array([kind.models or anywhere for kind, _ in typical]).T  # [models, T]
        free = np.arange(WHOLE + 1)[:, None]
        self._enough = (free >= milli) & (free > 0)  # [free, T]
        self._lost = np.where(self._enough, 0, free).astype(np.float64)

    def score(self, fleet: Fleet, kind: PodRequests, rows: IntArray) -> FloatArray:
        return np.asarray(self._by_device(fleet, kind, rows).max(axis=1))

    def devices(self, fleet: Fleet, kind: PodRequests, row: int) -> IntArray:
        if kind.gpus == 1 and kind.milli < WHOLE:
            return np.asarray(self._by_device(fleet, kind, np.array([row]))[0].argmax()).reshape(1)
        return super().devices(fleet, kind, row)

    def _by_device(self, fleet: Fleet, kind: PodRequests, rows: IntArray) -> FloatArray:
        """Scores. For a fraction of a GPU one for each device, [n, G], -inf where it does not fit; else [n, 1]."""
        gpu = fleet.gpu[rows]
        sums = self._enough[gpu].sum(axis=1), self._lost[gpu].sum(axis=1), gpu.sum(axis=1)
        nodes: tuple[NDArray[Any], ...] = (fleet.cpu[rows], fleet.model[rows], *sums)
        before = self._fragments(*nodes)
        if kind.gpus != 1 or kind.milli == WHOLE:
            used = np.take_along_axis(gpu, _tightest(gpu, kind), axis=1)
            return _rounded(before - self._after(kind, used, *nodes))[:, None]
        scores = np.full(gpu.shape, -np.inf)
        for device in range(gpu.shape[1]):
            fit = np.flatnonzero(gpu[:, device] >= kind.milli)
            if len(fit):
                after = self._after(kind, gpu[fit, device][:, None], *(column[fit] for column in nodes))
                scores[fit, device] = _rounded(before[fit] - after)
        return scores

    def _after(
        self,
        kind: PodRequests,
        used: Millis,
        cpu: FloatArray,
        model: IntArray,
        count: NDArray[np.integer],
        lost: FloatArray,
        free: NDArray[np.integer],
    ) -> FloatArray:
        """The fragments of each node after the pod has taken devices with so much free, `used` [n, gpus]."""
        rest = used - kind.milli
        count = count + (self._enough[rest].sum(axis=1) - self._enough[used].sum(axis=1))
        lost = lost + (self._lost[rest] - self._lost[used]).sum(axis=1)
        return self._fragments(cpu - kind.cpu, model, count, lost, free - kind.gpus * kind.milli)

    def _fragments(
        self, cpu: FloatArray, model: IntArray, count: NDArray[np.integer], lost: FloatArray, free: NDArray[np.integer]
    ) -> FloatArray:
        fits = (cpu[:, None] >= self._cpu) & (count >= self._gpus) & (self._gpus > 0) & self._allowed[model]
        return np.asarray(np.where(fits, lost, free[:, None]) @ self._weight)


def _rounded(gain: FloatArray) -> FloatArray:
    return np.asarray(np.floor(100 / (1 + np.exp(-gain / WHOLE)) + 1e-9))


# Name -> a function of nodes, pods and seed that makes the placer.
BASELINES: dict[str, Callable[[Sequence[Node], Sequence[Pod], int], Placer]] = {
    "fgd": lambda nodes, pods, _: ScoredPlacer(nodes, pods, Fgd(nodes, pods)),
    "best-fit": lambda nodes, pods, _: ScoredPlacer(nodes, pods, BestFit(nodes)),
    "random": lambda nodes, pods, seed: ScoredPlacer(nodes, pods, Random(seed)),
}
