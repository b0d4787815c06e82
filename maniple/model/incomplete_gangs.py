"""Gangs that run below their minimum and of which no pod waits, in words for whoever plans them.

Nothing of them is decided or waits before they are released, so a plan would not mention them.
"""

from collections.abc import Iterable
from math import inf

from maniple.api.incomplete_since import incomplete_since_problem
from maniple.api.keys import name_of
from maniple.api.labels import INCOMPLETE_SINCE_ANNOTATION as SINCE
from maniple.api.timestamps import format_timestamp
from maniple.api.types import PodGroup
from maniple.model.job import Job
from maniple.model.snapshot import Snapshot


def incomplete_gangs(snapshot: Snapshot, groups: Iterable[PodGroup], *, is_released: bool) -> dict[str, str]:
    """PodGroup -> what it lacks, and what becomes of it. `is_released`: if the policy's actions do that."""
    short = {job.name: job for job in snapshot.incomplete if _is_short_of_pods(job, snapshot.now)}
    words: dict[str, str] = {}
    for group in groups if short else ():
        if (job := short.get(name_of(group.metadata))) is not None:
            words[job.name] = f"{_lack(job, group)}; {_end(job, group, is_released)}"
    return words


def _is_short_of_pods(job: Job, now: float) -> bool:
    """Whether nothing else is said of it: none of its pods waits, is to come back from a move, or is released now."""
    is_moving = job.moved is not None and job.moved.keeps_places(now)
    waits = job.groups or job.gated or job.strangers
    return (
        job.key[1] == "PodGroup" and bool(job.placed) and not (job.is_whole or waits or is_moving or job.stale_at < now)
    )


def _lack(job: Job, group: PodGroup) -> str:
    runs, since = len(job.placed) + job.succeeded, group.metadata.annotations.get(SINCE, "")
    count = f"{runs} of at least {job.min_member} pods"
    if runs >= job.min_member:
        count = f"{runs} pods, and not with the minimum of each role"
    return f"it runs with {count}" + f" since {since}" * bool(since and not incomplete_since_problem({SINCE: since}))


def _end(job: Job, group: PodGroup, is_released: bool) -> str:
    if not is_released:
        return "it keeps what it holds, because the policy's actions do not include release"
    if not group.spec.stale_seconds:
        return "it keeps what it holds, because its staleSeconds are 0"
    due = job.stale_at
    if due < inf:
        return f"release evicts it after {format_timestamp(due)}, unless it is whole by then"
    return f"it keeps what it holds here, because no annotation {SINCE} says since when"
