"""Why moving others did not help a gang that waits, and why running jobs are not moved."""

from collections import Counter
from collections.abc import Iterator
from functools import cached_property

from maniple.model.job import Job
from maniple.scheduler.eviction.units import is_young, offered_units
from maniple.scheduler.eviction.victim_consent import allowed_units
from maniple.scheduler.explain.tried import Case, Note
from maniple.scheduler.explain.words import joined
from maniple.scheduler.framework.session import Session
from maniple.scheduler.moving.movable_units import why_unmovable
from maniple.scheduler.moving.move_search import NO_PLACES
from maniple.scheduler.moving.move_value import Moving


class Unmovable:
    """The running jobs that are not moved, in words. They are counted when somebody is told of them."""

    def __init__(self, session: Session, moving: Moving) -> None:
        self._session = session
        self._moving = moving
        self._words: dict[int, str] = {}  # by the priority of the gang

    def words(self, gang: Job) -> str:
        """`2 (not movable: true) and 1 (it was moved not long ago)`; empty if all may be moved for the gang."""
        if gang.priority not in self._words:
            counts: Counter[str] = Counter()
            for job, whys in self._reasons:
                counts[", ".join([*whys, *["higher priority"] * (job.priority > gang.priority)])] += 1
            del counts[""]
            self._words[gang.priority] = joined([f"{count} ({why})" for why, count in sorted(counts.items())])
        return self._words[gang.priority]

    @cached_property
    def _reasons(self) -> list[tuple[Job, list[str]]]:
        """The running jobs, and all that keeps each of them from being moved for anybody."""
        session = self._session
        reasons = {job.key: (job, list(self._reasons_of(job))) for job in session.snapshot.running}
        if session.budget_cover.budgets:
            units = [unit for job, whys in reasons.values() if not whys for unit in offered_units(session, job)]
            allowed = allowed_units(session, units[0].job, units, []) if units else []
            for key in {unit.job.key for unit in units} - {unit.job.key for unit in allowed}:
                reasons[key][1].append("a PodDisruptionBudget keeps it")
        return list(reasons.values())

    def _reasons_of(self, job: Job) -> Iterator[str]:
        session = self._session
        if not job.is_movable:
            yield "not movable: true"
        if not job.preemptable:
            yield "preemptable: false"
        if why := why_unmovable(session, job, self._moving):
            yield why
        if is_young(session, job) and next(iter(offered_units(session, job)), None) is None:
            yield "younger than its minRuntimeSeconds"


class Movable(Note):
    """Running pods that could be moved were looked at."""

    def __init__(self, unmovable: Unmovable, why: str | None = None) -> None:
        """`why`: why they did not help a gang; empty if they were not asked; None: no job may be moved."""
        self._unmovable = unmovable
        self._why = why

    def describe(self, case: Case) -> str:
        if case.is_surplus or case.job.is_best_effort or (case.nearest is None and case.blocked is not None):
            return ""
        if self._why is not None and self._why != NO_PLACES:
            return self._why
        others = self._unmovable.words(case.job)
        text = "no running job may be moved" if self._why is None else self._why
        return f"{text}; jobs that may not be moved: {others}" if others else text
