"""grow: free room that no other job needs makes elastic jobs larger.

Step by step, the job that gains the most speed for each GPU gets its next step, as long as its replicas fit within the
job's constraints. All growth of a job in a cycle is one resize, which must pay for the restart. The job's controller
creates the replicas, and the next cycle places them. Their room is taken meanwhile and given back at the end, so the
plan does not show it: grow must be the last action of a policy. S steps of J jobs cost O(S log J), besides
counting their room.

Growth is surplus: a gang that is blocked later gets it back by shrink. It evicts nothing, and a job keeps its size
until its cooldown is over, so growing and shrinking do not alternate. While a gang waits for room, a job grows only if
its cooldown ends before the gang would get a reservation, so that the gang can take the room back then.

If the policy lets surplus take surplus of lower priority, the jobs of a queue grow by priority, and a job also grows by
what lower surplus of its queue would leave, step by step for as long as there is some. Its replicas claim that
in the next cycle, all of them first (common/lower_surplus.py).
"""

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from math import inf

from maniple.model.elastic import Elastic
from maniple.model.job import Job
from maniple.model.pod_identity import JobKey
from maniple.model.resources import CPU
from maniple.scheduler.actions.common.lower_surplus import SurplusMaker
from maniple.scheduler.eviction.surplus_claims import claim_of, surplus_preempts, why_no_claim
from maniple.scheduler.framework.action import Ability
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.statement import Statement
from maniple.scheduler.growth.growth_room import GrowthRoom, TakenRoom
from maniple.scheduler.growth.resize_value import DEFAULT, Sizing, gpus_of
from maniple.scheduler.reservation.reserve import host_of

_DIGITS = 9  # equal gains may differ beyond these
_Entry = tuple[tuple[float, ...], JobKey, str, "_Grower"]


@dataclass(slots=True, eq=False)
class _Grower:
    """A job that may grow, and its growth so far."""

    job: Job
    elastic: Elastic
    before: int  # replicas of all roles
    grown: dict[str, int] = field(default_factory=dict)  # role -> replicas more
    taken: list[TakenRoom] = field(default_factory=list)
    losers: set[JobKey] = field(default_factory=set)  # jobs that would leave some of this room
    weights: dict[str, tuple[bool, float]] = field(default_factory=dict)  # by role: see _Handout._weight

    @property
    def size(self) -> int:
        return self.before + sum(self.grown.values())

    def step(self, role: str) -> int:
        """Returns the replicas of the next step; 0 if it would exceed the maximum."""
        sizes = self.elastic.roles[role]
        return sizes.step if sizes.size + self.grown.get(role, 0) + sizes.step <= sizes.max else 0


class Grow:
    abilities = frozenset((Ability.GROW,))

    def execute(self, session: Session) -> None:
        policy = session.sizing or DEFAULT
        elastic = session.snapshot.elastic
        cooldown_s = _longest_cooldown(session) if elastic else 0.0
        larger = filter(_may_find_room(session), filter(_may_be_larger, elastic))
        growers = [grower for job in larger if (grower := _grower(session, policy, job, cooldown_s)) is not None]
        if growers:
            grown = _Handout(session, policy).run(growers)
            with Statement(session) as statement:
                for grower in grown:
                    for role, more in grower.grown.items():
                        statement.resize(grower.job, role, grower.elastic.roles[role].size + more)
                statement.commit()


def _may_be_larger(job: Job) -> bool:
    """Whether a role is below its maximum: most jobs of a settled cluster are asked nothing else."""
    return job.elastic is not None and any(role.size + role.step <= role.max for role in job.elastic.roles.values())


def _may_find_room(session: Session) -> Callable[[Job], bool]:
    """Returns whether any node has room for a replica of the job. One look at the nodes for all equal replicas."""
    if surplus_preempts(session):
        return lambda _: True  # surplus of lower priority may leave some
    has_room: dict[int, bool] = {}

    def may_find_room(job: Job) -> bool:
        for group in job.growth.values():
            kind = session.demands.of_group(group)
            if kind not in has_room:
                has_room[kind] = bool(session.capacity.fits(group).any())
            if has_room[kind]:
                return True
        return False

    return may_find_room


