"""backfill: gives out what is left.

First come jobs that allocate put aside for a blocked gang: other actions have made room for it by now, or could not.

Then best-effort pods go to any node that takes them. They hold no shared resource, so queues' shares do not matter. A
gang of them still starts whole or not at all.

Last, reserved and unused resources go to jobs that cannot delay the reservation's gang. Such a job will have ended
before the gang could start, or can be evicted when it does: a preemptable job, or surplus of any job. Its pods are
marked, and make way for that gang alone (reservation.reserve.displace). A gang that makes way runs in one reservation
only, with its surplus, so that no pods of it remain elsewhere.
"""

from maniple.scheduler.actions.allocate import check_valid, hand_out, place_one, start_gang
from maniple.scheduler.actions.common.filling import Filling
from maniple.scheduler.actions.common.job_queue import JobQueue
from maniple.scheduler.explain.tried import FreeAndReservedRoom
from maniple.scheduler.framework.action import Ability
from maniple.scheduler.framework.session import Session


class Backfill:
    abilities = frozenset((Ability.BACKFILL,))

    def execute(self, session: Session) -> None:
        session.leave_note(FreeAndReservedRoom())
        put_aside, session.put_aside = session.put_aside, []
        hand_out(session, (job for job in put_aside if check_valid(session, job) and not session.state(job).evicted))
        _place_best_effort(session)
        if session.reservations:
            Filling(session).run()


def _place_best_effort(session: Session) -> None:
    jobs = (job for job in session.snapshot.waiting if job.groups and job.is_best_effort and check_valid(session, job))
    line = JobQueue(session, jobs)
    while (turn := line.next()) is not None:
        queue, job = turn
        if not session.job_ready(job):
            start_gang(session, queue, job)
        # Surplus waits for a gang that is only promised room.
        while session.job_ready(job) and place_one(session, queue, job):
            pass
