"""Why moving others did not help a gang that waits, and why running jobs are not moved."""

from collections import Counter
from functools import cached_property

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

    @cached_property
    def words(self) -> str:
        """`2 do not say movable: true and 1 was moved not long ago`; empty if all may be moved."""
        counts: Counter[str] = Counter()
        for job in self._session.snapshot.jobs:
            if job.placed:
                why = why_unmovable(self._session, job, self._moving) if job.is_movable else ""
                if not job.is_movable:
                    why = "not movable: true"
                elif not job.preemptable:
                    why = "preemptable: false"
                counts[why] += 1
        del counts[""]
        return joined([f"{count} ({why})" for why, count in sorted(counts.items())])


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
        others = self._unmovable.words
        text = "no running job may be moved" if self._why is None else self._why
        return f"{text}; jobs that may not be moved: {others}" if others else text