def _longest_cooldown(session: Session) -> float:
    """Returns the longest cooldown in seconds that does not delay a gang that waits for room.

    Gangs that have waited longer than the patience have a reservation, which growth respects, or fit nowhere.
    """
    if session.patience_s is None:
        return inf
    now, patience = session.snapshot.now, session.patience_s
    waiting = [
        patience - (now - job.created)
        for job in session.waiting.oldest_after(now - patience)
        if now - job.created < patience and _waits_for_room(session, job)
    ]
    return min(waiting, default=inf)


def _waits_for_room(session: Session, job: Job) -> bool:
    is_open = job.groups and job.exists and not job.is_suspended and not job.gated and session.why_blocked(job) is None
    return bool(is_open) and not session.job_ready(job) and not session.is_promised(job)


def _grower(session: Session, policy: Sizing, job: Job, cooldown_s: float) -> _Grower | None:
    """Returns the job if it runs at full size, a larger size would pay, and its cooldown is at most `cooldown_s`."""
    elastic = job.elastic
    if elastic is None or not job.growth or elastic.cooldown_s > cooldown_s:
        return None
    if session.snapshot.now < max(elastic.cooldown_until, elastic.grow_after):
        return None
    if not job.placed and job.key not in session.states:
        return None
    state = session.state(job)
    is_moving = state.promised_count or state.evicted or job.gated or any(map(state.left, job.groups))
    if is_moving or not state.placed_count or not session.job_ready(job) or _is_incomplete(session, job, elastic):
        return None
    if any((job.key, role) in session.resized for role in elastic.roles):
        return None
    if host_of(session, job):
        return None  # a guest in reserved room must not hold room elsewhere
    most = sum(max(role.size, role.max) for role in elastic.roles.values())
    # The sizes that can pay best are the points of the job's speed curve, and the largest size.
    before = elastic.size
    bends = [int(replicas) for replicas, _ in elastic.curve if before < replicas < most]
    is_worth_it = any(policy.pays_back(job, before, size) for size in (*bends, most))
    return _Grower(job, elastic, before) if is_worth_it else None


def _is_incomplete(session: Session, job: Job, elastic: Elastic) -> bool:
    """Whether replicas of the current size are missing: free room is for these first."""
    state = session.state(job)
    count_of = dict(job.succeeded_by_role)
    for role in elastic.roles:
        count_of[role] = count_of.get(role, 0) + state.placed.get(role, 0)
    for pod in job.placed:
        sizes = elastic.roles.get(pod.role)
        if sizes is not None and pod.index >= sizes.size:
            count_of[pod.role] -= 1  # it is leaving
    return any(count_of[name] < role.size for name, role in elastic.roles.items())


