"""Placed pods as columns, so that a search among thousands of them is arithmetic."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from maniple.model.job import PlacedPod
from maniple.model.resources import BoolArray, FloatArray, IntArray
from maniple.model.running_columns import RunningColumns, ranges, stacked_requests
from maniple.scheduler.framework.session import Session
from maniple.scheduler.reservation.reservation_book import Reservation


class PodColumns:
    def __init__(self, session: Session, pods: Sequence[PlacedPod], queues: IntArray) -> None:
        """`queues`: the queue that each pod is charged to."""
        self._session = session
        self._spare: tuple[int, BoolArray] = (-1, np.zeros(0, dtype=bool))  # at this version of the reservations
        self._counted: dict[Reservation, IntArray] = {}  # the pods that each reservation counts on
        self.pods = pods
        self.queues = queues

    @cached_property
    def nodes(self) -> IntArray:
        return np.array([pod.node for pod in self.pods], dtype=np.intp)

    @cached_property
    def requests(self) -> FloatArray:
        """[R, pods]"""
        return np.ascontiguousarray(stacked_requests(self.pods).T)

    @cached_property
    def largest(self) -> FloatArray:
        """[R] the most that one pod holds."""
        return np.asarray(self.requests.max(axis=1, initial=0.0))

    @cached_property
    def rows(self) -> list[int]:
        """The resources that some pod holds."""
        held: list[int] = np.flatnonzero(self.requests.any(axis=1)).tolist()
        return held

    @cached_property
    def has_neighbours(self) -> bool:
        """Whether rules of other pods can be about one of the pods."""
        return any(pod.pod_affinity is not None or pod.exclusives for pod in self.pods)

    @cached_property
    def is_limited(self) -> bool:
        """Whether any queue has a limit."""
        return any(np.isfinite(queue.limit).any() for queue in self._session.snapshot.queues)

    @cached_property
    def device_parts(self) -> "DeviceParts":
        return DeviceParts.of_pods(self._session, self.pods)

    def spare(self) -> BoolArray | None:
        """Returns the pods whose room no reservation counts on; None: all, because nothing is reserved."""
        reserved = self._session.reserved
        if not reserved.by_job:
            return None
        version, is_spare = self._spare
        if version != reserved.version:
            there = set(reserved.by_job.values())
            if len(is_spare) != len(self.pods):
                is_spare = np.ones(len(self.pods), dtype=bool)
            for reservation in self._counted.keys() - there:
                is_spare[self._counted.pop(reservation)] = True
            for reservation in there - self._counted.keys():
                rows = [self._row_of[pod] for pod in reservation.leaving if pod in self._row_of]
                self._counted[reservation] = np.array(rows, dtype=np.intp)
                is_spare[self._counted[reservation]] = False
            self._spare = reserved.version, is_spare
        return is_spare

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {pod.pod: row for row, pod in enumerate(self.pods)}


class DeviceParts:
    """The GPUs that pods hold, as columns, without GPUs that are lost or unhealthy."""

    def __init__(self, owners: IntArray, rows: IntArray, devices: IntArray, millis: IntArray, pods: int) -> None:
        """`owners`: the numbers of the pods, ascending; `rows`: of the resources."""
        self.owners, self.rows, self.devices, self.millis = owners, rows, devices, millis
        self._pods = pods
        self._counts: IntArray = np.bincount(self.owners, minlength=pods)
        self._starts: IntArray = np.cumsum(self._counts) - self._counts

    @classmethod
    def of_pods(cls, session: Session, pods: Sequence[PlacedPod]) -> "DeviceParts":
        parts = np.array([part for pod in pods for part in pod.gpus], dtype=np.intp).reshape(-1, 3).T
        counts = [len(pod.gpus) for pod in pods]
        return cls._there(session, np.array([pod.node for pod in pods], dtype=np.intp), counts, parts)

    @classmethod
    def of_columns(cls, session: Session, columns: RunningColumns) -> "DeviceParts":
        return cls._there(session, columns.nodes, np.diff(columns.part_starts), columns.parts)

    @classmethod
    def _there(
        cls, session: Session, nodes: IntArray, counts: Sequence[int] | IntArray, parts: IntArray
    ) -> "DeviceParts":
        """`nodes`, `counts` [pods]: the node of each and how many of the `parts` [3, parts] it holds."""
        owners = np.repeat(np.arange(len(nodes)), counts)
        rows, devices, millis = parts
        there = np.zeros(len(rows), dtype=bool)
        for row in np.unique(rows).tolist():
            of_row = rows == row
            there[of_row] = session.gpus.tables[row].there[nodes[owners[of_row]], devices[of_row]]
        return cls(owners[there], rows[there], devices[there], millis[there], len(nodes))

    @cached_property
    def resources(self) -> list[int]:
        """The rows of the resources of which some pod holds a part."""
        held: list[int] = np.unique(self.rows).tolist()
        return held

    def followed_by(self, other: "DeviceParts") -> "DeviceParts":
        """Also those of other pods, whose numbers come after these."""
        return DeviceParts(
            np.append(self.owners, other.owners + self._pods),
            np.append(self.rows, other.rows),
            np.append(self.devices, other.devices),
            np.append(self.millis, other.millis),
            self._pods + other._pods,
        )

    def of(self, pods: IntArray) -> tuple[IntArray, IntArray]:
        """Returns the numbers of the pods' parts, and the position in `pods` of the pod that holds each."""
        counts = self._counts[pods]
        return ranges(self._starts[pods], counts), np.repeat(np.arange(len(pods)), counts)
