"""A transaction over a session: place, promise, evict; then commit, or roll back in reverse.

Whoever tries something does it inside a statement. Left without a commit, also by an exception, everything is as it
was, to the last bit: amounts are whole numbers, so subtracting what was added leaves no residue.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np

from maniple.model.job import Job, PlacedPod, TaskGroup
from maniple.model.resources import FloatArray, IntArray
from maniple.scheduler.gpus import Grants
from maniple.scheduler.session import Session


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


class Statement:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._log: list[Placed | Evicted] = []

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
        grants = session.gpus.choose(group.shape, spot.nodes, spot.counts, later=later, model=model)
        done = Placed(job, group, start, spot, later, grants)
        self._shift(done, 1)
        self._log.append(done)

    def evict(self, job: Job, pod: PlacedPod, reason: str, beneficiary: str) -> None:
        """`pod` will leave: its resources can be promised, but not used before it is gone."""
        done = Evicted(job, pod, reason, beneficiary)
        self._leave(done, 1)
        self._log.append(done)

    def commit(self) -> None:
        for done in self._log:
            if isinstance(done, Placed):
                self._session.placed.append(done)
            else:
                self._session.evicted.append(done)
                self._session.forget_failures()
        self._log = []

    def nodes(self) -> set[int]:
        """Where it has placed pods so far."""
        return {node for done in self._log if isinstance(done, Placed) for node in done.spot.nodes.tolist()}

    def rollback(self) -> None:
        while self._log:
            done = self._log.pop()
            self._shift(done, -1) if isinstance(done, Placed) else self._leave(done, -1)

    def _shift(self, done: Placed, sign: int) -> None:
        session, group = self._session, done.group
        nodes, counts = done.spot.nodes, done.spot.counts
        state = session.state(done.job)
        used = np.outer(group.shape.requests, counts * sign)
        if done.grants:
            at = np.repeat(nodes, counts.astype(np.intp))
            session.gpus.shift(at.tolist(), done.grants, sign, now=not done.later)
            if group.shape.gpus[0].memory:
                # How much of a GPU so much memory is depends on the GPU.
                shares = [sum(granted.milli for granted in hand) for hand in done.grants]
                starts = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.intp)
                used[group.shape.gpus[0].row] = np.add.reduceat(shares, starts) * sign
        session.future[:, nodes] -= used
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
        if group.peers is not None or group.shape.exclusives or group.owner:
            for node, count in zip(nodes.tolist(), counts.tolist(), strict=True):
                self._meet(group, node, int(count) * sign)

    def _meet(self, group: TaskGroup, node: int, change: int) -> None:
        """What others on the node notice of the pods, apart from the resources they use."""
        session = self._session
        if group.peers is not None:
            session.peers.add(group.peers, node, change)
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
            session.gpus.leave(pod.node, pod.gpus, sign)
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
