"""GPUs for all pods that were promised room on a node, while they start one after another.

A promise names a node and no GPUs. Pods with shares of several GPUs may fit together only if each takes the right ones:
on one free GPU and three half free ones, 3 halves and 2 halves fit only if both take a half of the free one. So a
promised pod that starts checks that those after it still find GPUs, and else takes other ones.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from maniple.api.gpu.requests import WHOLE
from maniple.api.types import GpuModel
from maniple.model.gpu.devices import MIXED, GpuAsk, GpuGrant, GpuTable, Millis
from maniple.model.job import TaskGroup
from maniple.model.resources import FloatArray, IntArray

_MOST_TRIED = 500  # arrangements that are tried for one pod; the first one is hardly ever wrong

Codes = tuple[int, ...] | None  # of GPU models; None: all


@dataclass(frozen=True, slots=True)
class Pick:
    """The usual GPUs of one resource for one pod of a group."""

    group: TaskGroup
    ask: GpuAsk
    node: int
    codes: Codes
    now: list[int]  # what it may use of each device
    usual: tuple[GpuGrant, ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The devices that one pod takes: `count` of them, of one model."""

    count: int
    # For each model: thousandths of each device of the node. A device of another model is out of reach.
    needs: tuple[tuple[int, ...], ...]

    @property
    def order(self) -> tuple[int, int]:
        """Its position in a search: what is hardest to place first."""
        return -min((min(need) for need in self.needs), default=0), -self.count


class OwedGpus:
    """The promised pods with GPUs that have not got any in this cycle."""

    def __init__(
        self, tables: Mapping[int, GpuTable], allowed: Callable[[tuple[GpuModel, ...]], tuple[int, ...] | None]
    ) -> None:
        self._tables = tables
        self._allowed = allowed
        self._pods: dict[int, Counter[TaskGroup]] = {}  # by node

    def expect(self, groups: Iterable[TaskGroup]) -> None:
        for group in groups:
            if group.shape.gpus:
                for node, pods in group.nominated.items():
                    self._pods.setdefault(node, Counter())[group] = pods

    def forget(self, groups: Iterable[TaskGroup]) -> None:
        for group in groups:
            for node in group.nominated:
                if node in self._pods:
                    self._pods[node].pop(group, None)

    def place(self, group: TaskGroup, nodes: IntArray, counts: FloatArray) -> None:
        """Pods of the group have got GPUs; negative numbers are taken back."""
        if self._pods:
            for node, count in zip(nodes.tolist(), counts.tolist(), strict=True):
                if group in self._pods.get(node, ()):
                    self._pods[node][group] -= int(count)

    def is_owed_on(self, node: int) -> bool:
        return bool(self._pods.get(node))

    def better(
        self, pick: Pick, before: Sequence[tuple[GpuGrant, ...]], following: int, future: Millis
    ) -> tuple[GpuGrant, ...] | None:
        """Returns other GPUs than the usual ones if pods after this one need that, and if that helps them; else None.

        Pods of the same group have got the GPUs `before` on the node, and at least `following` more come. `future`
        [N, G]: what will be free when all leaving pods have left.
        """
        others = self._others(pick, len(before) + 1, following)
        if not others:
            return None
        left: list[int] = future[pick.node].tolist()
        for grants in before:
            left = without(left, [grant for grant in grants if grant.row == pick.ask.row])
        tries = [_MOST_TRIED]
        if _all_fit(others, without(left, pick.usual), tries):
            return None
        own = self._wanted(pick.ask, pick.node, pick.codes)
        for need in own.needs:
            # The fullest first, as pods with shares usually do.
            for chosen in _choices(need, own.count, pick.now, left, sign=1):
                grants = tuple(GpuGrant(pick.ask.row, device, need[device]) for device in sorted(chosen))
                if _all_fit(others, without(left, grants), tries):
                    return grants
                if tries[0] <= 0:
                    return None
        return None

    def _others(self, pick: Pick, done: int, following: int) -> list[Wanted]:
        """Returns what pods after this one want of the same GPUs; nothing if all are so alike that any choice is right.

        `done` pods of its own group have GPUs, this one included.
        """
        owed = self._pods.get(pick.node)
        if not owed:
            return []
        own = self._wanted(pick.ask, pick.node, pick.codes)
        others = [own] * max(following, owed[pick.group] - done)
        for group, pods in owed.items():
            for number, ask in enumerate(group.shape.gpus):
                if group is not pick.group and ask.row == pick.ask.row:
                    # A pod's list of models is about the first of its GPU resources.
                    codes = self._allowed(group.shape.constraint.gpu_models) if number == 0 else None
                    others += [self._wanted(ask, pick.node, codes)] * pods
        return [] if _are_alike([own, *others]) else sorted(others, key=lambda other: other.order)

    def _wanted(self, ask: GpuAsk, node: int, codes: Codes) -> Wanted:
        table = self._tables[ask.row]
        models = table.model[node].tolist()
        need = table.milli_for(ask.memory, np.array([node]))[0].tolist() if ask.memory else [ask.milli] * len(models)
        if table.node_model[node] != MIXED:
            return Wanted(ask.count, (tuple(need),))
        choice = codes if codes is not None else sorted({code for code in models if code >= 0})
        by_model = [
            tuple(milli if model == code else WHOLE + 1 for milli, model in zip(need, models, strict=True))
            for code in choice
        ]
        return Wanted(ask.count, tuple(by_model))


