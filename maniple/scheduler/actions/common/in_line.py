"""Which waiting gangs an action looks at: those that may be planned at all, with gangs that are alike as one."""

import math
from collections.abc import Callable, Iterable, Iterator

from maniple.api.bind_failures import LONGEST_S
from maniple.model.job import Job
from maniple.scheduler.framework.hooks import Reason
from maniple.scheduler.framework.plan import format_rounded_up
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.waiting_gangs import Place


def in_line(session: Session, wants: Callable[[Job], bool]) -> Iterator[Job | Place]:
    """Valid gangs that the action wants. It wants all that are alike, or none of them."""
    for item in session.waiting:
        if isinstance(item, Job):
            if not _has_all(session, item) and check_valid(session, item) and wants(item):
                yield item
        elif (first := item.next_from(0)) is not None and wants(item.jobs[first]):
            item.was_tried = True
            yield item, first


def _has_all(session: Session, job: Job) -> bool:
    """Whether this cycle has given the job all that it waited for: no action can do anything for it."""
    state = session.states.get(job.key)
    return state is not None and bool(state.cursor) and not state.evicted and not any(map(state.left, job.groups))


def still_in_line(session: Session, items: Iterable[Job | Place]) -> Iterator[Job | Place]:
    """Those that were promised nothing meanwhile."""
    session.waiting.catch_up()
    for item in items:
        if isinstance(item, Job):
            if not session.is_promised(item):
                yield item
            continue
        alike, first = item
        following = alike.next_from(first)
        if following is not None:
            yield alike, following
        apart = [alike.jobs[position] for position in alike.apart.values() if position >= first]
        yield from (job for job in apart if not session.is_promised(job))


def first_of(item: Job | Place) -> Job:
    return item if isinstance(item, Job) else item[0].jobs[item[1]]


def check_valid(session: Session, job: Job) -> bool:
    """Whether the job may be planned at all. Stores the reason if not."""
    if not job.exists or job.is_suspended or session.is_promised(job):
        return False
    session.checked.add(job.key)
    reason = session.job_valid(job) or _backs_off(session, job)
    if reason is not None:
        session.blocked[job.key] = reason
    return reason is None


_SKEW_S = 30.0  # the clocks of two machines may differ by this much


def _backs_off(session: Session, job: Job) -> Reason | None:
    """The reason of a gang that backs off: one whose binding keeps failing must not be first in every cycle."""
    left = job.backs_off_until - session.snapshot.now
    if left <= 0 or left > LONGEST_S + _SKEW_S:  # a time that far away was written by a clock that is ahead of ours
        return None
    times = "once" if job.bind_failures == 1 else f"{job.bind_failures} times"
    return Reason(
        "BackingOff",
        f"binding it has failed {times}; it is tried again at {format_rounded_up(job.backs_off_until)}",
        f"{math.ceil(left)} s had passed",
        is_in_line=False,
    )
