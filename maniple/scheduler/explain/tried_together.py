"""What the last attempt looked at for a gang that waits: surplus, lower priorities and other queues, all together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from maniple.model.job import TaskGroup
from maniple.scheduler.eviction.units import Unit
from maniple.scheduler.eviction.victim_consent import allowed_units
from maniple.scheduler.explain.tried import MAKES_ROOM, Case, Note, effect, make_room
from maniple.scheduler.explain.words import listed, pods
from maniple.scheduler.framework.plan import PREEMPTED

if TYPE_CHECKING:
    from maniple.scheduler.actions.common.take_together import Together


_WASTES = "would make room, but a lower priority leaves only if its own room is needed beside what others hold"


@dataclass(frozen=True, slots=True, eq=False)
class TriedTogether(Note):
    """What an action looked at alone, and then together with the others that take room."""

    alone: Note | None
    together: "Together"

    def describe(self, case: Case) -> str:
        alone = "" if self.alone is None else self.alone.describe(case)
        if case.is_surplus or case.job.is_best_effort or case.nearest is None:
            return alone
        units = self._allowed(case)
        reasons = sorted({reason.lower() for reason in self.together.reasons(case.job, units)})
        if len(reasons) < 2:
            return alone  # one action alone could have taken as much
        owners = listed(sorted({unit.job.name for unit in units}))
        count = pods(sum(len(unit.pods) for unit in units))
        together = f"what may be {' and '.join(reasons)} together ({count} of {owners}) {self._effect(case, units)}"
        return f"{alone}; {together}" if alone else together

    def frees_room(self, case: Case, wanted: Mapping[TaskGroup, int]) -> bool:
        if self.alone is not None and self.alone.frees_room(case, wanted):
            return True
        units = self._allowed(case)
        return bool(units) and make_room(case, wanted, units)

    def _effect(self, case: Case, units: Sequence[Unit]) -> str:
        what, lower = effect(case, units), PREEMPTED in self.together.reasons(case.job, units)
        return _WASTES if what == MAKES_ROOM and lower else what

    def _allowed(self, case: Case) -> list[Unit]:
        """The most that may be taken by one of the attempts."""
        session, offered, most = case.session, self.together.offered, list[Unit]()
        for attempt in self.together.attempts(case.job):
            table = offered.table
            mask = attempt.offered(table) & offered.left & offered.of_others(case.job)
            if not case.may_look_at(int(table.counts[mask].sum())):
                break
            order = np.flatnonzero(mask)
            distance = attempt.distance(table)
            if distance is not None:
                order = order[np.lexsort((order, distance[order]))]
            units = [table.units[unit] for unit in table.ordered(order, mask).tolist()]
            most = max(most, allowed_units(session, case.job, units, attempt.rules), key=_pods_in)
        return most


def _pods_in(units: list[Unit]) -> int:
    return sum(len(unit.pods) for unit in units)
