"""Reservations: where a gang that cannot start will fit soonest, kept for it from cycle to cycle until it has started.

Later there is never less room than now, so a search over the times at which pods will be gone finds the first at which
the gang fits, and the nodes where it does. These are kept for it (reserved.py): whoever comes to them later leaves it
what it needs, ends in time, or makes way. Pods that were there before are left alone. That is why the gang starts at
the latest when all of these have ended, whatever arrives meanwhile.

Those who make way go when the gang has room as soon as they are gone, not before; then they wait in line like others.
No ping-pong comes of it: they leave only for a gang that starts, and into reserved room they come back only if it is
reserved for yet another gang, and then again cannot delay that one.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from maniple.model.gpu.devices import MIXED
from maniple.model.job import Job, PlacedPod, Queue
from maniple.model.resources import BoolArray, FloatArray
from maniple.scheduler.eviction.search import make_room
from maniple.scheduler.eviction.units import Unit
from maniple.scheduler.framework.queue_dues import yielding
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.statement import Placed, Statement
from maniple.scheduler.placement.search import place_gang
from maniple.scheduler.reservation.book import Reservation, devices_left
from maniple.scheduler.reservation.departures import Departures, Running, departures

_MOST_SEARCHES = 8  # in a queue and cycle, for gangs that then fit nowhere; whoever comes after them must wait


def keep_reservations(session: Session, jobs: Sequence[Job]) -> None:
    """Takes up the reservations of earlier cycles again, where they were, if they can still be filled there."""
    if not jobs:
        return
    for guest in session.snapshot.jobs:
        for pod in guest.placed:
            if pod.makes_way_for and not session.is_protected(pod):
                guests = session.reserved.guests.setdefault(pod.makes_way_for, {})
                guests.setdefault(guest.key, (guest, []))[1].append(pod)
    running = Running(session, {node for job in jobs for node in job.nominated})
    running.catch_up()
    for job in sorted(jobs, key=session.job_key):
        taken = job.queue in session.reserved.by_queue or any(session.reserved.holder(node) for node in job.nominated)
        if taken or not _may_reserve(session, session.queue_of(job), job):
            continue
        made = _make(session, job, running, at_most(session, job.nominated))
        if made is not None:
            session.reserved.add(made)
    for made in list(session.reservations.values()):
        if _is_disappointed(session, made, running):
            _move(session, made)


def _is_disappointed(session: Session, made: Reservation, running: Running) -> bool:
    """Whether the gang counts on somebody there who has run for longer than it was taken to."""
    leave = departures(session, made.job, running)
    counted = np.isin(running.nodes, made.places) & (leave.expected <= made.expected) & (leave.certain > made.expected)
    if not (counted & leave.is_overdue).any():
        return False
    found = _Search(session, made.job, running).soonest(leave.certain, at_most(session, made.nodes))
    return found is None or found[0] > made.expected


def _move(session: Session, made: Reservation) -> None:
    """The reservation is made anew where its moment is certain and sooner; else it stays.

    Certain: estimates may prove wrong there as well, and a gang that is sent from one to the next may never arrive.
    Where it stays it starts at the latest when those who were there have ended.
    """
    found = _make(session, made.job, _all_running(session), _elsewhere(session, made.job), is_certain=True)
    if found is not None and found.expected < made.expected:
        session.reserved.drop(made.job.key)
        session.forget_failures()
        session.reserved.add(found)


def reserve(session: Session, queue: Queue, job: Job) -> None:
    """The job's turn has come and it found no room: if it is the first of its queue, room is kept for it."""
    reserved = session.reserved
    if session.patience_s is None or queue.index in reserved.settled:
        return
    if job.key in reserved.by_job:
        reserved.settled.add(queue.index)
        return
    if job.key in session.blocked or not _may_reserve(session, queue, job):
        return
    made = _make(session, job, _all_running(session), _elsewhere(session, job))
    reserved.searches[queue.index] = reserved.searches.get(queue.index, 0) + 1
    if made is None:
        if reserved.searches[queue.index] >= _MOST_SEARCHES:
            reserved.settled.add(queue.index)
        return
    before = reserved.by_queue.get(queue.index)
    if before is not None:
        # Somebody who comes before its gang waits as well.
        reserved.drop(before.job.key)
        session.forget_failures()
    reserved.add(made)
    reserved.settled.add(queue.index)


