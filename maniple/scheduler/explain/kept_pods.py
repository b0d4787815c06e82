"""What keeps running pods where they are: why they are not evicted for a gang that waits.

What is the same for every gang that asks is found once a pod, a job or a queue.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from math import inf
from typing import NamedTuple

from maniple.model.job import Job, PlacedPod
from maniple.model.pod_identity import JobKey
from maniple.scheduler.eviction.queue_claims import QueueClaims, claims_of
from maniple.scheduler.framework.due_rules import EPSILON
from maniple.scheduler.framework.plan import SHRUNK
from maniple.scheduler.framework.session import Session


class Guard(NamedTuple):
    """What keeps a pod where it is, and for how many more seconds; inf: unknown."""

    what: str
    until: float = inf


BUDGET = Guard("PodDisruptionBudget")
NOT_RECLAIMABLE = Guard("reclaimable: false")
_UNKNOWN = Guard("")
_LEAVING = Guard("leaving already")
_STARTS = Guard("of jobs that get room in this cycle")
_SHRUNK = Guard("of jobs that give back surplus in this cycle")
_NEVER_WHOLE = Guard("needed by gangs that this policy does not evict whole")
_NOT_WHOLE = Guard("of gangs that go whole or not at all, and not all of which may go")
_GUARANTEED = Guard("guaranteed to their queue")
_DESERVED = Guard("deserved by their queue")
_DESERVED_PARTLY = Guard("of which their queue deserves a part")
_WHOLE_DESERVED_PARTLY = Guard("of gangs that go whole or not at all, and of which their queue deserves a part")
_INSIDE = Guard("inside their queue's guarantee, while others wait for theirs")
_NO_STEP = Guard("less than a step, or next to others of their job that may not go")
_BY_PLUGINS = Guard("kept by plugins of the policy")


class _Gang(NamedTuple):
    """A running gang that goes whole or not at all."""

    left: int  # pods that have not been evicted
    guard: Guard | None  # why it may not go whole
    budgets: frozenset[int]  # that cover a pod of it


class KeptPods:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._evicts_whole = session.evicts_whole
        self._surplus: dict[JobKey, frozenset[str]] = {}
        self._guards: dict[tuple[str, bool], Guard | None] = {}
        self._always: dict[tuple[str, bool], Guard | None] = {}
        self._gangs: dict[JobKey, _Gang] = {}
        self._inside: dict[int, frozenset[PlacedPod]] = {}
        self._above_share: dict[int, bool] = {}
        self._reclaimable: dict[tuple[int, int], bool] = {}

    @cached_property
    def claims(self) -> QueueClaims | None:
        """What queues may take from each other; None: nobody says what they deserve."""
        return claims_of(self._session)

    # -- what is above a minimum

    def surplus(self, job: Job) -> frozenset[str]:
        """Its pods above the minimum, whatever protects them: the highest indices."""
        surplus = self._surplus.get(job.key)
        if surplus is None:
            surplus = self._surplus[job.key] = frozenset(self._find_surplus(job))
        return surplus

    def _find_surplus(self, job: Job) -> Iterable[str]:
        state = self._session.states.get(job.key)
        placed = job.placed_by_role if state is None else state.placed
        evicted = () if state is None else state.evicted
        left = sum(placed.values()) + job.succeeded - max(job.min_member, 1)
        if left <= 0:
            return
        left_of = {
            role: count + job.succeeded_by_role.get(role, 0) - job.role_min.get(role, 0)
            for role, count in placed.items()
        }
        for pod in sorted(job.placed, key=lambda pod: (pod.index, pod.order[0], pod.order[2]), reverse=True):
            # The rendezvous replica stays as long as the job does.
            stays = job.elastic is not None and job.elastic.rendezvous(pod.role, pod.index)
            if left > 0 and left_of.get(pod.role, 0) > 0 and pod.pod not in evicted and not stays:
                left -= 1
                left_of[pod.role] -= 1
                yield pod.pod

    @cached_property
    def shrunk(self) -> frozenset[JobKey]:
        """Jobs that gave back surplus in this cycle, and so keep their minimum in it."""
        return frozenset(eviction.job.key for eviction in self._session.evicted if eviction.reason == SHRUNK)

    # -- what protects them from everybody

    def guard(self, job: Job, pod: PlacedPod, *, is_surplus: bool, spent: Sequence[int] = ()) -> Guard | None:
        """Surplus is taken even from jobs that may not be evicted, but not while they cool down.

        `spent`: how much of each budget pods use up that would go before this one.
        """
        key = (pod.pod, is_surplus)
        guard = self._guards.get(key, _UNKNOWN)
        if guard is _UNKNOWN:
            guard = self._guards[key] = self._find_guard(job, pod, is_surplus=is_surplus)
        if guard is None and self._has_budgets and self._is_budgeted(self._budgets_of(pod), spent=spent):
            return BUDGET
        return guard

    def _find_guard(self, job: Job, pod: PlacedPod, *, is_surplus: bool) -> Guard | None:
        now = self._session.snapshot.now
        if is_surplus and job.elastic is not None and now < job.elastic.cooldown_until:
            return Guard("cooling down", job.elastic.cooldown_until - now)
        if not is_surplus and not job.preemptable:
            return Guard("preemptable: false")
        if self._session.is_protected(pod):
            return Guard("critical to the system")
        left = job.min_runtime_s - (now - pod.started)
        return Guard("minRuntimeSeconds", left) if left > 0 else None

    @cached_property
    def _has_budgets(self) -> bool:
        return bool(self._session.budget_cover.budgets)

    def _budgets_of(self, pod: PlacedPod) -> Iterable[int]:
        return self._session.budget_cover.of(pod.pod, pod.labels)

    def _is_budgeted(self, budgets: Iterable[int], *, below: int = 1, spent: Sequence[int] = ()) -> bool:
        """Whether one of the budgets lets fewer than `below` pods go, less what is spent."""
        left = self._left_of_budgets
        return any(left[number] - (spent[number] if spent else 0) < below for number in budgets)

    def spend(self, pods: Iterable[PlacedPod]) -> list[int]:
        """How much of each budget the pods use up."""
        return self._session.budget_cover.count((pod.pod, pod.labels) for pod in pods) if self._has_budgets else []

    @cached_property
    def _left_of_budgets(self) -> list[int]:
        """How many more pods each budget lets go."""
        cover = self._session.budget_cover
        gone = cover.count((eviction.pod.pod, eviction.pod.labels) for eviction in self._session.evicted)
        return [budget.allowed - number for budget, number in zip(cover.budgets, gone, strict=True)]

    # -- why an action could not take them

    def why_kept(self, claimant: Job, job: Job, pod: PlacedPod, spent: Sequence[int], *, of_surplus: bool) -> Guard:
        """Why an action that looked at the pod could not take it; `spent`: budgets used up by pods it could take."""
        key = (pod.pod, of_surplus)
        guard = self._always.get(key, _UNKNOWN)
        if guard is _UNKNOWN:
            guard = self._always[key] = self._why_always_kept(job, pod, of_surplus=of_surplus)
        if guard is not None:
            return guard
        if self._has_budgets:
            if self._goes_whole(job, pod, of_surplus=of_surplus):
                gang = self._gang(job)
                if self._is_budgeted(gang.budgets, below=gang.left, spent=spent):
                    return BUDGET
            budgets = self._budgets_of(pod)
            if self._is_budgeted(budgets, below=len(job.placed)) or self._is_budgeted(budgets, spent=spent):
                return BUDGET
        if claimant.queue != job.queue:
            return self._why_not_reclaimed(claimant, job, pod)
        claims = None if of_surplus else self.claims
        if claims and pod in self._inside_of(job.queue) and claims.others_wait_for_guarantee(job.queue):
            return _INSIDE
        return _NO_STEP if of_surplus and job.elastic is not None else _BY_PLUGINS

    def _why_always_kept(self, job: Job, pod: PlacedPod, *, of_surplus: bool) -> Guard | None:
        """The same as far as it does not depend on who wants it, nor on what else would go."""
        state = self._session.states.get(job.key)
        if state is not None and pod.pod in state.evicted:
            return _LEAVING
        guard = self.guard(job, pod, is_surplus=of_surplus and pod.pod in self.surplus(job))
        if guard is not None:
            return guard
        if state is not None and any(state.cursor.values()):
            return _STARTS
        if not of_surplus and job.key in self.shrunk:
            return _SHRUNK
        if self._goes_whole(job, pod, of_surplus=of_surplus):
            return self._gang(job).guard if self._evicts_whole else _NEVER_WHOLE
        return None

    def _goes_whole(self, job: Job, pod: PlacedPod, *, of_surplus: bool) -> bool:
        return not of_surplus and len(job.placed) > 1 and pod.pod not in self.surplus(job)

    def _gang(self, job: Job) -> _Gang:
        gang = self._gangs.get(job.key)
        if gang is None:
            state = self._session.states.get(job.key)
            others = [pod for pod in job.placed if state is None or pod.pod not in state.evicted]
            is_guarded = any(self.guard(job, other, is_surplus=False) is not None for other in others)
            budgets = frozenset(number for other in others for number in self._budgets_of(other))
            gang = self._gangs[job.key] = _Gang(len(others), _NOT_WHOLE if is_guarded else None, budgets)
        return gang

    # -- what queues have a right to

    def _why_not_reclaimed(self, claimant: Job, job: Job, pod: PlacedPod) -> Guard:
        if not self.is_reclaimable(claimant, job):
            return NOT_RECLAIMABLE
        if self.claims is not None:
            below = self.claims.meeting(claimant.queue, job.queue)[1]
            if below and pod in self._inside_of(below[-1]):
                return _GUARANTEED
        if pod.pod in self.surplus(job) or not self.is_above_share(job.queue):
            return _DESERVED
        return _DESERVED_PARTLY if len(job.placed) == 1 else _WHOLE_DESERVED_PARTLY

    def _inside_of(self, queue: int) -> frozenset[PlacedPod]:
        """The pods inside the queue's guarantee."""
        inside = self._inside.get(queue)
        if inside is None:
            inside = self._inside[queue] = frozenset() if self.claims is None else self.claims.parts.inside(queue)
        return inside

    def is_reclaimable(self, claimant: Job, job: Job) -> bool:
        """Whether the job's queue, as the claimant's sees it, lets others take anything."""
        if self.claims is None or claimant.queue == job.queue:
            return True
        queues = (claimant.queue, job.queue)
        if queues not in self._reclaimable:
            self._reclaimable[queues] = self.claims.are_reclaimable(self.claims.meeting(*queues)[1])
        return self._reclaimable[queues]

    def is_above_share(self, queue: int) -> bool:
        """Whether the queue holds more than it deserves of something scarce."""
        if queue not in self._above_share:
            self._above_share[queue] = self._find_above_share(queue)
        return self._above_share[queue]

    def _find_above_share(self, queue: int) -> bool:
        due = self._session.due
        if due is None:
            return False
        over = due.accounting.queue_held[queue] > due.deserved[queue] + EPSILON
        return bool((over & due.scarce[queue]).any())
