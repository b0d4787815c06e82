"""When those who run will be gone, as a gang sees it that waits for their room: arrays over the pods on nodes.

A pod is gone when it says so (`activeDeadlineSeconds`), or as long again as it has run, but a minute at least; sooner,
if it may be taken by then: surplus that can be shrunk, work that the gang may preempt, and those who run in its room
until it can start.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from maniple.model.gpu.devices import Millis
from maniple.model.job import Job, PlacedPod
from maniple.model.resources import BoolArray, FloatArray, IntArray
from maniple.scheduler.framework.action import Ability
from maniple.scheduler.framework.hooks import Victim
from maniple.scheduler.framework.queue_dues import spared, yielding
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.statement import Cleared

_LEAST_S = 60.0  # who does not say when it ends is taken to run for so long at least
_LAST = 253_370_764_800.0  # the first second of the year 9999: what ends later does not end


class Running:
    """Pods on `nodes` (None: all) that are not leaving."""

    def __init__(self, session: Session, nodes: set[int] | None = None) -> None:
        self._session = session
        self.evictions = len(session.evicted)  # when it was made
        gone = {done.pod.pod for done in session.evicted}
        self.pods: list[PlacedPod] = []
        self.jobs: list[tuple[Job, int, int]] = []  # with the pods from … to
        self.nodes: IntArray = np.zeros(0, dtype=np.intp)
        self.started: FloatArray = np.zeros(0)
        self.declared: FloatArray = np.zeros(0)
        self._requests: FloatArray = np.zeros((len(session.snapshot.axis), 0))  # [R, pods]
        none: IntArray = np.zeros((3, 0), dtype=np.intp)
        # By row: the holder of each device in use, the device as a number over all nodes, and how much of it.
        self._devices = dict.fromkeys(session.gpus.tables, none)
        self._seen = 0  # of what this cycle has placed
        self.newcomers: list[int] = []  # those whom this cycle has given room
        found: list[PlacedPod] = []
        for job in session.snapshot.jobs:
            start = len(found)
            found += [
                pod
                for pod in job.placed
                if pod.node >= 0 and (nodes is None or pod.node in nodes) and pod.pod not in gone
            ]
            if len(found) > start:
                self.jobs.append((job, start, len(found)))
        self._add(found)

    def catch_up(self) -> None:
        """Those whom this cycle has bound since run as well, and those whom it has promised room will."""
        session = self._session
        fresh = session.placed[self._seen :]
        self._seen = len(session.placed)
        now = session.snapshot.now
        found: list[PlacedPod] = []
        for done in fresh:
            group = done.group
            for at, (node, grants) in enumerate(done.slots(), done.start):
                pod = PlacedPod(
                    group.pods[at], node, group.role, group.priority, group.shape.requests, None, now, group.stays, {}
                )
                pod.gpus, pod.ends = grants, now + group.lasts_s
                self.newcomers.append(len(self.pods) + len(found))
                found.append(pod)
        if found:
            self._add(found)

    def _add(self, pods: list[PlacedPod]) -> None:
        first, count = len(self.pods), len(pods)
        self.pods += pods
        self.nodes = np.append(self.nodes, np.fromiter((pod.node for pod in pods), dtype=np.intp, count=count))
        self.started = np.append(self.started, np.fromiter((pod.started for pod in pods), np.float64, count))
        self.declared = np.append(self.declared, np.fromiter((pod.ends for pod in pods), np.float64, count))
        # Pods that ask for the same share a vector, so there are few.
        kinds = {id(pod.requests): pod.requests for pod in pods}
        place = {kind: at for at, kind in enumerate(kinds)}
        if kinds:
            vectors = np.array(list(kinds.values()))[[place[id(pod.requests)] for pod in pods]]
            self._requests = np.concatenate([self._requests, vectors.T], axis=1)
        for row, table in self._session.gpus.tables.items():
            width = table.there.shape[1]
            held = [
                (at, pod.node * width + granted.device, granted.milli)
                for at, pod in enumerate(pods, first)
                for granted in pod.gpus
                if granted.row == row
            ]
            if held:
                columns = np.array(held, dtype=np.intp).T
                # What a device that is lost or unhealthy gives back is nobody's.
                columns = columns[:, table.there.ravel()[columns[1]]]
                self._devices[row] = np.concatenate([self._devices[row], columns], axis=1)

    def clear(self, gone: BoolArray) -> Cleared:
        """What those pods hold."""
        session = self._session
        count = len(session.snapshot.nodes)
        nodes, requests = self.nodes[gone], self._requests[:, gone]
        amounts = np.array([np.bincount(nodes, weights=row, minlength=count) for row in requests])
        devices: dict[int, Millis] = {}
        for row, (holder, device, milli) in self._devices.items():
            shape = session.gpus.tables[row].there.shape
            leaves = gone[holder]
            sums = np.bincount(device[leaves], weights=milli[leaves], minlength=shape[0] * shape[1])
            devices[row] = sums.reshape(shape).astype(np.int32)
        return Cleared(amounts, devices)


@dataclass(frozen=True, slots=True, eq=False)
class Departures:
    """[pods] of a Running, as one gang sees them."""

    # When each will be gone, declared or estimated; nothing is known of those who have only just been given room.
    expected: FloatArray
    at_last: FloatArray  # … and these are estimated like others
    soonest: FloatArray  # when it may be gone: who says nothing of its end may end at any moment
    declared: FloatArray
    certain: FloatArray  # without estimates: who does not say when it ends never does, unless it may be taken
    is_sure: BoolArray  # that the gang may count on it, whenever it is: it was there first, or makes way for it
    is_overdue: BoolArray  # does not say when it ends, and has run for longer than it was taken to


def departures(session: Session, job: Job, running: Running) -> Departures:
    now = session.snapshot.now
    says_so = running.declared < _LAST
    declared = np.where(says_so, np.maximum(running.declared, now), np.inf)
    estimated = np.minimum(now + np.maximum(now - running.started, _LEAST_S), _LAST - 1)
    expected = np.where(says_so, declared, estimated)
    soonest = np.where(says_so, declared, now)
    makes_way, free_from = _guests(session, job, running)
    certain = declared.copy()
    for moments in (expected, soonest, certain):
        moments[makes_way] = np.minimum(moments, np.maximum(free_from, now))[makes_way]
    for at, moment in _taken(session, job, running):
        expected[at] = min(expected[at], max(moment, now))
        soonest[at] = min(soonest[at], expected[at])
        certain[at] = min(certain[at], max(moment, now))
    # Nothing was reserved before the gang's patience was over, so whoever started until then was there first.
    at_last = expected.copy()
    expected[[at for at in running.newcomers if not says_so[at]]] = np.inf
    first = job.created + (session.patience_s or 0.0)
    is_sure = (running.started <= first) | makes_way
    is_overdue = ~says_so & (now >= 2 * first - running.started)
    return Departures(expected, at_last, soonest, declared, certain, is_sure, is_overdue)


def _guests(session: Session, host: Job, running: Running) -> tuple[BoolArray, FloatArray]:
    """[pods] who makes way for the gang, as far as their queues can be left without them, and from when on."""
    makes_way = np.zeros(len(running.pods), dtype=bool)
    free_from = np.zeros(len(running.pods))
    guests = {
        Victim(job, running.pods[at]): at
        for job, start, stop in running.jobs
        for at in range(start, stop)
        if running.pods[at].makes_way_for == host.name
    }
    for victim in yielding(session, host, list(guests)) if guests else ():
        makes_way[guests[victim]] = True
        free_from[guests[victim]] = victim.pod.started + victim.job.min_runtime_s
    return makes_way, free_from


def _taken(session: Session, claimant: Job, running: Running) -> Iterator[tuple[int, float]]:
    """Pods that may be taken for the claimant, and from when on."""
    shrinks = session.has_action(Ability.SHRINK)
    preempts = session.has_action(Ability.PREEMPT) and claimant.may_preempt
    lent: dict[str, tuple[int, float]] = {}
    victims: list[Victim] = []
    for job, start, stop in running.jobs:
        pods = running.pods[start:stop]
        is_below = job.queue == claimant.queue and job.priority < claimant.priority and job.preemptable
        if preempts and is_below and _goes_whole(session, job):
            moment = max(pod.started for pod in job.placed) + job.min_runtime_s
            yield from ((at, moment) for at in range(start, stop))
        elif shrinks and len(job.placed) + job.succeeded > job.min_member:
            for pod, moment in _surplus(session, job, {pod.pod for pod in pods}):
                at = start + pods.index(pod)
                if job.queue == claimant.queue or session.due is None:
                    yield at, moment
                else:
                    lent[pod.pod] = at, moment
                    victims.append(Victim(job, pod))
    for victim in spared(session, claimant, victims) if victims else ():
        yield lent[victim.pod.pod]


def _goes_whole(session: Session, job: Job) -> bool:
    """Whether the policy lets the job go with all its pods."""
    is_single = job.min_member == 1 and len(job.placed) == 1
    return (session.evicts_whole or is_single) and not any(session.is_protected(pod) for pod in job.placed)


def _surplus(session: Session, job: Job, here: set[str]) -> Iterator[tuple[PlacedPod, float]]:
    """Pods above the job's minimum that are here, and when each may be taken back: as units.surplus_steps would, but
    whether or not it may now.
    """
    spare = len(job.placed) + job.succeeded - max(job.min_member, 1)
    by_role = {
        role: count + job.succeeded_by_role.get(role, 0) - job.role_min.get(role, 0)
        for role, count in job.placed_by_role.items()
    }
    above: dict[str, float] = {}  # replicas of an elastic job go from the upper end, none before those above it
    for pod in sorted(job.placed, key=lambda pod: pod.order, reverse=True):
        if spare <= 0:
            return
        is_meeting = job.elastic is not None and job.elastic.rendezvous(pod.role, pod.order[1])
        if by_role[pod.role] > 0 and not is_meeting and not session.is_protected(pod):
            spare -= 1
            by_role[pod.role] -= 1
            moment = max(pod.started + job.min_runtime_s, _cool_from(job))
            if job.elastic is not None:
                moment = above[pod.role] = max(moment, above.get(pod.role, moment))
            if pod.pod in here:
                yield pod, moment


def _cool_from(job: Job) -> float:
    """From when on an elastic job may be made smaller; surplus of a plain gang never cools down."""
    return 0.0 if job.elastic is None else job.elastic.cooldown_until
