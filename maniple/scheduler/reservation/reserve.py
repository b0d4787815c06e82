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
from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from maniple.model.job import Job, PlacedPod, Queue
from maniple.scheduler.eviction.queue_claims import displaceable
from maniple.scheduler.eviction.unit_table import UnitTable
from maniple.scheduler.eviction.units import Unit
from maniple.scheduler.eviction.victim_search import RoomMaker, Terms, always
from maniple.scheduler.framework.job_state import SurplusCount
from maniple.scheduler.framework.session import Session
from maniple.scheduler.reservation.departures import Moments, departures, usual_moments
from maniple.scheduler.reservation.reservation_book import Reservation
from maniple.scheduler.reservation.running_pods import RunningPods
from maniple.scheduler.reservation.start_search import Room, Search, at_most

_MOST_SEARCHES = 8  # kinds of gangs for which a search failed, in a queue and cycle; the jobs after that wait


def keep_reservations(session: Session, jobs: Sequence[Job]) -> None:
    """Renews the reservations of earlier cycles on their nodes, if the gangs can still start there."""
    if not jobs:
        return
    reserved = session.reserved
    for guest in session.snapshot.guests:
        for pod in guest.placed:
            if pod.makes_way_for and not session.is_protected(pod):
                guests = reserved.guests.setdefault(pod.makes_way_for, {})
                guests.setdefault(guest.key, (guest, []))[1].append(pod)
    running, usual = _running_pods(session)
    within = np.zeros(len(session.snapshot.nodes), dtype=bool)
    within[[node for job in jobs for node in job.nominated]] = True
    searches: list[Search] = []
    for job in sorted(jobs, key=session.job_key):
        is_taken = job.queue in reserved.by_queue or any(reserved.holder(node) for node in job.nominated)
        if is_taken or not _may_reserve(session, session.queue_of(job), job):
            continue
        search = Search(session, job, departures(session, job, running, usual, within))
        reservation = search.reservation(Room.on(session, job.nominated))
        if reservation is not None:
            reserved.add(reservation)
            searches.append(search)
    late = [found for search in searches if search.is_late(found := reserved.by_job[search.job.key])]
    nowhere = Nowhere(late)
    for reservation in late:
        _move(session, reservation, nowhere)


class Nowhere:
    """The kinds of gangs of which none starts sooner anywhere than the last of their reservations is expected to.

    What fits nowhere when all other nodes are free to use does not fit beside other reservations, nor sooner. So gangs
    that are late, of D kinds, look at all nodes and pods D times. They change nothing else meanwhile.
    """

    def __init__(self, late: Sequence[Reservation]) -> None:
        self._last = max((reservation.expected for reservation in late), default=0.0)
        self._known: dict[Hashable, bool] = {}  # kind -> whether it is so

    def holds_for(self, search: Search) -> bool:
        kind = search.counted_kind
        if kind is None:
            return False
        if kind not in self._known:
            self._known[kind] = not search.fits_anywhere(self._last)
        return self._known[kind]


def _move(session: Session, reservation: Reservation, nowhere: Nowhere) -> None:
    """Moves the reservation to where the gang starts sooner for certain, if there is such a place.

    A move on an estimate may be followed by the next, and the gang may never start. If the reservation stays, the gang
    starts at the latest when the pods that were there first have ended.
    """
    job = reservation.job
    search = Search(session, job, departures(session, job, *_running_pods(session)))
    if nowhere.holds_for(search):
        return
    sooner = search.sooner(Room.elsewhere(session, job), reservation.expected)
    if sooner is not None:
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
    kind, evictions = session.waiting.kind(job), len(session.evicted)
    in_vain = reserved.in_vain.setdefault(queue.index, {})
    if in_vain.get(kind) == evictions:
        return  # one that is like it found nothing
    search = Search(session, job, departures(session, job, *_running_pods(session)))
    reservation = search.reservation(Room.elsewhere(session, job))
    if reservation is None:
        in_vain[kind] = evictions
        if len(in_vain) >= _MOST_SEARCHES:
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


def _running_pods(session: Session) -> tuple[RunningPods, Moments]:
    """The running pods of all nodes, kept for the cycle, and when they are gone."""
    reserved = session.reserved
    if reserved.running is None:
        reserved.running = RunningPods(session)
    if reserved.running.catch_up() or reserved.moments is None:
        reserved.moments = usual_moments(session, reserved.running)
    return reserved.running, reserved.moments


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
