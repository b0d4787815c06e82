"""Which running pods may be moved, and in which units: a pod above its gang's minimum, or a whole gang.

A job is moved only if it says so, or checkpoints by its framework. Whoever may not be evicted is not moved either.
Pods with a share of a GPU stay: their places are kept as amounts, which do not say which GPUs have the shares.
"""

from collections.abc import Iterator

from maniple.model.job import Job, PlacedPod
from maniple.scheduler.eviction.units import Unit, evictable_jobs, offered_units
from maniple.scheduler.framework.session import Session
from maniple.scheduler.moving.move_value import Moving

MOVED_LATELY = "it was moved not long ago"


def movable_jobs(session: Session, moving: Moving) -> Iterator[Job]:
    for job in evictable_jobs(session):
        if job.is_movable and job.placed and not why_unmovable(session, job, moving):
            yield job


def why_unmovable(session: Session, job: Job, moving: Moving) -> str:
    """Returns why a movable job is not moved now; empty if it may be."""
    return MOVED_LATELY if cools_down(session, job, moving) else why_fixed(session, job)


def cools_down(session: Session, job: Job, moving: Moving) -> bool:
    """Whether the job was moved not long ago."""
    return job.moved is not None and session.snapshot.now - job.moved.at_s < moving.cooldown_s


def why_fixed(session: Session, job: Job) -> str:
    """Returns why the job stays where it is, whether it may be moved or not, and whatever the policy says."""
    state = session.states.get(job.key)
    if state is not None and (state.evicted or any(state.cursor.values())):
        return "its pods start or leave in this cycle"
    if session.kept_places.of(job):
        return MOVED_LATELY
    if job.elastic is not None and session.snapshot.now < job.elastic.cooldown_until:
        return "it was resized not long ago"
    if job.waiting_pods or job.gated:
        return "some of its pods wait"
    if not all(_may_move(session, pod) for pod in job.placed):
        return "it has pods that cannot be moved"
    return ""


def _may_move(session: Session, pod: PlacedPod) -> bool:
    shape = pod.shape
    if shape is None or pod.node < 0 or not pod.is_ours or pod.is_critical or pod.makes_way_for:
        return False
    if pod.pod_affinity is not None and pod.pod_affinity.needs_pods:
        return False  # the pods that it needs may be moved with it
    return all(ask.is_whole for ask in shape.gpus) and not session.is_protected(pod)


def movable_units(session: Session, job: Job, moving: Moving) -> Iterator[Unit]:
    """Yields the units of the job. The cheapest for each pod goes first, then the one that started last.

    A step of an elastic job is no unit, as it is where jobs shrink: a job keeps its size when pods of it move, so those
    of the step that may stay do.
    """
    is_counted, dearest, nth = False, 0.0, 0
    for offered in offered_units(session, job):
        for pods in [offered.pods] if offered.is_whole else [(pod,) for pod in offered.pods]:
            # An elastic job stands still once, however many of its pods are moved.
            lost = 0.0 if is_counted and job.elastic is not None else moving.lost_by(session, job, pods)
            is_counted = True
            dearest = max(dearest, lost / len(pods))  # a unit is never cheaper than the one before it
            cost = (offered.is_whole, job.priority, dearest, *offered.cost[2:-1], nth)
            yield Unit(job, pods, offered.is_whole, cost, 0.0, loss=lost)
            nth += 1
