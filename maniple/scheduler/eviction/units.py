"""What may be evicted, in units of pods that go together: a step of a job's surplus, or a whole gang.

A step never takes a gang below its minimum.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np

from maniple.model.job import Job, PlacedPod
from maniple.scheduler.framework.job_state import Step, SurplusCount
from maniple.scheduler.framework.plan import SHRUNK
from maniple.scheduler.framework.session import Session


@dataclass(slots=True, eq=False)  # not frozen: there may be a hundred thousand
class Unit:
    """Pods of one job that are evicted together: a step after the steps above it, a whole gang after its steps."""

    job: Job
    pods: tuple[PlacedPod, ...]
    is_whole: bool  # a gang of several pods, or the rest of it
    cost: tuple[Any, ...]  # lower goes first
    grade: float  # sets of victims are compared by their highest grade first
    size: tuple[str, int] | None = None  # of an elastic job: the role, and its size without the unit
    loss: float = 0.0  # of the job's speed


_Rank = tuple[int, str]
_Ranked = tuple[_Rank, PlacedPod]
_first = itemgetter(0)

UnitsOf = Callable[[Session, Job], Iterable[Unit]]


def evictable_jobs(session: Session) -> Iterator[Job]:
    """Yields the jobs reclaim and preempt may evict from. A job that was shrunk in this cycle keeps its minimum."""
    shrunk = {done.job.key for done in session.evicted if done.reason == SHRUNK}
    return (job for job in session.snapshot.running if job.preemptable and job.exists and job.key not in shrunk)


def offered_units(session: Session, job: Job) -> Iterator[Unit]:
    """Yields what reclaim and preempt may evict of a job: its surplus step by step, then the rest as one unit."""
    there = _there(session, job)
    if not there:
        return
    dearest, nth = -np.inf, 0
    surplus: set[PlacedPod] = set()
    is_alone = len(job.placed) == 1 and not job.succeeded  # the common case: no surplus
    for nth, step in enumerate(() if is_alone else surplus_steps(session, job), start=1):
        surplus.update(step.pods)
        # Age decides between jobs, the index within a job: a step is never cheaper than the one before it.
        dearest = max(dearest, -max(pod.started for pod in step.pods))
        yield Unit(job, step.pods, False, (False, job.priority, dearest, job.key, nth), job.priority, step.size)
    rest = tuple(pod for pod in there if pod not in surplus) if surplus else tuple(there)
    if not rest or is_young(session, job):
        return
    is_single = len(rest) == 1 and job.min_member == 1
    if is_single or session.evicts_whole:
        # Equal pods of a PodGroup stand in for each other; an ElasticJob keeps no replica above one that leaves.
        is_whole = not is_single or (bool(surplus) and job.elastic is not None)
        dearest = max(dearest, -max(pod.started for pod in rest))
        yield Unit(job, rest, is_whole, (is_whole, job.priority, dearest, job.key, nth + 1), job.priority)


def may_go_whole(session: Session, job: Job) -> bool:
    """Whether preempt may evict the whole job, if its priority is lower."""
    if not job.preemptable or not job.exists:
        return False
    if not session.evicts_whole:
        state = session.states.get(job.key)
        pods = len(job.placed) if state is None else state.placed_count + state.promised_count
        if job.min_member != 1 or pods != 1:
            return False
    return not is_young(session, job) and not any(map(session.is_protected, job.placed))


def is_young(session: Session, job: Job) -> bool:
    """Whether a pod of the job has not run for its minimum runtime yet."""
    return any(session.snapshot.now - pod.started < job.min_runtime_s for pod in job.placed if pod.node >= 0)


def surplus_steps(session: Session, job: Job, *, whatever_protects: bool = False) -> Iterable[Step]:
    """Returns what the job holds above its minimum, in steps, the highest indices first.

    A job without a PodGroup has no surplus: its minimum is unknown. The group may have been deleted under a running
    gang. `whatever_protects`: also steps that may not be evicted now.
    """
    if not job.exists or len(job.placed) + job.succeeded <= max(job.min_member, 1):  # most jobs have none
        return ()
    if whatever_protects or session.resized or job.key in session.states:
        return _surplus_steps(session, job, whatever_protects)
    # Claims and the tables of several actions ask about jobs to which nothing has happened in this cycle.
    known = session.surplus_steps.get(job.key)
    if known is None or known[0] is not job:
        known = session.surplus_steps[job.key] = job, tuple(_surplus_steps(session, job, whatever_protects))
    return known[1]


def _surplus_steps(session: Session, job: Job, whatever_protects: bool) -> Iterator[Step]:
    surplus = SurplusCount(job, placed_by_role(session, job))
    cools_down = job.elastic is not None and session.snapshot.now < job.elastic.cooldown_until
    if surplus.total <= 0 or (cools_down and not whatever_protects):
        return
    there = _there(session, job)
    staying = set() if whatever_protects else _staying(session, job, there)
    by_role: dict[str, list[_Ranked]] = {}
    for pod in there:
        by_role.setdefault(pod.role, []).append((_rank(pod), pod))
    steps = [_steps(session, job, role, sorted(ranked, key=_first), staying) for role, ranked in by_role.items()]
    for _, step in steps[0] if len(steps) == 1 else heapq.merge(*steps, key=_first):
        if surplus.take(step.pods[0].role, len(step.pods)):  # steps below it do not go without it
            yield step


def placed_by_role(session: Session, job: Job) -> Mapping[str, int]:
    """Returns how many pods of each role are placed by now, without creating a state for a job that has none."""
    state = session.states.get(job.key)
    return job.placed_by_role if state is None else state.placed


def _there(session: Session, job: Job) -> list[PlacedPod]:
    """Returns the pods that can be evicted; none of a job that was given places in this cycle."""
    there = [pod for pod in job.placed if pod.node >= 0 and pod.is_ours]
    state = session.states.get(job.key)
    if state is None:
        return there
    return [] if any(state.cursor.values()) else [pod for pod in there if pod.pod not in state.evicted]


def _staying(session: Session, job: Job, there: Sequence[PlacedPod]) -> set[PlacedPod]:
    """Returns the pods that may not be evicted: protected by a plugin, or younger than the job's minimum runtime."""
    now = session.snapshot.now
    staying = {pod for hooks in session.hooks if hooks.protects for pod in filter(hooks.protects, there)}
    staying.update(pod for pod in there if now - pod.started < job.min_runtime_s)
    return staying


