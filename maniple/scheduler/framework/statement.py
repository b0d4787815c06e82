"""A transaction over a session: place, promise, evict; then commit, or roll back in reverse.

All changes that are tried go through a statement. If it ends without a commit, also by an exception, the session is as
before, to the last bit: amounts are whole numbers, so subtracting what was added leaves no residue.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from maniple.model.gpu.devices import Millis
from maniple.model.job import Job, PlacedPod, TaskGroup
from maniple.model.resources import FloatArray, IntArray
from maniple.scheduler.framework.free_gpus import GpuGrants
from maniple.scheduler.framework.session import Session


@dataclass(frozen=True, slots=True)
class Spot:
    """Distinct nodes, best first, and how many pods go to each."""

    nodes: IntArray
    counts: FloatArray

    @property
    def total(self) -> int:
        return int(self.counts.sum()) if len(self.counts) > 1 else int(self.counts[0])


@dataclass(frozen=True, slots=True)
class Placed:
    """Pods `start …` of a group on the nodes of `spot`: now, or (`later`) when leaving pods have left."""

    job: Job
    group: TaskGroup
    start: int
    spot: Spot
    later: bool
    grants: tuple[GpuGrants, ...]  # the GPUs of each pod, in the order of the spot's nodes; (): none
    backfill: str = ""  # the gang that they will make way for
    moved_for: str = ""  # the gang for which they are evicted elsewhere: these are the places of those that come later

    def used(self) -> FloatArray:
        """[R, nodes] what the pods use on each of the spot's nodes."""
        used: FloatArray = self.group.shape.requests[:, None] * self.spot.counts
        if self.grants and self.group.shape.gpus[0].memory:
            # The share of a GPU that a request for memory takes depends on the GPU.
            shares = [sum(grant.milli for grant in grants) for grants in self.grants]
            starts = np.concatenate([[0], np.cumsum(self.spot.counts)[:-1]]).astype(np.intp)
            used[self.group.shape.gpus[0].row] = np.add.reduceat(shares, starts)
        return used

    def slots(self) -> Iterator[tuple[int, GpuGrants]]:
        """The node and the GPUs of each pod."""
        grants = iter(self.grants)
        for node, count in zip(self.spot.nodes.tolist(), self.spot.counts.tolist(), strict=True):
            for _ in range(int(count)):
                yield node, next(grants, ())


@dataclass(frozen=True, slots=True)
class Evicted:
    job: Job
    pod: PlacedPod
    reason: str
    beneficiary: str


@dataclass(frozen=True, slots=True)
class Resized:
    """A new size of an elastic job's role; `before` is the size that this cycle had set earlier."""

    job: Job
    role: str
    before: int | None
    size: int


@dataclass(frozen=True, slots=True, eq=False)
class Cleared:
    """Running pods that are assumed to have ended: what they hold on some nodes in all [R, nodes], and of each GPU
    [nodes, G] by row.
    """

    nodes: IntArray
    amounts: FloatArray
    devices: dict[int, Millis]
    neighbours: tuple[PlacedPod, ...] = ()  # the pods, if rules about other pods shall see them gone


def shift_cleared(session: Session, done: Cleared, sign: int) -> None:
    """Adds what the pods hold to what will be free (1), or takes it back (-1)."""
    session.future[:, done.nodes] += done.amounts * sign
    session.gpus.clear(done.nodes, done.devices, done.amounts, sign)


