"""Pods where they are, one seat each, and the sums over nodes, kept up to date as pods take and leave seats.

A change makes its node dirty; `settle` counts dirty nodes anew from their seats. Nothing is ever subtracted from a sum,
so nothing can drift, whatever the numbers are.
"""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from maniple.api import kubernetes
from maniple.api.phases import FINISHED
from maniple.model.building.cluster_tables import Frame
from maniple.model.building.job_builder import JobKey
from maniple.model.gpu.holdings import Devices, Hand
from maniple.model.pod_affinity import Peers
from maniple.model.pod_identity import pod_owner
from maniple.model.resources import FloatArray
from maniple.model.shape import Exclusive, exclusives_of

Key = TypeVar("Key")


@dataclass(slots=True, eq=False)
class Seat:
    """A pod that counts, and what follows from where it is. `node` is -1 for one that waits, is over or got lost."""

    pod: kubernetes.Pod
    name: str
    job: JobKey | None
    request: int
    held: int  # the request that is what it holds
    is_leaving: bool
    node: int = -1
    hand: Hand | None = None
    peers: Peers | None = None
    exclusives: tuple[Exclusive, ...] = ()
    owner: str = ""


class Seats:
    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._devices = Devices(frame)
        self._empty, _ = self._devices.all_free()
        self.gpus_free, self.gpus_releasing = self._devices.all_free()
        shape = len(frame.axis), len(frame.nodes)
        self.used, self.releasing, self.foreign = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        self.members: dict[JobKey, dict[str, Seat]] = {}
        self.exclusives: dict[int, tuple[Exclusive, ...]] = {}
        self.peers: dict[tuple[Peers, int], int] = {}
        self.owners: dict[str, dict[int, int]] = {}
        self.dirty_jobs: set[JobKey] = set()
        self._dirty_nodes: set[int] = set()
        self._by_name: dict[str, Seat] = {}
        self._on: dict[int, dict[str, Seat]] = {}
        self._vectors: FloatArray = np.zeros((0, len(frame.axis)))

    def __len__(self) -> int:
        return len(self._by_name)

    def take(self, name: str, pod: kubernetes.Pod, job: JobKey | None, request: int) -> None:
        frame = self._frame
        is_leaving = pod.metadata.deletion_timestamp is not None
        seat = Seat(pod, name, job, request, request, is_leaving)
        self._by_name[name] = seat
        if job is not None:
            self.members.setdefault(job, {})[name] = seat
            self.dirty_jobs.add(job)
        node = frame.nodes.index.get(pod.spec.node_name, -1) if pod.spec.node_name else -1
        if node < 0 or pod.status.phase in FINISHED:
            return
        seat.node = node
        seat.hand, seat.held = self._devices.hand(pod, node, request)
        seat.exclusives = exclusives_of(pod.spec)
        if pod.metadata.owner_references:
            seat.owner = pod_owner(pod.metadata)
        if frame.reader.anyone:
            seat.peers = frame.reader.read(pod)
            self.peers[seat.peers, node] = self.peers.get((seat.peers, node), 0) + 1
        if seat.owner:
            counts = self.owners.setdefault(seat.owner, {})
            counts[node] = counts.get(node, 0) + 1
        self._on.setdefault(node, {})[name] = seat
        self._dirty_nodes.add(node)

    def leave(self, name: str) -> None:
        seat = self._by_name.pop(name, None)
        if seat is None:
            return
        if seat.job is not None:
            members = self.members[seat.job]
            del members[name]
            if not members:
                del self.members[seat.job]
            self.dirty_jobs.add(seat.job)
        if seat.node < 0:
            return
        if seat.peers is not None:
            _take_one(self.peers, (seat.peers, seat.node))
        if seat.owner:
            counts = self.owners[seat.owner]
            _take_one(counts, seat.node)
            if not counts:
                del self.owners[seat.owner]
        del self._on[seat.node][name]
        self._dirty_nodes.add(seat.node)

    def settle(self) -> None:
        """The sums of the nodes where somebody came or went."""
        if not self._dirty_nodes:
            return
        nodes = sorted(self._dirty_nodes)
        self._dirty_nodes.clear()
        on = [list(self._on.get(node, {}).values()) for node in nodes]
        self._add_up(nodes, on)
        self._hand_out(nodes, on)
        for node, seats in zip(nodes, on, strict=True):
            held = [seat for seat in seats if seat.exclusives]
            if held:
                ordered = sorted(held, key=lambda seat: seat.name)
                self.exclusives[node] = tuple(one for seat in ordered for one in seat.exclusives)
            else:
                self.exclusives.pop(node, None)

    def _add_up(self, nodes: list[int], on: list[list[Seat]]) -> None:
        at: list[int] = []
        held: list[int] = []
        leaving: list[bool] = []
        foreign: list[bool] = []
        for number, seats in enumerate(on):
            for seat in seats:
                at.append(number)
                held.append(seat.held)
                leaving.append(seat.is_leaving)
                foreign.append(seat.job is None and not seat.is_leaving)
        columns = np.array(nodes, dtype=np.intp)
        rows, vectors = np.array(at, dtype=np.intp), self.vectors()[np.array(held, dtype=np.intp)]
        everyone = np.ones(len(rows), dtype=bool)
        for total, who in (
            (self.used, everyone),
            (self.releasing, np.array(leaving, dtype=bool)),
            (self.foreign, np.array(foreign, dtype=bool)),
        ):
            sums = np.zeros((len(nodes), len(total)))
            np.add.at(sums, rows[who], vectors[who])
            total[:, columns] = sums.T

    def _hand_out(self, nodes: list[int], on: list[list[Seat]]) -> None:
        columns = np.array(nodes, dtype=np.intp)
        for row, empty in self._empty.items():
            self.gpus_free[row][columns] = empty[columns]
            self.gpus_releasing[row][columns] = 0
        holders = [(seat, seat.hand, seat.hand.gpus) for seats in on for seat in seats if seat.hand is not None]
        self._devices.settle([hand for _, hand, _ in holders], self.gpus_free, self.gpus_releasing)
        for seat, hand, before in holders:
            # Who does not say which devices it has may be taken to have others than before.
            if seat.job is not None and hand.gpus != before:
                self.dirty_jobs.add(seat.job)

    def vectors(self) -> FloatArray:
        """[request, R] of all requests that there are."""
        known, count = len(self._vectors), len(self._frame.requests.requests)
        if known < count:
            more = [self._frame.shapes.vector(request) for request in range(known, count)]
            self._vectors = np.concatenate([self._vectors, np.array(more)])
        return self._vectors


def _take_one(counts: dict[Key, int], key: Key) -> None:
    left = counts[key] - 1
    if left:
        counts[key] = left
    else:
        del counts[key]
