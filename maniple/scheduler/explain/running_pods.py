"""Running pods as a waiting gang sees them: where they are, their relation to it, and who holds what it lacks.

Looks at the session after the actions and changes nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

from msgspec import UNSET

from maniple.model.job import Job, PlacedPod
from maniple.scheduler.eviction.unit_table import UnitTable
from maniple.scheduler.eviction.units import Unit, UnitsOf
from maniple.scheduler.explain.kept_pods import NOT_RECLAIMABLE, KeptPods
from maniple.scheduler.framework.plan import Holder, format_rounded_up
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.statement import Placed

MOST_HOLDERS = 5
MOST_LOOKED_AT = 10_000  # pods that might have been taken, over all kinds of gangs

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
    def __init__(self, session: Session, most_looked_at: int) -> None:
        self.session = session
        self.left_to_look_at = most_looked_at
        self.kept = KeptPods(session)
        self._lower: dict[tuple[int, int], tuple[list[Job], int]] = {}
        self._units: dict[object, Sequence[Unit]] = {}

    # -- which jobs run

    @cached_property
    def by_queue(self) -> dict[int, list[Job]]:
        """Jobs with running pods, the lowest priority first."""
        by_queue: dict[int, list[Job]] = defaultdict(list)
        for job in self.session.snapshot.running:
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
        for job in self.session.snapshot.running:
            if len(job.placed) + job.succeeded > max(job.min_member, 1) and self.kept.surplus(job):
                by_queue[job.queue].append(job)
        return dict(by_queue)

    def units(self, units_of: UnitsOf, jobs: Sequence[Job]) -> Sequence[Unit]:
        """What an action may take of the jobs as its table has it: the cheapest first, and no pod in two units."""
        key = (units_of, tuple(map(id, jobs)))
        if key not in self._units:
            units = (unit for job in jobs for unit in self._units_of(units_of, job))
            self._units[key] = UnitTable(self.session, units).units
        return self._units[key]

    def _units_of(self, units_of: UnitsOf, job: Job) -> Sequence[Unit]:
        key = (units_of, job.key)
        if key not in self._units:
            self._units[key] = tuple(units_of(self.session, job))
        return self._units[key]

    # -- what they are to a gang

    def _relation(self, claimant: Job, job: Job, pod: PlacedPod) -> str:
        if pod.pod in self.kept.surplus(job):
            return SURPLUS
        if job.queue == claimant.queue:
            return LOWER if job.priority < claimant.priority else SAME if job.priority == claimant.priority else HIGHER
        if self.session.due is None:
            return ELSEWHERE
        return ABOVE if self.kept.is_above_share(job.queue) else WITHIN

    def is_leaving(self, job: Job) -> bool:
        """Whether all of it leaves in this cycle."""
        state = self.session.states.get(job.key)
        return state is not None and len(state.evicted) == len(job.placed)

    # -- who holds what a gang lacks

    def of_resource(
        self, claimant: Job, row: int, nodes: Iterable[int], lacks: float
    ) -> tuple[tuple[Holder, ...], int]:
        """(jobs that hold the resource there until `lacks` is covered, soonest to leave first; how many others do)"""
        shares: dict[tuple[str, str, str], _Share] = {}
        spent = self.kept.spend(())
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
                    guard = self.kept.guard(job, pod, is_surplus=share.what == SURPLUS, spent=spent)
                    if not self.kept.is_reclaimable(claimant, job):
                        guard = NOT_RECLAIMABLE
                    if guard is None:
                        spent[:] = map(sum, zip(spent, self.kept.spend([pod]), strict=True))
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
        for job in self.session.snapshot.running:
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