def _steps(
    session: Session, job: Job, role: str, ranked: Sequence[_Ranked], staying: set[PlacedPod]
) -> Iterator[tuple[_Rank, Step]]:
    """Yields the steps of one role, the highest indices first, without a look at the gang's minimum."""
    if job.elastic is None:
        yield from ((rank, Step((pod,), None)) for rank, pod in ranked if pod not in staying)
        return
    sizes = job.elastic.roles.get(role)
    if sizes is None:
        return
    size = session.resized.get((job.key, role), sizes.size)
    start = 0
    # If the maximum was lowered below the size, the first step goes down to the maximum.
    steps = max(1, -(-(size - sizes.max) // sizes.step))
    while size - steps * sizes.step >= sizes.min:
        # Waiting replicas have no pods to evict: the size passes over them, so they go first.
        size -= steps * sizes.step
        steps = 1
        end = start
        while end < len(ranked) and -ranked[end][0][0] >= size:
            end += 1
        if end == start:
            continue
        pods = tuple([pod for _, pod in ranked[start:end]])
        if not staying.isdisjoint(pods):
            return
        yield ranked[start][0], Step(pods, (role, size))
        start = end


def _rank(pod: PlacedPod) -> _Rank:
    """Sorts the highest index first."""
    prefix, number, name = pod.order
    return -number, f"{prefix}/{name}"