class _Handout:
    """Hands out room step by step, each to the job that gains most by it."""

    def __init__(self, session: Session, policy: Sizing) -> None:
        self._session = session
        self._policy = policy
        self._room = GrowthRoom(session, keeps_to_node=policy.crossing != 1)
        self._lower: SurplusMaker | None = None  # for growth by surplus of lower priority
        if surplus_preempts(session) and session.has_action(Ability.PREEMPT):
            rules = session.victim_rules("preemptable")
            self._lower = SurplusMaker(session, rules) if rules else None

    def run(self, growers: list[_Grower]) -> list[_Grower]:
        """Returns the jobs that grow. The session is as it was."""
        candidates = growers
        while True:
            self._hand_out(candidates)
            # Growth that does not pay is given back, and the other jobs try again with the room.
            vain = [
                grower
                for grower in candidates
                if grower.grown and not self._policy.pays_back(grower.job, grower.before, grower.size)
            ]
            for grower in vain:
                for taken in grower.taken:
                    self._room.give_back(taken)
                grower.taken.clear()
                grower.losers.clear()
                grower.grown.clear()
            if not vain:
                break
            candidates = [grower for grower in candidates if grower not in vain]
        self._room.close(taken for grower in growers for taken in grower.taken)
        return [grower for grower in growers if grower.grown]

    def _hand_out(self, growers: Sequence[_Grower]) -> None:
        """The levels of a queue come one after the other; queues with an open level compete."""
        levels = self._levels(growers)
        heap: list[_Entry] = []
        still_open = Counter[int]()  # queue -> roles of its level that may get another step
        open_levels: dict[int, list[_Grower]] = {}

        def open_next(queue: int) -> None:
            while not still_open[queue] and (queue in open_levels or levels[queue]):
                for grower in open_levels.pop(queue, ()):
                    self._take_from_lower(grower, growers)
                if not levels[queue]:
                    return
                losers = set().union(*(grower.losers for grower in growers))
                open_levels[queue] = [grower for grower in levels[queue].pop() if grower.job.key not in losers]
                entries = [entry for grower in open_levels[queue] for entry in self._entries(grower)]
                still_open[queue] = len(entries)
                for entry in entries:
                    heapq.heappush(heap, entry)

        for queue in levels:
            open_next(queue)
        while heap:
            key, name, role, grower = heap[0]
            next_key = self._key(grower, role) if self._may_be_stale(grower) else key
            if next_key == key:
                next_key = self._key(grower, role) if self._take(grower, role) else None
            if next_key is not None:
                heapq.heapreplace(heap, (next_key, name, role, grower))
            else:
                heapq.heappop(heap)
                still_open[grower.job.queue] -= 1
                open_next(grower.job.queue)

    def _levels(self, growers: Sequence[_Grower]) -> dict[int, list[list[_Grower]]]:
        """Queue -> its growers by priority, the highest last, if that matters here."""

        def level(grower: _Grower) -> tuple[int, int]:
            return grower.job.queue, grower.job.priority if self._lower is not None else 0

        levels: dict[int, list[list[_Grower]]] = {}
        for (queue, _), several in groupby(sorted(growers, key=level), key=level):
            levels.setdefault(queue, []).append(list(several))
        return levels

    def _entries(self, grower: _Grower) -> list[_Entry]:
        keys = [(self._key(grower, role), role) for role in grower.job.growth]
        return [(key, grower.job.key, role, grower) for key, role in keys if key is not None]

    def _take_from_lower(self, grower: _Grower, growers: Sequence[_Grower]) -> None:
        """Grows the job by what surplus of lower priority would leave, if the policy lets it. No grower loses any."""
        session, job = self._session, grower.job
        if self._lower is None or why_no_claim(session, job):
            return
        keeping = {other.job.key for other in growers if other.grown}
        for role, group in job.growth.items():
            while (step := grower.step(role)) and self._policy.gain(job, grower.size, grower.size + step) > 0:
                claim = claim_of(session, job, [group], step)
                changes = self._room.suppose(partial(self._lower.suppose_room, session.queue_of(job), claim, keeping))
                if changes is None:
                    break
                if self._policy.crossing == 0 and self._room.only_node(job, grower.taken) not in (
                    None,
                    *changes.nodes(),
                ):
                    self._room.give_back(TakenRoom(job, group, changes))
                    break
                grower.taken.append(TakenRoom(job, group, changes))
                grower.losers |= changes.losers
                grower.grown[role] = grower.grown.get(role, 0) + step

    def _may_be_stale(self, grower: _Grower) -> bool:
        """Whether its key may have changed since it was pushed: its other role grew, or its node filled up."""
        return self._policy.crossing != 1 or len(grower.job.growth) > 1

    def _key(self, grower: _Grower, role: str) -> tuple[float, ...] | None:
        """Returns the sort key of the next step: most gain for each GPU, then the smaller job, then the older.

        Jobs of queues without weight come last.

        Returns None if there is no further step, or it gains nothing.
        """
        job, step = grower.job, grower.step(role)
        if not step:
            return None
        size = grower.size
        is_last, weight = self._weight(grower, role)
        gain = self._policy.gain(job, size, size + step) * weight
        if self._policy.crossing != 1 and self._room.would_cross(job, job.growth[role], step, grower.taken):
            gain *= self._policy.crossing
        return (float(is_last), -round(gain, _DIGITS), size, job.created) if gain > 0 else None

    def _weight(self, grower: _Grower, role: str) -> tuple[bool, float]:
        """Returns whether the job's queue has no weight, and what speed is worth to it, for each GPU of a step."""
        weight = grower.weights.get(role)
        if weight is None:
            job, step = grower.job, grower.elastic.roles[role].step
            requests = job.growth[role].shape.requests
            counted = next((row for row in self._session.snapshot.axis.gpu_rows if requests[row]), CPU)
            own = float(self._session.queue_of(job).weights[counted])
            weight = grower.weights[role] = (not own, (own or 1.0) / (gpus_of(self._session, requests) * step))
        return weight

    def _take(self, grower: _Grower, role: str) -> bool:
        step = grower.step(role)
        taken = self._room.take(grower.job, grower.job.growth[role], step, grower.taken)
        if taken is None:
            return False
        if not grower.taken or taken is not grower.taken[-1]:
            grower.taken.append(taken)
        grower.grown[role] = grower.grown.get(role, 0) + step
        return True
