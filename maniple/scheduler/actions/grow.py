"""grow: what nobody else needs makes elastic jobs bigger.

Step by step the job that gains most speed for each GPU gets one more step, as long as there is room for its replicas
where its demands let them go. All of a job's growth in a cycle is one resize, and it must pay for the standstill. The
replicas exist only when the job's controller has made them, and are placed in the next cycle. Their room is taken
meanwhile, and given back at the end, so that the plan says nothing of it: that is why grow is a policy's last action.

Growth is surplus: whoever is blocked later gets it back by shrink. It takes nothing from anybody, and a job does not
change its size again before it has cooled down, so growing and shrinking do not chase each other. While a gang waits
for room, only those grow who will have cooled down by the time at which it would be given a reservation: what they take
now is there for it then.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from maniple.model.elastic import Elastic
from maniple.model.job import Job
from maniple.scheduler.framework.action import Ability
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.statement import Statement
from maniple.scheduler.growth.resize_value import Sizing, gpus_of, sizing
from maniple.scheduler.growth.room import GrowthRoom, Taken
from maniple.scheduler.reservation.reserve import host_of

_DIGITS = 9  # gains that differ less are the same, computed on different ways


@dataclass(slots=True, eq=False)
class _Grower:
    """A job that may grow, and by how much it has so far."""

    job: Job
    elastic: Elastic
    before: int  # replicas of all roles
    grown: dict[str, int] = field(default_factory=dict)  # role -> replicas more
    taken: list[Taken] = field(default_factory=list)
    weights: dict[str, float] = field(default_factory=dict)  # role -> what speed gained by its steps is worth

    @property
    def size(self) -> int:
        return self.before + sum(self.grown.values())

    def step(self, role: str) -> int:
        """Replicas of its next step; 0 if the role is as large as it may be."""
        size = self.elastic.roles[role]
        return size.step if size.size + self.grown.get(role, 0) + size.step <= size.max else 0


class Grow:
    abilities = frozenset((Ability.GROW,))

    def execute(self, session: Session) -> None:
        policy = sizing(session)
        elastic = [job for job in session.snapshot.jobs if job.elastic is not None]
        hot_s = _longest_cooldown(session) if elastic else 0.0
        growers = [one for job in elastic if (one := _grower(session, policy, job, hot_s)) is not None]
        if growers:
            grown = _Handout(session, policy).run(growers)
            with Statement(session) as statement:
                for grower in grown:
                    for role, more in grower.grown.items():
                        statement.resize(grower.job, role, grower.elastic.roles[role].size + more)
                statement.commit()


def _longest_cooldown(session: Session) -> float:
    """Seconds for which somebody may be too hot to shrink, in the interest of those who wait for room.

    Gangs that have waited for longer than that hold a reservation, which growth respects, or fit nowhere.
    """
    if session.patience_s is None:
        return inf
    now, patience = session.snapshot.now, session.patience_s
    waiting = [
        patience - (now - job.created)
        for job in session.snapshot.waiting
        if now - job.created < patience and _waits_for_room(session, job)
    ]
    return min(waiting, default=inf)


def _waits_for_room(session: Session, job: Job) -> bool:
    is_open = job.groups and job.exists and not job.is_suspended and not job.gated and job.key not in session.blocked
    return bool(is_open) and not session.job_ready(job) and not session.is_promised(job)


def _grower(session: Session, policy: Sizing, job: Job, hot_s: float) -> _Grower | None:
    """The job, if it runs with all that it is to have now, and a larger size would pay. `hot_s`: the longest time for
    which it may be too hot to shrink after that.
    """
    elastic = job.elastic
    if elastic is None or not job.growth or elastic.cooldown_s > hot_s:
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
        return None  # a job that will make way has nothing elsewhere
    grower = _Grower(job, elastic, elastic.size)
    most = sum(max(role.size, role.max) for role in elastic.roles.values())
    return grower if any(policy.pays_back(job, grower.before, size) for size in _sizes(grower, most)) else None


def _is_incomplete(session: Session, job: Job, elastic: Elastic) -> bool:
    """Whether replicas are missing that nobody has made yet: what is free is theirs, before there are more."""
    state = session.state(job)
    there = dict(job.succeeded_by_role)
    for role in elastic.roles:
        there[role] = there.get(role, 0) + state.placed.get(role, 0)
    for pod in job.placed:
        size = elastic.roles.get(pod.role)
        if size is not None and pod.order[1] >= size.size:
            there[pod.role] -= 1  # it is on its way out
    return any(there[name] < role.size for name, role in elastic.roles.items())


def _sizes(grower: _Grower, most: int) -> Sequence[int]:
    """Sizes at which the job might be worth more than now: where its curve bends, and the largest."""
    bends = [int(replicas) for replicas, _ in grower.elastic.curve if grower.before < replicas < most]
    return [*bends, most]


class _Handout:
    """Room is handed out step by step, to whoever gains most by the next one."""

    def __init__(self, session: Session, policy: Sizing) -> None:
        self._session = session
        self._policy = policy
        self._room = GrowthRoom(session, keeps_to_node=policy.crossing != 1)

    def run(self, growers: list[_Grower]) -> list[_Grower]:
        """Those who grow. Leaves no trace in the session."""
        open_ = growers
        while True:
            self._hand_out(open_)
            # What does not pay back others may have, who then perhaps grow more.
            vain = [one for one in open_ if one.grown and not self._policy.pays_back(one.job, one.before, one.size)]
            for grower in vain:
                for taken in grower.taken:
                    self._room.give_back(taken)
                grower.taken.clear()
                grower.grown.clear()
            if not vain:
                break
            open_ = [grower for grower in open_ if grower not in vain]
        self._room.close(taken for grower in growers for taken in grower.taken)
        return [grower for grower in growers if grower.grown]

    def _hand_out(self, growers: Sequence[_Grower]) -> None:
        heap = []
        for grower in growers:
            for role in grower.job.growth:
                key = self._key(grower, role)
                if key is not None:
                    heap.append((key, grower.job.key, role, grower))
        heapq.heapify(heap)
        while heap:
            key, name, role, grower = heapq.heappop(heap)
            if self._may_have_moved(grower):
                now = self._key(grower, role)
                if now is None:
                    continue
                if now != key:
                    heapq.heappush(heap, (now, name, role, grower))
                    continue
            if self._take(grower, role):
                following = self._key(grower, role)
                if following is not None:
                    heapq.heappush(heap, (following, name, role, grower))

    def _may_have_moved(self, grower: _Grower) -> bool:
        """Whether its place in line may be another since it got there: its other role grew, or its node filled up."""
        return self._policy.crossing != 1 or len(grower.job.growth) > 1

    def _key(self, grower: _Grower, role: str) -> tuple[float, ...] | None:
        """Its place in line, lower first: who gains most for a GPU, then the smaller job, then the older.

        None if there is no further step, or it gains nothing.
        """
        job, step = grower.job, grower.step(role)
        if not step:
            return None
        size = grower.size
        gain = self._policy.gain(job, size, size + step) * self._weight(grower, role)
        if self._policy.crossing != 1 and self._room.would_cross(job, job.growth[role], step, grower.taken):
            gain *= self._policy.crossing
        return (-round(gain, _DIGITS), size, job.created) if gain > 0 else None

    def _weight(self, grower: _Grower, role: str) -> float:
        """What speed is worth to the job's queue, for each GPU of a step."""
        weight = grower.weights.get(role)
        if weight is None:
            job, step = grower.job, grower.elastic.roles[role].step
            gpus = gpus_of(self._session, job.growth[role].shape.requests) * step
            weight = grower.weights[role] = self._session.queue_of(job).weight / gpus
        return weight

    def _take(self, grower: _Grower, role: str) -> bool:
        step = grower.step(role)
        taken = self._room.take(grower.job, grower.job.growth[role], step, grower.taken)
        if taken is None:
            return False
        grower.taken.append(taken)
        grower.grown[role] = grower.grown.get(role, 0) + step
        return True
