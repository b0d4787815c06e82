"""The search for where a blocked gang will fit soonest, and when.

The pods are taken in the order in which they will be gone. The room that is left at a time is counted only on the nodes
of pods that are gone then and not at the time before that was tried, or the other way round. Early times are tried
first. So a search costs what the pods cost that must leave, a few times, and O(nodes) a step. A gang with rules is
placed at each step, in a binary search over all times.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from maniple.model.gpu.devices import MIXED
from maniple.model.job import Job, TaskGroup
from maniple.model.resources import FloatArray, IntArray
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.statement import Placed, Statement
from maniple.scheduler.framework.supposition import Supposition
from maniple.scheduler.placement.placement_search import place_gang
from maniple.scheduler.reservation.departures import Departures
from maniple.scheduler.reservation.reservation_book import Reservation, devices_left
from maniple.scheduler.reservation.running_pods import RunningPods

_MOST_TIMES = 32  # tried one by one for a gang that needs other pods
_FIRST_STEP = 8  # from one early time to the next that is tried


def at_most(session: Session, counts: Mapping[int, int]) -> FloatArray:
    """[N] the given number of pods on each of these nodes, none elsewhere."""
    most = np.zeros(len(session.snapshot.nodes))
    for node, count in counts.items():
        most[node] = count
    return most


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """Where a gang may be placed."""

    most: FloatArray  # [N] pods on each node
    nodes: IntArray | None  # those with any; None: most nodes

    @classmethod
    def on(cls, session: Session, counts: Mapping[int, int]) -> "Room":
        """On these nodes, and no more pods on each than this."""
        nodes = np.fromiter((node for node, count in counts.items() if count > 0), dtype=np.intp)
        return cls(at_most(session, counts), nodes)

    @classmethod
    def elsewhere(cls, session: Session, job: Job) -> "Room":
        """On all nodes that are not reserved for another queue."""
        most = np.full(len(session.snapshot.nodes), np.inf)
        reserved = session.reserved
        if reserved.spare is not None:
            most[np.isfinite(reserved.spare[0])] = 0.0
        own = reserved.by_queue.get(job.queue)
        if own is not None:
            most[own.node_indices] = np.inf
        return cls(most, None)


class Search:
    def __init__(self, session: Session, job: Job, leave: Departures) -> None:
        self._session = session
        self.job = job
        self._leave = leave
        self._running = leave.running
        affinities = [group.pod_affinity for group in job.groups if group.pod_affinity is not None]
        self._needs_pods = any(affinity.needs_pods for affinity in affinities)
        self._has_rules = any(session.depends_on_pods(group) or group.shape.exclusives for group in job.groups)
        # Equal pods without constraints only need counting.
        is_special = job.required or job.preferred or session.gpus.is_mixed or self._has_rules
        self._only_counts = len(job.groups) == 1 and not is_special

    def reservation(self, room: Room) -> Reservation | None:
        """Returns the reservation with the soonest start in the room; None if the job never fits."""
        if self._only_counts and not self._fits_at_last(room):
            return None
        for kind in ("expected", "at_last"):
            # A place behind newcomers is better than none: without a reservation others would overtake the gang.
            start = self._start(kind, room)
            if start is not None:
                return self._reserved(kind, *start)
        return None

    def sooner(self, room: Room, before: float) -> Reservation | None:
        """Returns the reservation with the soonest certain start in the room, if that is `before` a time."""
        start = self._start("certain", room, before)
        return None if start is None or start[0] >= before else self._reserved("certain", *start)

    @property
    def counted_kind(self) -> Hashable | None:
        """Equal for gangs of which as many pods fit in any room at any time; None: not known."""
        if not self._only_counts or self._needs_pods or len(self._leave.moved):
            return None
        return self._session.demands.of_group(self.job.groups[0]), self._session.job_need(self.job).total

    def fits_anywhere(self, before: float) -> bool:
        """Whether the gang certainly fits before that, on all nodes together. Only for those with a `counted_kind`."""
        everywhere = Room(np.full(len(self._session.snapshot.nodes), np.inf), None)
        leaving, times = self._leaving("certain", everywhere, before)
        return self._first(leaving, times, everywhere) is not None

    def _fits_at_last(self, room: Room) -> bool:
        """Whether the pods fit when all running ones are gone; False only if they surely do not."""
        most = np.minimum(self._running.most_room(self.job.groups[0]), room.most)
        return bool(most.sum() >= self._session.job_need(self.job).total)

    def is_late(self, reservation: Reservation) -> bool:
        """Whether the gang counts on a pod there that has run longer than expected, and would now start later."""
        moments, rows = self._leave.moments, self._running.on(reservation.node_indices)
        counted = (moments.expected[rows] <= reservation.expected) & (moments.certain[rows] > reservation.expected)
        if not (counted & self._leave.are_overdue(rows)).any():
            return False
        certain = self._soonest("certain", Room.on(self._session, reservation.nodes))
        return certain is None or certain > reservation.expected

    def _start(self, kind: str, room: Room, before: float = np.inf) -> tuple[float, tuple[Placed, ...]] | None:
        """When the gang first fits, and where. A start that is not `before` a time need not be found."""
        leaving, times = self._leaving(kind, room, before)
        with self._session.reserved.all_lifted(room.most):
            first = self._first(leaving, times, room)
            placed = None if first is None else self._place(leaving.until(times[first]))
        return None if first is None or placed is None else (float(times[first]), placed)

    def _soonest(self, kind: str, room: Room) -> float | None:
        """When a gang first fits in room where it has been placed."""
        if not self._only_counts:
            start = self._start(kind, room)
            return None if start is None else start[0]
        leaving, times = self._leaving(kind, room)
        with self._session.reserved.all_lifted(room.most):
            first = self._first(leaving, times, room)
        return None if first is None else float(times[first])

    def _leaving(self, kind: str, room: Room, before: float = np.inf) -> tuple["_Leaving", FloatArray]:
        """The pods in the room that will be gone before that, and these times, now being the first."""
        now, running = self._session.snapshot.now, self._running
        if not self._only_counts:
            before = np.inf  # its search depends on all times
        moments: FloatArray = getattr(self._leave.moments, kind)
        if room.nodes is None:
            rows = self._leave.in_order(kind)
            rows = rows[running.there[rows] & (room.most > 0)[running.nodes[rows]]]
            gone = rows[: np.searchsorted(moments[rows], before)]
        else:
            rows = running.on(room.nodes)
            gone = rows[moments[rows] < before]
            gone = gone[np.argsort(moments[gone], kind="stable")]
        leaving = _Leaving(gone, np.maximum(moments[gone], now), len(gone) == len(rows))
        times = np.append(now, leaving.moments)
        return leaving, times[np.append(True, times[1:] > times[:-1])]

    def _first(self, leaving: "_Leaving", times: FloatArray, room: Room) -> int | None:
        """The number of the first of the times at which the gang fits, or None."""
        if not self._only_counts:
            return self._first_of(lambda number: self._place(leaving.until(times[number])) is not None, len(times))
        session, job = self._session, self.job
        counted = _CountedRoom(session, job.groups[0], self._running, leaving.rows, room.most)
        need = session.job_need(job).total
        last = len(times) - 1

        def fits(number: int) -> bool:
            if number == last and leaving.are_all and self._running.is_most_room_exact:
                return self._fits_at_last(room)
            return counted.at(leaving.count(times[number])) >= need

        try:
            return (self._first_of if self._needs_pods else _first_of_rising)(fits, len(times))
        finally:
            counted.close()

    def _first_of(self, fits: Callable[[int], bool], count: int) -> int | None:
        if self._needs_pods:
            # Pods that it needs may be gone later. So times are tried in order, at last in larger steps.
            number = 0
            while number < count and not fits(number):
                number += 1 if number < _MOST_TIMES else number
            return number if number < count else None
        if not fits(count - 1):
            return None
        too_early, enough = -1, count - 1
        while enough - too_early > 1:
            middle = (too_early + enough) // 2
            if fits(middle):
                enough = middle
            else:
                too_early = middle
        return enough

    def _place(self, gone: IntArray) -> tuple[Placed, ...] | None:
        session, job = self._session, self.job
        with Statement(session) as world:
            world.clear(self._running.cleared(gone, as_neighbours=self._has_rules))
            # The gang has its own statement: a failed placement rolls that back, and must keep the room cleared.
            with Statement(session) as gang:
                if place_gang(session, gang, job, later=True) and session.job_pipelined(job):
                    return gang.placed()
        return None

    def _reserved(self, kind: str, expected: float, placed: Sequence[Placed]) -> Reservation:
        """Builds the reservation of the gang, `placed` where it is expected to start."""
        session, running, leave = self._session, self._running, self._leave
        counts = Counter(node for done in placed for node, _ in done.slots())
        nodes = sorted(counts)
        position = {node: index for index, node in enumerate(nodes)}
        places = np.array(nodes, dtype=np.intp)
        here = running.on(places)
        if self._only_counts and (leave.moments.soonest[here] <= session.snapshot.now).all():
            ready = session.snapshot.now  # all of these pods can be gone, and it fits without some of them
        else:
            soonest = self._soonest("soonest", Room.on(session, counts))
            ready = expected if soonest is None else soonest
        # The gang waits for these pods. A pod that runs longer keeps its room. So does a pod without a deadline that
        # came after the gang's patience was over.
        is_gone = (getattr(leave.moments, kind)[here] <= expected) & (leave.moments.soonest[here] <= ready)
        is_gone &= leave.are_sure(here) | (leave.declared[here] <= ready)
        gone = here[is_gone]
        cleared = running.cleared(gone, places)
        spare = session.future[:, places] + cleared.amounts
        exact: list[tuple[int, int, int, int]] = []
        whole: list[tuple[int, int, int]] = []
        for done in placed:
            used = done.used()
            for column, node in enumerate(done.spot.nodes.tolist()):
                spare[:, position[node]] -= used[:, column]
            whole_rows = {ask.row for ask in done.group.shape.gpus if ask.is_whole}
            for node, grants in done.slots():
                for row in {grant.row for grant in grants}:
                    of_row = [grant for grant in grants if grant.row == row]
                    if row in whole_rows and session.gpus.tables[row].node_model[node] != MIXED:
                        whole.append((row, position[node], len(of_row)))
                    else:
                        exact += [(row, position[node], grant.device, grant.milli) for grant in of_row]
        rows = session.gpus.tables
        return Reservation(
            job=self.job,
            order=session.job_key(self.job),
            nodes={node: counts[node] for node in nodes},
            pods=tuple(
                (done.group.pods[nth], node)
                for done in placed
                for nth, (node, _) in enumerate(done.slots(), done.start)
            ),
            expected=expected,
            ready=ready,
            spare=spare,
            devices=devices_left(
                {row: session.gpus.future[row][places] + cleared.devices[row] for row in rows},
                {row: session.gpus.usable(row, places) for row in rows},
                exact,
                whole,
            ),
            leaving=frozenset(running.pods[row].pod for row in gone.tolist()),
        )


def _first_of_rising(fits: Callable[[int], bool], count: int) -> int | None:
    """The same if what fits at one time fits at all later ones. Early times cost less, so they are tried first."""
    too_early, enough = -1, 0
    while not fits(enough):
        if enough == count - 1:
            return None
        too_early, enough = enough, min(_FIRST_STEP * (enough + 1), count - 1)
    while enough - too_early > 1:
        middle = (too_early + enough) // 2
        if fits(middle):
            enough = middle
        else:
            too_early = middle
    return enough


@dataclass(frozen=True, slots=True, eq=False)
class _Leaving:
    """Pods in the order in which they are gone."""

    rows: IntArray
    moments: FloatArray
    are_all: bool  # whether all pods in the room are among them

    def count(self, moment: float) -> int:
        return int(np.searchsorted(self.moments, moment, side="right"))

    def until(self, moment: float) -> IntArray:
        return self.rows[: self.count(moment)]


class _CountedRoom:
    """How many pods of a group fit once the first of some running pods are gone."""

    def __init__(
        self, session: Session, group: TaskGroup, running: RunningPods, rows: IntArray, most: FloatArray
    ) -> None:
        self._session = session
        self._group = group
        self._running = running
        self._rows = rows
        self._most = most
        self._supposition = Supposition(session)
        self._gone = 0
        self._room = np.minimum(session.capacity.fits(group, later=True), most)

    def at(self, gone: int) -> float:
        """The room in all without the first `gone` pods. The caller must `close` it."""
        nodes = self._shift(gone)
        if nodes is not None:
            fits = self._session.capacity.fits_later_on(self._group, nodes)
            self._room[nodes] = np.minimum(fits, self._most[nodes])
        return float(self._room.sum())

    def close(self) -> None:
        self._shift(0)

    def _shift(self, gone: int) -> IntArray | None:
        """Returns the nodes that have changed."""
        if gone == self._gone:
            return None
        start, stop = sorted((self._gone, gone))
        cleared = self._running.cleared(self._rows[start:stop], has_gpus=bool(self._group.shape.gpus))
        self._supposition.end(cleared, 1 if gone > self._gone else -1)
        self._gone = gone
        return cleared.nodes
