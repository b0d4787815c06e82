"""Which of several stale gangs need not go because others do. The session is afterwards as it was.

The gangs are asked one after the other: higher priorities first, then those that lack fewer pods, then the older ones.
A gang is spared if its missing pods fit once all stale gangs have left that are asked after it, or were asked and not
spared. Of those after it no more must go than it needs, the last ones first, and these are not asked any more: their
room is taken. So whoever is not spared did not fit when there was more room than in the end.

G gangs cost O(G) evictions and placements, and as many again for each that is spared.
"""

from collections.abc import Sequence

from maniple.model.job import Job
from maniple.model.pod_identity import JobKey
from maniple.scheduler.actions.common.in_line import check_valid
from maniple.scheduler.actions.common.stale_gangs import leave
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.statement import Statement
from maniple.scheduler.placement.placement_search import place_gang


def spared_gangs(session: Session, stale: Sequence[Job]) -> list[Job]:
    """Returns those of the stale gangs whose missing pods fit when the others have left."""
    hopeful = [job for job in stale if check_valid(session, job)]
    if len(stale) < 2 or not hopeful:
        return []
    supposed = _Supposed(session)
    try:
        return _spared(session, supposed, stale, {job.key for job in hopeful})
    finally:
        supposed.rollback()


def _spared(session: Session, supposed: "_Supposed", stale: Sequence[Job], hopeful: set[JobKey]) -> list[Job]:
    spared: list[Job] = []
    in_order = sorted(stale, key=lambda job: (-job.priority, session.job_need(job).total, job.created, job.key))
    unasked = {job.key: job for job in in_order}
    supposed.leave(in_order)
    for job in in_order:
        if unasked.pop(job.key, None) is None:
            continue
        supposed.stay([job])
        if job.key not in hopeful or not supposed.fits(job):
            supposed.leave([job])
            continue
        spared.append(job)
        for needed in _least_needed(supposed, job, list(unasked.values())):
            del unasked[needed.key]
        supposed.place(job)
        supposed.leave(list(unasked.values()))
    return spared


def _least_needed(supposed: "_Supposed", job: Job, others: Sequence[Job]) -> list[Job]:
    """Returns those of the others that have to leave for the gang, if possible the last ones. They are gone afterwards,
    and the rest of the others are there.
    """
    supposed.stay(others)
    needed: list[Job] = []
    for other in reversed(others):
        if supposed.fits(job):
            break
        supposed.leave([other])
        needed.append(other)
    superfluous: list[Job] = []
    for other in reversed(needed[:-1]):  # the room of the last one may have been enough
        supposed.stay([other])
        if supposed.fits(job):
            superfluous.append(other)
        else:
            supposed.leave([other])
    return [other for other in needed if other not in superfluous]


class _Supposed:
    """Gangs that are supposed to have left, and places of those that are spared."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._gone: dict[JobKey, Statement] = {}
        self._places: list[Statement] = []

    def leave(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            gone = self._gone[job.key] = Statement(self._session)
            leave(gone, job)

    def stay(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._gone.pop(job.key).rollback()

    def fits(self, job: Job) -> bool:
        with Statement(self._session) as places:
            return self._try(places, job)

    def place(self, job: Job) -> None:
        places = Statement(self._session)
        self._try(places, job)
        self._places.append(places)

    def rollback(self) -> None:
        for statement in (*reversed(self._places), *self._gone.values()):
            statement.rollback()

    def _try(self, places: Statement, job: Job) -> bool:
        """Places the missing pods where room is now or will be; False if the gang could not be promised that."""
        session = self._session
        queue, before = session.queue_of(job), session.state(job).allocated.copy()
        if session.overused(queue, session.asked(job)) is not None or not place_gang(session, places, job, later=True):
            return False
        more = session.state(job).allocated - before
        return (
            session.may_start(queue, job, more, is_charged=True) is None
            and session.promised_pods.hold(places.placed())
            and session.job_pipelined(job)
        )
