"""One cycle after another: takes a snapshot, decides, starts to apply the plan, and rests until something changes.

A cycle follows a change, and at the latest a second after the last. What may let somebody start (a pod that comes, room
that is freed) is decided at once. Other changes wait a moment for more of them, and so that cycles do not take all of
the time. Where nothing changes and nothing is done, cycles are rarer if they are so long that they would cost more than
a few per cent of a core.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from math import inf

from maniple.api import kubernetes, types
from maniple.api.decode.decode import Object
from maniple.api.keys import Key, key_of
from maniple.api.phases import FINISHED
from maniple.kube.serve.applier import Applier
from maniple.kube.serve.gang_index import Gangs, gang_of, jobs_by_queue
from maniple.kube.serve.metrics import Metrics
from maniple.kube.serve.pace import Pace
from maniple.kube.serve.status_writer import Statuses
from maniple.kube.transport.mirror import Mirror, Seen
from maniple.kube.transport.resource_kinds import ObjectRef, Resource
from maniple.model.snapshot import Snapshot
from maniple.scheduler import Plan, Policy, schedule

log = logging.getLogger("maniple.serve")

PERIOD_S = 1.0
_TOGETHER_S = 0.05  # changes that let nobody start wait for more of them
_IDLE_SHARE = 0.02  # of a core, for cycles that change nothing
_LONGEST_REST_S = 30.0
_BUSY_S = 1.0
_STATUS_S = 15.0


@dataclass
class Loop:
    mirror: Mirror
    gangs: Gangs
    applier: Applier
    statuses: Statuses
    metrics: Metrics
    policy: Policy | None
    is_leading: Callable[[], bool]

    def __post_init__(self) -> None:
        self._cache = self.mirror.cache
        self._changed = asyncio.Event()
        self._is_urgent = asyncio.Event()  # somebody may be able to start
        self._pace = Pace(time.monotonic())
        self._cycle_s = 0.0
        self._last: Snapshot | None = None  # of the last cycle while we led
        self.mirror.listen(self._on_change)
        self._status_at = time.monotonic()
        self.cycled_at = time.monotonic()  # when the last cycle ended, on the monotonic clock

    def poke(self) -> None:
        """Something was reported."""
        if self._cache.is_changed or self.gangs.touched:
            self._changed.set()

    def _on_change(self, _resource: Resource, _key: Key, before: Seen | None, seen: Seen | None) -> None:
        old, new = (None if state is None else state.item for state in (before, seen))
        if lets_start(old, new, self.gangs):
            self._is_urgent.set()
            self._changed.set()

    async def rest(self, plan: Plan) -> None:
        """Until something changes. Nobody who could start waits for others, except for binds that are before it."""
        is_done = not (plan.binds or plan.evictions or plan.resizes)
        longest = max(PERIOD_S, min(_LONGEST_REST_S, self._cycle_s / _IDLE_SHARE)) if is_done else PERIOD_S
        if not await _is_set(self._changed, longest):
            return
        pause_s = max(_TOGETHER_S, self._pace.pause_s(time.monotonic(), is_urgent=False))
        if await _is_set(self._is_urgent, pause_s):
            await asyncio.sleep(self._pace.pause_s(time.monotonic(), is_urgent=True))
        # While many binds are on their way there is no hurry: the room that they take counts as taken, and whatever
        # else is bound has to wait for them.
        await _is_set(self.applier.is_calm, _BUSY_S)

    async def cycle(self, *, is_only: bool = False) -> tuple[Snapshot, Plan]:
        """Takes the snapshot and decides in a thread, so that watches go on meanwhile, and starts to apply the plan.

        Then gangs are explained and statuses written. What is reported meanwhile is for the next cycle. `is_only`:
        there is no other cycle, so all gangs are explained.
        """
        self._changed.clear()
        self._is_urgent.clear()
        start = time.perf_counter()

        def decide(snapshot: Snapshot) -> tuple[float, Plan, float]:
            return time.perf_counter(), schedule(snapshot, self.policy), time.perf_counter()

        snapshot, (looked, plan, decided) = await self._cache.decide(time.time(), decide)
        if self.is_leading():
            self.applier.apply(snapshot, plan)
            applied = time.perf_counter()
            explained_s = await self._write_status(snapshot, plan, is_only=is_only)
            self._last = snapshot
            done = time.perf_counter()
            start += explained_s  # what can be broken off at any time makes no cycle long
            phases = {"snapshot": looked - start + explained_s, "schedule": decided - looked}
            phases |= {"apply": applied - decided, "explain": explained_s, "status": done - applied - explained_s}
            for phase, took_s in phases.items():
                self.metrics.cycle.labels(phase).observe(took_s)
        self._cycle_s = time.perf_counter() - start
        self.cycled_at = time.monotonic()
        self._pace.took(self.cycled_at, self._cycle_s)
        if plan.binds or plan.evictions or plan.resizes:
            log.info(
                "cycle",
                extra={
                    "binds": len(plan.binds),
                    "evictions": len(plan.evictions),
                    "resizes": len(plan.resizes),
                    "waiting": len(plan.explanations.gangs),
                    "seconds": round(self._cycle_s, 4),
                },
            )
        return snapshot, plan

    async def _write_status(self, snapshot: Snapshot, plan: Plan, *, is_only: bool) -> float:
        """Binds come first: while there are many, status is written seldom. Returns the time that explanations took.

        Gangs are explained in a thread until something is reported, before the next cycle begins: a session has never
        two users.
        """
        now = time.monotonic()
        if self.applier.is_busy and not is_only and now - self._status_at <= _STATUS_S:
            return 0.0
        self._status_at = now
        reasons, queues = self.statuses.reasons, plan.queues
        if is_only:
            await asyncio.to_thread(reasons.renew, plan.explanations, most_s=inf)
        else:
            await asyncio.to_thread(reasons.renew, plan.explanations, self._is_urgent.is_set)
        explained_s = time.monotonic() - now
        if self.is_leading():
            self.statuses.write(snapshot, queues, self.rejected())
        return explained_s

    def rejected(self) -> dict[ObjectRef, tuple[str, ...]]:
        """Objects that are set aside because they cannot be read, or contradict others, and why."""
        rejected = dict(self.mirror.rejected)
        for (kind, namespace, name), why in self._cache.problems.items():
            seen = self.mirror.find(kind, (namespace, name))
            if seen is not None:
                rejected[seen.ref] = tuple(why)
        return rejected

    def measure(self) -> None:
        """Sets the metrics that describe the cluster. It costs as much as there are jobs: only when somebody asks."""
        snapshot = self._last
        if snapshot is None:
            return
        pending, running = jobs_by_queue(snapshot)
        for queue in snapshot.queues:
            self.metrics.queue_depth.labels(queue.name, "pending").set(pending.get(queue.name, 0))
            self.metrics.queue_depth.labels(queue.name, "running").set(running.get(queue.name, 0))
        for row, free in snapshot.gpus_free.items():
            table = snapshot.gpus.tables[row]
            idle = float(free[table.there].sum()) / 1000
            self.metrics.gpus.labels(table.resource, "idle").set(idle)
            self.metrics.gpus.labels(table.resource, "allocated").set(float(table.there.sum()) - idle)
        self.metrics.pods_waiting.set(sum(job.waiting_pods for job in snapshot.waiting))
        self.metrics.invalid.set(len(self.rejected()))


def lets_start(before: Object | None, after: Object | None, gangs: Gangs) -> bool:
    """Whether somebody may be able to start who could not before: an object that comes or goes, or a pod that ends.

    A gang that lacks pods starts with the last of them. Objects that change mostly tell what we know or have written
    ourselves. They are looked at a moment later.
    """
    if isinstance(after, types.PodGroup):
        return before is None and gangs.has_enough_pods(key_of(after.metadata))
    if not isinstance(after or before, kubernetes.Pod):
        return (before is None) != (after is None)
    if isinstance(after, kubernetes.Pod) and not after.spec.node_name and gangs.ours.claims(after):
        gates = len(before.spec.scheduling_gates) if isinstance(before, kubernetes.Pod) else 0
        is_ready = before is None or len(after.spec.scheduling_gates) < gates
        gang = gang_of(after)
        return is_ready and (gang is None or gangs.has_enough_pods(gang))
    left, stays = (isinstance(pod, kubernetes.Pod) and pod.status.phase not in FINISHED for pod in (before, after))
    return left and not stays


async def _is_set(event: asyncio.Event, timeout_s: float) -> bool:
    """Waits for it, at most so long."""
    if not event.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await event.wait()
    return event.is_set()
