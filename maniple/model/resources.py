"""Resources as vectors: which names there are, in which unit each is counted, and what a pod asks for.

All amounts are whole numbers of a unit (thousandths for CPU and extended resources, bytes for memory, one for pods)
kept in float64: up to 2^53 these add, subtract and compare exactly, and numpy divides them many times faster than
int64.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maniple.api.core import Container, PodSpec
from maniple.api.meta import ResourceList
from maniple.api.quantity import format_quantity, parse_quantity, to_units

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.intp]

CPU, MEMORY, PODS = 0, 1, 2
_FIXED = ("cpu", "memory", "pods")

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe")
_NO_RESOURCES: dict[str, int] = {}


def per_unit(name: str) -> int:
    """How many of our units make one: 1000 for CPU and extended resources, which may be divided, else 1."""
    return 1000 if name == "cpu" or ("/" in name and not name.startswith("attachable-volumes")) else 1


def is_binary(name: str) -> bool:
    return name in ("memory", "ephemeral-storage", "storage") or name.startswith("hugepages-")


def amounts(resources: ResourceList) -> dict[str, int]:
    """`resources` in our units."""
    return {name: to_units(parse_quantity(str(value)), per_unit=per_unit(name)) for name, value in resources.items()}


class Axis:
    """The resources of one snapshot, in the order of the rows of its arrays."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = (*_FIXED, *sorted(set(names) - set(_FIXED)))
        self.index = {name: row for row, name in enumerate(self.names)}
        self.gpu_rows = tuple(self.index[name] for name in GPU_RESOURCES if name in self.index)
        # Queues and jobs share what is scarce; how many pods a node takes is no budget of anyone's.
        self.shared = np.array([name != "pods" for name in self.names])

    def __len__(self) -> int:
        return len(self.names)

    def vector(self, units: Mapping[str, int], missing: float = 0.0) -> FloatArray:
        made = np.full(len(self.names), missing)
        for name, value in units.items():
            row = self.index.get(name)
            if row is not None:
                made[row] = value
        return made

    def describe(self, vector: FloatArray, *, zeros: bool = False) -> dict[str, str]:
        """The vector as a resource list, without pods."""
        return {
            name: self.text(row, float(vector[row]))
            for row, name in enumerate(self.names)
            if name != "pods" and np.isfinite(vector[row]) and (zeros or vector[row])
        }

    def devices(self, requests: FloatArray) -> list[tuple[int, int]]:
        """(row, how many whole ones) of the GPUs that a pod asks for."""
        return [(row, int(-(-requests[row] // 1000))) for row in self.gpu_rows if requests[row]]

    def text(self, row: int, units: float) -> str:
        name = self.names[row]
        return format_quantity(units, per_unit=per_unit(name), binary=is_binary(name))


def pod_requests(spec: PodSpec) -> dict[str, int]:
    """What the scheduler must find for a pod, as kubelet will count it.

    Containers run together; an init container runs alone beside the sidecars (init containers that restart always)
    declared before it. A limit without a request is a request. Pod-level requests replace the sum where given.
    """
    if len(spec.containers) == 1 and not (
        spec.init_containers or spec.overhead or spec.resources.requests or spec.resources.limits
    ):
        return dict(_container_requests(spec.containers[0]))
    total: dict[str, int] = {}
    for container in spec.containers:
        _add(total, _container_requests(container))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.init_containers:
        wants = dict(_container_requests(container))
        if container.restart_policy == "Always":
            _add(sidecars, wants)
            wants = dict(sidecars)
        else:
            _add(wants, sidecars)
        _raise(peak, wants)
    _add(total, sidecars)
    _raise(total, peak)
    if spec.resources.requests or spec.resources.limits:
        total.update(amounts({**spec.resources.limits, **spec.resources.requests}))
    _add(total, amounts(spec.overhead))
    return total


def _container_requests(container: Container) -> dict[str, int]:
    resources = container.resources
    if resources.limits:
        return amounts({**resources.limits, **resources.requests})
    return amounts(resources.requests) if resources.requests else _NO_RESOURCES


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _raise(total: dict[str, int], floor: Mapping[str, int]) -> None:
    for name, value in floor.items():
        total[name] = max(total.get(name, 0), value)


class RequestTable:
    """Interns pod requests: a hundred thousand pods have a handful of them."""

    def __init__(self) -> None:
        self._by_lists: dict[Any, int] = {}
        self._by_amounts: dict[tuple[tuple[str, int], ...], int] = {}
        self.amounts: list[dict[str, int]] = []

    def number(self, spec: PodSpec) -> int:
        if len(spec.containers) == 1 and not (spec.init_containers or spec.overhead):
            resources = spec.containers[0].resources
            # The lists as written; different spellings of one amount meet in _by_amounts.
            key = (
                tuple(resources.requests.items()),
                tuple(resources.limits.items()),
                tuple(spec.resources.requests.items()),
                tuple(spec.resources.limits.items()),
            )
            number = self._by_lists.get(key)
            if number is None:
                number = self._by_lists[key] = self._intern(pod_requests(spec))
            return number
        return self._intern(pod_requests(spec))

    def _intern(self, units: dict[str, int]) -> int:
        key = tuple(sorted((name, value) for name, value in units.items() if value and name != "pods"))
        number = self._by_amounts.get(key)
        if number is None:
            number = self._by_amounts[key] = len(self.amounts)
            self.amounts.append(dict(key))
        return number
