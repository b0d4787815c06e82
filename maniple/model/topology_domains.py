"""Topology domains: for each level of the Topology objects, the domain of each node as an integer code.

The name of a domain is the path of label values from the widest level down. Equal rack names in two blocks are
therefore two racks. Codes follow the order of the names, so that neighbouring domains sort next to each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from maniple.api.types import Topology
from maniple.model.nodes import NodeTable
from maniple.model.resources import IntArray

_HOSTNAME = "kubernetes.io/hostname"


@dataclass(frozen=True, eq=False)
class Level:
    """A level of a Topology: the domain code of each node (-1: no domain), and the names of the domains."""

    name: str
    codes: IntArray
    names: tuple[str, ...]
    depth: int  # 0 is the widest of its Topology

    @cached_property
    def largest(self) -> int:
        """The number of nodes in the largest domain."""
        return int(np.bincount(self.shifted, minlength=2)[1:].max())

    @cached_property
    def shifted(self) -> IntArray:
        """The codes plus one: 0 means no domain, because bincount takes no negative numbers."""
        return self.codes + 1


class Domains:
    def __init__(self, topologies: Sequence[Topology], nodes: NodeTable) -> None:
        """If several Topologies have a level of the same name, the first Topology by name wins."""
        self.levels: dict[str, Level] = {}
        self._chains: dict[str, tuple[Level, ...]] = {}  # level -> its Topology's levels, the widest first
        self.rank: IntArray = np.arange(len(nodes), dtype=np.intp)
        for number, topology in enumerate(sorted(topologies, key=lambda topology: topology.metadata.name)):
            path: list[str | None] = [""] * len(nodes)
            chain: list[Level] = []
            for depth, spec in enumerate(topology.spec.levels):
                path = [_join(above, own) for above, own in zip(path, _values(nodes, spec.node_label), strict=True)]
                chain.append(_level(spec.name, path, depth))
            for level in chain:
                if level.name not in self.levels:
                    self.levels[level.name] = level
                    self._chains[level.name] = tuple(chain)
            if number == 0:
                self.rank = _ranks(chain, len(nodes))

    def chain(self, level: str) -> tuple[Level, ...]:
        """All levels of the Topology that this level belongs to, the widest first."""
        return self._chains[level]


def _values(nodes: NodeTable, label: str) -> list[str | None]:
    codes, values = nodes.column(label)
    labels: list[str | None] = [values[code] if code >= 0 else None for code in codes.tolist()]
    if label == _HOSTNAME:
        return [name if value is None else value for name, value in zip(nodes.names, labels, strict=True)]
    return labels


def _join(path: str | None, value: str | None) -> str | None:
    if path is None or value is None:
        return None
    return f"{path}/{value}" if path else value


def _ranks(chain: Sequence[Level], count: int) -> IntArray:
    """The rank of each node in the order of the domain names. Nodes without a domain come last."""
    keys = [np.where(level.codes < 0, count, level.codes) for level in chain]
    ranked = np.lexsort((np.arange(count), *reversed(keys)))
    ranks = np.empty(count, dtype=np.intp)
    ranks[ranked] = np.arange(count)
    return ranks


def _level(name: str, paths: Sequence[str | None], depth: int) -> Level:
    names = tuple(sorted({path for path in paths if path is not None}))
    index = {path: code for code, path in enumerate(names)}
    codes = np.array([-1 if path is None else index[path] for path in paths], dtype=np.intp)
    return Level(name, codes, names, depth)
