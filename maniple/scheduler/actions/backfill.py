"""backfill: gives out what is left.

First come jobs that allocate put aside for a blocked gang: other actions have made room for it by now, or could not.

Then best-effort pods go to any node that takes them. They hold no shared resource, so queues' shares do not matter. A
gang of them still starts whole or not at all.

Last, reserved and unused resources go to jobs that cannot delay the reservation's gang. Such a job will have ended
before the gang could start, or can be evicted when it does: a preemptable job, or surplus of any job. Its pods are
marked, and make way for that gang alone (reservation.reserve.displace). A gang that makes way runs in one reservation
only, with its surplus, so that no pods of it remain elsewhere.
"""

from maniple.model.job import Job
from maniple.scheduler.actions.allocate import hand_out, place_one, start_gang
from maniple.scheduler.actions.common.filling import Filling
from maniple.scheduler.actions.common.in_line import check_valid, in_line, still_in_line
from maniple.scheduler.actions.common.job_queue import JobQueue
from maniple.scheduler.explain.tried import FreeAndReservedRoom
from maniple.scheduler.framework.action import Ability
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.waiting_gangs import Place


class Backfill:
    abilities = frozenset((Ability.BACKFILL,))

    def execute(self, session: Session) -> None:
        session.leave_note(FreeAndReservedRoom())
        put_aside, session.put_aside = session.put_aside, []
        items = still_in_line(session, put_aside)
        hand_out(session, (item for item in items if _is_whole(session, item)))
        _place_best_effort(session)
        if session.reservations:
            Filling(session).run()


def _is_whole(session: Session, item: Job | Place) -> bool:
    """Whether the gang is valid still, and loses nothing in this cycle."""
    return not isinstance(item, Job) or (check_valid(session, item) and not session.state(item).evicted)


def _place_best_effort(session: Session) -> None:
    line = JobQueue(session, in_line(session, lambda job: bool(job.groups) and job.is_best_effort))
    while (turn := line.next()) is not None:
        queue, job = turn
        if not session.job_ready(job):
            start_gang(session, queue, job)
            if not (session.job_ready(job) or session.is_promised(job)):
                line.drop()
        # Surplus waits for a gang that is only promised room.
        while session.job_ready(job) and place_one(session, queue, job):
            pass
