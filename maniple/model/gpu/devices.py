"""The GPUs of all nodes as arrays: ids, health, model, memory and links.

There is one table for each GPU resource. Devices are columns of their node's row, in the order in which the node lists
them. Amounts of a device are thousandths, so that a share of a GPU is a number like any other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from maniple.api.gpu.requests import WHOLE
from maniple.api.gpu.topology_annotation import GpuTopology, parse_topology
from maniple.api.kubernetes import Node
from maniple.api.labels import GPU_TOPOLOGY_ANNOTATION
from maniple.api.quantity import format_quantity
from maniple.api.types import GPU_RESOURCES, GpuModel
from maniple.model.gpu.links import LinkClass, node_links
from maniple.model.pod_requests import amounts
from maniple.model.resources import CPU, MEMORY, Axis, BoolArray, FloatArray, IntArray

Millis = NDArray[np.int32]

MOST_GPUS = 1024  # of one node; a larger number is a mistake
MIXED = -2  # the model code of a node with GPUs of several models
_NO_GPU = -1

_PRODUCT_LABELS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "gpu.intel.com/product")
_MEMORY_LABELS = ("nvidia.com/gpu.memory",)  # MiB


class GpuGrant(NamedTuple):
    """A device, or a share of it, that one pod holds."""

    row: int
    device: int
    milli: int


@dataclass(frozen=True, slots=True)
class GpuAsk:
    """What each pod of a shape requests of one GPU resource: `count` devices, and a share of each."""

    row: int
    count: int
    milli: int  # thousandths of each device; for a request by memory, of the device with the most memory
    memory: int = 0  # bytes of each device; 0: requested by milli

    @property
    def is_whole(self) -> bool:
        return self.milli == WHOLE and not self.memory


class GpuPod(NamedTuple):
    """What a pod with GPUs requests. Counted to learn which pods are typical of the cluster (fragmentation.py)."""

    cpu: float
    memory: float
    ask: GpuAsk
    models: tuple[GpuModel, ...]


@dataclass(frozen=True, eq=False)
class GpuTable:
    """All devices of one GPU resource, [N, G]. Where a node has fewer than G, `there` is False."""

    row: int
    resource: str
    ids: Sequence[tuple[str, ...]]  # by node
    there: BoolArray  # exists and is healthy
    model: NDArray[np.int16]  # code in Gpus.models; -1 where there is no device
    memory: FloatArray  # bytes; 0 where unknown
    links: Sequence[LinkClass]
    link_class: IntArray  # [N] index in `links`
    node_model: NDArray[np.int16]  # [N] the model of the node's devices; -1: no device, -2: several models
    kind: Sequence[int]  # by node: equal where all of the above are equal
    numbers: dict[tuple[str, ...], dict[str, int]] = field(default_factory=dict)

    def number_of(self, node: int, device: str) -> int | None:
        """The column of a device id."""
        ids = self.ids[node]
        columns = self.numbers.get(ids)
        if columns is None:
            columns = self.numbers[ids] = {name: column for column, name in enumerate(ids)}
        return columns.get(device)

    def milli_for(self, memory: int, nodes: IntArray | None = None) -> Millis:
        """[n, G] `memory` bytes in thousandths of each device. 1001 where its memory is smaller or unknown."""
        sizes = self.memory if nodes is None else self.memory[nodes]
        millis = np.ceil(np.divide(memory * WHOLE, sizes, out=np.full_like(sizes, WHOLE + 1.0), where=sizes > 0))
        return np.minimum(millis, WHOLE + 1).astype(np.int32)


@dataclass(frozen=True, eq=False)
class Gpus:
    """The tables by row of the axis, and the names of all GPU models."""

    tables: Mapping[int, GpuTable]
    models: tuple[str, ...]

    def lower(self, allocatable: FloatArray) -> None:
        """Lowers `allocatable` [R, N] to the number of healthy devices."""
        for row, table in self.tables.items():
            np.minimum(allocatable[row], table.there.sum(axis=1) * float(WHOLE), out=allocatable[row])


@dataclass(frozen=True, eq=False)
class _Kind:
    """The devices of equal nodes. Ten thousand nodes have few kinds."""

    ids: tuple[str, ...]
    there: tuple[bool, ...]
    model: tuple[int, ...]
    memory: tuple[float, ...]
    links: LinkClass


def build_gpus(nodes: Sequence[Node], axis: Axis, allocatable: FloatArray) -> Gpus:
    """The tables of `nodes`, which must be in the order of the NodeTable."""
    models: dict[str, int] = {}  # name -> code
    tables = {row: _table(nodes, axis.names[row], row, allocatable[row], models) for row in axis.gpu_rows}
    return Gpus(tables, tuple(models))


def _table(nodes: Sequence[Node], resource: str, row: int, allocatable: FloatArray, models: dict[str, int]) -> GpuTable:
    numbers: dict[object, int] = {}
    kinds: list[_Kind] = []
    kind_of = np.zeros(len(nodes), dtype=np.intp)
    for index, (node, amount) in enumerate(zip(nodes, allocatable.tolist(), strict=True)):
        labels, annotation = node.metadata.labels, node.metadata.annotations.get(GPU_TOPOLOGY_ANNOTATION, "")
        product = next((labels[key] for key in _PRODUCT_LABELS if key in labels), "") if amount else ""
        memory = next((labels[key] for key in _MEMORY_LABELS if key in labels), "") if amount else ""
        key = (annotation, product, memory, amount)
        number = numbers.get(key)
        if number is None:
            number = numbers[key] = len(kinds)
            count = min(MOST_GPUS, int(amount // WHOLE))
            topology = _topology(annotation, resource) if amount else None
            kinds.append(
                _plain(product, _mebibytes(memory), count, models)
                if topology is None
                else _annotated(topology, product, _mebibytes(memory), models)
            )
        kind_of[index] = number
    width = max((len(kind.ids) for kind in kinds), default=0)
    there = np.zeros((len(kinds), width), dtype=bool)
    model = np.full((len(kinds), width), _NO_GPU, dtype=np.int16)
    bytes_ = np.zeros((len(kinds), width))
    node_model = np.full(len(kinds), _NO_GPU, dtype=np.int16)
    links: dict[LinkClass, int] = {}
    classes = np.zeros(len(kinds), dtype=np.intp)
    for number, kind in enumerate(kinds):
        size = len(kind.ids)
        there[number, :size] = kind.there
        model[number, :size] = np.where(kind.there, kind.model, _NO_GPU)
        bytes_[number, :size] = kind.memory
        codes = set(model[number][there[number]].tolist())
        node_model[number] = codes.pop() if len(codes) == 1 else MIXED if codes else _NO_GPU
        classes[number] = links.setdefault(kind.links, len(links))
    return GpuTable(
        row=row,
        resource=resource,
        ids=[kinds[number].ids for number in kind_of.tolist()],
        there=there[kind_of],
        model=model[kind_of],
        memory=bytes_[kind_of],
        links=tuple(links),
        link_class=classes[kind_of],
        node_model=node_model[kind_of],
        kind=kind_of.tolist(),
    )


def _plain(product: str, memory: float, count: int, models: dict[str, int]) -> _Kind:
    """A node without the topology annotation: numbered devices with the usual links of the product."""
    return _Kind(
        ids=_numbers(count),
        there=(True,) * count,
        model=(models.setdefault(product, len(models)),) * count if count else (),
        memory=(memory,) * count,
        links=node_links(None, product, count),
    )


def _annotated(topology: GpuTopology, product: str, memory: float, models: dict[str, int]) -> _Kind:
    devices = topology.devices[:MOST_GPUS]
    return _Kind(
        ids=tuple(device.id for device in devices),
        there=tuple(device.healthy for device in devices),
        model=tuple(models.setdefault(device.model or product, len(models)) for device in devices),
        memory=tuple(float(device.memory_bytes or memory) for device in devices),
        links=node_links(topology, product, len(devices)),
    )


def _topology(annotation: str, resource: str) -> GpuTopology | None:
    """The annotation, if it is about this resource. An unreadable one is ignored here; validation reports it."""
    topology = _parsed(annotation) if annotation else None
    return topology if topology is not None and topology.resource == resource else None


@lru_cache(maxsize=65536)
def _parsed(text: str) -> GpuTopology | None:
    try:
        return parse_topology(text)
    except ValueError:
        return None


@lru_cache(maxsize=MOST_GPUS + 1)
def _numbers(count: int) -> tuple[str, ...]:
    return tuple(map(str, range(count)))


def count_gpu_pods(
    counts: dict[GpuPod, int],
    vector: FloatArray,
    asks: tuple[GpuAsk, ...],
    models: tuple[GpuModel, ...],
    count: int,
) -> None:
    if asks:
        pod = GpuPod(float(vector[CPU]), float(vector[MEMORY]), asks[0], models)
        counts[pod] = counts.get(pod, 0) + count


def device_words(node: Node) -> tuple[str, ...]:
    """The labels and the annotation of a node that describe its devices."""
    meta = node.metadata
    labels = (meta.labels.get(key, "") for key in (*_PRODUCT_LABELS, *_MEMORY_LABELS))
    return (meta.annotations.get(GPU_TOPOLOGY_ANNOTATION, ""), *labels)


def gpu_problems(node: Node) -> list[str]:
    """Problems with the numbers of GPUs in the node's status."""
    resources = node.status.allocatable or node.status.capacity
    problems = []
    for name in GPU_RESOURCES:
        if name in resources:
            units = amounts({name: resources[name]})[name]
            if units > MOST_GPUS * WHOLE:
                shown = format_quantity(units, per_unit=WHOLE)
                problems.append(f"status.allocatable[{name}]: expected at most {MOST_GPUS}, got {shown}")
    return problems


def _mebibytes(text: str) -> float:
    # Digits only: "40Gi" in this label is a mistake, not 40Gi mebibytes.
    return float(text) * 1024**2 if text.isdecimal() and len(text) <= 12 else 0.0
