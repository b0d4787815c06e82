"""How many pods of a shape fit on each node, and how each node scores for it: arrays over the nodes, cached by shape.

A cycle decides thousands of gangs of a few dozen shapes, and each decision touches a few nodes. So an array is computed
once, and then updated only at the nodes that changed since it was last read.
"""

from collections.abc import Callable, Sequence

import numpy as np

from maniple.model.job import TaskGroup
from maniple.model.resources import BoolArray, FloatArray, IntArray
from maniple.scheduler.framework.changed_nodes import ChangedNodes
from maniple.scheduler.framework.demand_cache_keys import Demands
from maniple.scheduler.framework.free_gpus import FreeGpus
from maniple.scheduler.framework.hooks import Check, Hooks, Rows
from maniple.scheduler.framework.promised_room import PromisedRoom

# An array over 10,000 nodes takes 80 kB. Clusters have dozens of shapes; thousands must not fill the memory.
_MOST_CACHED = 256
_MANY = 1e9  # no limit: the pod asks for nothing that is counted


def capacity(requests: FloatArray, free: FloatArray) -> FloatArray:
    """How many pods with `requests` fit into each column of `free`."""
    fits = np.full(free.shape[1], _MANY)
    for row in np.flatnonzero(requests):
        np.minimum(fits, np.floor(free[row] / requests[row]), out=fits)
    np.maximum(fits, 0.0, out=fits)
    return fits


class _Cached:
    """Arrays by shape, updated when nodes change."""

    def __init__(self, compute: Callable[[TaskGroup, IntArray], FloatArray], count: int, demands: Demands) -> None:
        self._compute = compute
        self._demands = demands
        self._every: IntArray = np.arange(count, dtype=np.intp)
        self._arrays: dict[int, tuple[FloatArray, int]] = {}  # shape -> (values, how many changes they have seen)

    def of(self, group: TaskGroup, changed: ChangedNodes) -> FloatArray:
        number = self._demands.of_group(group)
        values, seen = self._arrays.pop(number, (None, 0))
        touched = [] if values is None or seen == len(changed) else changed.since(seen)
        if values is None or len(touched) * 4 > len(self._every):
            values = self._compute(group, self._every)
        elif touched:
            nodes = np.array(touched, dtype=np.intp)
            values[nodes] = self._compute(group, nodes)
        if len(self._arrays) >= _MOST_CACHED:
            del self._arrays[next(iter(self._arrays))]
        self._arrays[number] = (values, len(changed))  # at the end: the first is the least recently used
        return values


