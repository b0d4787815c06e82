"""Room for growth: what is free is taken for replicas that do not exist yet, and given back when all is decided.

Only whether replicas fit matters here, not where they will be: the next cycle places them. So where a node's free
resources say all, nodes are taken one after the other from a list, best first, and counted down in plain numbers: ten
thousand nodes are looked at once a shape, and not once a step. Elsewhere (shares of GPUs, pods that mind each other)
replicas are placed as any others are, by a statement that is never committed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from maniple.model.job import Job, TaskGroup
from maniple.model.resources import FloatArray
from maniple.scheduler.framework.hooks import Need
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.statement import Statement
from maniple.scheduler.framework.supposition import Supposition
from maniple.scheduler.placement.domains_and_models import Scope, home_of, members_of, scopes
from maniple.scheduler.placement.search import place_some

_ANY = -1


@dataclass(slots=True, eq=False)
class Taken:
    """Room that replicas of a group will have: by a statement that stays open, or so many on each of some nodes."""

    job: Job
    group: TaskGroup
    statement: Statement | None = None
    counts: dict[int, int] = field(default_factory=dict)

    def nodes(self) -> set[int]:
        return set(self.counts) if self.statement is None else self.statement.nodes()


@dataclass(frozen=True, slots=True)
class _Part:
    """The part of the cluster that replicas must stay in, because the others of their job are there."""

    model: int = _ANY
    level: str = ""
    domain: int = _ANY


class GrowthRoom:
    def __init__(self, session: Session, *, keeps_to_node: bool) -> None:
        self._session = session
        self._keeps_to_node = keeps_to_node  # whether it matters that a job stays on its one node
        # Nodes that may have room for a kind of group, the best last.
        self._open: dict[tuple[int, _Part], list[int]] = {}
        self._asked: dict[int, list[tuple[int, float]]] = {}  # shape -> (row, amount)
        self._free: dict[int, list[float]] = {}  # node -> what is free there
        # (node, shape) -> what a replica asks for, and how many the session does not know of yet.
        self._unsaid: dict[tuple[int, int], tuple[FloatArray, int]] = {}
        self._parts: dict[tuple[tuple[str, str], str], _Part | None] = {}
        self._supposition = Supposition(session)
        self._bound: dict[tuple[str, str], set[int]] = {}  # job -> nodes that this cycle binds its pods to
        for done in session.placed:
            self._bound.setdefault(done.job.key, set()).update(done.spot.nodes.tolist())

    def take(self, job: Job, group: TaskGroup, count: int, before: list[Taken]) -> Taken | None:
        """Room for `count` replicas more of a job that has taken `before`; None if there is not enough."""
        session = self._session
        more = group.shape.requests * count
        queue = session.queue_of(job)
        if session.overused(queue, more) is not None or session.admissible(queue, more) is not None:
            return None
        key = (job.key, group.role)
        if key not in self._parts:
            self._parts[key] = self._part(job, group)
        part = self._parts[key]
        return self._place(job, group, count, before) if part is None else self._count(job, group, count, part)

    def give_back(self, taken: Taken) -> None:
        if taken.statement is not None:
            self._free.clear()
            taken.statement.rollback()
        else:
            self._shift(taken, -1)
        self._open.clear()

    def close(self, taken: Iterable[Taken]) -> None:
        """All of it is given back: the session is as it was."""
        for one in taken:
            if one.statement is not None:
                one.statement.rollback()
        self._supposition.release()

    def would_cross(self, job: Job, group: TaskGroup, count: int, before: list[Taken]) -> bool:
        """Whether the job is on one node, which has no room for so many more."""
        node = self._only_node(job, before)
        return node is not None and bool(self._session.room_for(group, later=False)[node] < count)

    def _only_node(self, job: Job, before: list[Taken]) -> int | None:
        nodes = {pod.node for pod in job.placed} | self._bound.get(job.key, set())
        for taken in before:
            nodes |= taken.nodes()
        return nodes.pop() if len(nodes) == 1 else None

    # -- counted on nodes

    def _part(self, job: Job, group: TaskGroup) -> _Part | None:
        """Where the replicas must be; None if more has to be known of a node than its free resources."""
        session, gpus, shape = self._session, self._session.gpus, group.shape
        if group.pod_affinity is not None or shape.exclusives or group.owner or self._keeps_to_node:
            return None
        if gpus.has_mixed_nodes or gpus.is_counted(shape):
            return None
        part = _Part()
        if gpus.is_mixed and shape.gpus and not job.mixed_models:
            there = session.state(job).models.get(shape.constraint.gpu_models)
            models = [code for code, pods in there.items() if pods > 0] if there else []
            if len(models) != 1:
                return None
            part = replace(part, model=models[0])
        if job.required or job.preferred:
            level = session.snapshot.domains.levels[job.required or job.preferred]
            home = home_of(level, members_of(session, job))
            if home is None or home < 0:
                return None
            part = replace(part, level=level.name, domain=home)
        return part

    def _count(self, job: Job, group: TaskGroup, count: int, part: _Part) -> Taken | None:
        key = (self._session.demands.number_of(group), part)
        nodes = self._open.get(key)
        if nodes is None:
            nodes = self._open[key] = self._in_order(group, part)
        asked = self._asked_by(group)
        taken = Taken(job, group)
        missing, at = count, len(nodes)
        while missing and at:
            at -= 1
            free = self._free_on(nodes[at])
            fits = min([free[row] / amount for row, amount in asked])
            if fits >= 1:
                taken.counts[nodes[at]] = missing if fits >= missing else int(fits)
                missing -= taken.counts[nodes[at]]
        if missing:
            nodes[:] = [node for node in nodes if node in taken.counts]
            return None
        del nodes[at + 1 :]  # all of them are full now; the one before may have more room
        self._shift(taken, 1)
        return taken

    def _in_order(self, group: TaskGroup, part: _Part) -> list[int]:
        session = self._session
        self._tell()
        fits = session.room_for(group, later=False, model=None if part.model == _ANY else part.model)
        may = fits > 0
        if part.level:
            may &= session.snapshot.domains.levels[part.level].codes == part.domain
        for reservation in session.reservations.values():
            may[list(reservation.nodes)] = False
        nodes = np.flatnonzero(may)
        order = np.argsort(-session.rooms.scores(group)[nodes], kind="stable")
        found: list[int] = nodes[order][::-1].tolist()
        return found

    def _asked_by(self, group: TaskGroup) -> list[tuple[int, float]]:
        asked = self._asked.get(group.shape.number)
        if asked is None:
            requests = group.shape.requests
            asked = [(row, float(requests[row])) for row in np.flatnonzero(requests).tolist()]
            self._asked[group.shape.number] = asked
        return asked

    def _free_on(self, node: int) -> list[float]:
        free = self._free.get(node)
        if free is None:
            session = self._session
            free = np.minimum(session.free[:, node], session.future[:, node]).tolist()
            self._free[node] = free
        return free

    def _shift(self, taken: Taken, sign: int) -> None:
        group = taken.group
        for node, count in taken.counts.items():
            free, key = self._free_on(node), (node, group.shape.number)
            for row, amount in self._asked_by(group):
                free[row] -= amount * (count * sign)
            self._unsaid[key] = (group.shape.requests, self._unsaid.get(key, (None, 0))[1] + count * sign)
        more = group.shape.requests * (sum(taken.counts.values()) * sign)
        self._supposition.charge(taken.job.queue, more)

    def _tell(self) -> None:
        """The session learns what has been counted here, for whoever asks it."""
        for (node, _), (requests, count) in self._unsaid.items():
            if count:
                self._supposition.occupy(node, requests * count)
        self._unsaid.clear()

    # -- placed

    def _place(self, job: Job, group: TaskGroup, count: int, before: list[Taken]) -> Taken | None:
        session = self._session
        self._tell()
        if session.room_for(group, later=False).sum() < count:
            return None
        node = self._only_node(job, before) if self._keeps_to_node else None
        statement = Statement(session)
        alone = [] if node is None else [Scope(np.arange(len(session.snapshot.nodes)) == node)]
        for scope in (*alone, *scopes(session, self._staying(job), Need({}, count), [group], later=False)):
            if place_some(session, statement, job, group, count, scope, later=False) == count:
                self._free.clear()
                return Taken(job, group, statement)
            statement.rollback()
        return None

    def _staying(self, job: Job) -> Job:
        """The job, bound to the domain that it prefers if that is where it is."""
        if job.required or not job.preferred:
            return job
        level = self._session.snapshot.domains.levels[job.preferred]
        home = home_of(level, members_of(self._session, job))
        return job if home is None or home < 0 else replace(job, required=job.preferred)
