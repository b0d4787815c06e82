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
    def shifted(self) -> IntArray:
        """Codes with 0 for none, as bincount wants them."""
        return self.codes + 1


class Domains:
    def __init__(self, topologies: Sequence[Topology], nodes: NodeTable) -> None:
        """The first Topology by name that has a level of some name, and labels on a node, says where the node is."""
        self._chains: dict[str, tuple[Level, ...]] = {}  # level -> its Topology's levels, the widest first
        ordered = sorted(topologies, key=lambda topology: topology.metadata.name)
        paths: dict[str, list[str | None]] = {}
        depths: dict[str, int] = {}
        chains: dict[str, list[str]] = {}
        for topology in ordered:
            above: list[str | None] = [""] * len(nodes)
            names = [level.name for level in topology.spec.levels]
            for depth, level in enumerate(topology.spec.levels):
                own = _values(nodes, level.node_label)
                above = [_join(path, value) for path, value in zip(above, own, strict=True)]
                known = paths.get(level.name)
                paths[level.name] = above if known is None else _filled(known, above)
                depths.setdefault(level.name, depth)
                chains.setdefault(level.name, names)
        self.levels = {name: _level(name, path, depths[name]) for name, path in paths.items()}
        for name, chain in chains.items():
            self._chains[name] = tuple(self.levels[one] for one in chain)
        # Where nodes stand in the order of the first Topology's names; nodes outside it come last.
        if ordered:
            order = [self.levels[level.name].codes for level in ordered[0].spec.levels]
            keys = [np.where(codes < 0, len(nodes), codes) for codes in order]
            ranked = np.lexsort((np.arange(len(nodes)), *reversed(keys)))
            self.rank: IntArray = np.empty(len(nodes), dtype=np.intp)
            self.rank[ranked] = np.arange(len(nodes))
        else:
            self.rank = np.arange(len(nodes), dtype=np.intp)

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


def _filled(known: Sequence[str | None], more: Sequence[str | None]) -> list[str | None]:
    return [other if path is None else path for path, other in zip(known, more, strict=True)]


def _level(name: str, paths: Sequence[str | None], depth: int) -> Level:
    names = tuple(sorted({path for path in paths if path is not None}))
    index = {path: code for code, path in enumerate(names)}
    codes = np.array([-1 if path is None else index[path] for path in paths], dtype=np.intp)
    return Level(name, codes, names, depth)
