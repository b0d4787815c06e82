"""When running pods will be gone, as a gang that waits for their room sees it: arrays over the pods on nodes.

A pod is gone at its deadline (`activeDeadlineSeconds`). Without one it is expected to run as long again as it has run,
but at least a minute. It is gone sooner if it may be evicted by then: surplus that can be shrunk, pods the gang may
preempt, and pods that run in the gang's room until it can start. Estimates only: nothing here evicts.

Most of it is the same for all gangs, and is found once. What a gang adds costs as much as the pods it is about.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from maniple.model.job import Job
from maniple.model.resources import BoolArray, FloatArray, IntArray
from maniple.scheduler.eviction.claim_outcome import Claim
from maniple.scheduler.eviction.queue_claims import claims_of, displaceable
from maniple.scheduler.framework.action import Ability
from maniple.scheduler.framework.hooks import Victim
from maniple.scheduler.framework.job_state import SurplusCount
from maniple.scheduler.framework.session import Session
from maniple.scheduler.reservation.running_pods import RunningPods

_LEAST_S = 60.0  # a pod without a deadline is expected to run at least this long
_LAST = 253_370_764_800.0  # the first second of the year 9999: a later end is no end


class Moments(NamedTuple):
    """[pods] when each is gone."""

    expected: FloatArray  # its end, declared or estimated; never, for newcomers without a deadline
    at_last: FloatArray  # the same, with newcomers estimated like others
    soonest: FloatArray  # the earliest end: now, without a deadline
    certain: FloatArray  # without estimates: its deadline, or when it may be evicted


def usual_moments(session: Session, running: RunningPods) -> Moments:
    """As gangs see them for whom none of the pods leaves sooner."""
    now = session.snapshot.now
    declared = declared_ends(session, running)
    has_deadline = np.isfinite(declared)
    estimated = np.minimum(now + np.maximum(now - running.started, _LEAST_S), _LAST - 1)
    at_last = np.where(has_deadline, declared, estimated)
    expected = at_last.copy()
    expected[running.settled :][~has_deadline[running.settled :]] = np.inf
    return Moments(expected, at_last, np.where(has_deadline, declared, now), declared)


def declared_ends(session: Session, running: RunningPods) -> FloatArray:
    """[pods] the deadline of each; never, without one."""
    is_end = running.declared < _LAST
    return np.where(is_end, np.maximum(running.declared, session.snapshot.now), np.inf)


@dataclass(frozen=True, slots=True, eq=False)
class Departures:
    """The pods, as one gang sees them."""

    running: RunningPods
    usual: Moments
    moments: Moments
    moved: IntArray  # the pods that leave sooner for it
    declared: FloatArray
    _makes_way: IntArray
    _first: float  # when the gang's patience was over
    _now: float

    def in_order(self, kind: str) -> IntArray:
        """All pods, in the order in which they are gone."""
        return self.running.in_order(kind, getattr(self.usual, kind), getattr(self.moments, kind), self.moved)

    def are_sure(self, rows: IntArray) -> BoolArray:
        """Whether the gang may count on the ends of these: they were there first, or make way for the gang."""
        # Nothing was reserved before the gang's patience was over, so pods that started until then were there first.
        return np.asarray((self.running.started[rows] <= self._first) | np.isin(rows, self._makes_way))

    def are_overdue(self, rows: IntArray) -> BoolArray:
        """Whether these have no deadline, and have run longer than they were expected to."""
        is_late = self._now >= 2 * self._first - self.running.started[rows]
        return np.asarray(~np.isfinite(self.declared[rows]) & is_late)


def departures(
    session: Session, job: Job, running: RunningPods, usual: Moments, within: BoolArray | None = None
) -> Departures:
    """`usual`: usual_moments. `within` [N]: the nodes whose pods may leave for the gang; None: all."""
    now = session.snapshot.now
    guests, guests_leave = _columns(_guests(session, job, running, within))
    victims, victims_leave = _columns(_evictable(session, job, running, within))
    moments, moved = usual, np.append(guests, victims)
    if len(moved):
        guests_leave, victims_leave = np.maximum(guests_leave, now), np.maximum(victims_leave, now)
        moments = Moments(*(array.copy() for array in usual))
        for array in moments:
            array[guests] = np.minimum(array[guests], guests_leave)
        for array in (moments.expected, moments.at_last, moments.certain):
            array[victims] = np.minimum(array[victims], victims_leave)
        moments.soonest[victims] = np.minimum(moments.soonest[victims], moments.expected[victims])
    first = job.created + (session.patience_s or 0.0)
    sure = guests[np.isfinite(guests_leave)]
    return Departures(running, usual, moments, moved, usual.certain, sure, first, now)


def _columns(found: Iterator[tuple[int, float]]) -> tuple[IntArray, FloatArray]:
    pairs = list(found)
    rows, moments = [row for row, _ in pairs], [moment for _, moment in pairs]
    return np.array(rows, dtype=np.intp), np.array(moments, dtype=np.float64)


def _guests(session: Session, host: Job, running: RunningPods, within: BoolArray | None) -> Iterator[tuple[int, float]]:
    """Yields the pods that make way for the gang if its queue can spare them, and from when on."""
    rows = [row for row in running.guests.get(host.name, ()) if _is_there(running, row, within)]
    guests = {Victim(running.job_of(row), running.pods[row]): row for row in rows}
    for victim in displaceable(session, host, list(guests)) if guests else ():
        yield guests[victim], victim.pod.started + victim.job.min_runtime_s


def _is_there(running: RunningPods, row: int, within: BoolArray | None) -> bool:
    return bool(running.there[row]) and (within is None or bool(within[running.nodes[row]]))


def _evictable(
    session: Session, claimant: Job, running: RunningPods, within: BoolArray | None
) -> Iterator[tuple[int, float]]:
    """Yields the pods that may be evicted for the claimant, and from when on."""
    preempts = session.has_action(Ability.PREEMPT) and claimant.may_preempt
    goes_whole: set[int] = set()
    for number in running.below(claimant.queue, claimant.priority) if preempts else ():
        job, start, stop = running.job(number)
        if job.preemptable and _goes_whole(session, job):
            goes_whole.add(number)
            moment = max(pod.started for pod in job.placed) + job.min_runtime_s
            yield from ((row, moment) for row in range(start, stop) if _is_there(running, row, within))
    if not session.has_action(Ability.SHRINK):
        return
    lent: dict[str, tuple[int, float]] = {}
    victims: list[Victim] = []
    for number in running.with_surplus:
        if number in goes_whole:
            continue
        job, _, _ = running.job(number)
        for row, moment in running.surplus_of(number, lambda job, rows: list(_surplus(session, job, rows))):
            if not _is_there(running, row, within):
                continue
            if job.queue == claimant.queue or session.due is None:
                yield row, moment
            else:
                pod = running.pods[row]
                lent[pod.pod] = row, moment
                victims.append(Victim(job, pod))
    claims = claims_of(session) if victims else None
    if claims is not None:
        for victim in claims.allowed(Claim.STRICT, claimant, victims):
            yield lent[victim.pod.pod]


def _goes_whole(session: Session, job: Job) -> bool:
    """Whether the policy allows evicting the whole job."""
    is_single = job.min_member == 1 and len(job.placed) == 1
    return (session.evicts_whole or is_single) and not any(session.is_protected(pod) for pod in job.placed)


def _surplus(session: Session, job: Job, rows: Mapping[str, int]) -> Iterator[tuple[int, float]]:
    """Yields the pods above the job's minimum that have a row, and from when on each may be evicted.

    It is units.surplus_steps for any time, not only for now.
    """
    surplus = SurplusCount(job, job.placed_by_role)
    above: dict[str, float] = {}  # elastic: a replica does not go before those above it
    for pod in sorted(job.placed, key=lambda pod: pod.order, reverse=True):
        if surplus.total <= 0:
            return
        is_meeting = job.elastic is not None and job.elastic.rendezvous(pod.role, pod.index)
        if not is_meeting and not session.is_protected(pod) and surplus.take(pod.role):
            moment = pod.started + job.min_runtime_s
            if job.elastic is not None:
                moment = max(moment, job.elastic.cooldown_until, above.get(pod.role, 0.0))
                above[pod.role] = moment
            if pod.pod in rows:
                yield rows[pod.pod], moment
