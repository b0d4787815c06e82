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


class _Kind:
    """What replicas of a shape request."""

    def __init__(self, requests: FloatArray) -> None:
        self.asked = [(row, float(requests[row])) for row in np.flatnonzero(requests).tolist()]
        self._requests = requests
        self._amounts: dict[int, FloatArray] = {}

    def amount(self, count: int) -> FloatArray:
        """What so many of them request."""
        amount = self._amounts.get(count)
        if amount is None:
            amount = self._amounts[count] = self._requests * count
        return amount


class GrowthRoom:
    def __init__(self, session: Session, *, keeps_to_node: bool) -> None:
        self._session = session
        self._keeps_to_node = keeps_to_node  # a job on one node should stay on it
        self._open_nodes: dict[_Part, list[int]] = {}  # nodes that may have room, best last
        self._free: dict[int, list[float]] = {}  # node -> what is free there
        self._pending: dict[tuple[int, int], int] = {}  # (node, shape) -> replicas that the session does not know of
        self._kinds: dict[int, _Kind] = {}  # by shape
        self._parts: dict[tuple[tuple[str, str], str], _Part | None] = {}
        self._supposition = Supposition(session)
        self._bound: dict[tuple[str, str], set[int]] = {}  # job -> nodes that this cycle binds its pods to
        for done in session.placed:
            self._bound.setdefault(done.job.key, set()).update(done.spot.nodes.tolist())

    def take(self, job: Job, group: TaskGroup, count: int, before: list[TakenRoom]) -> TakenRoom | None:
        """Takes room for `count` more replicas of a job that has taken `before`; None if there is not enough.

        Counted room is added to the last of `before` if that is of the same group.
        """
        session = self._session
        more = self._kind_of(group).amount(count)
        queue = session.queue_of(job)
        if session.overused(queue, more) is not None or session.admissible(queue, more) is not None:
            return None
        key = (job.key, group.role)
        if key not in self._parts:
            self._parts[key] = self._part(job, group)
        part = self._parts[key]
        return self._place(job, group, count, before) if part is None else self._count(job, group, count, part, before)

    def give_back(self, taken: TakenRoom) -> None:
        if taken.statement is not None:
            self._free.clear()
            taken.statement.rollback()
        else:
            self._shift(taken.job.queue, taken.group, taken.counts, -1)
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

    def _count(self, job: Job, group: TaskGroup, count: int, part: _Part, before: list[TakenRoom]) -> TakenRoom | None:
        nodes = self._open_nodes.get(part)
        if nodes is None:
            nodes = self._open_nodes[part] = self._in_order(group, part)
        requests = self._kind_of(group).asked
        counts: dict[int, int] = {}
        missing, index = count, len(nodes)
        while missing and index:
            index -= 1
            node = nodes[index]
            free = self._free.get(node) or self._free_on(node)
            fits = min([free[row] / amount for row, amount in requests])
            if fits >= 1:
                counts[node] = missing if fits >= missing else int(fits)
                missing -= counts[node]
        if missing:
            nodes[:] = [node for node in nodes if node in counts]
            return None
        del nodes[index + 1 :]  # these are full now; the node at `index` may have more room
        self._shift(job.queue, group, counts, 1)
        if not before or before[-1].group is not group or before[-1].statement is not None:
            return TakenRoom(job, group, counts=counts)
        taken = before[-1].counts
        for node, more in counts.items():
            taken[node] = taken.get(node, 0) + more
        return before[-1]

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

    def _kind_of(self, group: TaskGroup) -> "_Kind":
        kind = self._kinds.get(group.shape.number)
        if kind is None:
            kind = self._kinds[group.shape.number] = _Kind(group.shape.requests)
        return kind

    def _free_on(self, node: int) -> list[float]:
        free = self._free.get(node)
        if free is None:
            free = self._session.capacity.usable(np.array([node]))[:, 0].tolist()
            self._free[node] = free
        return free

    def _shift(self, queue: int, group: TaskGroup, counts: dict[int, int], sign: int) -> None:
        """Takes (1) or gives back (-1) counted room."""
        kind, shape, total = self._kind_of(group), group.shape.number, 0
        for node, count in counts.items():
            free, key, change = self._free_on(node), (node, shape), count * sign
            for row, amount in kind.asked:
                free[row] -= amount * change
            self._pending[key] = self._pending.get(key, 0) + change
            total += change
        self._supposition.charge(queue, kind.amount(total))

    def _flush(self) -> None:
        """Writes the counts to the session, so that its answers include them."""
        for (node, shape), count in self._pending.items():
            if count:
                self._supposition.occupy(node, self._kinds[shape].amount(count))
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
