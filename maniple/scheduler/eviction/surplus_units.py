"""What shrink may evict: the surplus of elastic jobs, priced by the speed that it loses."""

from collections.abc import Iterator

import numpy as np

from maniple.model.job import Job
from maniple.scheduler.eviction.units import Unit, placed_by_role, surplus_steps
from maniple.scheduler.framework.session import Session
from maniple.scheduler.growth.resize_value import gpus_of, speed


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
