"""Claims of surplus: a job that has started asks for pods above its minimum as a gang that needs so many more.

Only with a policy that lets surplus take surplus of lower priority in its queue (`surplus.preempts` of the plugin
priority). A claim is for all of its pods, or nobody leaves for it. Nothing here evicts.

A job takes as much as there is room for before jobs of lower priority get a turn: what it left to them it would take
back in the next cycle.
"""

from collections.abc import Callable, Sequence

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


def smallest_claim(session: Session, job: Job) -> Job:
    """Returns the least that the started job may claim of those of its pods that are tried last."""
    *_, group = (group for group in session.groups(job) if session.state(job).left(group))
    step = step_of(job, group)
    return claim_of(session, job, [group], session.state(job).left(group) % step or step)


def promised_claim(session: Session, job: Job) -> Job | None:
    """Returns the claim of the started job that an earlier cycle has promised room; None if there is none.

    Nor is there one any more if the job was given room in this cycle.
    """
    groups = [group for group in job.groups if group.nominated]
    if not groups or any(session.state(job).cursor.values()):
        return None
    return claim_of(session, job, groups, sum(sum(group.nominated.values()) for group in groups))


def step_of(job: Job, group: TaskGroup) -> int:
    """By how many pods of the group the job grows and shrinks."""
    role = None if job.elastic is None else job.elastic.roles.get(group.role)
    return 1 if role is None else role.step


def take_most(left: int, step: int, takes: Callable[[int], bool]) -> None:
    """Takes as many of `left` pods as there is room for, in whole steps. `takes` takes exactly so many, or none.

    All of them are tried first, because one claim finds better victims than several. Then this is a search by halves
    for the largest number, in O(log left) tries, that takes what it has found before it looks for more.
    """
    most = count = left  # more than `most` is known not to fit
    while count > 0:
        if takes(count):
            most -= count
            count = most - most // (2 * step) * step
        else:
            most = count - step
            count -= max(1, count // (2 * step)) * step
