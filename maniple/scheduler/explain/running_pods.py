"""Running pods as a waiting gang sees them: where they are, what they are to it, and what keeps them from being taken.

Looks at the session after the actions and changes nothing.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, islice
from math import inf

import numpy as np
from msgspec import UNSET

from maniple.model.disruption_budgets import Budget
from maniple.model.job import Job, PlacedPod
from maniple.model.resources import IntArray
from maniple.scheduler.framework.plan import SHRUNK, Holder
from maniple.scheduler.framework.queue_dues import EPSILON
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.statement import Placed

_MOST_HOLDERS = 5

# What a pod is to a gang that wants its room.
SURPLUS = "surplus"
LOWER, SAME, HIGHER = "lower priority", "same priority", "higher priority"
ABOVE, WITHIN, ELSEWHERE = "above its queue's share", "within its queue's share", "of another queue"
_STARTS, _PROMISED, _RESERVED = "starts in this cycle", "promised room", "reserved room"
_LEAVING, _FOREIGN = "pods that are leaving", "pods that are not ours"
# Holders that could give room back soonest come first. Room that comes free on a reserved node goes to the reservation:
# that stands in the way before all else.
_ORDER = (
    *(_RESERVED, _LEAVING, SURPLUS, LOWER, ABOVE, SAME, ELSEWHERE, WITHIN, HIGHER),
    *(_PROMISED, _STARTS, _FOREIGN),
)


@dataclass(frozen=True, slots=True)
class Guard:
    """What keeps a pod where it is, and for how many seconds more if that is known."""

    what: str
    of_several: str  # the same, said of several pods
    until: float | None = None


_BUDGET = Guard("PodDisruptionBudget", "protected by a PodDisruptionBudget")


def _kept(of_several: str) -> Guard:
    return Guard("", of_several)


class Holders:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.looked_at = 0  # pods that might have been taken, over all kinds of gangs
        self._surplus: dict[tuple[str, str], frozenset[str]] = {}

    # -- where they are

    @cached_property
    def _placed(self) -> list[tuple[Job, PlacedPod]]:
        return [(job, pod) for job in self.session.snapshot.jobs for pod in job.placed]

    @cached_property
    def _by_node(self) -> tuple[IntArray, IntArray]:
        """(positions in `_placed` in the order of their nodes, those nodes)"""
        nodes = np.fromiter((pod.node for _, pod in self._placed), dtype=np.intp, count=len(self._placed))
        order = np.argsort(nodes, kind="stable")
        return order, nodes[order]

    def on(self, node: int) -> Iterator[tuple[Job, PlacedPod]]:
        """The pods of ours that ran there when the cycle began."""
        order, nodes = self._by_node
        first, last = np.searchsorted(nodes, [node, node + 1])
        for position in order[first:last].tolist():
            yield self._placed[position]

    @cached_property
    def coming(self) -> dict[int, list[tuple[Placed, int]]]:
        """Node -> what this cycle has placed or promised there, and how many pods of it."""
        by_node: dict[int, list[tuple[Placed, int]]] = {}
        for placed in self.session.placed:
            for node, count in zip(placed.spot.nodes.tolist(), placed.spot.counts.tolist(), strict=True):
                by_node.setdefault(node, []).append((placed, int(count)))
        return by_node

    # -- which jobs run

    @cached_property
    def by_queue(self) -> dict[int, list[Job]]:
        """Jobs with running pods, those with the lowest priority first."""
        by_queue: dict[int, list[Job]] = {}
        for job in self.session.snapshot.jobs:
            if job.placed:
                by_queue.setdefault(job.queue, []).append(job)
        for jobs in by_queue.values():
            jobs.sort(key=lambda job: job.priority)
        return by_queue

    @cached_property
    def _pods(self) -> dict[int, list[int]]:
        """Queue -> pods of its first job, of its first two, …"""
        return {queue: [*accumulate(len(job.placed) for job in jobs)] for queue, jobs in self.by_queue.items()}

    def pods_of(self, queue: int) -> int:
        return self._pods[queue][-1]

    def lower(self, claimant: Job) -> tuple[Iterator[Job], int]:
        """The jobs of a lower priority in the claimant's queue, and how many pods they have."""
        jobs = self.by_queue.get(claimant.queue, [])
        number = bisect_left(jobs, claimant.priority, key=lambda job: job.priority)
        return islice(jobs, number), self._pods[claimant.queue][number - 1] if number else 0

    @cached_property
    def with_surplus(self) -> dict[int, list[Job]]:
        """Jobs that run with more than their minimum, by queue."""
        by_queue: dict[int, list[Job]] = {}
        for job in self.session.snapshot.jobs:
            if job.placed and len(job.placed) + job.succeeded > max(job.min_member, 1) and self.surplus(job):
                by_queue.setdefault(job.queue, []).append(job)
        return by_queue

    # -- what they are to a gang

    def surplus(self, job: Job) -> frozenset[str]:
        """Its pods above the minimum, whatever protects them: the highest indices."""
        surplus = self._surplus.get(job.key)
        if surplus is None:
            surplus = self._surplus[job.key] = frozenset(self._find_surplus(job))
        return surplus

    def _find_surplus(self, job: Job) -> Iterator[str]:
        state = self.session.state(job)
        left = state.placed_count + job.succeeded - max(job.min_member, 1)
        if left <= 0:
            return
        by_role = {
            role: count + job.succeeded_by_role.get(role, 0) - job.role_min.get(role, 0)
            for role, count in state.placed.items()
        }
        elastic = job.elastic
        candidates = [
            pod
            for pod in job.placed
            # The rendezvous replica stays as long as the job does.
            if pod.pod not in state.evicted and not (elastic and elastic.rendezvous(pod.role, pod.order[1]))
        ]
        for pod in sorted(candidates, key=lambda pod: (pod.order[1], pod.order[0], pod.order[2]), reverse=True):
            if left > 0 and by_role.get(pod.role, 0) > 0:
                left -= 1
                by_role[pod.role] -= 1
                yield pod.pod

    def is_above_share(self, queue: int) -> bool:
        """Whether the queue holds more than it deserves of something scarce."""
        due = self.session.due
        if due is None:
            return False
        over = due.accounting.queue_held[queue] > due.deserved[queue] + EPSILON
        return bool((over & due.scarce[queue]).any())

    def relation(self, claimant: Job, job: Job, pod: PlacedPod) -> str:
        if pod.pod in self.surplus(job):
            return SURPLUS
        if job.queue == claimant.queue:
            return LOWER if job.priority < claimant.priority else SAME if job.priority == claimant.priority else HIGHER
        if self.session.due is None:
            return ELSEWHERE
        return ABOVE if self.is_above_share(job.queue) else WITHIN

    def is_leaving(self, job: Job) -> bool:
        """Whether all of it leaves in this cycle."""
        state = self.session.states.get(job.key)
        return state is not None and len(state.evicted) == len(job.placed)

    # -- what protects them

    def guard(self, job: Job, pod: PlacedPod, *, is_surplus: bool, spent: Sequence[int] = ()) -> Guard | None:
        """Surplus is taken even from jobs that may not be evicted, but not while they cool down.

        `spent`: how much of each budget is used up by pods that would go before this one.
        """
        session = self.session
        now = session.snapshot.now
        if is_surplus and job.elastic is not None and now < job.elastic.cooldown_until:
            return Guard("cooling down", "of jobs that cool down", job.elastic.cooldown_until - now)
        if not is_surplus and not job.preemptable:
            return Guard("preemptable: false", "of jobs with preemptable: false")
        if session.is_protected(pod):
            return Guard("critical to the system", "critical to the system")
        left = job.min_runtime_s - (now - pod.started)
        if left > 0:
            return Guard("minRuntimeSeconds", "younger than minRuntimeSeconds", left)
        return _BUDGET if self._is_budgeted(pod, spent=spent) else None

    def why_kept(
        self, claimant: Job, job: Job, pod: PlacedPod, *, of_surplus: bool, spent: Sequence[int] = ()
    ) -> Guard:
        """Why an action that looked at the pod could not take it; `spent`: budgets used up by pods it could take."""
        session = self.session
        state = session.state(job)
        is_surplus = pod.pod in self.surplus(job)
        if pod.pod in state.evicted:
            return _kept("leaving already")
        guard = self.guard(job, pod, is_surplus=of_surplus and is_surplus)
        if guard is not None:
            return guard
        if any(state.cursor.values()):
            return _kept("of jobs that get room in this cycle")
        if not of_surplus and job.key in self.shrunk:
            return _kept("of jobs that give back surplus in this cycle")
        if not of_surplus and not is_surplus and len(job.placed) > 1:
            if not session.evicts_whole:
                return _kept("needed by gangs that this policy does not evict whole")
            others = [other for other in job.placed if other.pod not in state.evicted]
            if any(self.guard(job, other, is_surplus=False) is not None for other in others):
                return _kept("of gangs that go whole or not at all, and not all of which may go")
            if any(self._is_budgeted(other, below=len(others), spent=spent) for other in others):
                return _BUDGET
        if self._is_budgeted(pod, below=len(job.placed)) or self._is_budgeted(pod, spent=spent):
            return _BUDGET
        if claimant.queue != job.queue:
            if not is_surplus and len(job.placed) > 1 and self.is_above_share(job.queue):
                return _kept("of gangs that go whole or not at all, and of which their queue deserves a part")
            return _kept("deserved by their queue")
        if of_surplus and job.elastic is not None:
            return _kept("less than a step, or next to others of their job that may not go")
        return _kept("kept by plugins of the policy")

    def _is_budgeted(self, pod: PlacedPod, *, below: int = 1, spent: Sequence[int] = ()) -> bool:
        """Whether a budget that covers the pod lets fewer than `below` pods go, less what is spent."""
        return any(
            left - gone < below and budget.covers(pod.pod, pod.labels)
            for (budget, left), gone in zip(self._budgets, spent or [0] * len(self._budgets), strict=True)
        )

    def spend(self, pods: Iterable[PlacedPod]) -> list[int]:
        """How much of each budget the pods use up."""
        listed = list(pods) if self._budgets else []
        return [sum(budget.covers(pod.pod, pod.labels) for pod in listed) for budget, _ in self._budgets]

    @cached_property
    def shrunk(self) -> frozenset[tuple[str, str]]:
        """Jobs that gave back surplus in this cycle, and so keep their minimum in it."""
        return frozenset(eviction.job.key for eviction in self.session.evicted if eviction.reason == SHRUNK)

    @cached_property
    def _budgets(self) -> list[tuple[Budget, int]]:
        gone = [eviction.pod for eviction in self.session.evicted]
        return [
            (budget, budget.allowed - sum(budget.covers(pod.pod, pod.labels) for pod in gone))
            for budget in self.session.snapshot.budgets
        ]

    # -- who holds what a gang lacks

    def of_resource(
        self, claimant: Job, row: int, nodes: Iterable[int], lacks: float
    ) -> tuple[tuple[Holder, ...], int]:
        """(jobs that hold the resource there until `lacks` is covered, soonest to leave first; how many others do)"""
        axis = self.session.snapshot.axis
        shares: dict[tuple[str, str, str], _Share] = {}
        spent = self.spend(())
        for node in nodes:
            for name, what, guard, pods, amount, ends in self._held(claimant, row, node, spent):
                share = shares.setdefault((name, what, guard.what if guard else ""), _Share())
                share.add(pods, amount, guard, ends)
        ranked = sorted(
            shares.items(), key=lambda item: (_ORDER.index(item[0][1]), bool(item[0][2]), item[1].ends, item[0])
        )
        shown: list[Holder] = []
        covered = 0.0
        for (name, what, guard_name), share in ranked:
            if len(shown) == _MOST_HOLDERS or covered >= lacks:
                break
            covered += share.amount
            until = UNSET if share.until is None else round(share.until, 3)
            shown.append(Holder(name, share.pods, axis.text(row, share.amount), what, guard_name or UNSET, until))
        others = {name for (name, _, _), _ in ranked if name} - {holder.job for holder in shown}
        return tuple(shown), len(others)

    def _held(
        self, claimant: Job, row: int, node: int, spent: list[int]
    ) -> Iterator[tuple[str, str, Guard | None, int, float, float]]:
        """(job, what its pods are, what protects them, pods, amount, when they end) of all that hold some there."""
        session, snapshot = self.session, self.session.snapshot
        ours = 0.0
        for job, pod in self.on(node):
            amount = float(pod.requests[row])
            ours += amount
            state = session.states.get(job.key)
            # A pod that is evicted in this cycle makes room for another gang, which is counted in its place.
            if amount > 0 and job.key != claimant.key and (state is None or pod.pod not in state.evicted):
                what, guard = self.relation(claimant, job, pod), None
                if what in (SURPLUS, LOWER, ABOVE):
                    guard = self.guard(job, pod, is_surplus=what == SURPLUS, spent=spent)
                    if guard is None:
                        spent[:] = [sum(pair) for pair in zip(spent, self.spend([pod]), strict=True)]
                yield job.name, what, guard, 1, amount, pod.ends
        for placed, number in self.coming.get(node, ()):
            amount = float(placed.group.shape.requests[row]) * number
            if amount > 0 and placed.job.key != claimant.key:
                yield placed.job.name, _PROMISED if placed.later else _STARTS, None, number, amount, inf
        reservation, mask = session.reserved.holder(node), session.reserved.mask
        if reservation is not None and mask is not None and mask[node]:
            pods = reservation.nodes[node]
            asked = max(float(group.shape.requests[row]) for group in reservation.job.groups)
            if asked > 0:
                yield reservation.job.name, _RESERVED, None, pods, asked * pods, inf
        leaving = float(snapshot.releasing[row, node])
        foreign = float(snapshot.nodes.allocatable[row, node] - snapshot.free[row, node]) - ours - leaving
        for what, amount in ((_LEAVING, leaving), (_FOREIGN, foreign)):
            if amount > 0:
                yield "", what, None, 0, amount, inf


@dataclass(slots=True)
class _Share:
    """What pods of one job, alike to the gang, hold together."""

    pods: int = 0
    amount: float = 0.0
    until: float | None = None  # when the first of them is no longer protected
    ends: float = -inf  # when the last of them ends

    def add(self, pods: int, amount: float, guard: Guard | None, ends: float) -> None:
        self.pods += pods
        self.amount += amount
        self.until = soonest(self.until, guard.until if guard else None)
        self.ends = max(self.ends, ends)


def soonest(until: float | None, other: float | None) -> float | None:
    """The sooner of two moments, either of which may be unknown."""
    return min((moment for moment in (until, other) if moment is not None), default=None)
