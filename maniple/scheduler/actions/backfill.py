"""backfill: gives out what is left.

First come jobs that allocate put aside for a blocked gang: other actions have made room for it by now, or could not.

Then best-effort pods go to any node that takes them. They hold no shared resource, so queues' shares do not matter. A
gang of them still starts whole or not at all.

Last, reserved and unused resources go to jobs that cannot delay the reservation's gang. Such a job will have ended
before the gang could start, or can be evicted when it does: a preemptable job, or surplus of any job. Its pods are
marked, and make way for that gang alone (reservation.reserve.displace). A gang that makes way runs in one reservation
only, with its surplus, so that no pods of it remain elsewhere.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from maniple.model.job import Job, Queue, TaskGroup
from maniple.scheduler.actions.allocate import hand_out, place_one, start_gang
from maniple.scheduler.actions.common.in_line import check_valid, first_of, in_line, still_in_line
from maniple.scheduler.actions.common.job_queue import JobQueue
from maniple.scheduler.explain.tried import FreeAndReservedRoom
from maniple.scheduler.framework.action import Ability
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.waiting_gangs import Place
from maniple.scheduler.reservation.reservation_book import Reservation
from maniple.scheduler.reservation.reserve import host_of


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


class Filling:
    """Hands out reserved resources to jobs that cannot delay the reservation."""

    def __init__(self, session: Session) -> None:
        self._session = session
        # Fit failures: kind of job -> reservations -> a count of pods that does not fit.
        self._failed: dict[Hashable, dict[Hashable, int]] = {}

    def run(self) -> None:
        session = self._session
        has_room = self._has_room()
        items = in_line(session, lambda job: bool(job.groups) and not job.is_best_effort and has_room(job))
        line = JobQueue(session, (item for item in items if first_of(item).key not in session.reservations))
        while (turn := line.next()) is not None:
            queue, job = turn
            moved = self.place(queue, job)
            if not moved:
                line.drop()
            if moved and any(session.state(job).left(group) for group in job.groups):
                line.put_back(job)

    def _has_room(self) -> Callable[[Job], bool]:
        """Whether a pod of a job fits on a reserved node: ten thousand jobs that do not fit must cost nothing."""
        session = self._session
        nodes = np.concatenate([reservation.node_indices for reservation in session.reservations.values()])
        fits: dict[int, bool] = {}

        def has_room(group: TaskGroup) -> bool:
            kind = session.demands.of_group(group)
            if kind not in fits:
                fits[kind] = bool(session.capacity.fits(group)[nodes].any())
            return fits[kind]

        return lambda job: any(map(has_room, job.groups))

    def place(self, queue: Queue, job: Job) -> bool:
        """Starts the gang on reserved nodes, or places one more pod of a started job; False if it cannot."""
        session = self._session
        groups = [group for group in job.groups if session.state(job).left(group)]
        if not groups or session.overused(queue, session.asked(job)) is not None:
            return False
        need = session.job_need(job).total
        is_surplus = session.job_ready(job)
        host = host_of(session, job) if is_surplus else ""
        claim = _Claim(queue, job, is_surplus, 1 if is_surplus else need, self._failures_of(job, groups))
        in_time = [] if host else self._done_before(groups)
        if in_time and self._attempt(claim, in_time, ""):
            return True
        return any(
            host in ("", reservation.job.name) and self._attempt(claim, [reservation], reservation.job.name)
            for reservation in self._leaving_for(job, groups, is_surplus)
        )

    def _failures_of(self, job: Job, groups: Sequence[TaskGroup]) -> dict[Hashable, int] | None:
        """The failures of jobs that fit in the same reservations as this one; None: it equals no other job."""
        session = self._session
        if len(groups) != 1 or session.depends_on_pods(groups[0]) or session.state(job).nodes:
            return None
        exempt = job.queue if session.reserved.exempts(job) else None
        kind = (session.demands.of_group(groups[0]), session.demands.kinds(job), job.required, job.mixed_models, exempt)
        return self._failed.setdefault(kind, {})

    def _done_before(self, groups: Sequence[TaskGroup]) -> list[Reservation]:
        """Reservations whose gang cannot start before all these pods have ended."""
        ends = self._session.snapshot.now + max((group.lasts_s for group in groups), default=0.0)
        return [reservation for reservation in self._session.reservations.values() if ends <= reservation.ready]

    def _leaving_for(self, job: Job, groups: Sequence[TaskGroup], is_surplus: bool) -> Iterator[Reservation]:
        """Reservations for whose gang the job can be evicted whenever that gang might start."""
        if not (job.preemptable or is_surplus) or any(group.stays for group in groups):
            return
        protected_until = self._session.snapshot.now + job.min_runtime_s
        yield from [
            reservation for reservation in self._session.reservations.values() if protected_until <= reservation.ready
        ]

    def _attempt(self, claim: "_Claim", lifted: Sequence[Reservation], backfill: str) -> bool:
        session, job, failures = self._session, claim.job, claim.failures
        hosts = (backfill, *[reservation.job.key for reservation in lifted])
        if failures is not None and claim.pods >= failures.get(hosts, claim.pods + 1):
            return False
        most = None
        if backfill:
            most = np.zeros(len(session.snapshot.nodes))
            most[lifted[0].node_indices] = np.inf
        with session.reserved.lifted(lifted, most):
            if claim.is_surplus:
                done = place_one(session, claim.queue, job, backfill=backfill)
            else:
                done = start_gang(session, claim.queue, job, promises=False, backfill=backfill)
        if failures is not None and not done and job.key not in session.blocked:
            failures[hosts] = min(claim.pods, failures.get(hosts, claim.pods))
        return done


class _Claim(NamedTuple):
    """What a job asks of reserved room: its minimum, or one more pod."""

    queue: Queue
    job: Job
    is_surplus: bool
    pods: int
    failures: dict[Hashable, int] | None
