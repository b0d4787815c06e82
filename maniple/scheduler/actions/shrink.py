"""shrink: a gang's minimum comes before anybody's surplus.

A blocked gang gets back what elastic jobs hold above their minimum: of its own queue freely, of other queues as far as
they hold more than they deserve. Priorities do not matter here, and neither does `preemptable: false`: surplus is on
loan. The jobs that lose the least speed give, all together; where that is the same, as few pods as can be.

Ends because only a gang that starts takes anything, and only surplus is taken: each time one more gang has its
minimum, and surplus never takes anything from anybody. What a job lost it gets back by growing into free room alone.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from maniple.model.job import Job
from maniple.scheduler.actions.common.contend import contend
from maniple.scheduler.eviction.unit_table import Market
from maniple.scheduler.eviction.units import Unit, placed_by_role, surplus_steps
from maniple.scheduler.explain.tried import Surplus
from maniple.scheduler.framework.action import Ability
from maniple.scheduler.framework.hooks import Victim
from maniple.scheduler.framework.plan import SHRUNK
from maniple.scheduler.framework.queue_dues import spared
from maniple.scheduler.framework.session import Session
from maniple.scheduler.growth.resize_value import gpus_of, speed


class Shrink:
    abilities = frozenset((Ability.SHRINK,))

    def execute(self, session: Session) -> None:
        rules = [lambda claimant, candidates: returnable(session, claimant, candidates)]
        session.leave_note(Surplus(rules, units_of=surplus_units, is_surplus=True))
        if session.snapshot.waiting:
            market = Market(session, session.snapshot.jobs, surplus_units)
            contend(session, SHRUNK, market, rules, lambda *_: True)


def surplus_units(session: Session, job: Job) -> Iterator[Unit]:
    """What the job holds above its minimum, step by step from the upper end."""
    running = sum(placed_by_role(session, job).values())
    share = 1 - max(job.min_member, 1) / running if running else 0.0
    dearest, now = -np.inf, speed(job, running)
    gpus_by_ask: dict[int, float] = {}  # replicas of a role share their vector of requests
    for nth, (pods, size) in enumerate(surplus_steps(session, job), start=1):
        gpus = 0.0
        for pod in pods:
            ask = id(pod.requests)
            if ask not in gpus_by_ask:
                gpus_by_ask[ask] = gpus_of(session, pod.requests)
            gpus += gpus_by_ask[ask]
        running -= len(pods)
        slower = speed(job, running)
        loss, now = now - slower, slower
        # Within a job indices decide: a step is never cheaper than the one before it.
        dearest = max(dearest, loss / gpus)
        cost = (dearest, job.priority, -share, -job.created, job.key, nth)
        yield Unit(job, pods, is_whole=False, cost=cost, grade=0.0, size=size, loss=loss)


def returnable(session: Session, claimant: Job, candidates: Sequence[Victim]) -> list[Victim]:
    """Those of its own queue, and of others what they can spare."""
    if session.due is None:
        return list(candidates)
    own = [victim for victim in candidates if victim.job.queue == claimant.queue]
    return own + spared(session, claimant, [victim for victim in candidates if victim.job.queue != claimant.queue])
