"""release: a gang that stays below its minimum gives back what it holds, all of it or nothing.

A gang that has started may lose pods: a node is lost, a pod fails or is deleted. Until it is whole again it holds
resources in vain. If it is not after `staleSeconds`, its other pods are evicted, also with `preemptable: false`: nobody
gains from them. Critical pods and PodDisruptionBudgets are respected: then it waits, and says so.

It comes after the actions that place pods and make room, so that missing pods that fit are placed instead. If others
came first and were given that room, the gang keeps what it holds in this cycle. Of several stale gangs no more go than
have to: one whose missing pods fit when others have left is promised their room (common/spared_gangs.py).

A gang whose missing pods do not exist cannot be whole in this cycle, whatever others do: allocate releases it, so that
nobody who computes is evicted for room that it leaves.

It ends: an evicted gang holds nothing, and starts again only whole. A cycle in which a gang is spared and not promised
room has promised that room to others.
"""

from collections.abc import Sequence

from maniple.model.job import Job
from maniple.scheduler.actions.allocate import start_gang
from maniple.scheduler.actions.common.in_line import check_valid
from maniple.scheduler.actions.common.job_queue import JobQueue
from maniple.scheduler.actions.common.spared_gangs import spared_gangs
from maniple.scheduler.actions.common.stale_gangs import has_no_objection, is_stale, release
from maniple.scheduler.framework.action import Ability
from maniple.scheduler.framework.session import Session


class Release:
    abilities = frozenset((Ability.RELEASE,))

    def execute(self, session: Session) -> None:
        stale = [job for job in session.snapshot.incomplete if is_stale(session, job)]
        stale = [job for job in stale if has_no_objection(session, job)]
        spared = spared_gangs(session, stale)
        for job in stale:
            # A budget may allow only some of several gangs to go.
            if job not in spared and has_no_objection(session, job):
                release(session, job)
        if spared:
            _promise(session, spared)


def _promise(session: Session, spared: Sequence[Job]) -> None:
    """Promises what leaves to gangs in line, as far as the last one that is spared.

    So a spared gang passes nobody. If others come first and take its room, it keeps what it holds in this cycle.
    """
    left = {job.key: job for job in spared}
    line = JobQueue(session, (job for job in session.snapshot.waiting if job.key in left or _waits(session, job)))
    came_first = False
    passed: list[Job] = []
    while left and (turn := line.next()) is not None:
        queue, job = turn
        is_given = session.overused(queue, session.asked(job)) is None and start_gang(session, queue, job)
        is_spared = left.pop(job.key, None) is not None
        if is_spared and not is_given:
            passed.append(job)
        came_first |= is_given and not is_spared
    for job in passed:
        if came_first:
            session.could_be_whole.add(job.key)
        if has_no_objection(session, job):
            release(session, job)


def _waits(session: Session, job: Job) -> bool:
    """Whether the gang has not started, and may be promised room."""
    if not job.groups or job.is_best_effort or session.state(job).evicted:
        return False
    return check_valid(session, job) and not session.job_ready(job)
