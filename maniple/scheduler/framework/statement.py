"""A transaction over a session: place, promise, evict; then commit, or roll back in reverse.

Whoever tries something does it inside a statement. Left without a commit, also by an exception, everything is as it
was, to the last bit: amounts are whole numbers, so subtracting what was added leaves no residue.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

import numpy as np

from maniple.model.gpu.devices import Millis
from maniple.model.job import Job, PlacedPod, TaskGroup
from maniple.model.resources import FloatArray, IntArray
from maniple.scheduler.framework.gpus import Grants
from maniple.scheduler.framework.session import Session


@dataclass(frozen=True, slots=True)
class Spot:
    """Distinct nodes, best first, and how many pods go to each."""

    nodes: IntArray
    counts: FloatArray

    @property
    def total(self) -> int:
        return int(self.counts.sum())


@dataclass(frozen=True, slots=True)
class Placed:
    """Pods `start …` of a group, on the nodes of `spot`: now, or when those who are leaving have left."""

    job: Job
    group: TaskGroup
    start: int
    spot: Spot
    later: bool
    grants: tuple[Grants, ...]  # the GPUs of each pod, in the order of the spot's nodes; () if they ask for none
    backfill: str = ""  # the gang for which they will make way

    def used(self) -> FloatArray:
        """[R, nodes] what they take on each of the spot's nodes."""
        used = np.outer(self.group.shape.requests, self.spot.counts)
        if self.grants and self.group.shape.gpus[0].memory:
            # How much of a GPU so much memory is depends on the GPU.
            shares = [sum(granted.milli for granted in hand) for hand in self.grants]
            starts = np.concatenate([[0], np.cumsum(self.spot.counts)[:-1]]).astype(np.intp)
            used[self.group.shape.gpus[0].row] = np.add.reduceat(shares, starts)
        return used

    def slots(self) -> Iterator[tuple[int, Grants]]:
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
    """A role of an elastic job is to have another size; `before` is what this cycle had decided until then."""

    job: Job
    role: str
    before: int | None
    size: int


@dataclass(frozen=True, slots=True, eq=False)
class Cleared:
    """As if pods that run had ended: what they hold, in all [R, N] and of each GPU [N, G] by row."""

    amounts: FloatArray
    devices: dict[int, Millis]


class Statement:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._log: list[Placed | Evicted | Resized | Cleared] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.rollback()

    def place(self, job: Job, group: TaskGroup, spot: Spot, *, later: bool, model: int | None = None) -> None:
        """The next pods of `group` go where `spot` says, to GPUs of `model` if one is given."""
        session = self._session
        start = session.state(job).cursor.get(group.number, 0)
        reserved = session.reserved.mask
        grants = session.gpus.choose(group.shape, spot.nodes, spot.counts, later=later, model=model, reserved=reserved)
        done = Placed(job, group, start, spot, later, grants)
        self._shift(done, 1)
        self._log.append(done)

    def evict(self, job: Job, pod: PlacedPod, reason: str, beneficiary: str) -> None:
        """`pod` will leave: its resources can be promised, but not used before it is gone."""
        done = Evicted(job, pod, reason, beneficiary)
        self._leave(done, 1)
        self._log.append(done)

    def resize(self, job: Job, role: str, size: int) -> None:
        """The role is to have `size` replicas, or fewer if that has been said already."""
        before = self._session.resized.get((job.key, role))
        done = Resized(job, role, before, size if before is None else min(before, size))
        self._resize(done, 1)
        self._log.append(done)

    def clear(self, cleared: Cleared) -> None:
        """To see what would then fit. Can only be rolled back: nobody has gone."""
        self._clear(cleared, 1)
        self._log.append(cleared)

    def mark_backfill(self, gang: str) -> None:
        """All pods placed so far will make way for the gang; for none, if it has no name."""
        if gang:
            self._log = [replace(done, backfill=gang) if isinstance(done, Placed) else done for done in self._log]

    def commit(self) -> None:
        reserved = self._session.reserved
        for done in self._log:
            if isinstance(done, Placed):
                self._session.placed.append(done)
                if done.backfill:
                    reserved.newcomers.setdefault(done.job.key, Counter())[done.backfill] += done.spot.total
                if done.job.key in reserved.by_job:
                    reserved.drop(done.job.key)  # it has room now, here or elsewhere
                    self._session.forget_failures()
            elif isinstance(done, Evicted):
                self._session.evicted.append(done)
                self._session.forget_failures()
        self._log = []

    def placed(self) -> tuple[Placed, ...]:
        return tuple(done for done in self._log if isinstance(done, Placed))

    def nodes(self) -> set[int]:
        """Where it has placed pods so far."""
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
        self._session.future += done.amounts * sign
        self._session.gpus.clear(done.devices, done.amounts, sign)
        self._session.rooms.changed.extend(np.flatnonzero(done.amounts.any(axis=0)).tolist())

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
        used = done.used() * sign
        if done.grants:
            at = np.repeat(nodes, counts.astype(np.intp))
            session.gpus.shift(at.tolist(), done.grants, sign, now=not done.later)
        session.future[:, nodes] -= used
        session.reserved.take(nodes, used)
        if not done.later:
            session.free[:, nodes] -= used
        session.rooms.changed.extend(nodes.tolist())
        if session.remembers_members(done.job):
            state.note(group, done.slots(), session.gpus, sign)
        change = done.spot.total * sign
        tally = state.promised if done.later else state.placed
        tally[group.role] = tally.get(group.role, 0) + change
        state.cursor[group.number] = state.cursor.get(group.number, 0) + change
        self._charge(done.job, used.sum(axis=1))
        for measure in session.by_speed.values():
            measure.take(done, used)
        if group.pod_affinity is not None or group.shape.exclusives or group.owner:
            for node, count in zip(nodes.tolist(), counts.tolist(), strict=True):
                self._meet(group, node, int(count) * sign)

    def _meet(self, group: TaskGroup, node: int, change: int) -> None:
        """What others on the node notice of the pods, apart from the resources they use."""
        session = self._session
        if group.pod_affinity is not None:
            session.affinity_counts.add(group.pod_affinity, node, change)
        if group.shape.exclusives:
            held = session.exclusives.setdefault(node, [])
            for exclusive in group.shape.exclusives:
                held.append(exclusive) if change > 0 else held.remove(exclusive)
        if group.owner:
            nodes = session.owners.setdefault(group.owner, {})
            nodes[node] = nodes.get(node, 0) + change

    def _leave(self, done: Evicted, sign: int) -> None:
        session, pod = self._session, done.pod
        state = session.state(done.job)
        if pod.node >= 0:
            # Its ports, disks and labels still count: until it is gone nobody who minds them can come.
            session.future[:, pod.node] += pod.requests * sign
            is_spare = not session.reserved.counts_on(pod.pod, pod.node)
            if is_spare:
                session.reserved.take(np.array([pod.node]), pod.requests[:, None] * -sign)
            session.gpus.leave(pod.node, pod.gpus, sign, is_spare=is_spare)
            session.rooms.changed.append(pod.node)
            if session.remembers_members(done.job):
                state.note_placed(pod, session.gpus, -sign)
        state.placed[pod.role] = state.placed.get(pod.role, 0) - sign
        state.evicted.add(pod.pod) if sign > 0 else state.evicted.discard(pod.pod)
        self._charge(done.job, pod.requests * -sign)
        for measure in session.by_speed.values():
            measure.leave(done.job, pod, sign)

    def _charge(self, job: Job, amount: FloatArray) -> None:
        session = self._session
        session.state(job).allocated += amount
        session.queue_allocated[session.queue_paths[job.queue]] += amount
