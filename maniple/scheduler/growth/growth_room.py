"""Room for growth: takes free room for replicas that do not exist yet, and gives all of it back at the end.

Only whether replicas fit matters here, not where: the next cycle places them. Where free resources alone decide, nodes
are taken from a list, best last, and counted down in plain numbers: N nodes are sorted once a shape, O(N log N), not
once a step. Otherwise (GPU shares, pod affinity) replicas are placed like others, by a statement that must never be
committed.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

import msgspec
import numpy as np

from maniple.model.job import Job, TaskGroup
from maniple.model.resources import FloatArray
from maniple.scheduler.framework.hooks import Need
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.statement import Statement
from maniple.scheduler.framework.supposition import Supposition
from maniple.scheduler.placement.domains_and_models import Scope, home_of, members_of, scopes
from maniple.scheduler.placement.placement_search import place_some

_ANY = -1


class OpenChanges(Protocol):
    """Changes of the session that have not been committed."""

    def nodes(self) -> set[int]: ...
    def rollback(self) -> None: ...


Changes = TypeVar("Changes", bound=OpenChanges)


@dataclass(slots=True, eq=False)
class TakenRoom:
    """Room taken for replicas of a group: by an open statement, or as counts on nodes."""

    job: Job
    group: TaskGroup
    statement: OpenChanges | None = None
    counts: dict[int, int] = field(default_factory=dict)

    def nodes(self) -> set[int]:
        return set(self.counts) if self.statement is None else self.statement.nodes()


class _Part(NamedTuple):
    """The kind of replicas, and the part of the cluster that they must stay in, because their job is there."""

    group: int  # Demands.number_of
    model: int
    level: str
    domain: int


class GrowthRoom:
    def __init__(self, session: Session, *, keeps_to_node: bool) -> None:
        self._session = session
        self._keeps_to_node = keeps_to_node  # a job on one node should stay on it
        self._open_nodes: dict[_Part, list[int]] = {}  # nodes that may have room, best last
        self._requests: dict[int, list[tuple[int, float]]] = {}  # shape -> (row, amount)
        self._free: dict[int, list[float]] = {}  # node -> what is free there
        # (node, shape) -> the requests of a replica, and how many the session does not know of yet.
        self._pending: dict[tuple[int, int], tuple[FloatArray, int]] = {}
        self._parts: dict[tuple[tuple[str, str], str], _Part | None] = {}
        self._supposition = Supposition(session)
        self._bound: dict[tuple[str, str], set[int]] = {}  # job -> nodes that this cycle binds its pods to
        for done in session.placed:
            self._bound.setdefault(done.job.key, set()).update(done.spot.nodes.tolist())

    def take(self, job: Job, group: TaskGroup, count: int, before: list[TakenRoom]) -> TakenRoom | None:
        """Takes room for `count` more replicas of a job that has taken `before`; None if there is not enough."""
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

    def give_back(self, taken: TakenRoom) -> None:
        if taken.statement is not None:
            self._free.clear()
            taken.statement.rollback()
        else:
            self._shift(taken, -1)
        self._open_nodes.clear()

    def suppose(self, find: Callable[[], Changes | None]) -> Changes | None:
        """Lets `find` suppose that others leave and replicas come in their place. It must see all that is taken."""
        self._flush()
        self._free.clear()
        self._open_nodes.clear()
        return find()

    def close(self, taken: Iterable[TakenRoom]) -> None:
        """Gives everything back: the session is as it was."""
        for room in taken:
            if room.statement is not None:
                room.statement.rollback()
        self._supposition.release()

    def would_cross(self, job: Job, group: TaskGroup, count: int, before: list[TakenRoom]) -> bool:
        """Whether the job is on one node that has no room for `count` more replicas."""
        node = self.only_node(job, before)
        return node is not None and bool(self._session.room_for(group, later=False)[node] < count)

    def only_node(self, job: Job, before: list[TakenRoom]) -> int | None:
        """The node that all pods of the job are on, with what it has taken; None if they are on several."""
        nodes = {pod.node for pod in job.placed} | self._bound.get(job.key, set())
        for taken in before:
            nodes |= taken.nodes()
        return nodes.pop() if len(nodes) == 1 else None

    # -- counted on nodes

    def _part(self, job: Job, group: TaskGroup) -> _Part | None:
        """Returns where the replicas must be; None if free resources alone do not decide."""
        session, gpus, shape = self._session, self._session.gpus, group.shape
        if session.depends_on_pods(group) or session.is_placed_singly(group) or shape.exclusives:
            return None
        if group.owner or self._keeps_to_node:
            return None
        if gpus.has_mixed_nodes or gpus.is_counted(shape):
            return None
        model, name, domain = _ANY, "", _ANY
        if gpus.is_mixed and shape.gpus and not job.mixed_models:
            counts = session.state(job).models.get(shape.constraint.gpu_models)
            models = [code for code, count in counts.items() if count > 0] if counts else []
            if len(models) != 1:
                return None
            model = models[0]
        if job.required or job.preferred:
            level = session.snapshot.domains.levels[job.required or job.preferred]
            home = home_of(level, members_of(session, job))
            if home is None or home < 0:
                return None
            name, domain = level.name, home
        return _Part(session.demands.number_of(group), model, name, domain)

    def _count(self, job: Job, group: TaskGroup, count: int, part: _Part) -> TakenRoom | None:
        nodes = self._open_nodes.get(part)
        if nodes is None:
            nodes = self._open_nodes[part] = self._in_order(group, part)
        requests = self._requests_of(group)
        taken = TakenRoom(job, group)
        missing, index = count, len(nodes)
        while missing and index:
            index -= 1
            node = nodes[index]
            free = self._free_on(node)
            fits = min([free[row] / amount for row, amount in requests])
            if fits >= 1:
                taken.counts[node] = missing if fits >= missing else int(fits)
                missing -= taken.counts[node]
        if missing:
            nodes[:] = [node for node in nodes if node in taken.counts]
            return None
        del nodes[index + 1 :]  # these are full now; the node at `index` may have more room
        self._shift(taken, 1)
        return taken

    def _in_order(self, group: TaskGroup, part: _Part) -> list[int]:
        """Returns the nodes of the part with room for the group that are not reserved, best last."""
        session = self._session
        self._flush()
        fits = session.room_for(group, later=False, model=None if part.model == _ANY else part.model)
        is_open = fits > 0
        if part.level:
            is_open &= session.snapshot.domains.levels[part.level].codes == part.domain
        for reservation in session.reservations.values():
            is_open[list(reservation.nodes)] = False
        nodes = np.flatnonzero(is_open)
        order = np.argsort(-session.capacity.scores(group)[nodes], kind="stable")
        best_last: list[int] = nodes[order][::-1].tolist()
        return best_last

    def _requests_of(self, group: TaskGroup) -> list[tuple[int, float]]:
        requests = self._requests.get(group.shape.number)
        if requests is None:
            vector = group.shape.requests
            requests = [(row, float(vector[row])) for row in np.flatnonzero(vector).tolist()]
            self._requests[group.shape.number] = requests
        return requests

    def _free_on(self, node: int) -> list[float]:
        free = self._free.get(node)
        if free is None:
            free = self._session.capacity.usable(np.array([node]))[:, 0].tolist()
            self._free[node] = free
        return free

    def _shift(self, taken: TakenRoom, sign: int) -> None:
        """Takes (1) or gives back (-1) counted room."""
        group = taken.group
        for node, count in taken.counts.items():
            free, key = self._free_on(node), (node, group.shape.number)
            for row, amount in self._requests_of(group):
                free[row] -= amount * (count * sign)
            self._pending[key] = (group.shape.requests, self._pending.get(key, (None, 0))[1] + count * sign)
        more = group.shape.requests * (sum(taken.counts.values()) * sign)
        self._supposition.charge(taken.job.queue, more)

    def _flush(self) -> None:
        """Writes the counts to the session, so that its answers include them."""
        for (node, _), (requests, count) in self._pending.items():
            if count:
                self._supposition.occupy(node, requests * count)
        self._pending.clear()

    # -- placed

    def _place(self, job: Job, group: TaskGroup, count: int, before: list[TakenRoom]) -> TakenRoom | None:
        session = self._session
        self._flush()
        if session.room_for(group, later=False).sum() < count:
            return None
        node = self.only_node(job, before) if self._keeps_to_node else None
        statement = Statement(session)
        same_node = [] if node is None else [Scope(np.arange(len(session.snapshot.nodes)) == node)]
        for scope in (*same_node, *scopes(session, self._staying(job), Need({}, count), [group], later=False)):
            if place_some(session, statement, job, group, count, scope, later=False) == count:
                self._free.clear()
                return TakenRoom(job, group, statement)
            statement.rollback()
        return None

    def _staying(self, job: Job) -> Job:
        """Returns the job, with its preferred level required if it is in one domain of it."""
        if job.required or not job.preferred:
            return job
        level = self._session.snapshot.domains.levels[job.preferred]
        home = home_of(level, members_of(self._session, job))
        return job if home is None or home < 0 else msgspec.structs.replace(job, required=job.preferred)
