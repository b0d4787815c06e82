"""The pods on nodes that are not leaving, as columns, so that the room they leave is arithmetic.

The columns are kept from cycle to cycle (model/running_columns.py), and within one only added to. A search looks at
pods in the order in which they will be gone, and adds up what some of them hold on the nodes that these are on.
"""

from collections.abc import Callable, Mapping

import numpy as np

from maniple.model.gpu.devices import Millis
from maniple.model.job import Job, PlacedPod, TaskGroup
from maniple.model.pod_identity import JobKey
from maniple.model.resources import BoolArray, FloatArray, IntArray
from maniple.model.running_columns import running_columns, stacked_requests
from maniple.scheduler.framework.pod_columns import DeviceParts
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.statement import Cleared
from maniple.scheduler.framework.supposition import Supposition

Surplus = list[tuple[int, float]]  # rows, and from when on each may be evicted


class RunningPods:
    """Those of the snapshot, job by job, then those that this cycle has placed. Evicted ones are not `there`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._of_snapshot = columns = running_columns(session.snapshot.running)
        self.pods: list[PlacedPod] = list(columns.pods)
        self.settled = len(self.pods)  # the others are newcomers
        self.guests: dict[str, list[int]] = {}  # gang -> the pods that make way for it
        for job in session.snapshot.guests:
            for row in self._rows_of(job):
                if self.pods[row].makes_way_for:
                    self.guests.setdefault(self.pods[row].makes_way_for, []).append(row)
        self.nodes, self.started, self.declared = columns.nodes, columns.started, columns.ends
        self._requests = columns.requests if self.pods else np.zeros((len(session.snapshot.axis), 0))
        self.there: BoolArray = np.ones(len(self.pods), dtype=bool)
        self._parts = DeviceParts.of_columns(session, columns)
        self._seen = 0  # how much of session.placed is in the columns
        self._evicted = 0  # the same of session.evicted
        self._orders: dict[str, IntArray] = {}
        self._by_node: tuple[IntArray, IntArray] | None = None
        # The jobs, by number, that hold more than their minimum.
        self.with_surplus: list[int] = np.flatnonzero(columns.have_surplus).tolist()
        self._surplus: dict[int, Surplus] = {}
        self._most_room: dict[int, FloatArray] = {}  # by kind of group
        # A pod that asks for GPU memory may hold more than its requests say.
        self._are_newcomers_exact = True

    def catch_up(self) -> bool:
        """Adds the pods that this cycle has bound or nominated since the last call, and takes out evicted ones.

        Returns whether it has added any.
        """
        session = self._session
        fresh, self._seen = session.placed[self._seen :], len(session.placed)
        now = session.snapshot.now
        pods = [
            PlacedPod(
                pod=done.group.pods[nth],
                node=node,
                role=done.group.role,
                priority=done.group.priority,
                requests=done.group.shape.requests,
                pod_affinity=done.group.pod_affinity,
                started=now,
                is_critical=done.group.stays,
                labels={},
                gpus=grants,
                ends=now + done.group.lasts_s,
                exclusives=done.group.shape.exclusives,
            )
            for done in fresh
            for nth, (node, grants) in enumerate(done.slots(), done.start)
        ]
        self._are_newcomers_exact &= not any(ask.memory for done in fresh for ask in done.group.shape.gpus)
        if pods:
            self.pods += pods
            nodes, started, declared, requests = self._columns(pods)
            self.nodes = np.append(self.nodes, nodes)
            self.started = np.append(self.started, started)
            self.declared = np.append(self.declared, declared)
            self._requests = np.concatenate([self._requests, requests], axis=1)
            self.there = np.append(self.there, np.ones(len(pods), dtype=bool))
            self._parts = self._parts.followed_by(DeviceParts.of_pods(session, pods))
        gone: dict[JobKey, tuple[Job, set[str]]] = {}
        for done_to in session.evicted[self._evicted :]:
            gone.setdefault(done_to.job.key, (done_to.job, set()))[1].add(done_to.pod.pod)
        for job, names in gone.values():
            for row in self._rows_of(job):
                if self.pods[row].pod in names:
                    self.there[row] = False
        self._evicted = len(session.evicted)
        return bool(pods)

    def _columns(self, pods: list[PlacedPod]) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
        requests = stacked_requests(pods).T if pods else np.zeros((len(self._session.snapshot.axis), 0))
        return (
            np.array([pod.node for pod in pods], dtype=np.intp),
            np.array([pod.started for pod in pods], dtype=np.float64),
            np.array([pod.ends for pod in pods], dtype=np.float64),
            np.ascontiguousarray(requests),  # [R, pods]
        )

    def _rows_of(self, job: Job) -> range:
        """The pods of the job that were on nodes when the cycle began."""
        number = self._of_snapshot.number_of(job.key)
        return range(0) if number is None else range(*self.job(number)[1:])

    def job(self, number: int) -> tuple[Job, int, int]:
        """A job of the snapshot, and the start and end of its pods."""
        columns = self._of_snapshot
        return columns.jobs[number], int(columns.starts[number]), int(columns.starts[number + 1])

    def job_of(self, row: int) -> Job:
        """The job of a pod of the snapshot."""
        columns = self._of_snapshot
        return columns.jobs[int(np.searchsorted(columns.starts, row, side="right")) - 1]

    def below(self, queue: int, priority: int) -> list[int]:
        """The jobs of the queue with a lower priority, by number."""
        columns = self._of_snapshot
        numbers: list[int] = np.flatnonzero((columns.queues == queue) & (columns.priorities < priority)).tolist()
        return numbers

    def surplus_of(self, number: int, find: Callable[[Job, Mapping[str, int]], Surplus]) -> Surplus:
        """Surplus of a job, found once. `find` is given the rows of the job's pods."""
        surplus = self._surplus.get(number)
        if surplus is None:
            job, start, stop = self.job(number)
            rows = {pod.pod: row for row, pod in enumerate(self.pods[start:stop], start)}
            surplus = self._surplus[number] = find(job, rows)
        return surplus

    # -- some of the pods

    def on(self, nodes: IntArray) -> IntArray:
        """The pods on these nodes, in no order."""
        if self._by_node is None:
            settled = self.nodes[: self.settled]
            order = np.argsort(settled, kind="stable")
            counts = np.bincount(settled, minlength=len(self._session.snapshot.nodes))
            self._by_node = order, np.concatenate([[0], np.cumsum(counts)])
        order, starts = self._by_node
        parts = [order[starts[node] : starts[node + 1]] for node in nodes.tolist()]
        if len(self.pods) > self.settled:
            here = np.zeros(len(self._session.snapshot.nodes), dtype=bool)
            here[nodes] = True
            parts.append(np.flatnonzero(here[self.nodes[self.settled :]]) + self.settled)
        rows = np.concatenate(parts) if parts else np.zeros(0, dtype=np.intp)
        return np.asarray(rows[self.there[rows]], dtype=np.intp)

    def in_order(self, kind: str, usual: FloatArray, moments: FloatArray, moved: IntArray) -> IntArray:
        """All pods by their `moments` [pods]. These are `usual`, the same for all gangs, but for `moved` pods.

        The order of usual ones is found once for each kind of moments, so a gang costs O(pods) without sorting.
        """
        order = self._orders.get(kind)
        if order is None:
            order = self._orders[kind] = np.argsort(usual[: self.settled], kind="stable")
        moved = np.append(np.unique(moved), np.arange(self.settled, len(self.pods)))
        if not len(moved):
            return order
        stays = np.ones(len(self.pods), dtype=bool)
        stays[moved] = False
        order = order[stays[order]]
        moved = moved[np.argsort(moments[moved], kind="stable")]
        return np.insert(order, np.searchsorted(moments[order], moments[moved]), moved)

    # -- what they hold

    @property
    def is_most_room_exact(self) -> bool:
        return self._are_newcomers_exact and not self._session.moved

    def most_room(self, group: TaskGroup) -> FloatArray:
        """[N] how many pods of the group fit on each node if all pods are gone. More, unless `is_most_room_exact`.

        What a cycle places, promises and evicts is among these pods, so it is the same in the whole cycle.
        """
        session = self._session
        kind = session.demands.of_group(group)
        if kind not in self._most_room:
            everything, supposition = self.cleared(np.flatnonzero(self.there)), Supposition(session)
            supposition.end(everything, 1)
            nodes: IntArray = np.arange(len(session.snapshot.nodes))
            self._most_room[kind] = session.capacity.fits_later_on(group, nodes)
            supposition.end(everything, -1)
        return self._most_room[kind]

    def cleared(
        self, rows: IntArray, nodes: IntArray | None = None, *, has_gpus: bool = True, as_neighbours: bool = False
    ) -> Cleared:
        """What these pods hold on `nodes`, in ascending order; None: on all nodes on which they are."""
        session, of_row = self._session, self.nodes[rows]
        if nodes is None:
            is_here = np.zeros(len(session.snapshot.nodes), dtype=bool)
            is_here[of_row] = True
            nodes = np.flatnonzero(is_here)
        position = np.zeros(len(session.snapshot.nodes), dtype=np.intp)
        position[nodes] = np.arange(len(nodes))
        at, count = position[of_row], len(nodes)
        amounts = np.array([np.bincount(at, weights=row[rows], minlength=count) for row in self._requests])
        devices: dict[int, Millis] = {}
        if has_gpus:
            parts, owners = self._parts.of(rows)
            for row, table in session.gpus.tables.items():
                of_resource = self._parts.rows[parts] == row
                some, width = parts[of_resource], table.there.shape[1]
                places = at[owners[of_resource]] * width + self._parts.devices[some]
                sums = np.bincount(places, weights=self._parts.millis[some], minlength=count * width)
                devices[row] = sums.reshape(count, width).astype(np.int32)
        pods = [self.pods[row] for row in rows.tolist()] if as_neighbours else []
        return Cleared(nodes, amounts, devices, tuple(pods))