class Statement:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._log: list[Placed | Evicted | Resized | Cleared] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.rollback()

    def place(self, job: Job, group: TaskGroup, spot: Spot, *, later: bool, model: int | None = None) -> None:
        """Places the next pods of `group` on `spot`, on GPUs of `model` if given."""
        session = self._session
        start = session.state(job).cursor.get(group.number, 0)
        reserved = session.reserved.bound_among(spot.nodes)
        grants = session.gpus.choose(group, spot.nodes, spot.counts, later=later, model=model, reserved=reserved)
        done = Placed(job, group, start, spot, later, grants)
        self._shift(done, 1)
        self._log.append(done)

    def evict(self, job: Job, pod: PlacedPod, reason: str, beneficiary: str) -> None:
        """Evicts `pod`. Its resources can be promised, but not used before it is gone."""
        done = Evicted(job, pod, reason, beneficiary)
        self._leave(done, 1)
        self._log.append(done)

    def resize(self, job: Job, role: str, size: int) -> None:
        """Sets the role's size to `size`, or keeps a lower one of this cycle."""
        before = self._session.resized.get((job.key, role))
        done = Resized(job, role, before, size if before is None else min(before, size))
        self._resize(done, 1)
        self._log.append(done)

    def clear(self, cleared: Cleared) -> None:
        """Assumes that pods have ended, to see what would fit. Must be rolled back, never committed."""
        self._clear(cleared, 1)
        self._log.append(cleared)

    def mark_backfill(self, gang: str) -> None:
        """Marks all pods placed so far as making way for the gang; an empty name marks none."""
        if gang:
            self._log = [replace(done, backfill=gang) if isinstance(done, Placed) else done for done in self._log]

    def mark_moved(self, gang: str) -> None:
        """Marks all pods placed so far as evicted elsewhere for the gang: places are kept for them, none is bound."""
        self._log = [replace(done, moved_for=gang) if isinstance(done, Placed) else done for done in self._log]

    def commit(self) -> None:
        reserved = self._session.reserved
        if self._session.queue_claims is not None and any(map(self._changes_running, self._log)):
            self._session.queue_claims.is_outdated = True
        for done in self._log:
            if isinstance(done, Placed) and done.moved_for:
                self._session.moved.append(done)
            elif isinstance(done, Placed):
                self._session.placed.append(done)
                self._session.promised_pods.add(done)
                if done.backfill:
                    reserved.newcomers.setdefault(done.job.key, Counter())[done.backfill] += done.spot.total
                if done.job.key in reserved.by_job:
                    reserved.drop(done.job.key)  # the job is placed, there or elsewhere
                    self._session.forget_failures()
            elif isinstance(done, Evicted):
                self._session.evicted.append(done)
                self._session.forget_failures()
        self._session.promised_room.keep(self.placed())
        self._log = []

    def absorb(self, other: "Statement") -> None:
        """Takes over what the other has done: both are committed or rolled back together."""
        self._log += other._log
        other._log = []

    def _changes_running(self, done: Placed | Evicted | Resized | Cleared) -> bool:
        """Whether it changes a job that holds something already, and so what claims count."""
        if not isinstance(done, Placed):
            return True
        state = self._session.state(done.job)
        return state.placed_count + state.promised_count > done.spot.total

    def placed(self) -> tuple[Placed, ...]:
        return tuple(done for done in self._log if isinstance(done, Placed))

    def nodes(self) -> set[int]:
        """The nodes on which it has placed pods."""
        return {node for done in self._log if isinstance(done, Placed) for node in done.spot.nodes.tolist()}

    def rollback(self) -> None:
        while self._log:
            done = self._log.pop()
            if isinstance(done, Placed):
                self._shift(done, -1)
            elif isinstance(done, Evicted):
                self._leave(done, -1)
            elif isinstance(done, Resized):
                self._resize(done, -1)
            else:
                self._clear(done, -1)

    def _clear(self, done: Cleared, sign: int) -> None:
        session = self._session
        shift_cleared(session, done, sign)
        for pod in done.neighbours:
            session.neighbours.leave(pod.pod_affinity, pod.exclusives, pod.node, sign)
        session.capacity.changed.extend(done.nodes.tolist())

    def _resize(self, done: Resized, sign: int) -> None:
        key, resized = (done.job.key, done.role), self._session.resized
        size = done.size if sign > 0 else done.before
        if size is None:
            del resized[key]
        else:
            resized[key] = size
        self._session.state(done.job).resize(done.role, size)

    def _shift(self, done: Placed, sign: int) -> None:
        session, group = self._session, done.group
        nodes, counts = done.spot.nodes, done.spot.counts
        state = session.state(done.job)
        used, changes = done.used() * sign, counts * sign
        if done.grants:
            node_of_pod = nodes.tolist() if len(done.grants) == 1 else [node for node, _ in done.slots()]
            session.gpus.shift(node_of_pod, done.grants, sign, now=not done.later)
            session.gpus.owed.place(group, nodes, changes)
        # Most statements place one pod: numpy adds one column in a tenth of the time that it takes to choose columns.
        columns, amounts = (nodes, used) if len(nodes) > 1 else (int(nodes[0]), used[:, 0])
        session.future[:, columns] -= amounts
        session.reserved.take(nodes, used)
        session.reserved.place(group, nodes, changes)
        if not done.later:
            session.free[:, columns] -= amounts
        session.capacity.changed.extend(nodes.tolist())
        if session.remembers_members(done.job):
            for node, grants in done.slots():
                state.note(node, group.shape.constraint.gpu_models, grants, session.gpus, sign)
        total = done.spot.total * sign
        tally = state.promised if done.later else state.placed
        tally[group.role] = tally.get(group.role, 0) + total
        state.cursor[group.number] = state.cursor.get(group.number, 0) + total
        self._charge(done.job, used.sum(axis=1) if len(nodes) > 1 else used[:, 0])
        for accounting in session.by_speed.values():
            accounting.take(done, used)
        if group.pod_affinity is not None or group.shape.exclusives or group.owner:
            for node, change in zip(nodes.tolist(), changes.tolist(), strict=True):
                self._meet(group, node, int(change), later=done.later)

    def _meet(self, group: TaskGroup, node: int, change: int, *, later: bool) -> None:
        """Adds what other pods on the node can depend on, apart from resources."""
        session = self._session
        session.neighbours.come(group.pod_affinity, group.shape.exclusives, node, change, later=later)
        if group.owner:
            nodes = session.owners.setdefault(group.owner, {})
            nodes[node] = nodes.get(node, 0) + change

    def _leave(self, done: Evicted, sign: int) -> None:
        session, pod = self._session, done.pod
        state = session.state(done.job)
        if pod.node >= 0:
            session.neighbours.leave(pod.pod_affinity, pod.exclusives, pod.node, sign)
            session.future[:, pod.node] += pod.requests * sign
            is_spare = not session.reserved.counts_on(pod.pod, pod.node)
            if is_spare:
                session.reserved.take(np.array([pod.node]), pod.requests[:, None] * -sign)
            session.gpus.leave(pod.node, pod.gpus, sign, is_spare=is_spare)
            session.capacity.changed.append(pod.node)
            if session.remembers_members(done.job):
                state.note(pod.node, pod.gpu_models, pod.gpus, session.gpus, -sign)
        state.placed[pod.role] = state.placed.get(pod.role, 0) - sign
        state.evicted.add(pod.pod) if sign > 0 else state.evicted.discard(pod.pod)
        self._charge(done.job, pod.requests * -sign)
        for accounting in session.by_speed.values():
            accounting.leave(done.job, pod, sign)

    def _charge(self, job: Job, amount: FloatArray) -> None:
        session = self._session
        session.state(job).allocated += amount
        for queue in session.queue_paths[job.queue]:
            session.queue_allocated[queue] += amount
