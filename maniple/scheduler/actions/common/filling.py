"""Hands out reserved resources to jobs that cannot delay the reservation.

Whether a job fits in the room of a reservation is decided for all reservations at once, and once for all jobs whose
pods are of the same kind: by the room that each reservation's nodes have. Only where there is enough of it a search is
tried. So W waiting jobs of D kinds and R reservations cost O(W + D (R + reserved nodes)), and the searches that may
succeed.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from maniple.model.job import Job, Queue, TaskGroup
from maniple.model.resources import BoolArray, FloatArray, IntArray
from maniple.scheduler.actions.allocate import place_one, refusal_of_gang, start_gang
from maniple.scheduler.actions.common.in_line import first_of, in_line
from maniple.scheduler.actions.common.job_queue import JobQueue
from maniple.scheduler.framework.session import Session
from maniple.scheduler.reservation.reservation_book import JobKey, Reservation
from maniple.scheduler.reservation.reserve import host_of

_NEVER = np.inf  # no count of pods is known not to fit


class Filling:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._failed: dict[Hashable, _Failures] = {}  # by kind of job
        self._numbers: dict[JobKey, int] = {}  # gang -> the number of its reservation in failures
        self._columns: _Columns | None = None
        self._rooms: dict[int, tuple[int, int, FloatArray]] = {}  # kind of group -> when it was counted, and the room

    def run(self) -> None:
        session = self._session
        items = in_line(session, self._may_fit)
        line = JobQueue(session, (item for item in items if first_of(item).key not in session.reservations))
        while (turn := line.next()) is not None:
            queue, job = turn
            moved = self.place(queue, job)
            if not moved:
                line.drop()
            if moved and any(session.state(job).left(group) for group in job.groups):
                line.put_back(job)

    def _may_fit(self, job: Job) -> bool:
        """Whether a pod of the job fits on a reserved node: ten thousand jobs that do not fit must cost nothing."""
        return not job.is_best_effort and any(self._room_of(group).any() for group in job.groups)

    def place(self, queue: Queue, job: Job) -> bool:
        """Starts the gang on reserved nodes, or places one more pod of a started job; False if it cannot."""
        session = self._session
        groups = [group for group in job.groups if session.state(job).left(group)]
        if not groups or not session.reservations or session.overused(queue, session.asked(job)) is not None:
            return False
        need = session.job_need(job)
        is_surplus = session.job_ready(job)
        host = host_of(session, job) if is_surplus else ""
        claim = _Claim(queue, job, is_surplus, 1 if is_surplus else need.total, self._failures_of(job, groups))
        if not host and self._start_before(claim, groups):
            return True
        if not (job.preemptable or is_surplus) or any(group.stays for group in groups):
            return False
        return self._start_inside(claim, groups, host)

    def _failures_of(self, job: Job, groups: Sequence[TaskGroup]) -> "_Failures | None":
        """The failures of jobs that fit in the same reservations as this one; None: it equals no other job."""
        session = self._session
        if len(groups) != 1 or session.depends_on_pods(groups[0]) or session.state(job).nodes:
            return None
        exempt = job.queue if session.reserved.exempts(job) else None
        kind = (session.demands.of_group(groups[0]), session.demands.kinds(job), job.required, job.mixed_models, exempt)
        failures = self._failed.get(kind)
        if failures is None:
            failures = self._failed[kind] = _Failures()
        return failures

    # -- reservations whose gangs start later

    def _start_before(self, claim: "_Claim", groups: Sequence[TaskGroup]) -> bool:
        """Starts pods that will all have ended before the gangs of some reservations can start, anywhere."""
        session = self._session
        lasts_s = max((group.lasts_s for group in groups), default=0.0)
        hosts = self._of_now.done_before(session.snapshot.now + lasts_s) if np.isfinite(lasts_s) else None
        if hosts is None:
            return False
        failures, job = claim.failures, claim.job
        if failures is not None and claim.pods >= failures.together.get(hosts.keys, _NEVER):
            return False
        done = self._attempt(claim, hosts.reservations, None)
        if failures is not None and not done and job.key not in session.blocked:
            failures.together[hosts.keys] = min(claim.pods, failures.together.get(hosts.keys, claim.pods))
        return done

    # -- reservations for whose gangs the job can be evicted

    def _start_inside(self, claim: "_Claim", groups: Sequence[TaskGroup], host: str) -> bool:
        """Starts the job in the room of one gang, for which it can be evicted whenever that gang might start."""
        session, job, failures, columns = self._session, claim.job, claim.failures, self._of_now
        if failures is not None and failures.is_hopeless(columns.version, claim.pods):
            return False
        tried: BoolArray = session.snapshot.now + job.min_runtime_s <= columns.ready
        if host:
            tried &= np.array([reservation.job.name == host for reservation in columns.reservations], dtype=bool)
        if failures is not None:
            tried &= claim.pods < failures.least(columns.numbers)
        if not tried.any():
            self._note_failures(claim, tried, slice(None))
            return False
        if self._is_refused(claim):
            return False
        begin = 0
        for position in np.flatnonzero(tried & self._has_room(claim, groups)).tolist():
            self._note_failures(claim, tried, slice(begin, position))
            reservation = columns.reservations[position]
            if self._attempt(claim, [reservation], reservation):
                return True
            begin = position
        self._note_failures(claim, tried, slice(begin, None))
        return False

    def _is_refused(self, claim: "_Claim") -> bool:
        """Whether the job may not start or grow, wherever there is room."""
        session, queue, job = self._session, claim.queue, claim.job
        if not claim.is_surplus:
            reason = refusal_of_gang(session, queue, job, session.job_need(job))
        elif len(job.groups) == 1:
            reason = session.admissible(queue, job.groups[0].shape.requests)
        else:
            return False  # each attempt looks at each group
        if reason is not None:
            session.blocked[job.key] = reason
        return reason is not None

    def _has_room(self, claim: "_Claim", groups: Sequence[TaskGroup]) -> BoolArray:
        """[reservations] whether the nodes of each have room for the pods, if nothing but their shapes counted."""
        if claim.is_surplus and len(claim.job.groups) > 1:
            return np.ones(len(self._of_now.reservations), dtype=bool)
        left = self._session.state(claim.job).left
        rooms = [np.minimum(self._room_of(group), left(group)) for group in groups]
        return np.asarray(np.sum(rooms, axis=0) >= claim.pods)

    def _room_of(self, group: TaskGroup) -> FloatArray:
        """[reservations] how many pods of the group fit on the nodes of each."""
        session, columns = self._session, self._of_now
        kind, moment = session.demands.of_group(group), len(session.capacity.changed)
        seen, version, room = self._rooms.get(kind, (-1, -1, columns.ready))
        if (seen, version) != (moment, columns.version):
            fits = session.capacity.fits(group)[columns.nodes]
            room = np.bincount(columns.owners, weights=fits, minlength=len(columns.reservations)).astype(np.float64)
            self._rooms[kind] = moment, columns.version, room
        return room

    def _note_failures(self, claim: "_Claim", tried: BoolArray, part: slice) -> None:
        failures, columns = claim.failures, self._of_now
        if failures is not None and claim.job.key not in self._session.blocked:
            failures.note(columns.numbers[part][tried[part]], claim.pods)
            if part.stop is None and claim.pods >= failures.least(columns.numbers).max():
                failures.hopeless = columns.version, claim.pods

    @property
    def _of_now(self) -> "_Columns":
        reserved = self._session.reserved
        if self._columns is None or self._columns.version != reserved.version:
            self._columns = _Columns(reserved.version, list(reserved.by_job.values()), self._numbers)
        return self._columns

    def _attempt(self, claim: "_Claim", lifted: Sequence[Reservation], inside: Reservation | None) -> bool:
        """`inside`: the reservation in whose room the pods must be, because they make way for its gang."""
        session, most, backfill = self._session, None, ""
        if inside is not None:
            most = np.zeros(len(session.snapshot.nodes))
            most[inside.node_indices] = np.inf
            backfill = inside.job.name
        with session.reserved.lifted(lifted, most):
            if claim.is_surplus:
                return place_one(session, claim.queue, claim.job, backfill=backfill)
            return start_gang(session, claim.queue, claim.job, promises=False, backfill=backfill)


class _Failures:
    """In which reservations jobs of one kind did not fit, and the least count of pods that did not."""

    def __init__(self) -> None:
        self._least: FloatArray = np.zeros(0)  # by number of the reservation
        self.together: dict[tuple[JobKey, ...], int] = {}  # the same, for reservations that were suspended together
        self.hopeless = (-1, 0)  # at this version of the book, so many pods fit in none of all reservations

    def least(self, numbers: IntArray) -> FloatArray:
        missing = int(numbers.max(initial=-1)) + 1 - len(self._least)
        if missing > 0:
            self._least = np.append(self._least, np.full(missing, _NEVER))
        return self._least[numbers]

    def note(self, numbers: IntArray, pods: int) -> None:
        self._least[numbers] = np.minimum(self.least(numbers), pods)

    def is_hopeless(self, version: int, pods: int) -> bool:
        return self.hopeless[0] == version and pods >= self.hopeless[1]


class _Suspended(NamedTuple):
    reservations: list[Reservation]
    keys: tuple[JobKey, ...]


class _Columns:
    """The reservations of a moment, in the order in which they were made."""

    def __init__(self, version: int, reservations: list[Reservation], numbers: dict[JobKey, int]) -> None:
        """`numbers`: gang -> the number of its reservation, the same at all moments; new ones are added."""
        self.version = version
        self.reservations = reservations
        self.ready: FloatArray = np.array([reservation.ready for reservation in reservations], dtype=np.float64)
        self.numbers: IntArray = np.array(
            [numbers.setdefault(reservation.job.key, len(numbers)) for reservation in reservations], dtype=np.intp
        )
        counts = [len(reservation.nodes) for reservation in reservations]
        nodes = [reservation.node_indices for reservation in reservations]
        self.nodes: IntArray = np.concatenate(nodes) if nodes else np.zeros(0, dtype=np.intp)
        self.owners: IntArray = np.repeat(np.arange(len(reservations)), counts)
        self._before: dict[int, _Suspended] = {}

    def done_before(self, end: float) -> _Suspended | None:
        """Those whose gangs cannot start before that."""
        later = end <= self.ready
        count = int(later.sum())  # says which, because they are those that start last
        if count not in self._before:
            chosen = [self.reservations[position] for position in np.flatnonzero(later).tolist()]
            self._before[count] = _Suspended(chosen, tuple(reservation.job.key for reservation in chosen))
        return self._before[count] if count else None


class _Claim(NamedTuple):
    """What a job asks of reserved room: its minimum, or one more pod."""

    queue: Queue
    job: Job
    is_surplus: bool
    pods: int
    failures: _Failures | None
