"""Stale gangs: those that stay below their minimum after their time has passed. What keeps them, and their end.

Whether and when a stale gang goes is for the actions to decide: release, and allocate for those that cannot be whole in
this cycle.
"""

from maniple.model.job import Job
from maniple.scheduler.eviction.victim_consent import within_budgets
from maniple.scheduler.framework.hooks import Victim
from maniple.scheduler.framework.plan import STALE
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.statement import Statement


def release_hopeless(session: Session) -> None:
    """Releases the gangs that wait in vain for pods that do not exist, before others make room."""
    for job in session.snapshot.incomplete:
        if is_stale(session, job) and session.job_valid(job) is not None and has_no_objection(session, job):
            release(session, job)


def is_stale(session: Session, job: Job) -> bool:
    """Whether its time has passed, and it runs, lacks pods, and was not given a place for one in this cycle, nor may be
    given one soon.
    """
    if job.stale_at >= session.snapshot.now or session.snapshot.now < job.backs_off_until:
        return False
    if not job.placed or not session.job_need(job).total:
        return False
    state = session.state(job)
    return not state.evicted and not any(state.cursor.values())


def has_no_objection(session: Session, job: Job) -> bool:
    """Whether all of its pods may be evicted. Stores why not."""
    objection = _objection(session, job)
    if objection:
        session.not_released[job.key] = objection
    return not objection


def release(session: Session, job: Job) -> None:
    with Statement(session) as statement:
        leave(statement, job)
        statement.commit()


def leave(statement: Statement, job: Job) -> None:
    """Evicts all pods of the gang."""
    for pod in job.placed:
        statement.evict(job, pod, STALE, job.name)


def _objection(session: Session, job: Job) -> str:
    """Why not all of its pods are evicted; empty if they are."""
    if job.key in session.could_be_whole:
        return "there was room for the missing pods, and others came first in this cycle"
    if not all(pod.is_ours for pod in job.placed):
        return "pods of it were placed by another scheduler"
    if any(map(session.is_protected, job.placed)):
        return "pods of it are critical to the system"
    victims = [Victim(job, pod) for pod in job.placed]
    if len(within_budgets(session, victims)) < len(victims):
        return "a PodDisruptionBudget keeps pods of it"
    return ""
