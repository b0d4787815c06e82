"""shrink: a gang's minimum comes before any job's surplus.

A blocked gang takes what elastic jobs hold above their minimum: of its own queue all, of other queues as far as its own
has a claim on them (eviction/queue_claims.py). Priority and `preemptable: false` do not matter here: surplus is on
loan. The victims are those that lose the least speed in total; among equals, the fewest pods.

It ends: only a gang that starts takes anything, and it takes only surplus. So each time one more gang has its minimum,
and surplus never evicts. A job gets its surplus back only by growing into free room.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from maniple.model.job import Job
from maniple.scheduler.actions.common.contend import Attempt, claim_attempts, contend
from maniple.scheduler.eviction.queue_claims import claims_of
from maniple.scheduler.eviction.unit_table import OfferedUnits
from maniple.scheduler.eviction.units import Unit, placed_by_role, surplus_steps
from maniple.scheduler.explain.tried import Surplus
from maniple.scheduler.framework.action import Ability
from maniple.scheduler.framework.plan import SHRUNK
from maniple.scheduler.framework.session import Session
from maniple.scheduler.growth.resize_value import gpus_of, speed


class Shrink:
    abilities = frozenset((Ability.SHRINK,))

    def execute(self, session: Session) -> None:
        session.leave_note(Surplus(units_of=surplus_units))
        if not session.snapshot.waiting:
            return
        claims = claims_of(session)
        everything = Attempt(None, (), lambda table: np.ones(len(table), dtype=bool))

        def attempts(claimant: Job) -> Iterable[Attempt]:
            if claims is None:
                return [everything]
            return claim_attempts(claims, claimant, (), takes_own=True)

        contend(session, SHRUNK, OfferedUnits(session, session.snapshot.jobs, surplus_units), attempts)


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
