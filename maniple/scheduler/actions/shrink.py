"""shrink: a gang's minimum comes before any job's surplus.

A blocked gang takes what elastic jobs hold above their minimum: of its own queue all, of other queues what they hold
above their deserved share. Priority and `preemptable: false` do not matter here: surplus is on loan. The victims are
those that lose the least speed in total; among equals, the fewest pods.

It ends: only a gang that starts takes anything, and it takes only surplus. So each time one more gang has its minimum,
and surplus never evicts. A job gets its surplus back only by growing into free room.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from maniple.model.job import Job
from maniple.scheduler.actions.common.contend import contend
from maniple.scheduler.eviction.unit_table import OfferedUnits
from maniple.scheduler.eviction.units import Unit, placed_by_role, surplus_steps
from maniple.scheduler.explain.tried import Surplus
from maniple.scheduler.framework.action import Ability
from maniple.scheduler.framework.due_rules import spared
from maniple.scheduler.framework.hooks import Victim
from maniple.scheduler.framework.plan import SHRUNK
from maniple.scheduler.framework.session import Session
from maniple.scheduler.growth.resize_value import gpus_of, speed


class Shrink:
    abilities = frozenset((Ability.SHRINK,))

    def execute(self, session: Session) -> None:
        rules = [lambda claimant, candidates: returnable(session, claimant, candidates)]
        session.leave_note(Surplus(rules, surplus_units))
        if session.snapshot.waiting:
            offered = OfferedUnits(session, session.snapshot.jobs, surplus_units)
            contend(session, SHRUNK, offered, rules, lambda *_: True)


def surplus_units(session: Session, job: Job) -> Iterator[Unit]:
    """Yields what the job holds above its minimum, step by step, the highest indices first."""
    running = sum(placed_by_role(session, job).values())
    share = 1 - max(job.min_member, 1) / running if running else 0.0
    dearest, speed_before = -np.inf, speed(job, running)
    gpus_by_requests: dict[int, float] = {}  # replicas of a role share their vector of requests
    for nth, (pods, size) in enumerate(surplus_steps(session, job), start=1):
        gpus = 0.0
        for pod in pods:
            requests = id(pod.requests)
            if requests not in gpus_by_requests:
                gpus_by_requests[requests] = gpus_of(session, pod.requests)
            gpus += gpus_by_requests[requests]
        running -= len(pods)
        speed_after = speed(job, running)
        loss, speed_before = speed_before - speed_after, speed_after
        # The index decides within a job: a step is never cheaper than the one before it.
        dearest = max(dearest, loss / gpus)
        cost = (dearest, job.priority, -share, -job.created, job.key, nth)
        yield Unit(job, pods, is_whole=False, cost=cost, grade=0.0, size=size, loss=loss)


def returnable(session: Session, claimant: Job, candidates: Sequence[Victim]) -> list[Victim]:
    """Returns the victims of the claimant's own queue, and those that other queues can spare."""
    if session.due is None:
        return list(candidates)
    own = [victim for victim in candidates if victim.job.queue == claimant.queue]
    return own + spared(session, claimant, [victim for victim in candidates if victim.job.queue != claimant.queue])
