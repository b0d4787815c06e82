"""Running sums and maxima over sorted keys that start again at each new key."""

from typing import TypeVar

import numpy as np

from maniple.model.resources import FloatArray, IntArray

Numbers = TypeVar("Numbers", FloatArray, IntArray)


class Runs:
    def __init__(self, keys: IntArray) -> None:
        self.starts = firsts(keys)
        self._run_of = np.repeat(np.arange(len(self.starts)), np.diff(self.starts, append=len(keys)))

    def summed(self, values: Numbers) -> Numbers:
        """The values are [keys] or [keys, …]."""
        running = np.cumsum(values, axis=0)
        before = running[self.starts] - values[self.starts]
        summed: Numbers = running - before[self._run_of]
        return summed

    def highest(self, values: IntArray) -> IntArray:
        """Returns the running maxima of values that are not negative.

        Each run is lifted above all values of the runs before it, so one pass over all of them is enough.
        """
        lift = self._run_of * (int(values.max(initial=0)) + 1)
        return np.asarray(np.maximum.accumulate(values + lift) - lift)


def firsts(values: IntArray) -> IntArray:
    """Returns the position of the first of each value in sorted `values`."""
    return np.flatnonzero(np.diff(values, prepend=-1))
