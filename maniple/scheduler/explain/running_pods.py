"""Running pods as a waiting gang sees them: where they are, their relation to it, and what keeps them from eviction.

Looks at the session after the actions and changes nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import NamedTuple

from msgspec import UNSET

from maniple.model.job import Job, PlacedPod
from maniple.model.pod_identity import JobKey
from maniple.scheduler.eviction.queue_claims import QueueClaims, claims_of
from maniple.scheduler.framework.due_rules import EPSILON
from maniple.scheduler.framework.plan import SHRUNK, Holder, format_rounded_up
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.statement import Placed

MOST_HOLDERS = 5

# What a pod is to a gang that wants its room. Those that could give it back soonest come first. Room that comes free on
# a reserved node goes to the reservation, so that comes before all else.
_RELATIONS = (
    RESERVED := "reserved room",
    LEAVING := "pods that are leaving",
    SURPLUS := "surplus",
    LOWER := "lower priority",
    ABOVE := "above its queue's share",
    SAME := "same priority",
    ELSEWHERE := "of another queue",
    WITHIN := "within its queue's share",
    HIGHER := "higher priority",
    PROMISED := "promised room",
    STARTS := "starts in this cycle",
    STUCK := "stuck pods",
    FOREIGN := "pods that are not ours",
)


class Guard(NamedTuple):
    """What keeps a pod where it is, and for how many more seconds; inf: unknown."""

    what: str
    until: float = inf


_BUDGET = Guard("PodDisruptionBudget")
_NOT_RECLAIMABLE = Guard("reclaimable: false")


@dataclass(slots=True)
class _Share:
    """What pods of one job, alike to the gang, hold of a resource."""

    job: str  # empty: of no job of ours
    what: str
    pods: int
    amount: float
    frees: float  # of that, what would be free without it: reserved room may still be in use by others
    guard: str = ""
    until: float = inf  # when the first of them is no longer protected
    ends: float = inf  # when the last of them ends


class Holders:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.looked_at = 0  # pods that might have been taken, over all kinds of gangs
        self._surplus: dict[JobKey, frozenset[str]] = {}
        self._lower: dict[tuple[int, int], tuple[list[Job], int]] = {}

    # -- which jobs run

    @cached_property
    def by_queue(self) -> dict[int, list[Job]]:
        """Jobs with running pods, the lowest priority first."""
        by_queue: dict[int, list[Job]] = defaultdict(list)
        for job in self.session.snapshot.jobs:
            if job.placed:
                by_queue[job.queue].append(job)
        return {queue: sorted(jobs, key=lambda job: job.priority) for queue, jobs in by_queue.items()}

    @cached_property
    def pods_by_queue(self) -> dict[int, int]:
        return {queue: sum(len(job.placed) for job in jobs) for queue, jobs in self.by_queue.items()}

    def lower(self, claimant: Job) -> tuple[list[Job], int]:
        """The jobs with a lower priority in the claimant's queue, and how many pods they have."""
        key = (claimant.queue, claimant.priority)
        if key not in self._lower:
            jobs = [job for job in self.by_queue.get(claimant.queue, ()) if job.priority < claimant.priority]
            self._lower[key] = jobs, sum(len(job.placed) for job in jobs)
        return self._lower[key]

    @cached_property
    def with_surplus(self) -> dict[int, list[Job]]:
        """Jobs that run with more than their minimum, by queue."""
        by_queue: dict[int, list[Job]] = defaultdict(list)
        for job in self.session.snapshot.jobs:
            if job.placed and len(job.placed) + job.succeeded > max(job.min_member, 1) and self.surplus(job):
                by_queue[job.queue].append(job)
        return dict(by_queue)

    # -- what they are to a gang

    def surplus(self, job: Job) -> frozenset[str]:
        """Its pods above the minimum, whatever protects them: the highest indices."""
        if job.key not in self._surplus:
            self._surplus[job.key] = frozenset(self._find_surplus(job))
        return self._surplus[job.key]

    def _find_surplus(self, job: Job) -> Iterator[str]:
        state = self.session.state(job)
        left = state.placed_count + job.succeeded - max(job.min_member, 1)
        if left <= 0:
            return
        left_of = {
            role: count + job.succeeded_by_role.get(role, 0) - job.role_min.get(role, 0)
            for role, count in state.placed.items()
        }
        for pod in sorted(job.placed, key=lambda pod: (pod.index, pod.order[0], pod.order[2]), reverse=True):
            # The rendezvous replica stays as long as the job does.
            stays = job.elastic is not None and job.elastic.rendezvous(pod.role, pod.index)
            if left > 0 and left_of.get(pod.role, 0) > 0 and pod.pod not in state.evicted and not stays:
                left -= 1
                left_of[pod.role] -= 1
                yield pod.pod

    @cached_property
    def claims(self) -> QueueClaims | None:
        """What queues may take from each other; None: nobody says what they deserve."""
        return claims_of(self.session)

    def is_guaranteed(self, claimant: Job, job: Job, pod: PlacedPod) -> bool:
        """Whether the pod is inside a guarantee, as the claimant's queue sees it."""
        if self.claims is None:
            return False
        below = self.claims.meeting(claimant.queue, job.queue)[1]
        return bool(below) and pod in self.claims.parts.inside(below[-1])

    def is_reclaimable(self, claimant: Job, job: Job) -> bool:
        """Whether the job's queue, as the claimant's sees it, lets others take anything."""
        if self.claims is None or claimant.queue == job.queue:
            return True
        return self.claims.are_reclaimable(self.claims.meeting(claimant.queue, job.queue)[1])

    def is_above_share(self, queue: int) -> bool:
        """Whether the queue holds more than it deserves of something scarce."""
        due = self.session.due
        if due is None:
            return False
        over = due.accounting.queue_held[queue] > due.deserved[queue] + EPSILON
        return bool((over & due.scarce[queue]).any())

    def _relation(self, claimant: Job, job: Job, pod: PlacedPod) -> str:
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

    @cached_property
    def shrunk(self) -> frozenset[JobKey]:
        """Jobs that gave back surplus in this cycle, and so keep their minimum in it."""
        return frozenset(eviction.job.key for eviction in self.session.evicted if eviction.reason == SHRUNK)

    # -- what protects them

    def _guard(self, job: Job, pod: PlacedPod, *, is_surplus: bool, spent: Sequence[int] = ()) -> Guard | None:
        """Surplus is taken even from jobs that may not be evicted, but not while they cool down.

        `spent`: how much of each budget pods use up that would go before this one.
        """
        now = self.session.snapshot.now
        if is_surplus and job.elastic is not None and now < job.elastic.cooldown_until:
            return Guard("cooling down", job.elastic.cooldown_until - now)
        if not is_surplus and not job.preemptable:
            return Guard("preemptable: false")
        if self.session.is_protected(pod):
            return Guard("critical to the system")
        left = job.min_runtime_s - (now - pod.started)
        if left > 0:
            return Guard("minRuntimeSeconds", left)
        return _BUDGET if self._is_budgeted(pod, spent=spent) else None

    def why_kept(self, claimant: Job, job: Job, pod: PlacedPod, spent: Sequence[int], *, of_surplus: bool) -> Guard:
        """Why an action that looked at the pod could not take it; `spent`: budgets used up by pods it could take."""
        state = self.session.state(job)
        is_surplus, is_alone = pod.pod in self.surplus(job), len(job.placed) == 1
        if pod.pod in state.evicted:
            return Guard("leaving already")
        guard = self._guard(job, pod, is_surplus=of_surplus and is_surplus)
        if guard is not None:
            return guard
        if any(state.cursor.values()):
            return Guard("of jobs that get room in this cycle")
        if not of_surplus and job.key in self.shrunk:
            return Guard("of jobs that give back surplus in this cycle")
        if not of_surplus and not is_surplus and not is_alone:
            if not self.session.evicts_whole:
                return Guard("needed by gangs that this policy does not evict whole")
            others = [other for other in job.placed if other.pod not in state.evicted]
            if any(self._guard(job, other, is_surplus=False) is not None for other in others):
                return Guard("of gangs that go whole or not at all, and not all of which may go")
            if any(self._is_budgeted(other, below=len(others), spent=spent) for other in others):
                return _BUDGET
        if self._is_budgeted(pod, below=len(job.placed)) or self._is_budgeted(pod, spent=spent):
            return _BUDGET
        if claimant.queue != job.queue:
            if not self.is_reclaimable(claimant, job):
                return _NOT_RECLAIMABLE
            if self.is_guaranteed(claimant, job, pod):
                return Guard("guaranteed to their queue")
            if not is_surplus and self.is_above_share(job.queue):
                whole = "" if is_alone else "of gangs that go whole or not at all, and "
                return Guard(f"{whole}of which their queue deserves a part")
            return Guard("deserved by their queue")
        claims = None if of_surplus else self.claims
        if claims and pod in claims.parts.inside(job.queue) and claims.others_wait_for_guarantee(job.queue):
            return Guard("inside their queue's guarantee, while others wait for theirs")
        if of_surplus and job.elastic is not None:
            return Guard("less than a step, or next to others of their job that may not go")
        return Guard("kept by plugins of the policy")

    def _is_budgeted(self, pod: PlacedPod, *, below: int = 1, spent: Sequence[int] = ()) -> bool:
        """Whether a budget that covers the pod lets fewer than `below` pods go, less what is spent."""
        left = self._left_of_budgets
        return any(
            left[number] - (spent[number] if spent else 0) < below
            for number in self.session.budget_cover.of(pod.pod, pod.labels)
        )

    def spend(self, pods: Iterable[PlacedPod]) -> list[int]:
        """How much of each budget the pods use up."""
        return self.session.budget_cover.count((pod.pod, pod.labels) for pod in pods)

    @cached_property
    def _left_of_budgets(self) -> list[int]:
        """How many more pods each budget lets go."""
        cover = self.session.budget_cover
        gone = cover.count((eviction.pod.pod, eviction.pod.labels) for eviction in self.session.evicted)
        return [budget.allowed - number for budget, number in zip(cover.budgets, gone, strict=True)]

    # -- who holds what a gang lacks

    def of_resource(
        self, claimant: Job, row: int, nodes: Iterable[int], lacks: float
    ) -> tuple[tuple[Holder, ...], int]:
        """(jobs that hold the resource there until `lacks` is covered, soonest to leave first; how many others do)"""
        shares: dict[tuple[str, str, str], _Share] = {}
        spent = self.spend(())
        for share in (
            share for node in nodes for share in self._shares(claimant, row, node, spent) if share.amount > 0
        ):
            total = shares.setdefault((share.job, share.what, share.guard), share)
            if total is not share:
                total.pods += share.pods
                total.amount += share.amount
                total.frees += share.frees
                total.until = min(total.until, share.until)
                total.ends = max(total.ends, share.ends)
        ranked = sorted(
            shares.items(),
            key=lambda item: (_RELATIONS.index(item[1].what), bool(item[1].guard), item[1].ends, item[0]),
        )
        held_by: list[Holder] = []
        covered = 0.0
        for _, share in ranked:
            if len(held_by) == MOST_HOLDERS or covered >= lacks:
                break
            covered += share.frees
            until = UNSET if share.until == inf else round(share.until, 3)
            amount = self.session.snapshot.axis.text(row, share.amount)
            ends = UNSET if share.ends == inf else format_rounded_up(share.ends)
            held_by.append(Holder(share.job, share.pods, amount, share.what, share.guard or UNSET, until, ends))
        others = {share.job for _, share in ranked if share.job} - {holder.job for holder in held_by}
        return tuple(held_by), len(others)

    def _shares(self, claimant: Job, row: int, node: int, spent: list[int]) -> Iterator[_Share]:
        """What each pod, gang or reservation holds of the resource on the node; `spent`: budgets used up by now."""
        session, snapshot = self.session, self.session.snapshot
        ours = 0.0
        for job, pod in self._running_on.get(node, ()):
            amount = float(pod.requests[row])
            ours += amount
            state = session.states.get(job.key)
            # A pod that is evicted in this cycle makes room for another gang, which is counted in its place.
            if amount > 0 and job.key != claimant.key and (state is None or pod.pod not in state.evicted):
                share = _Share(job.name, self._relation(claimant, job, pod), 1, amount, amount, ends=pod.ends)
                if share.what in (SURPLUS, LOWER, ABOVE):
                    guard = self._guard(job, pod, is_surplus=share.what == SURPLUS, spent=spent)
                    if not self.is_reclaimable(claimant, job):
                        guard = _NOT_RECLAIMABLE
                    if guard is None:
                        spent[:] = map(sum, zip(spent, self.spend([pod]), strict=True))
                    else:
                        share.guard, share.until = guard
                yield share
        for placed, pods in self._coming_to.get(node, ()):
            if placed.job.key != claimant.key:
                what = PROMISED if placed.later else STARTS
                amount = float(placed.group.shape.requests[row]) * pods
                yield _Share(placed.job.name, what, pods, amount, amount)
        reservation, mask = session.reserved.holder(node), session.reserved.mask
        if reservation is not None and mask is not None and mask[node]:
            pods = reservation.nodes[node]
            asked = max(float(group.shape.requests[row]) for group in reservation.job.groups)
            free = max(0.0, float(min(session.free[row, node], session.future[row, node])))
            yield _Share(reservation.job.name, RESERVED, pods, asked * pods, min(free, asked * pods))
        leaving = float(snapshot.releasing[row, node])
        yield _Share("", LEAVING, 0, leaving, leaving)
        stuck = 0.0
        for left in snapshot.stuck.get(node, ()):
            amount = float(left.requests[row])
            stuck += amount
            yield _Share("", STUCK, 1, amount, amount, guard=left.on(snapshot.nodes.names[node]))
        held = float(snapshot.nodes.allocatable[row, node] - snapshot.free[row, node])
        foreign = held - ours - leaving - stuck
        yield _Share("", FOREIGN, 0, foreign, foreign)

    @cached_property
    def _running_on(self) -> dict[int, list[tuple[Job, PlacedPod]]]:
        """Node -> the pods of ours that ran there when the cycle began."""
        by_node: dict[int, list[tuple[Job, PlacedPod]]] = defaultdict(list)
        for job in self.session.snapshot.jobs:
            for pod in job.placed:
                by_node[pod.node].append((job, pod))
        return by_node

    @cached_property
    def _coming_to(self) -> dict[int, list[tuple[Placed, int]]]:
        """Node -> what this cycle has placed or promised there, and how many pods of it."""
        by_node: dict[int, list[tuple[Placed, int]]] = defaultdict(list)
        for placed in self.session.placed:
            for node, count in zip(placed.spot.nodes.tolist(), placed.spot.counts.tolist(), strict=True):
                by_node[node].append((placed, int(count)))
        return by_node
