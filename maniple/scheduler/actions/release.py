"""release: a gang that stays below its minimum gives back what it holds, all of it or nothing.

A gang that has started may lose pods: a node is lost, a pod fails or is deleted. Until it is whole again it holds
resources in vain. If it is not after `staleSeconds`, its other pods are evicted, also with `preemptable: false`: nobody
gains from them. Critical pods and PodDisruptionBudgets are respected: then it waits, and says so.

It comes after the actions that place pods and make room, so that missing pods that fit are placed instead. If others
came first and were given that room, the gang keeps what it holds in this cycle. A gang whose missing pods do not exist
cannot be whole in this cycle, whatever others do: allocate releases it, so that nobody who computes is evicted for room
that it leaves. It ends: an evicted gang holds nothing, and starts again only whole.
"""

from maniple.model.job import Job
from maniple.scheduler.eviction.victim_consent import within_budgets
from maniple.scheduler.framework.action import Ability
from maniple.scheduler.framework.hooks import Victim
from maniple.scheduler.framework.plan import STALE
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.statement import Statement


class Release:
    abilities = frozenset((Ability.RELEASE,))

    def execute(self, session: Session) -> None:
        for job in session.snapshot.incomplete:
            _release(session, job)


def release_hopeless(session: Session) -> None:
    """Releases the gangs that wait in vain for pods that do not exist, before others make room."""
    for job in session.snapshot.incomplete:
        if job.stale_at < session.snapshot.now and session.job_valid(job) is not None:
            _release(session, job)


def _release(session: Session, job: Job) -> None:
    """Evicts the gang if its time has passed and nothing keeps it."""
    if job.stale_at >= session.snapshot.now or not _stays_below_minimum(session, job):
        return
    objection = _objection(session, job)
    if objection:
        session.not_released[job.key] = objection
        return
    with Statement(session) as statement:
        for pod in job.placed:
            statement.evict(job, pod, STALE, job.name)
        statement.commit()


def _stays_below_minimum(session: Session, job: Job) -> bool:
    """Whether it runs, lacks pods, and no missing pod was given a place in this cycle or may be given one soon."""
    if not job.placed or not session.job_need(job).total or session.snapshot.now < job.backs_off_until:
        return False
    state = session.state(job)
    return not state.evicted and not any(state.cursor.values())


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
