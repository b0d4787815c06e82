"""Nodes as columns: allocatable resources, conditions, taints and labels, each an array over the nodes.

The values of a label key become integer codes when the key is first read, so that a selector is a few vector operations
over ten thousand nodes. A table is immutable. What pods use is in the Snapshot.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from maniple.api.kubernetes import ContainerImage, Node, NodeSelectorTerm, Taint
from maniple.api.meta import LabelRequirement, Labels
from maniple.api.quantity import LARGEST
from maniple.model.gpu.devices import build_gpus, device_words
from maniple.model.pod_requests import amounts
from maniple.model.repelling_taints import RepellingTaints
from maniple.model.resources import Axis, BoolArray, FloatArray, IntArray

Codes = NDArray[np.int32]
_INTEGER = re.compile(r"[+-]?[0-9]{1,63}")
PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")


class NodeTable:
    """The nodes in the order of their names. Ties are broken by the index of a node."""

    def __init__(self, nodes: Sequence[Node], axis: Axis) -> None:
        nodes = sorted(nodes, key=lambda node: node.metadata.name)
        self.axis = axis
        self.names = tuple(node.metadata.name for node in nodes)
        self.index = {name: node for node, name in enumerate(self.names)}
        self._labels: list[Labels] = [{}] * len(nodes)
        self._images: list[tuple[ContainerImage, ...]] = [()] * len(nodes)
        self._features: list[tuple[str, ...]] = [()] * len(nodes)
        self._columns: dict[str, tuple[Codes, list[str]]] = {}
        count = len(nodes)
        self.allocatable: FloatArray = np.zeros((len(axis), count))
        last, column = None, np.zeros(len(axis))
        for index, node in enumerate(nodes):
            resources = node.status.allocatable or node.status.capacity
            if resources != last:  # equal nodes mostly follow each other
                # As in kube-scheduler, a node that does not say how many pods it takes takes none.
                last, column = resources, axis.vector(amounts(resources))
            self.allocatable[:, index] = column
        self.gpus = build_gpus(nodes, axis, self.allocatable)
        self.gpus.lower(self.allocatable)
        self.ready = np.zeros(count, dtype=bool)
        self.pressure = {kind: np.zeros(count, dtype=bool) for kind in PRESSURES}
        self.unschedulable = np.zeros(count, dtype=bool)
        self.taint_class: IntArray = np.zeros(count, dtype=np.intp)
        self.taint_sets: tuple[tuple[Taint, ...], ...] = ()
        self._read(enumerate(nodes))

    def __len__(self) -> int:
        return len(self.names)

    def changed(self, nodes: Mapping[int, Node]) -> "NodeTable":
        """A copy of the table with these nodes replaced. Their resources and devices must not have changed."""
        table = copy(self)
        for name in ("images", "repelling_taints"):
            table.__dict__.pop(name, None)
        table._labels, table._images, table._features = list(self._labels), list(self._images), list(self._features)
        table.ready, table.unschedulable = self.ready.copy(), self.unschedulable.copy()
        table.pressure = {kind: column.copy() for kind, column in self.pressure.items()}
        table.taint_class = self.taint_class.copy()
        table._read(nodes.items())
        if any(table._labels[node] != self._labels[node] for node in nodes):
            table._columns = {}
        return table

    def _read(self, nodes: Iterable[tuple[int, Node]]) -> None:
        """Reads what may change without the resources."""
        sets = {taints: number for number, taints in enumerate(self.taint_sets)}
        for index, node in nodes:
            self._labels[index], self._images[index] = node.metadata.labels, node.status.images
            self._features[index] = node.status.declared_features
            conditions = {condition.type: condition.status for condition in node.status.conditions}
            # A node without conditions comes from a hand-written file and counts as ready. Unknown is not ready.
            self.ready[index] = conditions.get("Ready", "True") == "True"
            for kind, column in self.pressure.items():
                column[index] = conditions.get(kind) == "True"
            self.unschedulable[index] = node.spec.unschedulable
            self.taint_class[index] = sets.setdefault(node.spec.taints, len(sets))
        self.taint_sets = tuple(sets)

    def labels(self, node: int) -> Labels:
        return self._labels[node]

    @cached_property
    def everywhere(self) -> BoolArray:
        mask = np.ones(len(self), dtype=bool)
        mask.setflags(write=False)
        return mask

    def column(self, key: str) -> tuple[Codes, list[str]]:
        """The codes of a label key by node (-1: the node lacks the label), and the value of each code."""
        column = self._columns.get(key)
        if column is None:
            values: dict[str, int] = {}
            codes = np.full(len(self), -1, dtype=np.int32)
            for node, labels in enumerate(self._labels):
                value = labels.get(key)
                if value is not None:
                    codes[node] = values.setdefault(value, len(values))
            # Anybody can select by keys that no node has: they share a column.
            column = self._columns[key] = (codes, list(values)) if values else self._no_column
        return column

    @cached_property
    def _no_column(self) -> tuple[Codes, list[str]]:
        return np.full(len(self), -1, dtype=np.int32), []

    def matching(self, requirement: LabelRequirement) -> BoolArray:
        """Nodes whose labels meet one requirement of a node selector."""
        codes, values = self.column(requirement.key)
        match requirement.operator:
            case "Exists":
                return codes >= 0
            case "DoesNotExist":
                return codes < 0
            case "In" | "NotIn":
                wanted = set(requirement.values)
                hit = _by_code(codes, [value in wanted for value in values])
                return hit if requirement.operator == "In" else ~hit
            case "Gt" | "Lt":
                bound = _integer(requirement.values[0]) if len(requirement.values) == 1 else None
                if bound is None:
                    return np.zeros(len(self), dtype=bool)
                numbers = [_integer(value) for value in values]
                above = requirement.operator == "Gt"
                return _by_code(codes, [n is not None and (n > bound if above else n < bound) for n in numbers])
        return np.zeros(len(self), dtype=bool)

    def named(self, requirement: LabelRequirement) -> BoolArray:
        """Nodes that meet one `matchFields` requirement. Kubernetes supports only metadata.name."""
        wanted = set(requirement.values)
        hit = np.array([name in wanted for name in self.names], dtype=bool)
        return ~hit if requirement.operator == "NotIn" else hit

    def selected(self, terms: Sequence[NodeSelectorTerm]) -> BoolArray:
        """Nodes that meet all requirements of at least one term. An empty term selects nothing."""
        chosen = np.zeros(len(self), dtype=bool)
        for term in terms:
            if term.match_expressions or term.match_fields:
                mask = self.everywhere
                for requirement in term.match_expressions:
                    mask = mask & self.matching(requirement)
                for requirement in term.match_fields:
                    mask = mask & self.named(requirement)
                chosen |= mask
        return chosen

    def labelled(self, key: str, value: str) -> BoolArray:
        codes, values = self.column(key)
        return codes == values.index(value) if value in values else np.zeros(len(self), dtype=bool)

    def declaring(self, feature: str) -> BoolArray:
        """Nodes that declare to have a feature of Kubernetes."""
        return np.array([feature in features for features in self._features], dtype=bool)

    def by_taints(self, verdict: Sequence[float]) -> FloatArray:
        """Values by distinct set of taints, as values by node."""
        return np.asarray(verdict, dtype=np.float64)[self.taint_class]

    @cached_property
    def repelling_taints(self) -> RepellingTaints:
        return RepellingTaints(self.taint_sets)

    @cached_property
    def images(self) -> dict[str, tuple[IntArray, float]]:
        """Image name -> the nodes that have it, and its size in bytes."""
        holders: dict[str, list[int]] = {}
        size: dict[str, float] = {}
        for node, images in enumerate(self._images):
            for image in images:
                for name in image.names:
                    holders.setdefault(name, []).append(node)
                    size[name] = float(image.size_bytes)
        return {name: (np.array(nodes, dtype=np.intp), size[name]) for name, nodes in holders.items()}


def same_resources(old: Node, new: Node) -> bool:
    """Whether two versions of a node have the same resources and GPUs."""
    if old.status.allocatable != new.status.allocatable or old.status.capacity != new.status.capacity:
        return False
    return device_words(old) == device_words(new)


def _by_code(codes: Codes, verdict: Sequence[bool]) -> BoolArray:
    # Code -1 (no such label) indexes the last entry, the appended False.
    return np.array([*verdict, False], dtype=bool)[codes]


def _integer(text: str) -> int | None:
    """A 64-bit number as Go reads it. Python's `int` would also take "1_000" and other scripts' digits."""
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -LARGEST - 1 <= number <= LARGEST else None
