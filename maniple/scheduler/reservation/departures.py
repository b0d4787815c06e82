"""When running pods will be gone, as a gang that waits for their room sees it: arrays over the pods on nodes.

A pod is gone at its deadline (`activeDeadlineSeconds`). Without one it is expected to run as long again as it has run,
but at least a minute. It is gone sooner if it may be evicted by then: surplus that can be shrunk, pods the gang may
preempt, and pods that run in the gang's room until it can start. Estimates only: nothing here evicts.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from maniple.model.gpu.devices import Millis
from maniple.model.job import Job, PlacedPod
from maniple.model.resources import BoolArray, FloatArray, IntArray
from maniple.scheduler.eviction.claim_outcome import Claim
from maniple.scheduler.eviction.queue_claims import claims_of, displaceable
from maniple.scheduler.framework.action import Ability
from maniple.scheduler.framework.hooks import Victim
from maniple.scheduler.framework.job_state import SurplusCount
from maniple.scheduler.framework.pod_columns import DeviceParts, stacked_requests
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.statement import Cleared

_LEAST_S = 60.0  # a pod without a deadline is expected to run at least this long
_LAST = 253_370_764_800.0  # the first second of the year 9999: a later end is no end


class RunningPods:
    """The pods on `nodes` (None: all) that are not leaving, as columns."""

    def __init__(self, session: Session, nodes: set[int] | None = None) -> None:
        self._session = session
        self.evictions = len(session.evicted)  # how many there were when this was built
        evicted = {done.pod.pod for done in session.evicted}
        self.pods: list[PlacedPod] = []
        self.jobs: list[tuple[Job, int, int]] = []  # a job, and the start and end of its pods
        self.nodes: IntArray = np.zeros(0, dtype=np.intp)
        self.started: FloatArray = np.zeros(0)
        self.declared: FloatArray = np.zeros(0)
        self._requests: FloatArray = np.zeros((len(session.snapshot.axis), 0))  # [R, pods]
        # [4, parts] of GPUs that the pods hold: the holder, the row, the device numbered over all nodes, thousandths.
        self._device_parts: IntArray = np.zeros((4, 0), dtype=np.intp)
        self._seen = 0  # how much of session.placed is in the columns
        self.newcomers: list[int] = []  # the pods that this cycle placed
        placed: list[PlacedPod] = []
        for job in session.snapshot.jobs:
            start = len(placed)
            placed += [
                pod
                for pod in job.placed
                if pod.node >= 0 and (nodes is None or pod.node in nodes) and pod.pod not in evicted
            ]
            if len(placed) > start:
                self.jobs.append((job, start, len(placed)))
        self._add(placed)

    def catch_up(self) -> None:
        """Adds the pods that this cycle has bound or nominated since the last call."""
        session = self._session
        fresh = session.placed[self._seen :]
        self._seen = len(session.placed)
        now = session.snapshot.now
        pods: list[PlacedPod] = []
        for done in fresh:
            group = done.group
            for nth, (node, grants) in enumerate(done.slots(), done.start):
                pod = PlacedPod(
                    pod=group.pods[nth],
                    node=node,
                    role=group.role,
                    priority=group.priority,
                    requests=group.shape.requests,
                    pod_affinity=group.pod_affinity,
                    started=now,
                    is_critical=group.stays,
                    labels={},
                    gpus=grants,
                    ends=now + group.lasts_s,
                    exclusives=group.shape.exclusives,
                )
                self.newcomers.append(len(self.pods) + len(pods))
                pods.append(pod)
        if pods:
            self._add(pods)

    def _add(self, pods: list[PlacedPod]) -> None:
        first, count = len(self.pods), len(pods)
        self.pods += pods
        self.nodes = np.append(self.nodes, np.fromiter((pod.node for pod in pods), dtype=np.intp, count=count))
        self.started = np.append(self.started, np.fromiter((pod.started for pod in pods), np.float64, count))
        self.declared = np.append(self.declared, np.fromiter((pod.ends for pod in pods), np.float64, count))
        if pods:
            self._requests = np.concatenate([self._requests, stacked_requests(pods).T], axis=1)
        parts = DeviceParts(self._session, pods)
        holders = parts.owners + first
        widths = np.zeros(len(self._session.snapshot.axis), dtype=np.intp)
        for row, table in self._session.gpus.tables.items():
            widths[row] = table.there.shape[1]
        devices = self.nodes[holders] * widths[parts.rows] + parts.devices
        added = np.stack([holders, parts.rows, devices, parts.millis])
        self._device_parts = np.concatenate([self._device_parts, added], axis=1)

    def clear(self, gone: BoolArray, *, as_neighbours: bool = False) -> Cleared:
        """Returns what these pods [pods] hold on each node."""
        session = self._session
        count = len(session.snapshot.nodes)
        nodes, requests = self.nodes[gone], self._requests[:, gone]
        amounts = np.array([np.bincount(nodes, weights=row, minlength=count) for row in requests])
        devices: dict[int, Millis] = {}
        _, rows, numbers, millis = self._device_parts[:, gone[self._device_parts[0]]]
        for row, table in session.gpus.tables.items():
            of_row = rows == row
            sums = np.bincount(numbers[of_row], weights=millis[of_row], minlength=table.there.size)
            devices[row] = sums.reshape(table.there.shape).astype(np.int32)
        pods = [self.pods[number] for number in np.flatnonzero(gone).tolist()] if as_neighbours else []
        return Cleared(amounts, devices, tuple(pods))


@dataclass(frozen=True, slots=True, eq=False)
class Departures:
    """[pods] of a RunningPods, as one gang sees them."""

    expected: FloatArray  # its end, declared or estimated; never, for newcomers without a deadline
    at_last: FloatArray  # the same, with newcomers estimated like others
    soonest: FloatArray  # the earliest end: now, without a deadline
    declared: FloatArray  # its deadline; never, without one
    certain: FloatArray  # without estimates: its deadline, or when it may be evicted
    is_sure: BoolArray  # the gang may count on its end: it was there first, or makes way for the gang
    is_overdue: BoolArray  # it has no deadline, and has run longer than it was expected to


def departures(session: Session, job: Job, running: RunningPods) -> Departures:
    now = session.snapshot.now
    has_deadline = running.declared < _LAST
    declared = np.where(has_deadline, np.maximum(running.declared, now), np.inf)
    estimated = np.minimum(now + np.maximum(now - running.started, _LEAST_S), _LAST - 1)
    expected = np.where(has_deadline, declared, estimated)
    soonest = np.where(has_deadline, declared, now)
    makes_way_at = _guests(session, job, running)
    certain = declared.copy()
    for moments in (expected, soonest, certain):
        np.minimum(moments, np.maximum(makes_way_at, now), out=moments)
    for number, moment in _evictable(session, job, running):
        expected[number] = min(expected[number], max(moment, now))
        soonest[number] = min(soonest[number], expected[number])
        certain[number] = min(certain[number], max(moment, now))
    at_last = expected.copy()
    expected[[number for number in running.newcomers if not has_deadline[number]]] = np.inf
    # Nothing was reserved before the gang's patience was over, so pods that started until then were there first.
    first = job.created + (session.patience_s or 0.0)
    is_sure = (running.started <= first) | np.isfinite(makes_way_at)
    is_overdue = ~has_deadline & (now >= 2 * first - running.started)
    return Departures(expected, at_last, soonest, declared, certain, is_sure, is_overdue)


def _guests(session: Session, host: Job, running: RunningPods) -> FloatArray:
    """[pods] from when on each makes way for the gang; never, if it is no guest or its queue cannot spare it."""
    makes_way_at = np.full(len(running.pods), np.inf)
    guests = {
        Victim(job, running.pods[number]): number
        for job, start, stop in running.jobs
        for number in range(start, stop)
        if running.pods[number].makes_way_for == host.name
    }
    for victim in displaceable(session, host, list(guests)) if guests else ():
        makes_way_at[guests[victim]] = victim.pod.started + victim.job.min_runtime_s
    return makes_way_at


def _evictable(session: Session, claimant: Job, running: RunningPods) -> Iterator[tuple[int, float]]:
    """Yields the pods that may be evicted for the claimant, and from when on."""
    shrinks = session.has_action(Ability.SHRINK)
    preempts = session.has_action(Ability.PREEMPT) and claimant.may_preempt
    lent: dict[str, tuple[int, float]] = {}
    victims: list[Victim] = []
    for job, start, stop in running.jobs:
        pods = running.pods[start:stop]
        is_below = job.queue == claimant.queue and job.priority < claimant.priority and job.preemptable
        if preempts and is_below and _goes_whole(session, job):
            moment = max(pod.started for pod in job.placed) + job.min_runtime_s
            yield from ((number, moment) for number in range(start, stop))
        elif shrinks and len(job.placed) + job.succeeded > job.min_member:
            for pod, moment in _surplus(session, job, {pod.pod for pod in pods}):
                number = start + pods.index(pod)
                if job.queue == claimant.queue or session.due is None:
                    yield number, moment
                else:
                    lent[pod.pod] = number, moment
                    victims.append(Victim(job, pod))
    claims = claims_of(session) if victims else None
    if claims is not None:
        for victim in claims.allowed(Claim.STRICT, claimant, victims):
            yield lent[victim.pod.pod]


def _goes_whole(session: Session, job: Job) -> bool:
    """Whether the policy allows evicting the whole job."""
    is_single = job.min_member == 1 and len(job.placed) == 1
    return (session.evicts_whole or is_single) and not any(session.is_protected(pod) for pod in job.placed)


def _surplus(session: Session, job: Job, here: set[str]) -> Iterator[tuple[PlacedPod, float]]:
    """Yields the pods `here` above the job's minimum, and from when on each may be evicted.

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
            if pod.pod in here:
                yield pod, moment
