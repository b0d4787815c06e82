"""How much of its guarantee each queue holds in whole parts. Nobody may make that less for another queue.

A job runs in parts that are evicted together: its minimum, then each step of its surplus. The parts of a queue are
counted one after the other. A part is inside if it and all parts inside before it stay within the guarantee. A part
that does not fit is outside, with the surplus above it, and smaller ones after it are still counted.

The order makes what is inside stay inside: minimums of non-preemptable jobs first, because nothing can move them, then
what is inside a child's guarantee, then minimums before surplus, then the oldest. What starts later displaces only
surplus.

It matters how much stays inside, not which parts. A part that is inside may leave if those that stay, counted anew,
hold as much inside: of minimums alone, and together with surplus. As a last resort surplus inside may leave if the
queue still holds all that it is guaranteed, inside or outside; for the rest of the cycle it then keeps that.
"""

from collections.abc import Collection, Iterable, Iterator, Set
from functools import cached_property
from typing import NamedTuple

import numpy as np

from maniple.model.job import Job, PlacedPod
from maniple.model.pod_identity import JobKey
from maniple.model.resources import FloatArray
from maniple.scheduler.eviction.units import surplus_steps
from maniple.scheduler.framework.due_rules import EPSILON, Due, covered
from maniple.scheduler.framework.session import Session

_NOBODY: frozenset[PlacedPod] = frozenset()


class _Part(NamedTuple):
    job: Job
    pods: tuple[PlacedPod, ...]
    started: float  # its job
    number: int  # 0: the minimum
    held: FloatArray


class _Counted(NamedTuple):
    """A part in the order of a queue, with what it holds of the resources that the queue's guarantee names."""

    part: _Part
    amounts: tuple[float, ...]
    is_covered: bool


class _Inside(NamedTuple):
    """What a queue holds inside its guarantee, of the resources that this names."""

    pods: frozenset[PlacedPod]
    minimums: tuple[float, ...]
    total: tuple[float, ...]
    has_others: bool  # whether covered parts are outside, which might take the place of some inside
    has_all: bool  # whether the queue holds all that it is guaranteed, inside or outside


_EMPTY = _Inside(_NOBODY, (), (), has_others=False, has_all=False)


