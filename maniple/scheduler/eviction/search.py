"""Room by eviction: who would have to go so that a gang can start, chosen together with where it will start.

Victims go in units: a step of what a job holds above its minimum, or a gang whole, never a part of one. Units stand in
some order. More evictions never make a gang fit worse, so a search over the length of the list finds how many suffice;
then each of them is put back, last first, if the gang still fits without it. Only now the rules are asked, about those
who would go: whoever they refuse is left out, and the search begins again. Nothing is committed unless the gang is
promised all that it needs. So nobody is taken in vain, and nobody who was not needed.

The cheapest units of a cluster may lie on many nodes and free no room for anybody. So the order by cost is only the
first that is tried; others gather units by node, by size, and by domain for gangs that must be in one. The cheapest way
that works is taken.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from maniple.model.job import Job, Queue
from maniple.model.resources import BoolArray, IntArray
from maniple.scheduler.eviction.by_node import best_domains, by_node
from maniple.scheduler.eviction.consent import agreed
from maniple.scheduler.eviction.trial import Trial
from maniple.scheduler.eviction.unit_table import UnitTable
from maniple.scheduler.eviction.units import Unit
from maniple.scheduler.framework.hooks import VictimRule
from maniple.scheduler.framework.session import Session
from maniple.scheduler.placement.domains_and_models import by_domain, home_of, members_of

_MOST_REFUSED = 8  # searches in one order that the rules refuse; then they are asked about all of it before the last
_MOST_DOMAINS = 8  # of a topology that are tried in turn, those that lose least first
_DIGITS = 9  # losses that differ less are the same, summed up in another order
_NOBODY: IntArray = np.zeros(0, dtype=np.intp)


def make_room(
    session: Session, queue: Queue, job: Job, units: Sequence[Unit], rules: Sequence[VictimRule], reason: str
) -> list[Unit]:
    """Evicts what costs least and lets `job` start, and promises it the room; or does nothing. Says who went."""
    table = UnitTable(session, units)
    everything = np.ones(len(table), dtype=bool)
    taken = RoomMaker(session, table, everything, rules, reason).make_room(queue, job, everything)
    return [] if taken is None else [table.units[unit] for unit in taken.tolist()]


class RoomMaker:
    """Makes room for claimants that are alike, one after the other; they may take the units in `offered`."""

    def __init__(
        self, session: Session, table: UnitTable, offered: BoolArray, rules: Sequence[VictimRule], reason: str
    ) -> None:
        self._session = session
        self._table = table
        self._offered = offered
        self._rules = rules
        self._reason = reason
        self._is_pruned = False

    def make_room(self, queue: Queue, job: Job, left: BoolArray) -> IntArray | None:
        """Promises the job room, for which those leave that are returned, all of them `left` until now; or None."""
        left = left & self._offered
        with self._session.reserved.seen_by(job):
            trial = Trial(self._session, self._table, queue, job)
            if trial.fits():
                found = self._leftover(trial)
            else:
                obvious = self._obvious(trial, left)
                if obvious is not None and trial.commit(obvious, self._reason):
                    return obvious
                found = self._best(trial, left)
            return found if found is not None and trial.commit(found, self._reason) else None

    def _leftover(self, trial: Trial) -> IntArray | None:
        """Nobody, where those who leave for others leave more than these need. What is free already is not given here,
        nor to a queue that has had its share.
        """
        session = self._session
        asked = session.asked(trial.job)
        if session.evicted and not trial.fits(later=False) and session.overused(trial.queue, asked) is None:
            return _NOBODY
        return None

    def _obvious(self, trial: Trial, left: BoolArray) -> IntArray | None:
        """The cheapest unit, where it is one pod at least as large as the one that waits: if that has room then, there
        is nothing to search for. Thousands of single pods come this way.
        """
        table = self._table
        if not trial.is_single or not left.any():
            return None
        unit = np.array([np.argmax(left)])
        pods = table.pods_of(unit)
        is_like = len(pods) == 1 and (table.requests[:, pods[0]] >= trial.group.shape.requests).all()
        if not is_like or table.grades[unit[0]] > table.grades[left].min():
            return None
        return unit if agreed(self._session, trial.job, [table.units[unit[0]]], self._rules) else None

    def _best(self, trial: Trial, left: BoolArray) -> IntArray | None:
        """The cheapest of what is found in several orders."""
        table = self._table
        if not left.any():
            return None
        best = self._search(trial, np.flatnonzero(left), left)
        if best is not None:
            if self._is_least(trial, best, left):
                return best
            left = left & (table.grades <= table.grades[best].max())
        left = left & self._offered  # which may be fewer by now
        for order in _orders(self._session, trial, table, left):
            found = self._search(trial, order, left)
            if found is not None and (best is None or self._price(found) < self._price(best)):
                best = found
        return best

    def _search(self, trial: Trial, order: IntArray, left: BoolArray) -> IntArray | None:
        """The fewest units from the front of `order` that make room and may go."""
        session, table, job = self._session, self._table, trial.job
        order = table.ordered(order, left)
        for _ in range(_MOST_REFUSED):
            order = order[self._offered[order]]
            found = trial.fewest(order)
            if found is None:
                return None
            kept = set(agreed(session, job, [table.units[unit] for unit in found.tolist()], self._rules))
            refused = [unit for unit in found.tolist() if table.units[unit] not in kept]
            if not refused:
                return found
            self._prune(job, left)
            order = order[~table.with_dependents(np.array(refused))[order]]
        kept = set(agreed(session, job, [table.units[unit] for unit in order.tolist()], self._rules))
        refused = [unit for unit in order.tolist() if table.units[unit] not in kept]
        return trial.fewest(order[~table.with_dependents(np.array(refused, dtype=np.intp))[order]])

    def _prune(self, job: Job, left: BoolArray) -> None:
        """Leaves out whom the rules would not even let go alone; nor will they later, when there is less to spare."""
        if self._is_pruned:
            return
        self._is_pruned = True
        table = self._table
        verdicts: dict[int, bool] = {}
        refused = []
        for unit in np.flatnonzero(left).tolist():
            kind = int(table.kinds[unit])
            if kind not in verdicts:
                alone = [table.units[each] for each in table.ordered(np.array([unit]), left).tolist()]
                verdicts[kind] = len(agreed(self._session, job, alone, self._rules)) == len(alone)
            if not verdicts[kind]:
                refused.append(unit)
        self._offered = self._offered & ~table.with_dependents(np.array(refused, dtype=np.intp))

    def _price(self, units: IntArray) -> tuple[Any, ...]:
        """What a way of making room costs: whom it hits, how many gangs, speed, how many pods."""
        table = self._table
        return (
            float(table.grades[units].max()),
            int(table.is_whole[units].sum()),
            round(float(table.losses[units].sum()), _DIGITS),
            int(table.counts[units].sum()),
            sorted(units.tolist(), reverse=True),  # the table is in order of cost
        )

    def _is_least(self, trial: Trial, found: IntArray, left: BoolArray) -> bool:
        """Whether nothing found in another order than that of cost can be better.

        In that order a gang goes whole only where all surplus is not enough: one is then the least.
        """
        table = self._table
        return (
            trial.is_fewest(found)
            and int(table.is_whole[found].sum()) <= 1
            and float(table.grades[found].max()) <= float(table.grades[left].min())
        )


# --- in which order units are tried, other than by cost


def _orders(session: Session, trial: Trial, table: UnitTable, left: BoolArray) -> Iterator[IntArray]:
    if not trial.job.required:
        yield by_node(session, trial.group, table, left).units
        yield from _by_size(trial, table, left)
        return
    for nodes in _domains(session, trial, table, left):
        inside = np.zeros(len(table), dtype=bool)
        inside[np.repeat(np.arange(len(table)), table.counts)[nodes[table.nodes]]] = True
        inside &= left
        yield np.flatnonzero(inside)
        yield by_node(session, trial.group, table, left, nodes).units
        yield from _by_size(trial, table, inside)


def _by_size(trial: Trial, table: UnitTable, left: BoolArray) -> Iterator[IntArray]:
    """Small units first, so that few pods go; and those first that may be enough alone, so that few gangs go."""
    units = np.flatnonzero(left)
    size = table.dragged(left)[units]
    if len(units) and size.min() < size.max():
        yield units[np.lexsort((units, size))]
        is_small = size < trial.missing
        yield units[np.lexsort((units, np.where(is_small, -size, size), is_small))]


def _domains(session: Session, trial: Trial, table: UnitTable, left: BoolArray) -> Iterator[BoolArray]:
    """The nodes of domains that could hold a gang which must be in one, those that lose least first."""
    level = session.snapshot.domains.levels[trial.job.required]
    home = home_of(level, members_of(session, trial.job))
    if home is None:
        missing = trial.need.total - by_domain(level, trial.room)
        domains = best_domains(by_node(session, trial.group, table, left), level.codes, missing)
    else:
        domains = np.array([home])
    for domain in domains[:_MOST_DOMAINS].tolist():
        if domain >= 0:
            yield level.codes == domain
