"""backfill: pods that ask for nothing go wherever a node will have them.

They hold no resource that anybody shares, so no queue's share is asked; a gang of them still starts whole or not at
all.
"""

from maniple.scheduler.actions.allocate import check_valid, place_one, start_gang
from maniple.scheduler.actions.line import Line
from maniple.scheduler.session import Session


class Backfill:
    def execute(self, session: Session) -> None:
        jobs = (
            job for job in session.snapshot.waiting if job.groups and job.is_best_effort and check_valid(session, job)
        )
        line = Line(session, jobs)
        while (queue := line.next_queue()) is not None:
            job = line.next_job(queue)
            if session.job_ready(job) or start_gang(session, queue, job):
                while place_one(session, queue, job):
                    pass
