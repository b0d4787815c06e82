"""`maniple serve`: the loop of cycles around a real API server.

A cycle when something has changed, and at least every second; where nothing changes and nothing is done, less often if
cycles are so long that they would cost more than a few per cent of a core. Only the leader has cycles.
"""

import asyncio
import gc
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from maniple.cluster.cache import Cache
from maniple.cluster.shared_cache import SharedCache
from maniple.kube.jobs.agent_endpoint import Endpoint, keep_certified, open_endpoint
from maniple.kube.jobs.controller import Jobs
from maniple.kube.jobs.manifests import Setting
from maniple.kube.serve.applier import Applier
from maniple.kube.serve.background import ObjectRef
from maniple.kube.serve.drift import check_for_ever
from maniple.kube.serve.events import Events
from maniple.kube.serve.feed import Feed, list_resource
from maniple.kube.serve.gangs import Gangs, jobs_by_queue
from maniple.kube.serve.health import start_web
from maniple.kube.serve.metrics import Metrics
from maniple.kube.serve.patches import Patches
from maniple.kube.serve.status import Statuses
from maniple.kube.transport.client import ApiError, Client
from maniple.kube.transport.lease import Lease
from maniple.kube.transport.login import Login
from maniple.kube.transport.mirror import Mirror, Rejected
from maniple.kube.transport.resource_kinds import RESOURCES
from maniple.model.building.from_scratch import Ours
from maniple.model.snapshot import Snapshot
from maniple.scheduler import Plan, Policy, schedule

log = logging.getLogger("maniple.serve")

DEBOUNCE_S = 0.05
PERIOD_S = 1.0
_AT_REST = 0.02  # of a core, for cycles that change nothing
_LONGEST_REST_S = 30.0
_STUCK_S = 120.0
_STOP_S = 8.0
_BUSY_S = 0.4
_TELL_S = 15.0
_TURN_S = 0.0005


@dataclass(frozen=True)
class Settings:
    ours: Ours = field(default_factory=Ours)
    policy: Policy | None = None
    lease: tuple[str, str] | None = ("kube-system", "maniple")  # namespace and name; None: alone in the world
    identity: str = "maniple"
    gang_timeout_s: float = 60.0
    drift_s: float = 600.0
    listen: tuple[str, int] | None = None
    runs_jobs: bool = True  # makes the pods of elastic jobs, and carries their sizes out
    agents: Endpoint | None = None