class NodeCapacity:
    def __init__(
        self,
        free: FloatArray,
        future: FloatArray,
        promised: PromisedRoom,
        gpus: FreeGpus,
        hooks: Sequence[Hooks],
        demands: Demands,
        changed: ChangedNodes,
    ) -> None:
        """`free`, `future` [R, N]: what is free now, and when all leaving pods have left. The session changes them.

        `changed`: who changes them says so.
        """
        self._free = free
        self._future = future
        self._promised = promised
        self._gpus = gpus
        self._count = count = free.shape[1]
        self._every: IntArray = np.arange(count, dtype=np.intp)
        self._predicates = [hook.predicate for hook in hooks if hook.predicate]
        self._orders = [hook.node_order for hook in hooks if hook.node_order]
        self._demands = demands
        self._allowed: dict[tuple[int | None, ...], BoolArray] = {}
        self._fits = _Cached(self._compute_fits, count, demands)
        self._fits_later = _Cached(self._compute_fits_later, count, demands)
        self._scores = _Cached(self._compute_scores, count, demands)
        self.changed = changed

    def checks(self, group: TaskGroup) -> list[Check]:
        """The predicates' answers for every node, and whether it has GPUs of the kind that the group asks for."""
        checks = [check for predicate in self._predicates for check in predicate(group)]
        return [*checks, *self._gpus.checks(group.shape)] if group.shape.gpus else checks

    def allowed(self, group: TaskGroup) -> BoolArray:
        """Nodes whose own attributes permit the group's pods."""
        gpus = group.shape.gpus
        kind = (gpus[0].row, gpus[0].memory) if gpus else ()
        extra = self._demands.of_constraint(group)
        key = (group.shape.constraint.number, group.shape.is_best_effort, extra, *kind)
        mask = self._allowed.get(key)
        if mask is None:
            mask = np.ones(self._count, dtype=bool)
            for check in self.checks(group):
                mask &= check.passes
            self._allowed[key] = mask
        return mask

    def fits(self, group: TaskGroup, *, later: bool = False) -> FloatArray:
        """How many of the group's pods each node can take, now or when all leaving pods have left; 0 where they are not
        allowed.
        """
        return (self._fits_later if later else self._fits).of(group, self.changed)

    def fits_later_on(self, group: TaskGroup, nodes: IntArray) -> FloatArray:
        """The same for some nodes, counted anew: for those who suppose things there that nobody else shall know of."""
        return self._compute_fits_later(group, nodes)

    def scores(self, group: TaskGroup) -> FloatArray:
        """The score of each node for the next pod of the group."""
        return self._scores.of(group, self.changed)

    def fits_on(self, group: TaskGroup, nodes: IntArray, *, later: bool) -> FloatArray:
        """How many of the group's pods these nodes can take, wherever they are allowed."""
        usable = self._at(self._future, nodes) if later else self.usable(nodes)
        return self._count_pods(group, nodes, usable, later=later)

    def following_scores(self, group: TaskGroup, nodes: Sequence[int], pods: Sequence[int]) -> list[list[float]]:
        """The scores of each node for the pods after the next: for the second, third, …, `pods` of them."""
        rows = np.repeat(np.array(nodes, dtype=np.intp), pods)
        ends = np.cumsum(pods)
        nth = np.arange(1, len(rows) + 1) - np.repeat(ends - pods, pods)
        free = self._free[:, rows] - np.outer(group.shape.requests, nth)
        scores = self.score_rows(group, Rows(rows, free)).tolist()
        return [scores[end - count : end] for end, count in zip(ends.tolist(), pods, strict=True)]

    def score_rows(self, group: TaskGroup, rows: Rows) -> FloatArray:
        total = np.zeros(len(rows.nodes))
        for order in self._orders:
            part = order(group, rows)
            if part is not None:
                total += part
        return total

    def _at(self, amounts: FloatArray, nodes: IntArray) -> FloatArray:
        return amounts if len(nodes) == self._count else amounts[:, nodes]

    def usable(self, nodes: IntArray | None = None) -> FloatArray:
        """[R, nodes] what pods may use now. The lower of now and later, so that promises are kept."""
        nodes = self._every if nodes is None else nodes
        free = self._at(self._free, nodes)
        if self._promised:
            free = free - self._at(self._promised.amounts, nodes)
        return np.minimum(free, self._at(self._future, nodes))

    def _compute_fits(self, group: TaskGroup, nodes: IntArray) -> FloatArray:
        return np.where(self.allowed(group)[nodes], self.fits_on(group, nodes, later=False), 0.0)

    def _compute_fits_later(self, group: TaskGroup, nodes: IntArray) -> FloatArray:
        return np.where(self.allowed(group)[nodes], self.fits_on(group, nodes, later=True), 0.0)

    def _count_pods(self, group: TaskGroup, nodes: IntArray, usable: FloatArray, *, later: bool) -> FloatArray:
        fits = capacity(group.shape.requests, usable)
        if self._gpus.is_counted(group.shape):
            some = nodes if len(nodes) < self._count else None
            np.minimum(fits, self._gpus.fits(group.shape, some, usable, later=later), out=fits)
        return fits

    def _compute_scores(self, group: TaskGroup, nodes: IntArray) -> FloatArray:
        return self.score_rows(group, Rows(nodes, self._at(self._free, nodes)))
