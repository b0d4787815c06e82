"""Finds the victims whose eviction lets a gang start, together with the place where it starts.

Victims are evicted in units: a step of a job's surplus, or a whole gang, never a part of one. A trial finds the fewest
units of an order that make room. Only then are the rules asked about these; units they refuse are left out, and the
trial is repeated. Nothing is evicted unless the gang is nominated for all that it needs, so no eviction is in vain and
none is superfluous.

The cheapest units may be spread over many nodes and free no place. So the order by cost is only the first of several:
others group units by node, by size, and by domain for a gang that must be in one. The cheapest result wins. Each order
costs at most _MOST_REFUSED + 1 trials.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from maniple.model.job import Job, Queue
from maniple.model.resources import BoolArray, IntArray
from maniple.scheduler.eviction.entitlement import Entitlement
from maniple.scheduler.eviction.node_first_order import best_domains, units_by_node
from maniple.scheduler.eviction.trial import ReasonOf, Trial
from maniple.scheduler.eviction.unit_table import UnitTable
from maniple.scheduler.eviction.victim_consent import allowed_units
from maniple.scheduler.framework.hooks import VictimRule
from maniple.scheduler.framework.session import Session
from maniple.scheduler.placement.domains_and_models import by_domain, home_of, members_of

_MOST_REFUSED = 8  # trials of one order that the rules may refuse; then they are asked about the whole order
_MOST_DOMAINS = 8  # domains that are tried, those that evict least first
_MOST_WASTEFUL = 8  # sets of victims of which some would leave in vain
_MOST_STAYING = 48  # units with a pod that the gang's affinity needs, each of which is tried as the one that stays
_FEW_STAYING = 8  # up to so many such units, each choice is tried in full
_DIGITS = 9  # a sum of losses depends on the order of its terms beyond these
_NO_UNITS: IntArray = np.zeros(0, dtype=np.intp)


@dataclass(frozen=True, slots=True)
class Terms:
    """On which terms a claimant takes units."""

    reason_of: ReasonOf
    rules: Sequence[VictimRule] = ()
    lone_rules: Sequence[VictimRule] | None = None  # rules to ask about single units, if not all can be asked so
    distance: IntArray | None = None  # [units] those with a lower number may have to leave before others are allowed
    entitlement: Entitlement | None = None  # what has to leave before the claimant may have what is farther away
    only_for_room: BoolArray | None = None  # [units] those that may not leave for the entitlement alone
    # Units that may have to stay so that others may go, several choices of them.
    stand_ins: Callable[[], Sequence[IntArray]] = lambda: ()


def always(reason: str) -> ReasonOf:
    return lambda _, units: [reason] * len(units)


class RoomMaker:
    """Makes room for claimants with the same demand, one after the other, by evicting units in `offered`."""

    def __init__(self, session: Session, table: UnitTable, offered: BoolArray, terms: Terms) -> None:
        self._session = session
        self._terms = terms
        self._table = table
        self._offered = offered
        if table.has_prerequisites:  # what has to leave with a unit must be on offer as well
            self._offered = offered & ~table.with_dependents(np.flatnonzero(~offered))
        self._is_pruned = False

    def make_room(self, queue: Queue, job: Job, left: BoolArray) -> IntArray | None:
        """Evicts units in `left`, nominates the job for their room and returns them; None if the job cannot start."""
        left = left & self._offered
        if not self._session.evicted and not left.any():
            return None
        with self._session.reserved.seen_by(job):
            trial = Trial(self._session, self._table, queue, job, self._condition(job), self._table.room_after)
            if trial.fits():
                victims = self._leftover(trial)
            else:
                obvious = self._obvious(trial, left)
                if obvious is not None and trial.commit(obvious, self._terms.reason_of):
                    return obvious
                victims = self._best_with_stand_ins(trial, left)
            return victims if victims is not None and trial.commit(victims, self._terms.reason_of) else None

    def _condition(self, job: Job) -> Callable[[BoolArray], bool] | None:
        entitlement, due = self._terms.entitlement, self._session.due
        if entitlement is None or due is None:
            return None
        return entitlement.condition(due.accounting.asked(self._session.needed_resources(job)))

    def _best_with_stand_ins(self, trial: Trial, left: BoolArray) -> IntArray | None:
        """Returns the cheapest units; if there are none, those that may go because others stay in their place."""
        victims = self._best_without_waste(trial, left)
        if victims is not None:
            return victims
        for staying in self._terms.stand_ins():
            rest = left & ~self._table.with_dependents(staying)
            if trial.fits_without(np.flatnonzero(rest)):
                victims = self._best_without_waste(trial, rest)
                if victims is not None:
                    return victims
        return None

    def _best_without_waste(self, trial: Trial, left: BoolArray) -> IntArray | None:
        """Returns the cheapest units of which none leaves in vain that may leave only to make room.

        Where others make room enough without them, the largest of these others is left out, and it is tried again.
        """
        victims = self._best_without_company(trial, left)
        for _ in range(_MOST_WASTEFUL):
            if victims is None or not self._wastes(trial, victims):
                return victims
            others = victims if self._terms.only_for_room is None else victims[~self._terms.only_for_room[victims]]
            if not len(others):
                return None
            largest = others[np.argmax(self._table.counts[others])]
            left = left & ~self._table.with_dependents(np.array([largest]))
            victims = self._best_without_company(trial, left)
        return None

    def _wastes(self, trial: Trial, victims: IntArray) -> bool:
        """Whether there would be room without a unit that may leave only to make room."""
        if self._terms.only_for_room is None:
            return False
        for unit in victims[self._terms.only_for_room[victims]].tolist():
            others = victims[~self._table.with_dependents(np.array([unit]))[victims]]
            if trial.fits_without(others):
                return True
        return False

    def find_room(self, queue: Queue, job: Job, left: BoolArray) -> IntArray | None:
        """Returns the units in `left` that would have to leave for the job; None if none need to, or the job cannot
        start. Nothing is evicted.
        """
        with self._session.reserved.seen_by(job):
            trial = Trial(self._session, self._table, queue, job)
            return None if trial.fits() else self._best_without_company(trial, left & self._offered)

    def _leftover(self, trial: Trial) -> IntArray | None:
        """Returns no units if the job fits into room that this cycle's victims leave, else None.

        Room that is free now is allocate's to give, and an overused queue gets none.
        """
        session = self._session
        asked = session.asked(trial.job)
        if session.evicted and not trial.fits(later=False) and session.overused(trial.queue, asked) is None:
            return _NO_UNITS
        return None

    def _obvious(self, trial: Trial, left: BoolArray) -> IntArray | None:
        """Returns the cheapest unit if it is one pod at least as large as the one pod that waits, else None.

        No other unit can be better if the pod fits then. This is the path of thousands of single pods.
        """
        table = self._table
        if not trial.is_single or not left.any():
            return None
        unit = np.array([np.argmax(left)])
        pods = table.pods_of(unit)
        is_large_enough = len(pods) == 1 and (table.pods.requests[:, pods[0]] >= trial.group.shape.requests).all()
        if not is_large_enough or table.grades[unit[0]] > table.grades[left].min():
            return None
        return None if len(self._refused(trial.job, unit)) else unit

    def _best_without_company(self, trial: Trial, left: BoolArray) -> IntArray | None:
        """Returns the cheapest units, if possible none with a pod that the gang's affinity may need.

        Where some of these pods have to go, others must stay: several choices of those that stay are tried.
        """
        if not trial.needs_pods:
            return self._best(trial, left)
        table = self._table
        company = [unit for unit in np.flatnonzero(left).tolist() if trial.is_company(unit)]
        if not company:
            return self._best(trial, left)
        best = self._best(trial, left & ~table.with_dependents(np.array(company)))
        if best is not None:
            return best
        is_small = len(company) <= _FEW_STAYING
        for staying in trial.company_sets(company[-_MOST_STAYING:]):
            rest = left & ~table.with_dependents(staying)
            # A gang that needs pods for its spread, too, may fit without some of the others and not without all.
            if not is_small and not trial.fits_without(np.flatnonzero(rest)):
                continue
            victims = self._best(trial, rest)
            if victims is not None and (best is None or self._price(victims) < self._price(best)):
                best = victims
        return self._best(trial, left) if best is None else best

    def _best(self, trial: Trial, left: BoolArray) -> IntArray | None:
        """Returns the cheapest units found in several orders, or None."""
        table = self._table
        if not left.any() or trial.is_hopeless(left):
            return None
        best = self._search(trial, np.flatnonzero(left), left)
        if best is not None:
            if self._is_least(trial, best, left):
                return best
            left = left & (table.grades <= table.grades[best].max())
        left = left & self._offered  # _prune may have removed some
        for order in self._orders(trial, left):
            victims = self._search(trial, order, left)
            if victims is not None and (best is None or self._price(victims) < self._price(best)):
                best = victims
        return best

    def _search(self, trial: Trial, order: IntArray, left: BoolArray) -> IntArray | None:
        """Returns the fewest units from the front of `order` that make room and that the rules allow, or None."""
        table, job = self._table, trial.job
        order = table.ordered(order, left)
        for _ in range(_MOST_REFUSED):
            order = order[self._offered[order]]
            victims = trial.fewest(order)
            if victims is None:
                return None
            refused = self._refused(job, victims)
            if not len(refused):
                return victims
            self._prune(job, left)
            order = order[~table.with_dependents(refused)[order]]
        victims = trial.fewest(order[~table.with_dependents(self._refused(job, order))[order]])
        # Some were allowed together with others, which are not needed.
        return None if victims is None or len(self._refused(job, victims)) else victims

    def _refused(self, job: Job, units: IntArray, *, alone: bool = False) -> IntArray:
        """Returns the units that the rules do not allow, counting the units before each."""
        chosen = [self._table.units[unit] for unit in units.tolist()]
        rules, lone = self._terms.rules, self._terms.lone_rules
        allowed = set(allowed_units(self._session, job, chosen, lone if alone and lone is not None else rules))
        return units[[unit not in allowed for unit in chosen]] if len(allowed) < len(chosen) else _NO_UNITS

    def _prune(self, job: Job, left: BoolArray) -> None:
        """Removes, once, units that the rules refuse even alone. They stay refused: later there is less to spare."""
        if self._is_pruned:
            return
        self._is_pruned = True
        table = self._table
        verdicts: dict[int, bool] = {}
        refused = []
        for unit in np.flatnonzero(left).tolist():
            kind = int(table.kinds[unit])
            if kind not in verdicts:
                verdicts[kind] = not len(self._refused(job, table.ordered(np.array([unit]), left), alone=True))
            if not verdicts[kind]:
                refused.append(unit)
        self._offered = self._offered & ~table.with_dependents(np.array(refused, dtype=np.intp))

    def _price(self, units: IntArray) -> tuple[Any, ...]:
        """Returns what evicting the units costs: highest grade, whole gangs, speed, pods."""
        table = self._table
        return (
            float(table.grades[units].max()),
            int(table.is_whole[units].sum()),
            round(float(table.losses[units].sum()), _DIGITS),
            int(table.counts[units].sum()),
            sorted(units.tolist(), reverse=True),  # units are numbered by cost
        )

    def _is_least(self, trial: Trial, victims: IntArray, left: BoolArray) -> bool:
        """Whether no other order can give better victims than the order by cost gave.

        In the order by cost a whole gang comes only after all surplus, so one whole gang is then the minimum.
        """
        table = self._table
        return (
            trial.is_fewest(victims)
            and int(table.is_whole[victims].sum()) <= 1
            and float(table.grades[victims].max()) <= float(table.grades[left].min())
        )

    def _orders(self, trial: Trial, left: BoolArray) -> Iterator[IntArray]:
        """Yields orders of units other than by cost."""
        session, table = self._session, self._table
        if (distance := self._terms.distance) is not None:
            units = np.flatnonzero(left)
            yield units[np.lexsort((units, distance[units]))]
        if not trial.job.required:
            yield units_by_node(session, trial.group, table, left).units
            yield from _by_size(trial, table, left)
            return
        for nodes in domains_in_order(session, trial, table, left):
            inside = np.zeros(len(table), dtype=bool)
            inside[np.repeat(np.arange(len(table)), table.counts)[nodes[table.pods.nodes]]] = True
            inside &= left
            yield np.flatnonzero(inside)
            yield units_by_node(session, trial.group, table, left, nodes).units
            yield from _by_size(trial, table, inside)


# --- orders of units other than by cost


def _by_size(trial: Trial, table: UnitTable, left: BoolArray) -> Iterator[IntArray]:
    """Small units first, to evict few pods; then units first that may be enough alone, to evict few gangs."""
    units = np.flatnonzero(left)
    size = table.dragged(left)[units]
    if len(units) and size.min() < size.max():
        yield units[np.lexsort((units, size))]
        is_small = size < trial.missing
        yield units[np.lexsort((units, np.where(is_small, -size, size), is_small))]


def domains_in_order(session: Session, trial: Trial, table: UnitTable, left: BoolArray) -> Iterator[BoolArray]:
    """Yields the nodes of each domain that could hold the gang, those that evict least first."""
    level = session.snapshot.domains.levels[trial.job.required]
    home = home_of(level, members_of(session, trial.job))
    if home is None:
        missing = trial.need.total - by_domain(level, trial.room)
        domains = best_domains(units_by_node(session, trial.group, table, left), level.codes, missing)
    else:
        domains = np.array([home])
    for domain in domains[:_MOST_DOMAINS].tolist():
        if domain >= 0:
            yield level.codes == domain
