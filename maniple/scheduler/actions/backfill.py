"""backfill: what is left over, to those who take nothing from anybody.

First those who stood back for a blocked gang: room has been made for it by now, or could not be.

Pods that ask for nothing go wherever a node will have them: they hold no resource that anybody shares, so no queue's
share is asked; a gang of them still starts whole or not at all.

Then room that is reserved and not in use yet, to those who cannot delay the gang that it is reserved for. Either they
say that they will have ended before it could start; or they can leave when it does: jobs that may be evicted, and
surplus of any job. These are marked, and make way for that gang alone (reservations.displace). A gang that makes way
is in the room of one reservation, with its surplus, so that it leaves nothing elsewhere when it goes.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from maniple.model.job import Job, Queue, TaskGroup
from maniple.scheduler.actions.allocate import check_valid, hand_out, place_one, start_gang
from maniple.scheduler.actions.common.job_queue import JobQueue
from maniple.scheduler.explain.tried import FreeAndReservedRoom
from maniple.scheduler.framework.action import Ability
from maniple.scheduler.framework.session import Session
from maniple.scheduler.reservation.book import Reservation
from maniple.scheduler.reservation.reserve import host_of


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
    while (queue := line.next_queue()) is not None:
        job = line.next_job(queue)
        if session.job_ready(job) or start_gang(session, queue, job):
            while place_one(session, queue, job):
                pass


class Filling:
    """Reserved room, handed out to those who cannot delay the reservation."""

    def __init__(self, session: Session) -> None:
        self._session = session
        # What found no room keeps finding none: (what is asked for, of which reservations) -> pods.
        self._in_vain: dict[tuple[object, ...], int] = {}

    def run(self) -> None:
        session = self._session
        waiting = [job for job in session.snapshot.waiting if not job.is_best_effort and job.groups]
        waiting = self._with_room(waiting)
        jobs = (job for job in waiting if job.key not in session.reservations and check_valid(session, job))
        line = JobQueue(session, jobs)
        while (queue := line.next_queue()) is not None:
            job = line.next_job(queue)
            moved = self.place(queue, job)
            if moved and any(session.state(job).left(group) for group in job.groups):
                line.put_back(job)

    def _with_room(self, jobs: Sequence[Job]) -> list[Job]:
        """The jobs of which a pod fits on some reserved node: ten thousand jobs in vain must cost nothing."""
        session = self._session
        nodes = np.concatenate([made.places for made in session.reservations.values()])
        fits: dict[int, bool] = {}

        def has_room(group: TaskGroup) -> bool:
            kind = session.demands.of_group(group)
            if kind not in fits:
                fits[kind] = bool(session.rooms.fits(group)[nodes].any())
            return fits[kind]

        return [job for job in jobs if any(map(has_room, job.groups))]

    def place(self, queue: Queue, job: Job) -> bool:
        """Starts the gang in reserved room, or places a pod more of one that runs; False if it must not, or cannot."""
        session = self._session
        groups = [group for group in job.groups if session.state(job).left(group)]
        if not groups or session.overused(queue, session.asked(job)) is not None:
            return False
        is_surplus = session.job_ready(job)
        host = host_of(session, job) if is_surplus else ""
        in_time = [] if host else self._done_before(groups)
        if in_time and self._attempt(queue, job, groups, in_time, is_surplus, ""):
            return True
        for made in self._leaving_for(job, groups, is_surplus):
            if host in ("", made.job.name) and self._attempt(queue, job, groups, [made], is_surplus, made.job.name):
                return True
        return False

    def _done_before(self, groups: Sequence[TaskGroup]) -> list[Reservation]:
        """The reservations whose gang cannot start before all these pods have ended."""
        ends = self._session.snapshot.now + max((group.lasts_s for group in groups), default=0.0)
        return [made for made in self._session.reservations.values() if ends <= made.ready]

    def _leaving_for(self, job: Job, groups: Sequence[TaskGroup], is_surplus: bool) -> Iterator[Reservation]:
        """The reservations for whose gang the job can leave at any time that it might start."""
        if not (job.preemptable or is_surplus) or any(group.stays for group in groups):
            return
        protected_until = self._session.snapshot.now + job.min_runtime_s
        yield from [made for made in self._session.reservations.values() if protected_until <= made.ready]

    def _attempt(
        self,
        queue: Queue,
        job: Job,
        groups: Sequence[TaskGroup],
        lifted: Sequence[Reservation],
        is_surplus: bool,
        backfill: str,
    ) -> bool:
        session = self._session
        count = 1 if is_surplus else session.job_need(job).total
        hosts = (backfill, *(made.job.key for made in lifted))
        exempt = job.queue if session.reserved.exempts(job) else None
        kind = (session.demands.of_group(groups[0]), session.demands.kinds(job))
        key = (kind, job.required, job.mixed_models, exempt, hosts)
        is_alike = len(groups) == 1 and groups[0].pod_affinity is None and not session.state(job).nodes
        if is_alike and count >= self._in_vain.get(key, count + 1):
            return False
        most = None
        if backfill:
            most = np.zeros(len(session.snapshot.nodes))
            most[lifted[0].places] = np.inf
        with session.reserved.lifted(lifted, most):
            if is_surplus:
                done = place_one(session, queue, job, backfill=backfill)
            else:
                done = start_gang(session, queue, job, promises=False, backfill=backfill)
        if is_alike and not done and job.key not in session.blocked:
            self._in_vain[key] = min(count, self._in_vain.get(key, count))
        return done