def _may_reserve(session: Session, queue: Queue, job: Job) -> bool:
    """Whether the job has waited long enough, and nothing but room stands in its way."""
    if not _has_waited(session, job) or session.overused(queue, session.asked(job)) is not None:
        return False
    return session.admissible(queue, session.needed_resources(job)) is None


def _has_waited(session: Session, job: Job) -> bool:
    patience = session.patience_s
    return patience is not None and session.snapshot.now - job.created >= patience


def at_most(session: Session, counts: Mapping[int, int]) -> FloatArray:
    """[N] so many pods on each of these nodes, and none elsewhere."""
    most = np.zeros(len(session.snapshot.nodes))
    for node, count in counts.items():
        most[node] = count
    return most


def _elsewhere(session: Session, job: Job) -> FloatArray:
    """[N] any number of pods on nodes that are reserved for no other queue."""
    most = np.full(len(session.snapshot.nodes), np.inf)
    for other in session.reservations.values():
        if other.job.queue != job.queue:
            most[other.places] = 0.0
    return most


def _all_running(session: Session) -> Running:
    """Kept for the cycle, as long as nobody is evicted."""
    reserved = session.reserved
    if reserved.running is None or reserved.running.evictions != len(session.evicted):
        reserved.running = Running(session)
    reserved.running.catch_up()
    return reserved.running


# --- where and when


def _make(
    session: Session, job: Job, running: Running, most: FloatArray, *, is_certain: bool = False
) -> Reservation | None:
    """Room for the job where it will be soonest, with at most so many pods on each node; None if there never is."""
    leave = departures(session, job, running)
    if is_certain:
        leave = replace(leave, expected=leave.certain)
    search = _Search(session, job, running)
    found = search.soonest(leave.expected, most)
    if found is None and not is_certain:
        # Rather behind those who have only just been given room than nowhere: others would pass it meanwhile.
        leave = replace(leave, expected=leave.at_last)
        found = search.soonest(leave.expected, most)
    if found is None:
        return None
    expected, placed = found
    nodes = Counter(node for done in placed for node, _ in done.slots())
    ready = search.soonest(leave.soonest, at_most(session, nodes))
    return _reservation(session, job, placed, dict(nodes), expected, ready[0] if ready else expected, running, leave)


class _Search:
    def __init__(self, session: Session, job: Job, running: Running) -> None:
        self._session = session
        self._job = job
        self._running = running

    def soonest(self, gone_at: FloatArray, most: FloatArray) -> tuple[float, tuple[Placed, ...]] | None:
        """The first moment at which the gang fits, and where it then does; `gone_at`: when each pod is gone."""
        now = self._session.snapshot.now
        here = most[self._running.nodes] > 0
        times = np.unique(np.append(np.maximum(gone_at[here & np.isfinite(gone_at)], now), now))
        with self._session.reserved.lifted(self._session.reservations.values(), most):
            if not self._fits(here & (gone_at <= times[-1])):
                return None
            too_early, enough = -1, len(times) - 1
            while enough - too_early > 1:
                middle = (too_early + enough) // 2
                if self._fits(here & (gone_at <= times[middle])):
                    enough = middle
                else:
                    too_early = middle
            placed = self._place(here & (gone_at <= times[enough]))
        return None if placed is None else (float(times[enough]), placed)

    def _fits(self, gone: BoolArray) -> bool:
        session, job = self._session, self._job
        group = job.groups[0]
        is_special = job.required or job.preferred or session.gpus.is_mixed or group.pod_affinity is not None
        if len(job.groups) > 1 or is_special:
            return self._place(gone) is not None
        # Where pods are alike and may go anywhere, it is enough to count.
        with Statement(session) as world:
            world.clear(self._running.clear(gone))
            return bool(session.room_for(group, later=True).sum() >= session.job_need(job).total)

    def _place(self, gone: BoolArray) -> tuple[Placed, ...] | None:
        session, job = self._session, self._job
        with Statement(session) as world:
            world.clear(self._running.clear(gone))
            # A search that fails rolls back what it placed itself, and nobody comes back for that.
            with Statement(session) as gang:
                if place_gang(session, gang, job, later=True) and session.job_pipelined(job):
                    return gang.placed()
        return None


