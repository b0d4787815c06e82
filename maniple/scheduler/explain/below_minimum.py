"""Gangs below their minimum: when they give back what they hold, or why they have not."""

from collections.abc import Collection, Iterator
from math import inf

from maniple.model.job import Job
from maniple.model.pod_identity import JobKey
from maniple.scheduler.explain.words import pods
from maniple.scheduler.framework.action import Ability
from maniple.scheduler.framework.hooks import Reason
from maniple.scheduler.framework.plan import STALE, Waiting, format_rounded_up
from maniple.scheduler.framework.session import Session


def gives_back(session: Session, job: Job) -> str:
    """`; it gives back what it holds at …`; empty for a gang that is whole or holds nothing."""
    if job.stale_at == inf or not job.placed or not session.has_action(Ability.RELEASE):
        return ""
    due = format_rounded_up(job.stale_at)
    if any(done.job.key == job.key and done.reason == STALE for done in session.evicted):
        return f"; it was not whole by {due}, and gives back what it holds"
    if job.key in session.not_released:
        return f"; it was not whole by {due}, and keeps what it holds: {session.not_released[job.key]}"
    is_short = session.job_need(job).total and session.snapshot.now <= job.stale_at
    return f"; it gives back what it holds at {due}, unless it is whole by then" if is_short else ""


def not_released(session: Session, explained: Collection[JobKey]) -> Iterator[Waiting]:
    """Gangs of which no pod waits, and that should have given back what they hold."""
    for job in session.snapshot.jobs if session.not_released else ():
        if job.key in session.not_released and job.key not in explained:
            message = f"the gang lacks {pods(session.job_need(job).total)} to its minimum{gives_back(session, job)}"
            queue = session.queue_of(job).name
            reason = Reason("Stale", message, "it were whole again")
            yield Waiting(job.name, job.key[1], queue, reason.code, reason.message, {}, (), reason.cure)
