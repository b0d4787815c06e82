"""An order of units that frees whole places on single nodes instead of a little room on many.

The units on a node form a sequence: by cost, and a second time by how much room they free. Each unit of the sequence
adds the pods it evicts and the pods of the gang that then fit. A node is represented by the prefix of its sequence that
evicts the fewest pods per pod of the gang. The nodes with the best prefixes come first.

This is arithmetic on columns and must never loop over units or nodes: P pairs of a unit and a node and R resources cost
O(P log P + R P).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from maniple.api.gpu.requests import WHOLE
from maniple.model.job import TaskGroup
from maniple.model.resources import BoolArray, FloatArray, IntArray
from maniple.scheduler.eviction.running_sums import Runs, firsts
from maniple.scheduler.eviction.unit_table import UnitTable
from maniple.scheduler.framework.session import Session


@dataclass(frozen=True, slots=True, eq=False)
class UnitsByNode:
    """The best prefix of each node on which evictions make room, best node first."""

    units: IntArray  # the prefixes, node by node, then all other units of the same sequences
    nodes: IntArray
    price: FloatArray  # evicted pods per pod of the gang that then fits
    grades: IntArray  # the highest grade in the prefix (UnitTable.grade_codes)
    most: FloatArray  # how many more pods of the gang fit if all units there are evicted


class _Rows(NamedTuple):
    """A row is a unit on a node, in the order of eviction. The sums are over the node's rows up to this one."""

    unit: IntArray
    node: IntArray
    gained: FloatArray  # pods of the gang that fit in addition
    lost: FloatArray  # evicted pods
    gangs: FloatArray  # gangs evicted whole
    grade: IntArray  # the highest so far
    dearest: IntArray  # the most expensive unit so far: units are numbered by cost
    sequence: IntArray  # the number of the sequence that the row is in


def units_by_node(
    session: Session, group: TaskGroup, table: UnitTable, left: BoolArray, within: BoolArray | None = None
) -> UnitsByNode:
    """Returns the best prefixes of units in `left`, on all nodes that the group may use or on those `within`."""
    is_open = session.capacity.allowed(group) if within is None else session.capacity.allowed(group) & within
    pairs = table.unit_nodes
    here = np.flatnonzero(left[pairs.unit] & is_open[pairs.node])
    lost = _lost(table, left, pairs.unit[here], pairs.node[here])
    if (table.pods.device_parts.millis == WHOLE).all():
        asked = np.flatnonzero(group.shape.requests)
        times = pairs.held[np.ix_(asked, here)] / group.shape.requests[asked, None]
        keys = [np.zeros(len(here)), -times.max(axis=0, initial=0.0)]
    else:
        # The GPU with the least in use is whole again soonest.
        keys = [_in_use(session, table)[here]]
    sequences = []
    for number, key in enumerate(keys):
        order = np.lexsort((pairs.unit[here], key, table.is_whole[pairs.unit[here]], pairs.node[here]))
        sequences.append(_in_sequence(session, group, table, here[order], lost[order], number))
    return _best_prefixes(_Rows(*map(np.concatenate, zip(*sequences, strict=True))), len(is_open))


def _in_sequence(
    session: Session, group: TaskGroup, table: UnitTable, order: IntArray, lost: FloatArray, number: int
) -> _Rows:
    """Returns the rows of one sequence: the pairs in `order`, node by node, where each evicts `lost` more pods."""
    unit, node = table.unit_nodes.unit[order], table.unit_nodes.node[order]
    runs = Runs(node)
    fits_now, fits_then = np.full(len(unit), np.inf), np.full(len(unit), np.inf)
    for row in np.flatnonzero(group.shape.requests).tolist():
        free, asked = session.future[row, node], group.shape.requests[row]
        if np.isfinite(free).all():
            np.minimum(fits_now, np.floor(free / asked), out=fits_now)
            freed = runs.summed(table.unit_nodes.held[row, order])
            np.minimum(fits_then, np.floor((free + freed) / asked), out=fits_then)
    gained = np.where(np.isfinite(fits_now), np.maximum(fits_then, 0.0) - np.maximum(fits_now, 0.0), 0.0)
    gangs = runs.summed(table.is_whole[unit].astype(np.float64))
    grade, dearest = runs.highest(table.grade_codes[unit]), runs.highest(unit)
    return _Rows(unit, node, gained, runs.summed(lost), gangs, grade, dearest, np.full(len(unit), number))


