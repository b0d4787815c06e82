"""An order in which units are tried so that they make room on single nodes, and not a little everywhere.

On each node units stand one behind the other: by cost, and once more by what they free. After some of them a pod of
the gang fits, after more of them another. Where pods come in for the fewest pods that go, there the node's way ends.
The nodes with the best ways come first. All of it is arithmetic on columns, with one row for each unit on each node.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from maniple.api.gpu.requests import WHOLE
from maniple.model.job import TaskGroup
from maniple.model.resources import BoolArray, FloatArray, IntArray
from maniple.scheduler.eviction.unit_table import UnitTable
from maniple.scheduler.framework.session import Session


@dataclass(frozen=True, slots=True, eq=False)
class Ways:
    """One for each node where units can make room, the best first."""

    units: IntArray  # those of the ways, way by way, then all others on the same nodes
    nodes: IntArray
    price: FloatArray  # pods that go for each pod of the gang that comes in
    grades: IntArray  # the highest grade among those, as a number in the table's list of grades
    most: FloatArray  # how many pods of the gang come in at most, if all units there go


class _Rows(NamedTuple):
    """Units on nodes, in the order in which they go there, and what has been gained and lost after each."""

    unit: IntArray
    node: IntArray
    gained: FloatArray
    lost: FloatArray
    gangs: FloatArray  # that have gone whole
    grade: IntArray
    dearest: IntArray  # the last unit in order of cost among those so far
    sequence: IntArray  # there are several: which of them it is


def by_node(
    session: Session, group: TaskGroup, table: UnitTable, left: BoolArray, within: BoolArray | None = None
) -> Ways:
    """The ways on all nodes, or on those `within`, with units that are left."""
    is_open = session.capacity.allowed(group) if within is None else session.capacity.allowed(group) & within
    places = table.places
    here = np.flatnonzero(left[places.unit] & is_open[places.node])
    lost = _lost(table, left, places.unit[here], places.node[here])
    if (table.device_parts.millis == WHOLE).all():
        asked = np.flatnonzero(group.shape.requests)
        times = places.held[np.ix_(asked, here)] / group.shape.requests[asked, None]
        keys = [np.zeros(len(here)), -times.max(axis=0, initial=0.0)]
    else:
        keys = [_held(session, table)[here]]
    sequences = []
    for number, key in enumerate(keys):
        order = np.lexsort((places.unit[here], key, table.is_whole[places.unit[here]], places.node[here]))
        sequences.append(_in_sequence(session, group, table, here[order], lost[order], number))
    return _best(_Rows(*map(np.concatenate, zip(*sequences, strict=True))), len(is_open))


def _in_sequence(
    session: Session, group: TaskGroup, table: UnitTable, order: IntArray, lost: FloatArray, number: int
) -> _Rows:
    """The units go in `order`, node by node; with each of them so many pods are `lost`."""
    unit, node = table.places.unit[order], table.places.node[order]
    runs = _Runs(node)
    had, has = np.full(len(unit), np.inf), np.full(len(unit), np.inf)
    for row in np.flatnonzero(group.shape.requests).tolist():
        free, asked = session.future[row, node], group.shape.requests[row]
        if np.isfinite(free).all():
            np.minimum(had, np.floor(free / asked), out=had)
            np.minimum(has, np.floor((free + runs.summed(table.places.held[row, order])) / asked), out=has)
    gained = np.where(np.isfinite(had), np.maximum(has, 0.0) - np.maximum(had, 0.0), 0.0)
    gangs = runs.summed(table.is_whole[unit].astype(np.float64))
    grade, dearest = runs.highest(table.grade_codes[unit]), runs.highest(unit)
    return _Rows(unit, node, gained, runs.summed(lost), gangs, grade, dearest, np.full(len(unit), number))


def best_domains(ways: Ways, codes: IntArray, missing: FloatArray) -> IntArray:
    """Domains in which ways come to what is `missing` in each, those first that lose least; `codes`: of each node."""
    order = np.argsort(codes[ways.nodes], kind="stable")
    domain = codes[ways.nodes[order]]
    order, domain = order[domain >= 0], domain[domain >= 0]
    runs = _Runs(domain)
    gained, lost = runs.summed(ways.most[order]), runs.summed((ways.most * ways.price)[order])
    enough = np.flatnonzero(gained >= missing[domain])
    enough = enough[_firsts(domain[enough])]
    over = gained[enough] - missing[domain[enough]]
    lost = lost[enough] - over * ways.price[order][enough]
    grade = runs.highest(ways.grades[order])[enough]
    return domain[enough[np.lexsort((domain[enough], lost, grade))]]


def _best(rows: _Rows, node_count: int) -> Ways:
    """For each node the row where the pods that come in cost least: there its way ends."""
    at = np.flatnonzero(rows.gained > 0)
    price, gangs = rows.lost[at] / rows.gained[at], rows.gangs[at] / rows.gained[at]
    by_price = (rows.dearest[at], price, gangs, rows.grade[at])
    first = np.lexsort((at, *by_price, rows.node[at]))
    first = first[_firsts(rows.node[at][first])]
    first = first[np.lexsort([rows.node[at][first], *(column[first] for column in by_price)])]
    ends, nodes = at[first], rows.node[at][first]
    place = np.full(node_count, -1, dtype=np.intp)  # of each node among the ways
    place[nodes] = np.arange(len(nodes))
    most = np.zeros(node_count)
    np.maximum.at(most, rows.node, rows.gained)
    kept = np.flatnonzero(place[rows.node] >= 0)
    way = place[rows.node[kept]]
    is_of_way = rows.sequence[kept] == rows.sequence[ends[way]]
    kept, way = kept[is_of_way], way[is_of_way]
    units = rows.unit[kept[np.lexsort((kept, way, kept > ends[way]))]]
    units = units[np.sort(np.unique(units, return_index=True)[1])]
    return Ways(units, nodes, price[first], rows.grade[ends], most[nodes])


class _Runs:
    """Sorted keys, of which many are equal: sums and maxima from the first of each key on."""

    def __init__(self, keys: IntArray) -> None:
        self._starts = _firsts(keys)
        self._nth = np.repeat(np.arange(len(self._starts)), np.diff(self._starts, append=len(keys)))

    def summed(self, values: FloatArray) -> FloatArray:
        running = np.cumsum(values)
        before = running[self._starts] - values[self._starts]
        return np.asarray(running - before[self._nth])

    def highest(self, values: IntArray) -> IntArray:
        """Of values from 0 on. Lifted above all keys before it, each key starts anew."""
        lift = self._nth * (int(values.max(initial=0)) + 1)
        return np.asarray(np.maximum.accumulate(values + lift) - lift)


def _firsts(values: IntArray) -> IntArray:
    """Where in sorted `values` each one appears first."""
    return np.flatnonzero(np.diff(values, prepend=-1))


def _lost(table: UnitTable, left: BoolArray, unit: IntArray, node: IntArray) -> FloatArray:
    """How many pods go with each unit on its node that do not go with the units before it there anyway."""
    lost = table.dragged(left)[unit].astype(np.float64)
    if not table.is_linked:
        return lost
    job, chain, is_whole = table.job_of[unit], table.chain_of[unit], table.is_whole[unit]
    order = np.lexsort((unit, chain, is_whole, job, node))
    same = (np.diff(node[order]) == 0) & (np.diff(chain[order]) == 0) & (chain[order[1:]] >= 0)
    own = lost.copy()
    own[order[1:][same]] -= lost[order[:-1][same]]
    pairs = np.unique(node * len(table.jobs) + job, return_inverse=True)[1]
    steps = np.bincount(pairs, weights=np.where(is_whole, 0.0, own))
    return np.where(is_whole, lost - steps[pairs], own)


def _held(session: Session, table: UnitTable) -> FloatArray:
    """For each place how much of the devices is held of which its pods have a share: the emptiest is whole again
    soonest.
    """
    grants = table.device_parts
    held = np.zeros(len(grants.rows))
    for row in grants.resources:
        mine = np.flatnonzero(grants.rows == row)
        held[mine] = WHOLE - session.gpus.future[row][table.nodes[grants.owners[mine]], grants.devices[mine]]
    places = table.places
    return np.bincount(places.of_pod[grants.owners], weights=held, minlength=len(places.unit)).astype(np.float64)
