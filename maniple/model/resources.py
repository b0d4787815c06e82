"""Resources as vectors: the resource names, and a row for each.

Amounts are float64, which is exact up to 2^53 and which numpy divides many times faster than int64.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from maniple.api.quantity import format_quantity, readable_quantity
from maniple.api.types import GPU_RESOURCES
from maniple.model.pod_requests import is_binary, is_extended, per_unit

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.intp]

CPU, MEMORY, PODS = 0, 1, 2
_FIXED = ("cpu", "memory", "pods")
UNKNOWN = "resources/that-no-node-has"
_MOST_UNKNOWN = 100  # resources with a row of their own of which no node has any


def axis_names(named: Iterable[str], asked: Iterable[str]) -> tuple[str, ...]:
    """The rows of an Axis. `named`: the resources of nodes and queues; `asked`: those of pods.

    No node has what only pods ask for, and anybody can ask for thousands of resources. Beyond a number they share a
    row: with a row for each, time and memory would grow with the square of their number.
    """
    rows = set(named)
    unknown = sorted(set(asked).difference(rows, _FIXED), key=lambda name: (name not in GPU_RESOURCES, name))
    rows.update(unknown[:_MOST_UNKNOWN])
    return (*_FIXED, *sorted(rows.difference(_FIXED)), *([UNKNOWN] if len(unknown) > _MOST_UNKNOWN else []))


class Axis:
    """The resources of one snapshot, in the order of the rows of its arrays."""

    def __init__(self, named: Iterable[str], asked: Iterable[str] = ()) -> None:
        self.names = axis_names(named, asked)
        self.index = {name: row for row, name in enumerate(self.names)}
        self._unknown = self.index.get(UNKNOWN)
        self.gpu_rows = tuple(self.index[name] for name in GPU_RESOURCES if name in self.index)
        # Queues have no share of pods: the pod limit of a node is not a budget.
        self.shared = np.array([name != "pods" for name in self.names])
        self.extended = np.array([is_extended(name) for name in self.names])

    def __len__(self) -> int:
        return len(self.names)

    def vector(self, units: Mapping[str, int], missing: float = 0.0) -> FloatArray:
        vector = np.full(len(self.names), missing)
        for name, value in units.items():
            row = self.index.get(name)
            if row is not None:
                vector[row] = value
            elif self._unknown is not None:
                vector[self._unknown] += value
        return vector

    def describe(self, vector: FloatArray, *, zeros: bool = False) -> dict[str, str]:
        """The vector as a Kubernetes resource list, without pods."""
        shown = np.isfinite(vector) if zeros else np.isfinite(vector) & (vector != 0)
        rows = np.flatnonzero(shown).tolist()  # few of them, where pods name thousands of resources
        return {self.names[row]: self.text(row, float(vector[row])) for row in rows if row != PODS}

    def text(self, row: int, units: float) -> str:
        return _text(self.names[row], units)

    def amount(self, row: int, units: float, *, up: bool = False) -> str:
        """The amount for a sentence: `1.5`, `130.5Gi`. `up`: never less than it is."""
        return _amount(self.names[row], units, up)

    def list_words(self, vector: FloatArray, *, up: bool = False) -> list[str]:
        """`1.5 cpu`: every amount that is not 0, without pods."""
        rows = np.flatnonzero(np.isfinite(vector) & (vector != 0)).tolist()
        return [f"{self.amount(row, float(vector[row]), up=up)} {self.names[row]}" for row in rows if row != PODS]


# The amounts of a cluster are few, and fractions are slow.


@lru_cache(maxsize=65536)
def _text(name: str, units: float) -> str:
    return format_quantity(units, per_unit=per_unit(name), binary=is_binary(name))


@lru_cache(maxsize=65536)
def _amount(name: str, units: float, up: bool) -> str:
    value = Fraction(units).limit_denominator(10**6) / per_unit(name)
    return readable_quantity(value, binary=is_binary(name), up=up)