class Server:
    """Everything that runs; made anew for every run."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self.client = client
        self.settings = settings
        self.metrics = Metrics()
        self.cache = SharedCache(Cache(settings.ours))
        self.mirror = Mirror(self.cache)
        self.gangs = Gangs(self.mirror, settings.ours)
        self.events = Events(client, self.metrics, settings.identity)
        self.patches = Patches(client, self.mirror, self.metrics)
        self.statuses = Statuses(self.patches, self.mirror, self.gangs, self.events)
        self.applier = Applier(client, self.mirror, self.gangs, self.metrics, self.events, settings.gang_timeout_s)
        self.jobs: Jobs | None = None
        if settings.runs_jobs:
            url = "" if settings.agents is None else settings.agents.url
            setting = Setting(settings.ours.scheduler_name, url)
            self.jobs = Jobs(client, self.mirror, self.events, setting)
            self.jobs.hands.conditions_of = self.statuses.conditions_of
            self.applier.runs_jobs = self.statuses.makes_pods = True
        self.events.must_wait = lambda: self.applier.is_busy
        self.feed = Feed(client, self.mirror, self._poke, self.metrics)
        self.lease = None
        if settings.lease is not None:
            self.lease = Lease(client, *settings.lease, settings.identity, self.metrics.leader.set)
            client.seconds_left = self.lease.seconds_left
        self._changed = asyncio.Event()
        self._cycled_at = time.monotonic()
        self._cycle_s = 0.0
        self._told_at = time.monotonic()
        self._agents_open = asyncio.Event()
        self._jobs_term = -1

    # -- running

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`."""
        # A cluster is a million small objects without cycles among them: looking for garbage would double the start.
        gc.disable()
        # A cycle decides in a thread; without this, binds would wait 5 ms for their turn after every system call.
        sys.setswitchinterval(_TURN_S)
        runner = None
        if self.settings.listen is not None:
            runner = await start_web(*self.settings.listen, self.metrics, self._unhealthy, self._unready)
        if self.lease is not None:
            await self.lease.turn()  # before any list: what it shows is then no older than our term
        tasks = [
            asyncio.create_task(work)
            for work in (
                self.feed.run(),
                self.events.run(),
                self._cycles(),
                self._serve_agents(),
                check_for_ever(self.client, self.feed, self.mirror, self.metrics, self.settings.drift_s),
                *(() if self.lease is None else (self.lease.run(),)),
            )
        ]
        stopped = asyncio.create_task(stop.wait())
        try:
            done, _ = await asyncio.wait([*tasks, stopped], return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stopped}:
                task.result()  # none of them ends but by an error
        finally:
            stopped.cancel()
            await self._wind_up(tasks)
            if runner is not None:
                await runner.cleanup()

    async def _wind_up(self, tasks: list[asyncio.Task[None]]) -> None:
        """No new cycle; what is on its way is waited for; then the lease is given back."""
        log.info("stopping", extra={"under_way": len(self.applier.writes.tasks)})
        if self.jobs is not None:
            self.jobs.pause()
        renewing = tasks[-1] if self.lease is not None else None
        for task in tasks:
            if task is not renewing:
                task.cancel()
        writes = [*self.applier.writes.tasks, *self.statuses.writes.tasks, *(self.jobs.under_way if self.jobs else ())]
        if writes:
            _, left = await asyncio.wait(writes, timeout=_STOP_S)
            for task in left:
                task.cancel()
        if renewing is not None:
            renewing.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.lease is not None:
            await self.lease.release()

    async def _cycles(self) -> None:
        term = -1
        is_warm = False
        while True:
            if self.lease is not None and not self.lease.is_leading:
                self.applier.abdicate()
                if self.jobs is not None:
                    self.jobs.pause()
                await self.lease.led()
            await self.feed.synced()
            if self.lease is not None and term != self.lease.term:
                term = self.lease.term
                await self._catch_up()
            self._begin_jobs(max(0, term))
            if not is_warm:
                log.info("ready", extra={"objects": self.mirror.changes})
            try:
                _, plan = await self.cycle()
            except Exception:
                # Better to try again than to end: /healthz tells if it stays so.
                log.exception("cycle failed")
                self.metrics.cycle_failures.inc()
                await asyncio.sleep(PERIOD_S)
                continue
            if not is_warm:
                is_warm = True
                gc.freeze()  # the cluster, as it is at the start, is no garbage
                gc.enable()
            await self._rest(plan)

    async def _catch_up(self) -> None:
        """As a new leader: all that the last one has done must be known, and watches may lag.

        All kinds, because they lag one by one: new pods with old groups would be worse than both old.
        """
        if self.lease is not None:
            await self.feed.relist(self.lease.since)

    async def _serve_agents(self) -> None:
        """The endpoint for agents in pods, as long as we run; where another leads, they are told to ask again."""
        endpoint = self.settings.agents
        if self.jobs is None or endpoint is None:
            self._agents_open.set()
            await asyncio.Event().wait()
            return
        agents, credentials, tls = await open_endpoint(self.client, endpoint, self.jobs, self._knows_jobs)
        self.jobs.serve_agents(agents, credentials.authority)
        self._agents_open.set()
        try:
            await keep_certified(self.client, endpoint, credentials, tls)
        finally:
            await agents.stop()

    def _knows_jobs(self) -> bool:
        """Whether we lead and have read all jobs: agents of a job that we do not know then are strangers."""
        if self.lease is None:
            return self._jobs_term >= 0
        return self.lease.is_leading and self._jobs_term == self.lease.term

    def _begin_jobs(self, term: int) -> None:
        """Once in each term, when pods can be given all that they need."""
        if self.jobs is not None and term != self._jobs_term and self._agents_open.is_set():
            self._jobs_term = term
            self.jobs.begin()

    async def _rest(self, plan: Plan) -> None:
        """Until something changes, and a moment longer for what changes with it. Cycles take half the time at most."""
        is_done = not (plan.binds or plan.evictions or plan.resizes)
        longest = max(PERIOD_S, min(_LONGEST_REST_S, self._cycle_s / _AT_REST)) if is_done else PERIOD_S
        try:
            async with asyncio.timeout(longest):
                await self._changed.wait()
        except TimeoutError:
            return
        # Room that binds on their way will take is taken already: there is no hurry while there are many.
        await asyncio.sleep(max(DEBOUNCE_S, self._cycle_s, _BUSY_S if self.applier.is_busy else 0.0))
        self._changed.clear()

    def _poke(self) -> None:
        if self.cache.is_changed or self.gangs.touched:
            self._changed.set()

    # -- a cycle

    async def cycle(self) -> tuple[Snapshot, Plan]:
        """Looks and decides in a thread, so that watches go on meanwhile, and begins to do it."""
        start = time.perf_counter()
        snapshot = await self.cache.snapshot(time.time())
        looked = time.perf_counter()
        plan = await asyncio.to_thread(schedule, snapshot, self.settings.policy)
        decided = time.perf_counter()
        if self.lease is None or self.lease.is_leading:
            self.applier.apply(snapshot, plan)
            applied = time.perf_counter()
            self._write_status(snapshot, plan)
            self._measure(snapshot)
            done = time.perf_counter()
            phases = {"snapshot": looked - start, "schedule": decided - looked}
            phases |= {"apply": applied - decided, "status": done - applied}
            for phase, took in phases.items():
                self.metrics.cycle.labels(phase).observe(took)
        self._cycle_s = time.perf_counter() - start
        self._cycled_at = time.monotonic()
        if plan.binds or plan.evictions or plan.resizes:
            log.info(
                "cycle",
                extra={
                    "binds": len(plan.binds),
                    "evictions": len(plan.evictions),
                    "resizes": len(plan.resizes),
                    "waiting": len(plan.waiting),
                    "seconds": round(self._cycle_s, 4),
                },
            )
        return snapshot, plan

    def _write_status(self, snapshot: Snapshot, plan: Plan) -> None:
        """Binds first: while there are many, what has become of them is told later."""
        now = time.monotonic()
        if not self.applier.is_busy or now - self._told_at > _TELL_S:
            self._told_at = now
            self.statuses.write(snapshot, plan, self.rejected())

    def rejected(self) -> dict[ObjectRef, Rejected]:
        """Objects that are set aside because they cannot be read, or contradict others."""
        rejected = {(entry.resource, entry.key): entry for entry in self.mirror.rejected}
        for (kind, *key), why in self.cache.problems.items():
            found = self.mirror.find(kind, (key[0], key[1]))
            if found is not None:
                ref = (found[0], (key[0], key[1]))
                rejected[ref] = Rejected(*ref, found[1].uid, tuple(why))
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

    # -- once

    async def read_once(self) -> None:
        """Lists everything, without watching."""
        for resource in RESOURCES:
            try:
                lives, version = await list_resource(self.client, resource)
            except ApiError as error:
                if not resource.may_lack(error.status):
                    raise
            else:
                await self.mirror.replace(resource, lives, version)

    async def run_once(self) -> tuple[Snapshot, Plan] | None:
        """One cycle, all of it done when this returns; None if another replica leads."""
        if self.lease is not None:
            await self.lease.turn(is_patient=False)
            if not self.lease.is_leading:
                return None
        renewing = None if self.lease is None else asyncio.create_task(self.lease.run())
        try:
            await self.read_once()
            made = await self.cycle()
            await self.applier.writes.settle()
            await self.statuses.writes.settle()
            await self.events.flush()
        finally:
            if renewing is not None:
                renewing.cancel()
            if self.lease is not None:
                await self.lease.release()
        return made

    # -- health

    def _unhealthy(self) -> str:
        if self.lease is not None and not self.lease.is_leading:
            return ""
        silent_s = time.monotonic() - self._cycled_at
        return f"no cycle for {silent_s:.0f} s" if self.feed.is_synced and silent_s > _STUCK_S else ""

    def _unready(self) -> str:
        missing = [str(one.resource) for one in self.feed.watchers.values() if not one.synced.is_set()]
        return f"not read yet: {', '.join(missing)}" if missing else ""


def _allow_connections() -> None:
    """As many as we may have: every replica of every job holds two, and the usual limit is 1,024 files."""
    from resource import RLIMIT_NOFILE, getrlimit, setrlimit  # not on every system that this can be imported on

    _, most = getrlimit(RLIMIT_NOFILE)
    setrlimit(RLIMIT_NOFILE, (most, most))


async def serve(
    login: Login, settings: Settings, stop: asyncio.Event, made: Callable[[Server], None] | None = None
) -> None:
    """Runs until `stop`; `made` is told of the server before it runs."""
    _allow_connections()
    async with Client(login) as client:
        server = Server(client, settings)
        if made is not None:
            made(server)
        await server.run(stop)
