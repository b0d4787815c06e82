"""Who waits, and who is next in each queue: without an explanation, and without a look at nodes."""

from collections.abc import Iterable
from typing import NamedTuple

from maniple.model.job import Job
from maniple.model.pod_identity import JobKey
from maniple.scheduler.explain.words import pods
from maniple.scheduler.framework.hooks import Reason
from maniple.scheduler.framework.plan import Glance
from maniple.scheduler.framework.session import Session


def still_waits(session: Session, job: Job) -> bool:
    """Whether something of the job waits after the cycle. A waiting job without groups is a gang that has no pods."""
    state = session.states.get(job.key)
    if state is None or job.gated or not job.groups:
        return True
    return bool(state.promised_count) or any(state.left(group) for group in job.groups)


def who_waits(session: Session) -> dict[JobKey, Glance]:
    """The gangs that wait. To know them takes no explanation."""
    states, gangs = session.states, dict[JobKey, Glance]()
    for job in session.snapshot.waiting:
        if still_waits(session, job):
            state = states.get(job.key)
            gangs[job.key] = Glance(job, 0 if state is None else state.promised_count)
    for key in session.not_released:
        gangs.setdefault(key, Glance())
    return gangs


class Standing(NamedTuple):
    kind: object  # gangs of one kind wait for the same reasons
    left: int  # pods that wait
    blocked: Reason | None  # why it is not tried


class Standings:
    """`thorough`: the name of a job that is of no kind but its own."""

    def __init__(self, session: Session, thorough: str) -> None:
        self._session = session
        self._thorough = thorough
        self._known: dict[JobKey, Standing | None] = {}
        self._in_line: dict[object, bool] = {}

    def of(self, job: Job) -> Standing | None:
        """None if nothing of the job waits."""
        if job.key not in self._known:
            self._known[job.key] = self._find(job) if still_waits(self._session, job) else None
        return self._known[job.key]

    def _find(self, job: Job) -> Standing:
        session, state = self._session, self._session.state(job)
        left = sum(state.left(group) for group in job.groups)
        # Whether a gang is complete does not depend on an action having asked.
        blocked = session.why_blocked(job)
        if blocked is None and job.exists and not session.was_checked(job):
            blocked = session.job_valid(job)
        kind: tuple[object, ...] = job.key
        if job.exists and not state.promised_count and job.name != self._thorough:
            own = own_key(session, job)
            kind = (session.demands.of(job), own, left, job.gated, job.strangers, job.is_suspended, blocked)
            if session.reservations:
                # Whether it may run in reserved room.
                ends = tuple((group.lasts_s, group.stays) for group in job.groups)
                kind += (job.key in session.reservations, job.preemptable, job.min_runtime_s, ends)
        return Standing(kind, left, blocked)

    def is_in_line(self, job: Job) -> bool:
        """Whether actions try the gang: as its explanation would say."""
        standing = self.of(job)
        if standing is None or not job.exists or job.is_suspended:
            return False
        if standing.kind not in self._in_line:
            need = self._session.job_need(job)
            is_done = self._session.state(job).promised_count or not (need.total or has_no_pods(job))
            refusal = None if is_done else self.refusal(job, standing.blocked)
            self._in_line[standing.kind] = not is_done and (refusal is None or refusal.is_in_line)
        return self._in_line[standing.kind]

    def refusal(self, job: Job, blocked: Reason | None) -> Reason | None:
        """What keeps the gang from starting whatever room there is."""
        if blocked is not None:
            return blocked
        if has_no_pods(job):
            message = f"none of its pods exists; it needs {pods(job.min_member)} to start"
            return Reason("NotEnoughPods", message, "they were created", is_in_line=False)
        # What others have started with since its turn may have left it no guarantee.
        return self._session.startable(job, self._session.needed_resources(job)) if job.groups else gated(job)


def has_no_pods(job: Job) -> bool:
    return not job.groups and not job.gated


def gated(job: Job) -> Reason:
    message = f"{pods(job.gated)} {'is' if job.gated == 1 else 'are'} held by scheduling gates"
    return Reason("SchedulingGated", message, "its scheduling gates were removed", is_in_line=False)


def own_key(session: Session, job: Job) -> JobKey | None:
    """The gang, if it has pods on nodes: what these hold cannot come free for it."""
    return job.key if job.placed or any(session.state(job).cursor.values()) else None


class QueueLines:
    """The gangs in each queue's line: those that actions try."""

    def __init__(self, session: Session, in_line: Iterable[Job]) -> None:
        self.lengths: dict[int, int] = {}
        self.positions: dict[JobKey, int] = {}  # 1 is next
        for job in sorted(in_line, key=session.job_key):
            self.lengths[job.queue] = self.positions[job.key] = self.lengths.get(job.queue, 0) + 1
