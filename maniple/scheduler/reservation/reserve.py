"""Reservations: finds where a blocked gang will fit soonest, and keeps that room from cycle to cycle until it starts.

Later there is never less room than now, so a binary search over the T times at which pods will be gone finds the first
at which the gang fits, and its nodes: O(log T) placements. (A gang that needs other pods, by affinity or spread, takes
up to _MOST_TIMES + O(log T).) The room there is kept (reservation_book.py): a pod that
comes later leaves the gang what it needs, ends in time, or makes way. Pods that were there before are left alone. So
the gang starts at the latest when all of these have ended, whatever arrives meanwhile.

Guests are pods in reserved room that make way. They are evicted when the gang fits without them, not before, and then
wait in their queue. There is no ping-pong: they leave only for a gang that starts, and they come back into reserved
room only if it is reserved for another gang, which they cannot delay either.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from maniple.model.gpu.devices import MIXED
from maniple.model.job import Job, PlacedPod, Queue
from maniple.model.resources import BoolArray, FloatArray
from maniple.scheduler.eviction.queue_claims import displaceable
from maniple.scheduler.eviction.unit_table import UnitTable
from maniple.scheduler.eviction.units import Unit
from maniple.scheduler.eviction.victim_search import RoomMaker, Terms, always
from maniple.scheduler.framework.job_state import SurplusCount
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.statement import Placed, Statement
from maniple.scheduler.placement.placement_search import place_gang
from maniple.scheduler.reservation.departures import Departures, RunningPods, departures
from maniple.scheduler.reservation.reservation_book import Reservation, devices_left

_MOST_TIMES = 32  # tried one by one for a gang that needs other pods
_MOST_SEARCHES = 8  # failed searches in a queue and cycle; the jobs after that wait


def keep_reservations(session: Session, jobs: Sequence[Job]) -> None:
    """Renews the reservations of earlier cycles on their nodes, if the gangs can still start there."""
    if not jobs:
        return
    for guest in session.snapshot.jobs:
        for pod in guest.placed:
            if pod.makes_way_for and not session.is_protected(pod):
                guests = session.reserved.guests.setdefault(pod.makes_way_for, {})
                guests.setdefault(guest.key, (guest, []))[1].append(pod)
    running = RunningPods(session, {node for job in jobs for node in job.nominated})
    running.catch_up()
    reserved = session.reserved
    for job in sorted(jobs, key=session.job_key):
        is_taken = job.queue in reserved.by_queue or any(reserved.holder(node) for node in job.nominated)
        if is_taken or not _may_reserve(session, session.queue_of(job), job):
            continue
        reservation = _Search(session, job, running).reservation(at_most(session, job.nominated))
        if reservation is not None:
            reserved.add(reservation)
    for reservation in list(session.reservations.values()):
        if _is_late(session, reservation, running):
            _move(session, reservation)


def _is_late(session: Session, reservation: Reservation, running: RunningPods) -> bool:
    """Whether the gang counts on a pod there that has run longer than expected, and would now start later."""
    leave = departures(session, reservation.job, running)
    counted = np.isin(running.nodes, reservation.node_indices)
    counted &= (leave.expected <= reservation.expected) & (leave.certain > reservation.expected)
    if not (counted & leave.is_overdue).any():
        return False
    start = _Search(session, reservation.job, running).soonest(leave.certain, at_most(session, reservation.nodes))
    return start is None or start[0] > reservation.expected


def _move(session: Session, reservation: Reservation) -> None:
    """Moves the reservation to where the gang starts sooner for certain, if there is such a place.

    A move on an estimate may be followed by the next, and the gang may never start. If the reservation stays, the gang
    starts at the latest when the pods that were there first have ended.
    """
    job = reservation.job
    search = _Search(session, job, _all_running(session))
    sooner = search.reservation(_elsewhere(session, job), is_certain=True)
    if sooner is not None and sooner.expected < reservation.expected:
        session.reserved.drop(job.key)
        session.forget_failures()
        session.reserved.add(sooner)


def reserve(session: Session, queue: Queue, job: Job) -> None:
    """Reserves room for a job that found none in its turn, if it is the first of its queue."""
    reserved = session.reserved
    if session.patience_s is None or queue.index in reserved.settled:
        return
    if job.key in reserved.by_job:
        reserved.settled.add(queue.index)
        return
    if job.key in session.blocked or not _may_reserve(session, queue, job):
        return
    reservation = _Search(session, job, _all_running(session)).reservation(_elsewhere(session, job))
    reserved.searches[queue.index] = reserved.searches.get(queue.index, 0) + 1
    if reservation is None:
        if reserved.searches[queue.index] >= _MOST_SEARCHES:
            reserved.settled.add(queue.index)
        return
    before = reserved.by_queue.get(queue.index)
    if before is not None:
        # This job comes before the gang of that reservation.
        reserved.drop(before.job.key)
        session.forget_failures()
    reserved.add(reservation)
    reserved.settled.add(queue.index)


def _may_reserve(session: Session, queue: Queue, job: Job) -> bool:
    """Whether the job has waited long enough, and only lacks room."""
    patience = session.patience_s
    has_waited = patience is not None and session.snapshot.now - job.created >= patience
    if not has_waited or session.overused(queue, session.asked(job)) is not None:
        return False
    return session.may_start(queue, job, session.needed_resources(job)) is None


def at_most(session: Session, counts: Mapping[int, int]) -> FloatArray:
    """[N] the given number of pods on each of these nodes, none elsewhere."""
    most = np.zeros(len(session.snapshot.nodes))
    for node, count in counts.items():
        most[node] = count
    return most


def _elsewhere(session: Session, job: Job) -> FloatArray:
    """[N] no pods on nodes that are reserved for another queue, any number elsewhere."""
    most = np.full(len(session.snapshot.nodes), np.inf)
    for other in session.reservations.values():
        if other.job.queue != job.queue:
            most[other.node_indices] = 0.0
    return most


def _all_running(session: Session) -> RunningPods:
    """Returns the running pods of all nodes, kept for the cycle until the next eviction."""
    reserved = session.reserved
    if reserved.running is None or reserved.running.evictions != len(session.evicted):
        reserved.running = RunningPods(session)
    reserved.running.catch_up()
    return reserved.running


# --- where and when


class _Search:
    def __init__(self, session: Session, job: Job, running: RunningPods) -> None:
        self._session = session
        self._job = job
        self._running = running
        affinities = [group.pod_affinity for group in job.groups if group.pod_affinity is not None]
        self._needs_pods = any(affinity.needs_pods for affinity in affinities)
        self._has_rules = any(session.depends_on_pods(group) or group.shape.exclusives for group in job.groups)

    def reservation(self, most: FloatArray, *, is_certain: bool = False) -> Reservation | None:
        """Returns the reservation with the soonest start, with `most` pods on each node; None if the job never fits."""
        leave = departures(self._session, self._job, self._running)
        if is_certain:
            leave = replace(leave, expected=leave.certain)
        start = self.soonest(leave.expected, most)
        if start is None and not is_certain:
            # A place behind newcomers is better than none: without a reservation others would overtake the gang.
            leave = replace(leave, expected=leave.at_last)
            start = self.soonest(leave.expected, most)
        return None if start is None else self._reserved(leave, *start)

    def soonest(self, gone_at: FloatArray, most: FloatArray) -> tuple[float, tuple[Placed, ...]] | None:
        """Returns when the gang first fits, and where; `gone_at` [pods] says when each running pod is gone."""
        now = self._session.snapshot.now
        here = most[self._running.nodes] > 0
        times = np.unique(np.append(np.maximum(gone_at[here & np.isfinite(gone_at)], now), now))
        with self._session.reserved.all_lifted(most):
            first = self._first(lambda number: self._fits(here & (gone_at <= times[number])), len(times))
            if first is None:
                return None
            placed = self._place(here & (gone_at <= times[first]))
        return None if placed is None else (float(times[first]), placed)

    def _first(self, fits: Callable[[int], bool], count: int) -> int | None:
        """Returns the first of `count` times at which the gang fits, or None."""
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

    def _fits(self, gone: BoolArray) -> bool:
        session, job = self._session, self._job
        group = job.groups[0]
        is_special = job.required or job.preferred or session.gpus.is_mixed or self._has_rules
        if len(job.groups) > 1 or is_special:
            return self._place(gone) is not None
        # Equal pods without constraints only need counting.
        with Statement(session) as world:
            world.clear(self._running.clear(gone))
            return bool(session.room_for(group, later=True).sum() >= session.job_need(job).total)

    def _place(self, gone: BoolArray) -> tuple[Placed, ...] | None:
        session, job = self._session, self._job
        with Statement(session) as world:
            world.clear(self._running.clear(gone, as_neighbours=self._has_rules))
            # The gang has its own statement: a failed placement rolls that back, and must keep the room cleared.
            with Statement(session) as gang:
                if place_gang(session, gang, job, later=True) and session.job_pipelined(job):
                    return gang.placed()
        return None

    def _reserved(self, leave: Departures, expected: float, placed: Sequence[Placed]) -> Reservation:
        """Builds the reservation of the gang, `placed` where it is expected to start."""
        session, running = self._session, self._running
        counts = Counter(node for done in placed for node, _ in done.slots())
        soonest = self.soonest(leave.soonest, at_most(session, counts))
        ready = expected if soonest is None else soonest[0]
        nodes = sorted(counts)
        position = {node: index for index, node in enumerate(nodes)}
        here = np.isin(running.nodes, nodes)
        # The gang waits for these pods. A pod that runs longer keeps its room. So does a pod without a deadline that
        # came after the gang's patience was over.
        gone = here & (leave.expected <= expected) & (leave.soonest <= ready)
        gone &= leave.is_sure | (leave.declared <= ready)
        cleared = running.clear(gone)
        spare = session.future[:, nodes] + cleared.amounts[:, nodes]
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
        places = np.array(nodes, dtype=np.intp)
        return Reservation(
            job=self._job,
            order=session.job_key(self._job),
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
                {row: session.gpus.future[row][places] + cleared.devices[row][places] for row in rows},
                {row: session.gpus.usable(row, places) for row in rows},
                exact,
                whole,
            ),
            leaving=frozenset(running.pods[number].pod for number in np.flatnonzero(gone).tolist()),
        )


# --- guests


def displace(session: Session, queue: Queue, job: Job, *, is_its_turn: bool) -> bool:
    """Evicts the gang's guests if it can then start, and nominates it for their room.

    Before its turn the gang may use only its reservation. In its turn it may use any room: on nodes that it did not
    count on, other pods may have ended sooner.
    """
    most = None if is_its_turn else at_most(session, session.reservations[job.key].nodes)
    guests = session.reserved.guests[job.name].values()
    table = UnitTable(session, (unit for other, pods in guests for unit in _guest_units(session, other, pods)))
    every_unit = np.ones(len(table), dtype=bool)
    rules = [lambda claimant, candidates: displaceable(session, claimant, candidates)]
    with session.reserved.lifted([], most):
        terms = Terms(always("Displaced"), rules)
        victims = RoomMaker(session, table, every_unit, terms).make_room(queue, job, every_unit)
    return victims is not None and len(victims) > 0


def has_guests(session: Session, job: Job) -> bool:
    """Whether guests run in the room reserved for the job."""
    return job.key in session.reservations and job.name in session.reserved.guests


def host_of(session: Session, job: Job) -> str:
    """Returns the gang in whose room the job is a guest, so that it is evicted whole when that gang starts.

    Returns "" if only surplus of the job would be evicted.
    """
    hosts = session.reserved.hosts
    if not hosts:
        return ""
    guests = Counter(pod.makes_way_for for pod in job.placed if pod.makes_way_for in hosts)
    guests.update(session.reserved.newcomers.get(job.key, {}))
    staying = session.state(job).placed_count + job.succeeded - sum(guests.values())
    return min(guests) if guests and staying < max(job.min_member, 1) else ""


def _guest_units(session: Session, job: Job, guests: Sequence[PlacedPod]) -> Iterator[Unit]:
    """Yields the surplus among the guests one by one, highest indices first; then all, if no other pod is left."""
    state, now = session.state(job), session.snapshot.now
    there = [pod for pod in guests if pod.pod not in state.evicted and now - pod.started >= job.min_runtime_s]
    surplus = SurplusCount(job, state.placed)
    for nth, pod in enumerate(sorted(there, key=lambda pod: pod.order, reverse=True)):
        if surplus.take(pod.role):
            yield Unit(job, (pod,), False, (False, job.priority, -pod.started, job.key, nth), job.priority)
    if there and len(there) == state.placed_count:
        started = max(pod.started for pod in there)
        yield Unit(job, tuple(there), len(there) > 1, (True, job.priority, -started, job.key, 0), job.priority)
