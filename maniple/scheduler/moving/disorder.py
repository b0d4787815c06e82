"""The measure that the idle pass lowers: how far gangs are spread, and then how many GPUs are stranded.

All gangs together are in so many domains of the widest level of their Topology, in so many of the next level, and so
on, and on so many nodes. GPUs are stranded that are free on a node where others are in use: a pod that needs all GPUs
of a node cannot have them. The list of these numbers is compared from the left. Each of them is counted, GPUs in
thousandths, and never negative, so a list that only falls comes to rest.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from maniple.model.job import Job
from maniple.model.resources import BoolArray, FloatArray
from maniple.model.topology_domains import Level
from maniple.scheduler.framework.session import Session

Spread = tuple[int, ...]  # domains of each level of the gang's Topology, the widest first, and last nodes

MILLI = 1000.0  # GPUs are counted in thousandths
_NONE = -1
_ROUNDING = 1e-9


class Disorder:
    """What the session would look like when all leaving pods have left and all others are where they will be."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._rows = list(session.snapshot.axis.gpu_rows)
        self._gpus = session.snapshot.nodes.allocatable[self._rows].sum(axis=0) / MILLI
        self._levels: dict[str, _Levels] = {}  # by the level that gangs name; "": none

    def free_gpus(self) -> FloatArray:
        """[N]"""
        return np.asarray(np.maximum(self._session.future[self._rows].sum(axis=0) / MILLI, 0.0))

    def used_gpus(self) -> FloatArray:
        """[N]"""
        return np.asarray(np.maximum(self._gpus - self.free_gpus(), 0.0))

    def untouched(self) -> BoolArray:
        """[N] nodes with GPUs, none of which is in use."""
        return np.asarray((self._gpus > 0) & (self.used_gpus() <= 0))

    def partly_used(self) -> BoolArray:
        """[N] nodes on which GPUs are stranded."""
        return np.asarray((self.used_gpus() > 0) & (self.free_gpus() > 0))

    def stranded(self) -> float:
        """The GPUs that are free on nodes where others are in use."""
        return float(self.free_gpus()[self.partly_used()].sum())

    def spread(self, job: Job, nodes: Iterable[int]) -> Spread:
        """How far the gang is spread if its pods are on these nodes. A node in no domain counts as one of its own."""
        places = set(nodes)
        domains = ([codes[node] for node in places] for codes in self._levels_of(job).codes)
        return (*(len({*codes} - {_NONE}) + codes.count(_NONE) for codes in domains), len(places))

    def least(self, job: Job) -> Spread:
        """A bound: in an empty cluster the gang would be spread so far at least."""
        parts = self._levels_of(job).parts
        if job.allocated is None:
            return (1,) * len(parts)
        return tuple(max(1, math.ceil(part - _ROUNDING)) for part in (parts * job.allocated).max(axis=1).tolist())

    def _levels_of(self, job: Job) -> "_Levels":
        name = job.required or job.preferred
        levels = self._levels.get(name)
        if levels is None:
            chain = self._session.snapshot.domains.chain(name) if name else ()
            levels = self._levels[name] = _levels(chain, self._session.snapshot.nodes.allocatable)
        return levels


@dataclass(frozen=True, slots=True, eq=False)
class _Levels:
    """The levels of a Topology, the widest first, as a loop over thousands of gangs needs them."""

    codes: list[list[int]]  # of each level: the domain of each node, or _NONE
    parts: FloatArray  # [levels + 1, R] 1 / what the largest domain of each level, and last the largest node, has


def _levels(chain: Sequence[Level], allocatable: FloatArray) -> _Levels:
    largest = [
        [float(np.bincount(level.shifted, weights=row, minlength=2)[1:].max()) for row in allocatable]
        for level in chain
    ]
    largest.append(allocatable.max(axis=1, initial=0.0).tolist())
    return _Levels([level.codes.tolist() for level in chain], 1.0 / np.maximum(np.array(largest), 1.0))
