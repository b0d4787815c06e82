"""Claims of surplus: a job that has started asks for pods above its minimum as a gang that needs so many more.

Only with a policy that lets surplus take surplus of lower priority in its queue (`surplus.preempts` of the plugin
priority). A claim is for all of its pods, or nobody leaves for it. Nothing here evicts.
"""

from collections.abc import Iterator, Sequence

import msgspec

from maniple.model.job import Job, TaskGroup
from maniple.scheduler.framework.session import Session


def surplus_preempts(session: Session) -> bool:
    """Whether the policy lets surplus take surplus of lower priority."""
    return any(hooks.surplus_preempts for hooks in session.hooks)


def why_no_claim(session: Session, job: Job) -> str:
    """Why surplus of the job may take nothing from others; empty if it may."""
    if not job.may_preempt:
        return "its PriorityClass says preemptionPolicy: Never"
    reservation = session.reserved.by_queue.get(job.queue)
    return "" if reservation is None else f"room is reserved for {reservation.job.name} of its queue"


def claim_of(session: Session, job: Job, groups: Sequence[TaskGroup], count: int) -> Job:
    """Returns the started job as a gang that lacks `count` pods of these groups to its minimum.

    Surplus is on loan and needs no guarantee, so `preemptable: false` does not count.
    """
    have = session.state(job).placed_count + job.succeeded
    return msgspec.structs.replace(job, groups=list(groups), min_member=have + count, preemptable=True)


def claims_for_surplus(session: Session, job: Job) -> Iterator[Job]:
    """Yields what the started job may claim: all its waiting pods of one shape, then fewer."""
    for group in session.groups(job):
        for count in _counts(session.state(job).left(group), _step_of(job, group)):
            yield claim_of(session, job, [group], count)


def promised_claim(session: Session, job: Job) -> Job | None:
    """Returns the claim of the started job that an earlier cycle has promised room; None if there is none.

    Nor is there one any more if the job was given room in this cycle.
    """
    groups = [group for group in job.groups if group.nominated]
    if not groups or any(session.state(job).cursor.values()):
        return None
    return claim_of(session, job, groups, sum(sum(group.nominated.values()) for group in groups))


def _step_of(job: Job, group: TaskGroup) -> int:
    """By how many pods of the group the job grows and shrinks."""
    role = None if job.elastic is None else job.elastic.roles.get(group.role)
    return 1 if role is None else role.step


def _counts(left: int, step: int) -> Iterator[int]:
    """Yields `left`, then about half of it, and so on, in whole steps."""
    while left > 0:
        yield left
        left -= max(1, left // (2 * step)) * step