def _reservation(
    session: Session,
    job: Job,
    placed: Sequence[Placed],
    counts: dict[int, int],
    expected: float,
    ready: float,
    running: Running,
    leave: Departures,
) -> Reservation:
    nodes = sorted(counts)
    position = {node: at for at, node in enumerate(nodes)}
    here = np.isin(running.nodes, nodes)
    # The gang waits for these. Whoever runs for longer keeps its room, and who came after the gang had waited long
    # enough may run for ever, unless it says when it ends.
    gone = here & (leave.expected <= expected) & (leave.soonest <= ready)
    gone &= leave.is_sure | (leave.declared <= ready)
    cleared = running.clear(gone)
    spare = session.future[:, nodes] + cleared.amounts[:, nodes]
    exact: list[tuple[int, int, int, int]] = []
    whole: list[tuple[int, int, int]] = []
    for done in placed:
        used = done.used()
        for at, node in enumerate(done.spot.nodes.tolist()):
            spare[:, position[node]] -= used[:, at]
        whole_rows = {ask.row for ask in done.group.shape.gpus if ask.is_whole}
        for node, grants in done.slots():
            for row in {granted.row for granted in grants}:
                mine = [granted for granted in grants if granted.row == row]
                if row in whole_rows and session.gpus.tables[row].node_model[node] != MIXED:
                    whole.append((row, position[node], len(mine)))
                else:
                    exact += [(row, position[node], granted.device, granted.milli) for granted in mine]
    rows = session.gpus.tables
    places = np.array(nodes, dtype=np.intp)
    return Reservation(
        job=job,
        order=session.job_key(job),
        nodes={node: counts[node] for node in nodes},
        pods=tuple(
            (done.group.pods[at], node) for done in placed for at, (node, _) in enumerate(done.slots(), done.start)
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
        leaving=frozenset(running.pods[at].pod for at in np.flatnonzero(gone).tolist()),
    )


# --- those who make way


def displace(session: Session, queue: Queue, job: Job, *, is_its_turn: bool) -> bool:
    """Those who run in the gang's room until it can start leave, if it then does; it is promised their room.

    Before its turn that is what was reserved for it. In its turn it is any room: on nodes that it did not count on,
    others may have ended sooner.
    """
    most = None if is_its_turn else at_most(session, session.reservations[job.key].nodes)
    guests = session.reserved.guests[job.name].values()
    units = [unit for other, pods in guests for unit in _units(session, other, pods)]
    units.sort(key=lambda unit: unit.cost)
    with session.reserved.lifted([], most):
        rules = [lambda claimant, found: yielding(session, claimant, found)]
        return bool(make_room(session, queue, job, units, rules, "Displaced"))


def has_guests(session: Session, job: Job) -> bool:
    """Whether somebody runs in the room reserved for the job who makes way for it."""
    return job.key in session.reservations and job.name in session.reserved.guests


def host_of(session: Session, job: Job) -> str:
    """The gang in whose room the job is, so that it goes whole when that gang starts; none, if only surplus goes."""
    hosts = {made.job.name for made in session.reservations.values()}
    if not hosts:
        return ""
    found = Counter(pod.makes_way_for for pod in job.placed if pod.makes_way_for in hosts)
    found.update(session.reserved.newcomers.get(job.key, {}))
    staying = session.state(job).placed_count + job.succeeded - sum(found.values())
    return min(found) if found and staying < max(job.min_member, 1) else ""


def _units(session: Session, job: Job, mine: Sequence[PlacedPod]) -> Iterator[Unit]:
    """The job's surplus among these pods one by one, the highest indices first; all of them, if that is all of it."""
    state, now = session.state(job), session.snapshot.now
    there = [pod for pod in mine if pod.pod not in state.evicted and now - pod.started >= job.min_runtime_s]
    left = state.placed_count + job.succeeded
    by_role = {role: count + job.succeeded_by_role.get(role, 0) for role, count in state.placed.items()}
    for nth, pod in enumerate(sorted(there, key=lambda pod: pod.order, reverse=True)):
        if left > max(job.min_member, 1) and by_role[pod.role] > job.role_min.get(pod.role, 0):
            left -= 1
            by_role[pod.role] -= 1
            yield Unit(job, (pod,), False, (False, job.priority, -pod.started, job.key, nth), job.priority)
    if there and len(there) == state.placed_count:
        started = max(pod.started for pod in there)
        yield Unit(job, tuple(there), len(there) > 1, (True, job.priority, -started, job.key, 0), job.priority)
