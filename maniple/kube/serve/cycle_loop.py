"""One cycle after another: takes a snapshot, decides, starts to apply the plan, and rests until something changes.

A cycle follows a change, and at the latest a second after the last. Where nothing changes and nothing is done, cycles
are rarer if they are so long that they would cost more than a few per cent of a core.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from maniple.kube.serve.applier import Applier
from maniple.kube.serve.gang_index import Gangs, jobs_by_queue
from maniple.kube.serve.metrics import Metrics
from maniple.kube.serve.status_writer import Statuses
from maniple.kube.transport.mirror import Mirror
from maniple.kube.transport.resource_kinds import ObjectRef
from maniple.model.snapshot import Snapshot
from maniple.scheduler import Plan, Policy, schedule

log = logging.getLogger("maniple.serve")

PERIOD_S = 1.0
_DEBOUNCE_S = 0.05
_IDLE_SHARE = 0.02  # of a core, for cycles that change nothing
_LONGEST_REST_S = 30.0
_BUSY_S = 0.4
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
        self._cycle_s = 0.0
        self._status_at = time.monotonic()
        self.cycled_at = time.monotonic()  # when the last cycle ended, on the monotonic clock

    def poke(self) -> None:
        """Something was reported."""
        if self._cache.is_changed or self.gangs.touched:
            self._changed.set()

    async def rest(self, plan: Plan) -> None:
        """Until something changes, and a moment longer for what changes with it. Cycles take half the time at most."""
        is_done = not (plan.binds or plan.evictions or plan.resizes)
        longest = max(PERIOD_S, min(_LONGEST_REST_S, self._cycle_s / _IDLE_SHARE)) if is_done else PERIOD_S
        try:
            async with asyncio.timeout(longest):
                await self._changed.wait()
        except TimeoutError:
            return
        # While many binds are on their way there is no hurry: the room that they take counts as taken.
        await asyncio.sleep(max(_DEBOUNCE_S, self._cycle_s, _BUSY_S if self.applier.is_busy else 0.0))
        self._changed.clear()

    async def cycle(self, *, is_only: bool = False) -> tuple[Snapshot, Plan]:
        """Takes the snapshot and decides in a thread, so that watches go on meanwhile, and starts to apply the plan.

        Then gangs are explained and statuses written. `is_only`: there is no other cycle, so all gangs are explained.
        """
        start = time.perf_counter()
        snapshot = await self._cache.snapshot(time.time())
        looked = time.perf_counter()
        plan = await asyncio.to_thread(schedule, snapshot, self.policy)
        decided = time.perf_counter()
        if self.is_leading():
            self.applier.apply(snapshot, plan)
            applied = time.perf_counter()
            explained_s = await self._write_status(snapshot, plan, is_only=is_only)
            self._measure(snapshot)
            done = time.perf_counter()
            start += explained_s  # what can be broken off at any time makes no cycle long
            phases = {"snapshot": looked - start + explained_s, "schedule": decided - looked}
            phases |= {"apply": applied - decided, "explain": explained_s, "status": done - applied - explained_s}
            for phase, took_s in phases.items():
                self.metrics.cycle.labels(phase).observe(took_s)
        self._cycle_s = time.perf_counter() - start
        self.cycled_at = time.monotonic()
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
            await asyncio.to_thread(reasons.renew, plan.explanations, self._changed.is_set)
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

    def _measure(self, snapshot: Snapshot) -> None:
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
