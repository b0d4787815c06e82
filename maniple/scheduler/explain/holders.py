"""Who runs: where, what its pods are to a gang that wants their room, and what keeps them from being taken."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, islice

import numpy as np

from maniple.model.budgets import Budget
from maniple.model.job import Job, PlacedPod
from maniple.model.resources import IntArray
from maniple.scheduler.framework.plan import SHRUNK
from maniple.scheduler.framework.queue_dues import EPSILON
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.statement import Placed

SURPLUS = "surplus"
LOWER, SAME, HIGHER = "lower priority", "same priority", "higher priority"
ABOVE, WITHIN, ELSEWHERE = "above its queue's share", "within its queue's share", "of another queue"

# Guards as they are said of several pods.
_PHRASES = {
    "cooling down": "of jobs that cool down",
    "preemptable: false": "of jobs with preemptable: false",
    "critical to the system": "critical to the system",
    "minRuntimeSeconds": "younger than minRuntimeSeconds",
    "PodDisruptionBudget": "protected by a PodDisruptionBudget",
}


@dataclass(frozen=True, slots=True)
class Guard:
    """What keeps a pod where it is, and for how many seconds more if that is known."""

    what: str
    until: float | None = None


class Holdings:
    """Running pods, looked at after the actions: who is where, who is surplus, what protects whom."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._surplus: dict[tuple[str, str], frozenset[str]] = {}

    # -- where

    @cached_property
    def _placed(self) -> list[tuple[Job, PlacedPod]]:
        return [(job, pod) for job in self._session.snapshot.jobs for pod in job.placed]

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
        for at in order[first:last].tolist():
            yield self._placed[at]

    @cached_property
    def coming(self) -> dict[int, list[tuple[Placed, int]]]:
        """Node -> what this cycle has placed or promised there, and how many pods of it."""
        found: dict[int, list[tuple[Placed, int]]] = {}
        for done in self._session.placed:
            for node, count in zip(done.spot.nodes.tolist(), done.spot.counts.tolist(), strict=True):
                found.setdefault(node, []).append((done, int(count)))
        return found

    # -- what they are

    def surplus(self, job: Job) -> frozenset[str]:
        """Its pods above the minimum, whatever protects them: the highest indices."""
        found = self._surplus.get(job.key)
        if found is None:
            found = self._surplus[job.key] = frozenset(self._find_surplus(job))
        return found

    def _find_surplus(self, job: Job) -> Iterator[str]:
        state = self._session.state(job)
        left = state.placed_count + job.succeeded - max(job.min_member, 1)
        if left <= 0:
            return
        by_role = {
            role: count + job.succeeded_by_role.get(role, 0) - job.role_min.get(role, 0)
            for role, count in state.placed.items()
        }
        elastic = job.elastic
        there = [
            pod
            for pod in job.placed
            # The replica where all others meet stays as long as the job does.
            if pod.pod not in state.evicted and not (elastic and elastic.rendezvous(pod.role, pod.order[1]))
        ]
        for pod in sorted(there, key=lambda pod: (pod.order[1], pod.order[0], pod.order[2]), reverse=True):
            if left > 0 and by_role.get(pod.role, 0) > 0:
                left -= 1
                by_role[pod.role] -= 1
                yield pod.pod

    def is_above_share(self, queue: int) -> bool:
        """Whether the queue holds more than it deserves of something scarce."""
        due = self._session.due
        if due is None:
            return False
        over = due.measure.queue_held[queue] > due.deserved[queue] + EPSILON
        return bool((over & due.scarce[queue]).any())

    def relation(self, claimant: Job, job: Job, pod: PlacedPod) -> str:
        """What the pod is to a gang that wants its room."""
        if pod.pod in self.surplus(job):
            return SURPLUS
        if job.queue == claimant.queue:
            return LOWER if job.priority < claimant.priority else SAME if job.priority == claimant.priority else HIGHER
        if self._session.due is None:
            return ELSEWHERE
        return ABOVE if self.is_above_share(job.queue) else WITHIN

    # -- what protects them

    def guard(self, job: Job, pod: PlacedPod, *, is_surplus: bool, spent: Sequence[int] = ()) -> Guard | None:
        """Surplus is given back even by jobs that may not be evicted, but not while they cool down.

        `spent`: what others that would go before it use up of the budgets.
        """
        session = self._session
        now = session.snapshot.now
        if is_surplus and job.elastic is not None and now < job.elastic.cooldown_until:
            return Guard("cooling down", job.elastic.cooldown_until - now)
        if not is_surplus and not job.preemptable:
            return Guard("preemptable: false")
        if session.is_protected(pod):
            return Guard("critical to the system")
        if now - pod.started < job.min_runtime_s:
            return Guard("minRuntimeSeconds", job.min_runtime_s - (now - pod.started))
        if self._is_budgeted(pod, spent=spent):
            return Guard("PodDisruptionBudget")
        return None

    def why_kept(
        self, claimant: Job, job: Job, pod: PlacedPod, *, of_surplus: bool, spent: Sequence[int] = ()
    ) -> Guard:
        """Why an action that looked at the pod could not take it; `spent`: what those use up that it could take."""
        session = self._session
        state = session.state(job)
        is_surplus = pod.pod in self.surplus(job)
        if pod.pod in state.evicted:
            return Guard("leaving already")
        guard = self.guard(job, pod, is_surplus=of_surplus and is_surplus)
        if guard is not None:
            return Guard(_PHRASES[guard.what], guard.until)
        if any(state.cursor.values()):
            return Guard("of jobs that get room in this cycle")
        if not of_surplus and job.key in self.shrunk:
            return Guard("of jobs that give back surplus in this cycle")
        if not of_surplus and not is_surplus and len(job.placed) > 1:
            if not session.evicts_whole:
                return Guard("needed by gangs that this policy does not evict whole")
            others = [other for other in job.placed if other.pod not in state.evicted]
            if any(self.guard(job, other, is_surplus=False) is not None for other in others):
                return Guard("of gangs that go whole or not at all, and not all of which may go")
            if any(self._is_budgeted(other, below=len(others), spent=spent) for other in others):
                return Guard(_PHRASES["PodDisruptionBudget"])
        if self._is_budgeted(pod, below=len(job.placed)) or self._is_budgeted(pod, spent=spent):
            return Guard(_PHRASES["PodDisruptionBudget"])
        if claimant.queue != job.queue:
            if not is_surplus and len(job.placed) > 1 and self.is_above_share(job.queue):
                return Guard("of gangs that go whole or not at all, and of which their queue deserves a part")
            return Guard("deserved by their queue")
        if of_surplus and job.elastic is not None:
            return Guard("less than a step, or next to others of their job that may not go")
        return Guard("kept by plugins of the policy")

    def _is_budgeted(self, pod: PlacedPod, *, below: int = 1, spent: Sequence[int] = ()) -> bool:
        """Whether a budget, less what is spent, lets fewer go than so many, and this is one of them."""
        return any(
            left - gone < below and budget.covers(pod.pod, pod.labels)
            for (budget, left), gone in zip(self._budgets, spent or self._unspent, strict=True)
        )

    def spend(self, pods: Iterable[PlacedPod]) -> list[int]:
        """How much of each budget the pods use up."""
        found = list(pods) if self._budgets else []
        return [sum(budget.covers(pod.pod, pod.labels) for pod in found) for budget, _ in self._budgets]

    @cached_property
    def _unspent(self) -> list[int]:
        return [0] * len(self._budgets)

    @cached_property
    def shrunk(self) -> frozenset[tuple[str, str]]:
        """Jobs that gave back surplus in this cycle, and so keep their minimum in it."""
        return frozenset(done.job.key for done in self._session.evicted if done.reason == SHRUNK)

    @cached_property
    def _budgets(self) -> list[tuple[Budget, int]]:
        session = self._session
        return [
            (budget, budget.allowed - sum(budget.covers(done.pod.pod, done.pod.labels) for done in session.evicted))
            for budget in session.snapshot.budgets
        ]