def usable_on(node: int, free: Millis, future: Millis, *, later: bool) -> list[int]:
    """What a pod may use of each device of the node: the lower of now and later, so that promises are kept."""
    then: list[int] = future[node].tolist()
    return then if later else list(map(min, free[node].tolist(), then))


def without(left: Sequence[int], grants: Iterable[GpuGrant]) -> list[int]:
    """What is left of each device without these."""
    after = list(left)
    for grant in grants:
        after[grant.device] -= grant.milli
    return after


def _are_alike(wanted: Sequence[Wanted]) -> bool:
    """Whether they leave each other the same room whichever devices they take: whole ones, or equal parts of one."""
    first = wanted[0].needs
    if len(first) != 1 or len(set(first[0])) != 1 or any(other.needs != first for other in wanted):
        return False
    return first[0][0] == WHOLE or all(other.count == 1 for other in wanted)


def _all_fit(wanted: Sequence[Wanted], left: Sequence[int], tries: list[int]) -> bool:
    """Whether all find devices in what is left of each; also False when `tries` are used up."""
    if not wanted:
        return True
    own, others = wanted[0], wanted[1:]
    for need in own.needs:
        # The emptiest first: that leaves room on the most devices.
        for chosen in _choices(need, own.count, left, left, sign=-1):
            tries[0] -= 1
            if tries[0] < 0:
                return False
            after = list(left)
            for device in chosen:
                after[device] -= need[device]
            if _all_fit(others, after, tries):
                return True
    return False


def _choices(
    need: Sequence[int], count: int, now: Sequence[int], left: Sequence[int], *, sign: int
) -> Iterator[list[int]]:
    """Yields devices that a pod may take, in the order of `left`; of devices that are equal, only the first ones."""
    alike: dict[tuple[int, int, int], list[int]] = {}
    for device, milli in enumerate(need):
        if now[device] >= milli:
            alike.setdefault((sign * left[device], now[device], milli), []).append(device)
    yield from _some_of([alike[key] for key in sorted(alike)], count)


def _some_of(classes: list[list[int]], count: int) -> Iterator[list[int]]:
    if count == 0:
        yield []
    elif sum(map(len, classes)) >= count:
        for taken in range(min(count, len(classes[0])), -1, -1):
            for rest in _some_of(classes[1:], count - taken):
                yield classes[0][:taken] + rest
