"""Which running pods are inside the guarantees of their queues. Nobody may take these for another queue.

A job runs in parts that are evicted together: its minimum, then each step of its surplus. The parts of a queue are
counted one after the other. A part is inside if it and all parts inside before it stay within the guarantee. A part
that does not fit is outside, with the surplus above it, and smaller ones after it are still counted.

The order makes what is inside stay inside: non-preemptable jobs first, because nothing can move them, then what is
inside a child's guarantee, then minimums before surplus, then the oldest. What starts later displaces only surplus.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from maniple.model.job import Job, PlacedPod
from maniple.model.pod_identity import JobKey
from maniple.model.resources import FloatArray
from maniple.scheduler.eviction.units import surplus_steps
from maniple.scheduler.framework.due_rules import EPSILON, Due, covered
from maniple.scheduler.framework.session import Session


class _Part(NamedTuple):
    job: Job
    pods: tuple[PlacedPod, ...]
    started: float  # its job
    number: int  # 0: the minimum
    held: FloatArray


class GuaranteedParts:
    """Reads the session when a queue is first asked about."""

    def __init__(self, session: Session, due: Due) -> None:
        self._session = session
        self._due = due
        self._inside: dict[int, frozenset[PlacedPod]] = {}
        self.is_empty = not due.guaranteed.any()

    @cached_property
    def _parts(self) -> dict[int, list[_Part]]:
        """The parts of all jobs below a guarantee, by queue."""
        session = self._session
        parts: dict[int, list[_Part]] = {}
        guaranteed = [bool(self._due.guaranteed[path].any()) for path in session.queue_paths]
        for job in session.snapshot.jobs:
            if job.placed and guaranteed[job.queue]:
                parts.setdefault(job.queue, []).extend(self._split(job))
        return parts

    def inside(self, queue: int) -> frozenset[PlacedPod]:
        """The pods at and below the queue that are inside its guarantee, or inside that of a queue below it."""
        if self.is_empty or not self._due.guaranteed[queue].any():
            return frozenset()
        if queue not in self._inside:
            self._inside[queue] = frozenset(self._count(queue))
        return self._inside[queue]

    def _count(self, queue: int) -> Iterator[PlacedPod]:
        guaranteed = self._due.guaranteed[queue]
        named = guaranteed > 0
        within_child = {pod for child in self._session.snapshot.queues[queue].children for pod in self.inside(child)}

        def order(part: _Part) -> tuple[object, ...]:
            is_surplus = part.number > 0
            is_within = part.pods[0] in within_child
            return part.job.preemptable, not is_within, is_surplus, part.started, part.job.key, part.number

        total = np.zeros(len(guaranteed))
        outside: set[JobKey] = set()
        for part in sorted(self._below(queue), key=order):
            is_covered = bool(covered(self._due, queue, part.held).any()) and part.job.key not in outside
            if is_covered and (total + part.held <= guaranteed + EPSILON)[named].all():
                total += part.held
                yield from part.pods
                continue
            outside.add(part.job.key)
            if not part.job.preemptable and not part.number:
                total += part.held  # it cannot go, so the others beside it have to
            if part.pods[0] in within_child:  # although others beside it hold more than what they are guaranteed
                yield from part.pods

    def _below(self, queue: int) -> Iterator[_Part]:
        yield from self._parts.get(queue, ())
        for child in self._session.snapshot.queues[queue].children:
            yield from self._below(child)

    def _split(self, job: Job) -> Iterator[_Part]:
        state = self._session.states.get(job.key)
        there = [pod for pod in job.placed if state is None or pod.pod not in state.evicted]
        if not there:
            return
        # While it cools down its surplus may not go. It is surplus all the same.
        evictable = list(surplus_steps(self._session, job))
        steps = [step.pods for step in evictable or surplus_steps(self._session, job, whatever_protects=True)]
        surplus = {pod for step in steps for pod in step}
        minimum = tuple(pod for pod in there if pod not in surplus)
        started = min(pod.started for pod in there)
        for number, pods in enumerate([minimum, *reversed(steps)]):
            if pods:
                held = np.sum([self._due.accounting.of_pod(pod) for pod in pods], axis=0)
                yield _Part(job, pods, started, number, held)
