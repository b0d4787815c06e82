"""The taints of all nodes that keep pods away, arranged so that pods that tolerate few of thousands cost little."""

from collections.abc import Collection, Sequence

import numpy as np

from maniple.api.kubernetes import Taint
from maniple.model.resources import FloatArray

EFFECTS = ("NoExecute", "NoSchedule")


class RepellingTaints:
    def __init__(self, taint_sets: Sequence[tuple[Taint, ...]]) -> None:
        sets: dict[Taint, list[int]] = {}
        for number, taints in enumerate(taint_sets):
            for taint in dict.fromkeys(taints):
                if taint.effect in EFFECTS:
                    sets.setdefault(taint, []).append(number)
        ordered = sorted(sets, key=lambda taint: (taint.key, taint.value, taint.effect))
        self.sets = {taint: sets[taint] for taint in ordered}  # taint -> the sets of taints that have it
        self.by_key: dict[str, list[Taint]] = {}
        for taint in ordered:
            self.by_key.setdefault(taint.key, []).append(taint)
        self._number_of_sets = len(taint_sets)
        self._counts = {effect: self._count(effect, self.sets) for effect in EFFECTS}

    def left(self, effect: str, tolerated: Collection[Taint]) -> FloatArray:
        """By set: how many taints of this effect are not tolerated."""
        return self._counts[effect] - self._count(effect, tolerated)

    def _count(self, effect: str, taints: Collection[Taint]) -> FloatArray:
        counts = np.zeros(self._number_of_sets)
        for taint in taints:
            if taint.effect == effect:
                counts[self.sets[taint]] += 1
        return counts