def best_domains(by_node: UnitsByNode, codes: IntArray, missing: FloatArray) -> IntArray:
    """Returns the domains in which evictions gain the `missing` pods of each, those that evict least first.

    `codes` has the domain of each node.
    """
    order = np.argsort(codes[by_node.nodes], kind="stable")
    domain = codes[by_node.nodes[order]]
    order, domain = order[domain >= 0], domain[domain >= 0]
    runs = Runs(domain)
    gained, lost = runs.summed(by_node.most[order]), runs.summed((by_node.most * by_node.price)[order])
    enough = np.flatnonzero(gained >= missing[domain])
    enough = enough[firsts(domain[enough])]
    # The last node need not give all that it can.
    over = gained[enough] - missing[domain[enough]]
    lost = lost[enough] - over * by_node.price[order][enough]
    grade = runs.highest(by_node.grades[order])[enough]
    return domain[enough[np.lexsort((domain[enough], lost, grade))]]


def _best_prefixes(rows: _Rows, node_count: int) -> UnitsByNode:
    """Ends each node's prefix at the row where a pod of the gang costs least, over all sequences of the node."""
    useful = np.flatnonzero(rows.gained > 0)
    price, gangs = rows.lost[useful] / rows.gained[useful], rows.gangs[useful] / rows.gained[useful]
    by_price = (rows.dearest[useful], price, gangs, rows.grade[useful])
    best = np.lexsort((useful, *by_price, rows.node[useful]))
    best = best[firsts(rows.node[useful][best])]
    best = best[np.lexsort([rows.node[useful][best], *(column[best] for column in by_price)])]
    ends, nodes = useful[best], rows.node[useful][best]
    rank_of = np.full(node_count, -1, dtype=np.intp)  # node -> its place among `nodes`
    rank_of[nodes] = np.arange(len(nodes))
    most = np.zeros(node_count)
    np.maximum.at(most, rows.node, rows.gained)
    ranked = np.flatnonzero(rank_of[rows.node] >= 0)
    rank = rank_of[rows.node[ranked]]
    is_best_sequence = rows.sequence[ranked] == rows.sequence[ends[rank]]
    ranked, rank = ranked[is_best_sequence], rank[is_best_sequence]
    units = rows.unit[ranked[np.lexsort((ranked, rank, ranked > ends[rank]))]]
    units = units[np.sort(np.unique(units, return_index=True)[1])]  # a unit on several nodes counts where it is first
    return UnitsByNode(units, nodes, price[best], rows.grade[ends], most[nodes])


def _lost(table: UnitTable, left: BoolArray, unit: IntArray, node: IntArray) -> FloatArray:
    """Returns, for each pair, how many pods its eviction adds to those evicted with the units before it on the node.

    A step drags the steps above it along, so the step above on the same node has been counted. A whole gang drags all
    its steps along, so all of them on the node have been counted.
    """
    lost = table.dragged(left)[unit].astype(np.float64)
    if not table.has_prerequisites:
        return lost
    job, chain, is_whole = table.job_of[unit], table.chain_of[unit], table.is_whole[unit]
    order = np.lexsort((unit, chain, is_whole, job, node))
    has_step_above = (np.diff(node[order]) == 0) & (np.diff(chain[order]) == 0) & (chain[order[1:]] >= 0)
    added = lost.copy()
    added[order[1:][has_step_above]] -= lost[order[:-1][has_step_above]]
    job_on_node = np.unique(node * len(table.jobs) + job, return_inverse=True)[1]
    steps = np.bincount(job_on_node, weights=np.where(is_whole, 0.0, added))
    return np.where(is_whole, lost - steps[job_on_node], added)


def _in_use(session: Session, table: UnitTable) -> FloatArray:
    """Returns, for each unit on a node, how much is in use of the GPUs that its pods there hold a share of."""
    parts, pairs = table.pods.device_parts, table.unit_nodes
    in_use = np.zeros(len(parts.rows))
    for row in parts.resources:
        of_row = np.flatnonzero(parts.rows == row)
        nodes = table.pods.nodes[parts.owners[of_row]]
        in_use[of_row] = WHOLE - session.gpus.future[row][nodes, parts.devices[of_row]]
    return np.bincount(pairs.of_pod[parts.owners], weights=in_use, minlength=len(pairs.unit)).astype(np.float64)
