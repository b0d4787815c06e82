"""The running jobs of each queue by priority: what a claimant may preempt, and what would come back by preempting.

Reads the session and changes nothing.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from functools import cached_property

import numpy as np

from maniple.model.job import Job
from maniple.model.pod_identity import JobKey
from maniple.model.resources import FloatArray
from maniple.scheduler.eviction.units import may_go_whole
from maniple.scheduler.framework.action import Ability
from maniple.scheduler.framework.due_rules import EPSILON, Due
from maniple.scheduler.framework.hooks import Victim
from maniple.scheduler.framework.session import Session


class RunningByPriority:
    def __init__(self, session: Session, due: Due) -> None:
        self._session = session
        self._due = due
        self._running: dict[int, list[Job]] = {}  # queue -> see _by_priority
        self._seen: int | None = None  # how much of session.placed is in it
        self._lowest: dict[int, int] = {}  # queue -> see _has_lower
        self._seen_by_lowest: int | None = None

    def lower_than(self, claimant: Job) -> FloatArray:
        """What jobs of its queue with a lower priority hold that preempt may evict whole."""
        lower = np.zeros(len(self._session.snapshot.axis))
        for job in self._by_priority(claimant.queue):
            if job.priority >= claimant.priority:
                break
            lower += self._held(job)
        return lower

    def has_lower_than(self, priority: int, queue: int) -> bool:
        """Whether preempt may evict a whole job of the queue for one of that priority."""
        lowest = next(iter(self._by_priority(queue)), None)
        return lowest is not None and lowest.priority < priority

    def would_come_back(self, candidates: Sequence[Victim]) -> set[JobKey]:
        """Jobs that would go whole, and next preempt larger ones of their queue, so that it holds less than its due or
        its guarantee. The larger ones run, or wait and would start by a claim.

        Such a queue would then have a claim for what it lost, and it would go on for ever.
        """
        session = self._session
        if not session.has_action(Ability.PREEMPT) or not any(self._has_lower(job) for job in jobs_of(candidates)):
            return set()
        pods = Counter(victim.job.key for victim in candidates)
        going = {
            victim.job.key: victim.job
            for victim in candidates
            if pods[victim.job.key] >= session.state(victim.job).placed_count
        }
        left: dict[int, FloatArray] = {}  # queue -> what it holds without the candidates
        for victim in candidates if going else ():
            held = left.get(victim.job.queue, self._due.accounting.queue_held[victim.job.queue])
            left[victim.job.queue] = held - self._due.accounting.of_pod(victim.pod)
        return {key for key, job in going.items() if self._displaces_larger(job, going, left[job.queue])}

    def _has_lower(self, job: Job) -> bool:
        """Whether anything of lower priority is in its queue."""
        is_lower = self.has_lower_than(job.priority, job.queue)
        return is_lower or self._needed_below(job.priority, job.queue) is not None

    def _displaces_larger(self, job: Job, going: Container[JobKey], left: FloatArray) -> bool:
        """Whether jobs of lower priority stay without which its queue, with the job again, could claim them back."""
        due, queue = self._due, job.queue
        floor = np.maximum(np.where(due.scarce[queue], due.deserved[queue], 0.0), due.guaranteed[queue])
        own = self._held(job)
        displaced = np.zeros_like(own)  # as many as it may need to displace, the lowest priority first
        for other in self._by_priority(job.queue):
            if other.priority >= job.priority:
                break
            if other.key in going:
                continue
            displaced = displaced + self._held(other)
            for lost in (self._held(other) - own, displaced - own):
                if ((lost > EPSILON) & (left - lost < floor - EPSILON)).any():
                    return True
            if (displaced >= own - EPSILON).all():
                displaced = np.zeros_like(own)
        # A larger one that waits would start by a claim for what the queue is short of, with the job or without.
        short = left + own < floor - EPSILON
        needed = self._needed_below(job.priority, job.queue) if short.any() else None
        return needed is not None and bool((short & (needed > own + EPSILON)).any())

    def _needed_below(self, priority: int, queue: int) -> FloatArray | None:
        """[R] the most that a waiting gang of the queue with a lower priority needs; None: there is none."""
        priorities, needed = self._waiting.get(queue, ([], []))
        lower = bisect_left(priorities, priority)
        return needed[lower - 1] if lower else None

    @cached_property
    def _waiting(self) -> dict[int, tuple[list[int], list[FloatArray]]]:
        """Queue -> the priorities of its waiting gangs, the lowest first, and the most that those up to each need."""
        session, accounting = self._session, self._due.accounting
        waiting: dict[int, tuple[list[int], list[FloatArray]]] = {}
        for job in sorted(session.waiting.one_of_each(), key=_priority):
            if not job.exists or job.is_suspended or session.job_ready(job):
                continue
            priorities, needed = waiting.setdefault(job.queue, ([], []))
            need = accounting.asked(session.next_needs.of(job))
            most = np.maximum(needed[-1], need) if needed else need
            if priorities and priorities[-1] == job.priority:
                needed[-1] = most
            else:
                priorities.append(job.priority)
                needed.append(most)
        return waiting

    def _held(self, job: Job) -> FloatArray:
        held = self._due.accounting.job_held(job)
        return np.zeros(len(self._session.snapshot.axis)) if held is None else held

    def _by_priority(self, queue: int) -> list[Job]:
        """The jobs of the queue that hold something and that preempt may evict whole, the lowest priority first."""
        session = self._session
        if self._seen is None:
            self._seen = 0
            for job in sorted(session.snapshot.running, key=_priority):
                if job.placed and may_go_whole(session, job):
                    self._running.setdefault(job.queue, []).append(job)
        fresh = {done.job.key: done.job for done in session.placed[self._seen :]}
        self._seen = len(session.placed)
        for job in fresh.values():
            if not job.placed and may_go_whole(session, job):
                insort(self._running.setdefault(job.queue, []), job, key=_priority)
        return self._running.get(queue, [])


def jobs_of(victims: Sequence[Victim]) -> Iterator[Job]:
    """The jobs of the victims. Pods of one job stand together."""
    last = None
    for victim in victims:
        if victim.job is not last:
            last = victim.job
            yield last


def _priority(job: Job) -> int:
    return job.priority
