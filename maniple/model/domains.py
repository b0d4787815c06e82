"""Which nodes are close: the domains of every level of the Topology objects, as a code for each node.

A domain is named by its labels from the widest level down, so equal rack names in two blocks are two racks. Codes are
numbered in the order of those names, which makes "next to each other" a matter of sorting.
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
    """One level: the domain of each node (-1: none), and the domains' names."""

    name: str
    codes: IntArray
    names: tuple[str, ...]
    depth: int  # 0 is the widest of its Topology

    @cached_property
    def largest(self) -> int:
        """Nodes of the largest domain."""
        return int(np.bincount(self.shifted, minlength=2)[1:].max())

    @cached_property
    def shifted(self) -> IntArray:
        """Codes with 0 for none, as bincount wants them."""
        return self.codes + 1


class Domains:
    def __init__(self, topologies: Sequence[Topology], nodes: NodeTable) -> None:
        """Of levels with the same name in several Topologies that of the first by name counts."""
        self.levels: dict[str, Level] = {}
        self._chains: dict[str, tuple[Level, ...]] = {}  # level -> its Topology's levels, the widest first
        self.rank: IntArray = np.arange(len(nodes), dtype=np.intp)
        for number, topology in enumerate(sorted(topologies, key=lambda topology: topology.metadata.name)):
            path: list[str | None] = [""] * len(nodes)
            chain: list[Level] = []
            for depth, level in enumerate(topology.spec.levels):
                path = [_join(above, own) for above, own in zip(path, _values(nodes, level.node_label), strict=True)]
                chain.append(_level(level.name, path, depth))
            for made in chain:
                if made.name not in self.levels:
                    self.levels[made.name] = made
                    self._chains[made.name] = tuple(chain)
            if number == 0:
                self.rank = _ranks(chain, len(nodes))

    def chain(self, level: str) -> tuple[Level, ...]:
        """The levels of the Topology that has this one, from the widest to the narrowest."""
        return self._chains[level]


def _values(nodes: NodeTable, label: str) -> list[str | None]:
    codes, values = nodes.column(label)
    found: list[str | None] = [values[code] if code >= 0 else None for code in codes.tolist()]
    if label == _HOSTNAME:
        return [name if value is None else value for name, value in zip(nodes.names, found, strict=True)]
    return found


def _join(path: str | None, value: str | None) -> str | None:
    if path is None or value is None:
        return None
    return f"{path}/{value}" if path else value


def _ranks(chain: Sequence[Level], count: int) -> IntArray:
    """Where nodes stand in the order of the domains' names; nodes outside of them come last."""
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