class Census:
    """Which jobs run, by queue and priority, and which of them hold more than their minimum."""

    def __init__(self, session: Session, holdings: Holdings) -> None:
        self._session = session
        self._holdings = holdings

    @cached_property
    def by_queue(self) -> dict[int, list[Job]]:
        """Jobs with running pods, those with the lowest priority first."""
        found: dict[int, list[Job]] = {}
        for job in self._session.snapshot.jobs:
            if job.placed:
                found.setdefault(job.queue, []).append(job)
        for jobs in found.values():
            jobs.sort(key=lambda job: job.priority)
        return found

    @cached_property
    def _pods(self) -> dict[int, list[int]]:
        """Queue -> pods of its first job, of its first two, …"""
        return {queue: [*accumulate(len(job.placed) for job in jobs)] for queue, jobs in self.by_queue.items()}

    def pods_of(self, queue: int) -> int:
        return self._pods[queue][-1]

    def lower(self, claimant: Job) -> tuple[int, int]:
        """(how many jobs of a lower priority run in the claimant's queue, how many pods they have)"""
        jobs = self.by_queue.get(claimant.queue, [])
        number = bisect_left(jobs, claimant.priority, key=lambda job: job.priority)
        return number, self._pods[claimant.queue][number - 1] if number else 0

    def lower_jobs(self, claimant: Job) -> Iterator[Job]:
        return islice(self.by_queue.get(claimant.queue, []), self.lower(claimant)[0])

    @cached_property
    def with_surplus(self) -> dict[int, list[Job]]:
        """Those that run with more than their minimum, by queue."""
        found: dict[int, list[Job]] = {}
        for job in self._session.snapshot.jobs:
            if job.placed and len(job.placed) + job.succeeded > max(job.min_member, 1) and self._holdings.surplus(job):
                found.setdefault(job.queue, []).append(job)
        return found