class GuaranteedParts:
    """Reads the session when a queue is first asked about."""

    def __init__(self, session: Session, due: Due, less_inside: Set[int] = frozenset()) -> None:
        """`less_inside`: queues that have had more inside in this cycle."""
        self._session = session
        self._due = due
        self._seen = 0  # how much of session.evicted is in `_gone`
        self._gone: set[PlacedPod] = set()  # evicted since the parts were split
        self._found: dict[int, _Inside] = {}
        self._before: dict[int, tuple[float, ...]] = {}  # queue -> what was inside in all, before evictions
        self._less_inside = set(less_inside)
        self._orders: dict[int, list[_Counted]] = {}  # of queues without children: their order never changes
        self.is_empty = not due.guaranteed.any()

    @cached_property
    def _parts(self) -> dict[int, list[_Part]]:
        """The parts of all jobs below a guarantee, by queue."""
        session = self._session
        self._seen = len(session.evicted)
        parts: dict[int, list[_Part]] = {}
        guaranteed = [bool(self._due.guaranteed[path].any()) for path in session.queue_paths]
        for job in session.snapshot.running:
            if guaranteed[job.queue]:
                parts.setdefault(job.queue, []).extend(self._split(job))
        return parts

    def inside(self, queue: int) -> frozenset[PlacedPod]:
        """The pods at and below the queue that are inside its guarantee, or inside that of a queue below it."""
        if self.is_empty:
            return _NOBODY
        below = [self.inside(child) for child in self._session.snapshot.queues[queue].children]
        own = self._found_in(queue).pods
        return own.union(*below) if any(below) else own

    def stays_anyway(self, queue: int) -> frozenset[PlacedPod]:
        """The pods inside the queue's own guarantee that no others could replace there."""
        found = self._found_in(queue)
        return _NOBODY if found.has_others else found.pods

    def is_surplus(self, pod: PlacedPod) -> bool:
        return pod in self._surplus

    def is_inside(self, queue: int, pod: PlacedPod) -> bool:
        """Whether the pod is inside the queue's own guarantee."""
        return pod in self._found_in(queue).pods

    @property
    def less_inside(self) -> Set[int]:
        """The queues that have had more inside in this cycle. They keep all that they are guaranteed."""
        if self._found:
            self._note_evictions()
        for queue in self._before:
            self._found_in(queue)
        return self._less_inside

    def is_watched(self, queue: int, pod: PlacedPod) -> bool:
        """Whether the queue must keep something without the pod."""
        return self.is_inside(queue, pod) or queue in self._less_inside

    def keeps(self, queue: int, gone: Set[PlacedPod], *, may_be_outside: bool = False) -> bool:
        """Whether the queue has as much inside its guarantee without these pods.

        `may_be_outside`: or as much of minimums, and all that it is guaranteed wherever it is counted.
        """
        found = self._found_in(queue)
        if queue in self._less_inside:
            after = self._count(queue, self._gone | gone)
            return after is not None and after.has_all and _is_least(after.minimums, found.minimums)
        if found.pods.isdisjoint(gone):
            return True
        if not found.has_others:
            return False
        after = self._count(queue, self._gone | gone, at_least=found)
        return after is None or (may_be_outside and after.has_all and _is_least(after.minimums, found.minimums))

    def is_exchanged_for_less(self, path: Iterable[int], gone: Set[PlacedPod], need: FloatArray) -> bool:
        """Whether less of minimums is inside with a new gang in the place of these pods.

        `path`: its queues, the lowest first. More inside a child's guarantee makes good for less inside its parent's.
        """
        for queue in path:
            if not self._found_in(queue).pods.isdisjoint(gone):
                before, after = self._found_in(queue).minimums, self._minimums_with(queue, gone, need)
                if not _is_least(after, before):
                    return True
                if not _is_least(before, after):
                    return False
        return False

    def _minimums_with(self, queue: int, gone: Set[PlacedPod], need: FloatArray) -> tuple[float, ...]:
        after = self._count(queue, self._gone | gone) or _EMPTY
        guaranteed = self._due.guaranteed[queue]
        named = guaranteed > 0
        most, minimums = (guaranteed[named] + EPSILON).tolist(), after.minimums
        with_gang = tuple(map(float.__add__, minimums, need[named].tolist()))
        if covered(self._due, queue, need).any() and all(map(float.__le__, with_gang, most)):
            minimums = with_gang
        return minimums

    def minimum_of(self, job: Job) -> FloatArray:
        """What the minimum of a job below a guarantee holds."""
        return next(part.held for part in self._parts_of[job.key] if not part.number)

    def _found_in(self, queue: int) -> _Inside:
        if self.is_empty or not self._due.guaranteed[queue].any():
            return _EMPTY
        self._note_evictions()
        if queue not in self._found:
            found = self._found[queue] = self._count(queue, self._gone) or _EMPTY
            if queue in self._before and not _is_least(found.total, self._before[queue]):
                self._less_inside.add(queue)
        return self._found[queue]

    def _note_evictions(self) -> None:
        """What leaves from outside changes nothing of what is inside."""
        parts, session = self._parts, self._session
        for done in session.evicted[self._seen :] if parts else ():
            self._gone.add(done.pod)
            is_changed = False
            for queue in session.queue_paths[done.job.queue]:
                is_changed |= queue in self._found and done.pod in self._found[queue].pods
                if is_changed and queue in self._found:
                    self._before[queue] = self._found.pop(queue).total
        self._seen = len(session.evicted)

    def _count(self, queue: int, gone: Collection[PlacedPod], at_least: _Inside | None = None) -> _Inside | None:
        """What is inside without the pods that are gone; None if it is `at_least` so much."""
        guaranteed = self._due.guaranteed[queue]
        most = tuple((guaranteed[guaranteed > 0] + EPSILON).tolist())
        minimums, total = (0.0,) * len(most), (0.0,) * len(most)  # what is inside
        used = total  # the same, and what cannot go
        held = total  # inside or outside
        inside: list[PlacedPod] = []
        outside: set[JobKey] = set()
        has_others = False
        left = self._left(gone)
        for part, amounts, is_covered in self._order(queue, gone):
            key = part.job.key
            if key in left and part.number >= left[key]:
                continue
            with_part = tuple(map(float.__add__, used, amounts))
            if is_covered:
                held = tuple(map(float.__add__, held, amounts))
            if is_covered and key not in outside and all(map(float.__le__, with_part, most)):
                used, total = with_part, tuple(map(float.__add__, total, amounts))
                inside.extend(self._staying(part, gone) if key in left else part.pods)
                if not part.number:
                    minimums = tuple(map(float.__add__, minimums, amounts))
                if at_least is not None and _is_least(minimums, at_least.minimums) and _is_least(total, at_least.total):
                    return None
                continue
            outside.add(key)
            has_others |= is_covered
            if not part.job.preemptable and not part.number:
                used = with_part  # it cannot go, so the others beside it have to
        has_all = _is_least(held, tuple(guaranteed[guaranteed > 0].tolist()))
        return _Inside(frozenset(inside), minimums, total, has_others, has_all)

    def _left(self, gone: Collection[PlacedPod]) -> dict[JobKey, int]:
        """How many parts are left of each job that loses pods. Equal pods of a PodGroup stand in for each other."""
        lost: dict[JobKey, list[PlacedPod]] = {}
        for pod in gone:
            if pod in self._job_of:
                lost.setdefault(self._job_of[pod], []).append(pod)
        left: dict[JobKey, int] = {}
        for key, pods in lost.items():
            parts = self._parts_of[key]
            if parts[0].job.elastic is None and len({id(pod.requests) for part in parts for pod in part.pods}) == 1:
                surplus = sum(part.number > 0 for part in parts)
                left[key] = surplus - len(pods) + 1 if len(pods) <= surplus else 0
            else:
                left[key] = next(part.number for part in parts if not set(part.pods).isdisjoint(pods))
        return left

    def _staying(self, part: _Part, gone: Collection[PlacedPod]) -> tuple[PlacedPod, ...]:
        """The pods of the part, of a job that loses some: others stand in for those that are gone."""
        parts = self._parts_of[part.job.key]
        before = sum(len(other.pods) for other in parts if other.number < part.number)
        staying = [pod for other in parts for pod in other.pods if pod not in gone]
        return tuple(staying[before : before + len(part.pods)])

    @cached_property
    def _parts_of(self) -> dict[JobKey, list[_Part]]:
        parts: dict[JobKey, list[_Part]] = {}
        for of_queue in self._parts.values():
            for part in of_queue:
                parts.setdefault(part.job.key, []).append(part)
        return parts

    @cached_property
    def _surplus(self) -> frozenset[PlacedPod]:
        parts = (part for of_queue in self._parts.values() for part in of_queue)
        return frozenset(pod for part in parts if part.number for pod in part.pods)

    @cached_property
    def _job_of(self) -> dict[PlacedPod, JobKey]:
        return {pod: key for key, parts in self._parts_of.items() for part in parts for pod in part.pods}

    def _order(self, queue: int, gone: Collection[PlacedPod]) -> list[_Counted]:
        children = self._session.snapshot.queues[queue].children
        if not children and queue in self._orders:
            return self._orders[queue]
        within_child = {pod for child in children for pod in self._within(child, gone)}
        named = self._due.guaranteed[queue] > 0

        def order(part: _Part) -> tuple[object, ...]:
            is_surplus = part.number > 0
            is_within = part.pods[0] in within_child
            may_go = part.job.preemptable or is_surplus
            return may_go, not is_within, is_surplus, part.started, part.job.key, part.number

        ordered = [
            _Counted(part, tuple(part.held[named].tolist()), bool(covered(self._due, queue, part.held).any()))
            for part in sorted(self._below(queue), key=order)
        ]
        if not children:
            self._orders[queue] = ordered
        return ordered

    def _within(self, queue: int, gone: Collection[PlacedPod]) -> Iterable[PlacedPod]:
        """The pods inside the guarantee of the queue, or of one below it, without those that are gone."""
        if self._due.guaranteed[queue].any():
            counted = self._count(queue, gone)
            yield from counted.pods if counted is not None else ()
        for child in self._session.snapshot.queues[queue].children:
            yield from self._within(child, gone)

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


def _is_least(amounts: tuple[float, ...], least: tuple[float, ...]) -> bool:
    return all(amount >= floor - EPSILON for amount, floor in zip(amounts, least, strict=True))
