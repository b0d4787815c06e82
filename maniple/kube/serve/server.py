"""`maniple serve`: everything that runs around the loop of cycles, on a real API server.

It starts and stops watches, lease, agents and the loop. Only the leader has cycles.
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
from maniple.kube.jobs.controller import JobController
from maniple.kube.jobs.manifests import PodSettings
from maniple.kube.serve.applier import Applier
from maniple.kube.serve.cycle_loop import PERIOD_S, Loop
from maniple.kube.serve.drift_check import check_for_ever
from maniple.kube.serve.gang_index import Gangs
from maniple.kube.serve.health import start_web
from maniple.kube.serve.kube_events import Events
from maniple.kube.serve.metrics import Metrics
from maniple.kube.serve.mirror_feed import Feed, list_resource
from maniple.kube.serve.object_patches import Patches
from maniple.kube.serve.status_writer import Statuses
from maniple.kube.transport.client import ApiError, Client
from maniple.kube.transport.lease import Lease
from maniple.kube.transport.login import Login
from maniple.kube.transport.mirror import Mirror
from maniple.kube.transport.resource_kinds import RESOURCES, Resource, missing_crds
from maniple.model.pods_we_schedule import Ours
from maniple.model.snapshot import Snapshot
from maniple.scheduler import Plan, Policy

log = logging.getLogger("maniple.serve")

_STUCK_S = 120.0
_STOP_S = 8.0
_SWITCH_S = 0.0005


@dataclass(frozen=True)
class Settings:
    ours: Ours = field(default_factory=Ours)
    policy: Policy | None = None
    lease: tuple[str, str] | None = ("kube-system", "maniple")  # namespace and name; None: no leader election
    identity: str = "maniple"
    gang_timeout_s: float = 60.0
    drift_s: float = 600.0
    listen: tuple[str, int] | None = None
    runs_jobs: bool = True  # creates the pods of elastic jobs and carries out their sizes
    agents: Endpoint | None = None


class Server:
    """Everything that runs. Made anew for every run."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self.client = client
        self.settings = settings
        self.metrics = Metrics()
        self.cache = SharedCache(Cache(settings.ours, None if settings.policy is None else settings.policy.reads))
        self.mirror = Mirror(self.cache)
        self.gangs = Gangs(self.mirror, settings.ours)
        self.events = Events(client, self.metrics, settings.identity)
        self.patches = Patches(client, self.mirror, self.metrics)
        self.statuses = Statuses(self.patches, self.mirror, self.gangs, self.events)
        self.applier = Applier(client, self.mirror, self.gangs, self.metrics, self.events, settings.gang_timeout_s)
        self.jobs: JobController | None = None
        if settings.runs_jobs:
            url = "" if settings.agents is None else settings.agents.url
            pod_settings = PodSettings(settings.ours.scheduler_name, url)
            self.jobs = JobController(client, self.mirror, self.events, pod_settings)
            self.jobs.executor.known_status = self.statuses.known_status
            self.applier.runs_jobs = self.statuses.makes_pods = True
        self.events.must_wait = lambda: self.applier.is_busy
        self.lease = None
        if settings.lease is not None:
            self.lease = Lease(client, *settings.lease, settings.identity, self.metrics.leader.set)
            client.seconds_left = self.lease.seconds_left
        self.loop = Loop(
            self.mirror,
            self.gangs,
            self.applier,
            self.statuses,
            self.metrics,
            settings.policy,
            is_leading=lambda: self.lease is None or self.lease.is_leading,
        )
        self.feed = Feed(client, self.mirror, self.loop.poke, self.metrics)
        self.missing: list[Resource] = []  # kinds that the last `read_once` did not find
        self._agents_open = asyncio.Event()
        self._jobs_term = -1

    # -- running

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until `stop`."""
        # A cluster is a million small objects without reference cycles: collecting garbage would double the start.
        gc.disable()
        # A cycle decides in a thread. Without this, binds would wait 5 ms for the interpreter after every system call.
        sys.setswitchinterval(_SWITCH_S)
        runner = None
        if self.settings.listen is not None:
            checks = self._unhealthy, self._unready
            runner = await start_web(*self.settings.listen, self.metrics, self.loop.measure, *checks)
        if self.lease is not None:
            await self.lease.turn()  # before any list, so that no list is older than our term
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
                task.result()  # they end only by an error
        finally:
            stopped.cancel()
            await self._wind_up(tasks)
            if runner is not None:
                await runner.cleanup()

    async def _wind_up(self, tasks: list[asyncio.Task[None]]) -> None:
        """Starts no new cycle, waits for writes on their way, then gives the lease back."""
        log.info("stopping", extra={"under_way": len(self.applier.writes.tasks)})
        self.applier.volumes.give_up()
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
                # The last leader may have written what our watches have not reported yet. All kinds are listed: each
                # watch lags on its own, and new pods with old groups would be worse than both old.
                await self.feed.relist(self.lease.since)
                continue  # meanwhile the lease may have changed hands
            self._begin_jobs(max(0, term))
            if not is_warm:
                log.info("ready", extra={"objects": self.mirror.changes})
                self._report_missing_crds()
            try:
                cycle = await self.loop.cycle()
            except Exception:
                # Trying again is better than ending. If it goes on, /healthz reports it.
                log.exception("cycle failed")
                self.metrics.cycle_failures.inc()
                await asyncio.sleep(PERIOD_S)
                continue
            if not is_warm:
                is_warm = True
                gc.freeze()  # the cluster as it is at the start is no garbage
                gc.enable()
            await self.loop.rest(cycle[1])
            del cycle  # the next cycle need not keep the session of this one

    def _report_missing_crds(self) -> None:
        note = missing_crds(watcher.resource for watcher in self.feed.watchers.values() if not watcher.is_served)
        if note:
            log.warning(note)

    async def _serve_agents(self) -> None:
        """Serves the agents in pods as long as we run. While another replica leads, agents are told to ask again."""
        endpoint = self.settings.agents
        if self.jobs is None or endpoint is None:
            self._agents_open.set()
            await asyncio.Event().wait()
            return
        agents, credentials, tls = await open_endpoint(
            self.client, endpoint, self.jobs.on_ack, self.jobs.on_report, self._knows_jobs
        )
        self.jobs.serve_agents(agents, credentials.authority)
        self._agents_open.set()
        try:
            await keep_certified(self.client, endpoint, credentials, tls)
        finally:
            await agents.stop()

    def _knows_jobs(self) -> bool:
        """Whether we lead and have read all jobs. Only then is the agent of an unknown job refused."""
        if self.lease is None:
            return self._jobs_term >= 0
        return self.lease.is_leading and self._jobs_term == self.lease.term

    def _begin_jobs(self, term: int) -> None:
        """Starts the controller of jobs once a term, when pods can be given all that they need."""
        if self.jobs is not None and term != self._jobs_term and self._agents_open.is_set():
            self._jobs_term = term
            self.jobs.begin()

    # -- once

    async def read_once(self) -> None:
        """Lists everything, without watching."""
        self.missing.clear()
        forbidden: list[Resource] = []
        for resource in RESOURCES:
            try:
                lives, version = await list_resource(self.client, resource)
            except ApiError as error:
                if resource.may_lack(error.status):
                    self.missing.append(resource)
                elif error.status == 403:
                    forbidden.append(resource)
                else:
                    raise
            else:
                await self.mirror.replace(resource, lives, version)
        if forbidden:  # all at once: one after another would take as many attempts
            names = ", ".join(map(str, forbidden))
            raise ApiError(403, "Forbidden", f"you may not list {names}; deploy/rbac.yaml has the rights that it needs")

    async def run_once(self) -> tuple[Snapshot, Plan] | None:
        """One cycle, all of it done when this returns; None if another replica leads."""
        if self.lease is not None:
            await self.lease.turn(is_patient=False)
            if not self.lease.is_leading:
                return None
        renewing = None if self.lease is None else asyncio.create_task(self.lease.run())
        try:
            await self.read_once()
            self.applier.volumes.timeout_s = 0.0  # nothing is watched, so nobody would hear that a claim is bound
            cycle = await self.loop.cycle(is_only=True)
            await self.applier.writes.settle()
            await self.statuses.writes.settle()
            await self.events.flush()
        finally:
            if renewing is not None:
                renewing.cancel()
            if self.lease is not None:
                await self.lease.release()
        return cycle

    # -- health

    def _unhealthy(self) -> str:
        if self.lease is not None and not self.lease.is_leading:
            return ""
        silent_s = time.monotonic() - self.loop.cycled_at
        return f"no cycle for {silent_s:.0f} s" if self.feed.is_synced and silent_s > _STUCK_S else ""

    def _unready(self) -> str:
        missing = [str(resource) for resource, watcher in self.feed.watchers.items() if not watcher.synced.is_set()]
        return f"not read yet: {', '.join(missing)}" if missing else ""


def _allow_connections() -> None:
    """Raises the limit of open files: every replica of every job holds two, and the usual limit is 1,024."""
    from resource import RLIMIT_NOFILE, getrlimit, setrlimit  # not on every system that this can be imported on

    _, most = getrlimit(RLIMIT_NOFILE)
    setrlimit(RLIMIT_NOFILE, (most, most))


async def serve(
    login: Login, settings: Settings, stop: asyncio.Event, started: Callable[[Server], None] | None = None
) -> None:
    """Runs until `stop`. `started` is called with the server before it runs."""
    _allow_connections()
    async with Client(login) as client:
        server = Server(client, settings)
        if started is not None:
            started(server)
        await server.run(stop)
