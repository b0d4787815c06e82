"""Who waits, and who is next in each queue: without an explanation, and without a look at nodes."""

from collections.abc import Iterable

from maniple.model.job import Job
from maniple.model.pod_identity import JobKey
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
    states, blocked = session.states, session.blocked
    gangs: dict[JobKey, Glance] = {}
    for job in session.snapshot.waiting:
        if still_waits(session, job):
            key = job.key
            state, reason = states.get(key), blocked.get(key)
            promised = 0 if state is None else state.promised_count
            gangs[key] = Glance(job, promised, "" if reason is None else reason.code)
    for key, why in session.not_released.items():
        gangs.setdefault(key, Glance(why=why))
    return gangs


class QueueLines:
    """The gangs in each queue's line: those that actions try."""

    def __init__(self, session: Session, in_line: Iterable[Job]) -> None:
        self.lengths: dict[int, int] = {}
        self.positions: dict[JobKey, int] = {}  # 1 is next
        for job in sorted(in_line, key=session.job_key):
            self.lengths[job.queue] = self.positions[job.key] = self.lengths.get(job.queue, 0) + 1
