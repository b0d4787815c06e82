"""The reservations of a cycle: room kept for gangs that cannot start yet, and what others may use of it meanwhile.

On a reserved node other jobs may use what will be free when the gang can start, less what the gang takes there.
Statements and suppositions update these sums together with the session's own; no other code may change them. A
reservation does not bind its own gang, nor jobs before it in its queue. `lifted` suspends reservations for one attempt.

A node is reserved for at most one gang, and a queue has at most one reservation.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from maniple.api.gpu.requests import WHOLE
from maniple.model.gpu.devices import Millis
from maniple.model.job import Job, PlacedPod, TaskGroup
from maniple.model.resources import BoolArray, FloatArray, IntArray
from maniple.scheduler.framework.changed_nodes import ChangedNodes
from maniple.scheduler.framework.free_gpus import FreeGpus

if TYPE_CHECKING:
    from maniple.scheduler.reservation.departures import Moments
    from maniple.scheduler.reservation.running_pods import RunningPods

JobKey = tuple[str, str]


@dataclass(frozen=True, eq=False)
class Reservation:
    job: Job
    order: tuple[Any, ...]  # Session.job_key of the gang
    nodes: dict[int, int]  # node -> pods of the gang
    pods: tuple[tuple[str, int], ...]  # each pod and its node
    expected: float  # when the gang will start, as far as known
    # The soonest the gang can start: a pod without a deadline may end at any moment.
    ready: float
    spare: FloatArray  # [R, nodes] what others may use
    devices: dict[int, Millis]  # row -> [nodes, G] what others may use of each GPU
    leaving: frozenset[str]  # pods on its nodes that it expects to be gone by then

    @cached_property
    def node_indices(self) -> IntArray:
        return np.fromiter(self.nodes, dtype=np.intp, count=len(self.nodes))


class ReservationBook:
    def __init__(
        self, gpus: FreeGpus, shape: tuple[int, int], order: Callable[[Job], tuple[Any, ...]], changed: ChangedNodes
    ) -> None:
        """`changed`: nodes whose room has changed are added to it."""
        self._gpus = gpus
        self.changed = changed
        self._shape = shape  # resources, nodes
        self._order = order
        self.by_job: dict[JobKey, Reservation] = {}
        self.by_queue: dict[int, Reservation] = {}
        self._by_node: dict[int, Reservation] = {}
        self.version = 0  # counts what was added and dropped
        self.spare: FloatArray | None = None  # [R, N], inf where nothing is reserved; None: no reservations
        self.settled: set[int] = set()  # queues that get no further reservation in this cycle
        # Queue -> kinds of gangs for which no reservation was found in this cycle, after so many evictions.
        self.in_vain: dict[int, dict[Hashable, int]] = {}
        self.running: RunningPods | None = None  # for those searches
        self.moments: Moments | None = None  # when these pods are gone
        # Gang -> the jobs that run in its room and make way for it, each with its pods there.
        self.guests: dict[str, dict[JobKey, tuple[Job, list[PlacedPod]]]] = {}
        # Job -> gang -> how many of its pods this cycle placed in the gang's room.
        self.newcomers: dict[JobKey, Counter[str]] = {}
        self.is_open = False  # whether the reservations of earlier cycles have been renewed
        self._lifted: tuple[Reservation, ...] = ()
        self._are_all_lifted = False
        self._most: FloatArray | None = None
        self._most_of_group: Mapping[int, FloatArray] = {}
        self._mask: BoolArray = np.zeros(shape[1], dtype=bool)  # [N] the nodes of those that bind
        self._binding = 0  # how many bind
        self._hosts: tuple[int, frozenset[str]] = (0, frozenset())

    def add(self, reservation: Reservation) -> None:
        if self.spare is None:
            self.spare = np.full(self._shape, np.inf)
            self._gpus.open_spare()
        self.by_job[reservation.job.key] = self.by_queue[reservation.job.queue] = reservation
        self._by_node.update(dict.fromkeys(reservation.nodes, reservation))
        self.spare[:, reservation.node_indices] = reservation.spare
        self._gpus.set_spare(reservation.node_indices, reservation.devices)
        self.changed.extend(reservation.nodes)
        self._bind(reservation, 1)
        self.version += 1

    def drop(self, key: JobKey) -> None:
        """The gang has room elsewhere, or is no longer the first of its queue."""
        reservation = self.by_job.pop(key)
        del self.by_queue[reservation.job.queue]
        for node in reservation.nodes:
            del self._by_node[node]
        if self.spare is not None:
            self.spare[:, reservation.node_indices] = np.inf
            self._gpus.set_spare(reservation.node_indices, {})
        self.changed.extend(reservation.nodes)
        if reservation not in self._lifted:
            self._bind(reservation, -1)
        self.version += 1

    def _bind(self, reservation: Reservation, sign: int) -> None:
        """The reservation binds the current job from now on (1), or does not any more (-1)."""
        self._mask[reservation.node_indices] = sign > 0
        self._binding += sign

    def holder(self, node: int) -> Reservation | None:
        return self._by_node.get(node)

    def reserved_among(self, nodes: IntArray) -> BoolArray | None:
        """Which of the nodes are reserved; None: none of them."""
        if not self._by_node:
            return None
        is_reserved = [node in self._by_node for node in nodes.tolist()]
        return np.array(is_reserved, dtype=bool) if any(is_reserved) else None

    def bound_among(self, nodes: IntArray) -> BoolArray | None:
        """Which of the nodes the current job may not use in full; None: it may use all."""
        if not self._by_node or self._are_all_lifted:
            return None
        holders = [self._by_node.get(node) for node in nodes.tolist()]
        is_bound = [holder is not None and holder not in self._lifted for holder in holders]
        return np.array(is_bound, dtype=bool) if any(is_bound) else None

    # -- which jobs they bind

    @property
    def mask(self) -> BoolArray | None:
        """[N] the nodes that the current job may not use in full; None: it may use all."""
        return self._mask if self._binding and not self._are_all_lifted else None

    @property
    def hosts(self) -> frozenset[str]:
        """The names of the gangs that have reservations."""
        if self._hosts[0] != self.version:
            self._hosts = self.version, frozenset(reservation.job.name for reservation in self.by_job.values())
        return self._hosts[1]

    def most(self, group: TaskGroup) -> FloatArray | None:
        """[N] the most pods of the group that the attempt may still place on each node; None: as many as fit."""
        return self._most_of_group.get(group.number, self._most)

    @property
    def is_by_group(self) -> bool:
        """Whether the attempt may place pods of each group only where pods of that group are nominated to."""
        return bool(self._most_of_group)

    @property
    def binds_as_usual(self) -> bool:
        """Whether no attempt has suspended a reservation or set `most`."""
        return self._most is None and not self._lifted and not self._are_all_lifted

    @property
    def binding(self) -> Hashable:
        """Equal while the same reservations bind the current attempt."""
        return self.version, self._lifted, self._are_all_lifted

    def exempts(self, job: Job) -> bool:
        """Whether the reservation of the job's queue belongs to the job or to one behind it."""
        reservation = self.by_queue.get(job.queue)
        return reservation is not None and (reservation.job is job or self._order(job) < reservation.order)

    def surely_binds(self, job: Job) -> bool:
        """Whether all reservations bind the job, as far as known without computing its order."""
        reservation = self.by_queue.get(job.queue)
        return reservation is None or (job.queue in self.settled and reservation.job is not job)

    @contextmanager
    def lifted(
        self,
        reservations: Iterable[Reservation],
        most: FloatArray | None = None,
        by_group: Mapping[int, FloatArray] | None = None,
    ) -> Iterator[None]:
        """Suspends these reservations in addition to those already suspended.

        `most` [N] pods of the attempt may be on each node, `by_group` of each group's. Both replace earlier ones.
        """
        before = self._lifted, self._most, self._most_of_group
        more = [reservation for reservation in reservations if reservation not in self._lifted]
        self._lifted += tuple(more)
        if most is not None:
            self._most, self._most_of_group = most, by_group or {}
        for reservation in more:
            if self._is_there(reservation):
                self._bind(reservation, -1)
        try:
            yield
        finally:
            self._lifted, self._most, self._most_of_group = before
            for reservation in more:
                if self._is_there(reservation):
                    self._bind(reservation, 1)

    @contextmanager
    def all_lifted(self, most: FloatArray) -> Iterator[None]:
        """Suspends all reservations; `most` as above. None may be added meanwhile."""
        before = self._are_all_lifted, self._most, self._most_of_group
        self._are_all_lifted, self._most, self._most_of_group = True, most, {}
        try:
            yield
        finally:
            self._are_all_lifted, self._most, self._most_of_group = before

    def _is_there(self, reservation: Reservation) -> bool:
        return self.by_job.get(reservation.job.key) is reservation

    def seen_by(self, job: Job) -> AbstractContextManager[None]:
        """Suspends the reservation that does not bind the job, if there is one."""
        return self.lifted([self.by_queue[job.queue]]) if self.by_queue and self.exempts(job) else nullcontext()

    # -- changes, by statements and suppositions only

    def place(self, group: TaskGroup, nodes: IntArray, counts: FloatArray) -> None:
        """The current attempt places pods of the group on the nodes; negative numbers are taken back."""
        most = self.most(group)
        if most is not None:
            most[nodes] -= counts

    def take(self, nodes: IntArray, used: FloatArray) -> None:
        """Takes `used` [R, nodes] from what others may use; negative amounts are given back."""
        if self.spare is not None:
            self.spare[:, nodes] -= used

    def give_back(self, nodes: IntArray, amounts: FloatArray, spare: BoolArray | None) -> None:
        """Gives back the `amounts` [R, pods] of leaving pods, with the node of each; a node may occur twice.

        `spare` marks the pods whose room no reservation counts on; None: all of them.
        """
        if self.spare is not None:
            counts = np.isfinite(self.spare[0, nodes]) if spare is None else spare & np.isfinite(self.spare[0, nodes])
            np.add.at(self.spare.T, nodes[counts], amounts[:, counts].T)

    def counts_on(self, pod: str, node: int) -> bool:
        """Whether a reservation already counts on the pod's room, so that its eviction frees nothing for others."""
        reservation = self.holder(node)
        return reservation is not None and pod in reservation.leaving


def devices_left(
    free: dict[int, Millis],
    usable: dict[int, Millis],
    exact: Iterable[tuple[int, int, int, int]],
    whole: Iterable[tuple[int, int, int]],
) -> dict[int, Millis]:
    """Returns what others may use of each GPU when the gang has taken its own out of `free` (row -> [nodes, G]).

    `exact` has (row, position, device, thousandths) of GPUs the gang was given. For `whole`, (row, position, count),
    any GPUs do: those in use now are taken first, so that others can use the free ones.
    """
    left = {row: array.copy() for row, array in free.items()}
    for row, position, device, milli in exact:
        left[row][position, device] -= milli
    for row, position, count in whole:
        devices = np.flatnonzero(left[row][position] >= WHOLE)
        in_use = devices[usable[row][position, devices] < WHOLE]
        rest = devices[usable[row][position, devices] >= WHOLE]
        left[row][position, np.concatenate([in_use, rest])[:count]] -= WHOLE
    return left
