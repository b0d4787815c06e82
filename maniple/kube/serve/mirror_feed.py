"""Keeps the mirror up to date: one list and watch for every kind of object that the scheduler reads."""

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import aclosing

import msgspec

from maniple.api.decode.server_objects import Live, Version, read_live
from maniple.api.keys import Key
from maniple.kube.serve.metrics import Metrics
from maniple.kube.serve.skip_repeated_writes import Throttle
from maniple.kube.transport.client import ApiError, Client, UnansweredError
from maniple.kube.transport.list_watch import ListWatch, list_all
from maniple.kube.transport.mirror import Mirror, as_number
from maniple.kube.transport.resource_kinds import RESOURCES, Resource

log = logging.getLogger("maniple.watch")

_DISCOVER_S = 10.0
_LOG_S = 60.0
_SPARE_S = 0.5


class _Groups(msgspec.Struct):
    class Group(msgspec.Struct):
        class Version(msgspec.Struct):
            api_version: str = msgspec.field(name="groupVersion")

        versions: list[Version] = []

    groups: list[Group] = []


async def list_resource(client: Client, resource: Resource) -> tuple[list[Live], int]:
    """Every object, and the version of the list."""
    lives, version = await list_all(client, resource.list_path, lambda raw: read_live(raw, resource.struct))
    return lives, as_number(version)


class Watcher(ListWatch[Live]):
    def __init__(
        self, client: Client, resource: Resource, mirror: Mirror, changed: Callable[[], None], metrics: Metrics
    ) -> None:
        super().__init__(client, resource.list_path)
        self.resource = resource
        self.mirror = mirror
        self.synced = asyncio.Event()  # it was listed once: from then on a cycle has at least the last known objects
        self.listed_at = 0.0  # when the last full list was asked for, on the monotonic clock
        self.is_served = True
        self.was_served = False
        self.is_forbidden = False
        self._changed = changed
        self._metrics = metrics
        self._following: asyncio.Task[None] | None = None
        self._listed = asyncio.Condition()
        self._logged: Throttle[str] = Throttle()
        self.appeared = asyncio.Event()  # set when the server has its API group

    async def relist(self, since: float) -> None:
        """Lists again, unless it has. All that was written before `since`, on the monotonic clock, is known then."""
        if self.listed_at < since and self.asked_at < since:
            self.version = ""
            if self._following is not None:
                self._following.cancel()
        async with self._listed:
            await self._listed.wait_for(lambda: self.listed_at >= since or not self.is_served)

    async def run(self) -> None:
        while True:
            self._following = asyncio.create_task(self._follow())
            try:
                await self._following
            except asyncio.CancelledError:
                mine = asyncio.current_task()
                if mine is None or mine.cancelling():
                    raise
            except ApiError as refusal:
                self.is_forbidden = refusal.status == 403
                await self._wait_until_served()

    async def _follow(self) -> None:
        async with aclosing(self.changes()) as changes:
            async for _ in changes:
                self._changed()

    async def _wait_until_served(self) -> None:
        if self.is_served:
            self.is_served = False
            # Those of ours that were never there are named together, once everything has been listed.
            level = logging.WARNING if self.was_served and not self.resource.is_foreign else logging.DEBUG
            log.log(level, "its CRD is not installed", extra={"resource": str(self.resource)})
        self.mirror.clear(self.resource)
        self.version = ""
        await self._tell_listed()
        self._changed()
        self.appeared.clear()
        await self.appeared.wait()

    # -- list and watch

    def read(self, raw: msgspec.Raw) -> Live:
        return read_live(raw, self.resource.struct)

    async def add(self, items: list[Live]) -> None:
        await self.mirror.add(self.resource, items)

    async def replace(self, items: list[Live], version: str) -> None:
        self.mirror.keep(self.resource, items, as_number(version))
        self.listed_at = self.asked_at
        self.is_served = self.was_served = True
        await self._tell_listed()
        self._metrics.lists.labels(self.resource.plural).inc()

    async def _tell_listed(self) -> None:
        self.synced.set()
        async with self._listed:
            self._listed.notify_all()

    def connected(self) -> None:
        self._logged.clear()

    def put(self, item: Live) -> str:
        self.mirror.put(self.resource, item)
        return item.head.resource_version

    def remove(self, head: Version) -> None:
        key: Key = (head.namespace, head.name)
        self.mirror.remove(self.resource, key, as_number(head.resource_version))

    def handle_failure(self, error: ApiError | UnansweredError) -> bool:
        """Only an object kind that may be missing ends it."""
        if isinstance(error, UnansweredError):
            self._note("broken", logging.INFO, "watch broken", error)
        elif error.status == 410:
            self._count("too old")
        elif self.resource.may_lack(error.status) and not self._is_in_doubt():
            return False
        else:
            may_pass = self._is_in_doubt() or self._client.may_pass(error)
            level = logging.INFO if may_pass else logging.WARNING
            self._note(f"status {error.status}", level, "watch refused", error)
        return True

    def _is_in_doubt(self) -> bool:
        """Whether a server that says that it has no such kind may not have read its CRDs and roles yet."""
        return self.was_served and self._client.outage.is_recent

    def _note(self, why: str, level: int, message: str, error: Exception) -> None:
        """Failures are logged once, and once a minute while they go on."""
        self._count(why)
        is_news = self._logged.admit(why, message, repeat_s=_LOG_S)
        extra = {"resource": str(self.resource), "error": str(error)}
        log.log(level if is_news else logging.DEBUG, message, extra=extra)

    def handle_unreadable(self, error: Exception) -> None:
        """It may be a mistake of ours about one object, and must not stop the others."""
        self._count("unreadable")
        extra = {"resource": str(self.resource), "error": str(error)}
        if isinstance(error, msgspec.DecodeError | UnicodeDecodeError):
            log.error("unreadable event", extra=extra)
        else:
            log.error("event", extra=extra, exc_info=error)

    def _count(self, why: str) -> None:
        self._metrics.watch_failures.labels(self.resource.plural, why).inc()


class Feed:
    """The watchers of all kinds."""

    def __init__(self, client: Client, mirror: Mirror, changed: Callable[[], None], metrics: Metrics) -> None:
        self._client = client
        self.watchers = {resource: Watcher(client, resource, mirror, changed, metrics) for resource in RESOURCES}

    @property
    def is_synced(self) -> bool:
        return all(watcher.synced.is_set() for watcher in self.watchers.values())

    async def synced(self) -> None:
        for watcher in self.watchers.values():
            await watcher.synced.wait()

    async def relist(self, since: float) -> None:
        """All that replicas wrote before `since`, on the monotonic clock, is known when it returns.

        Kinds that no replica writes hold it up for a moment only: of those the last known objects will do.
        """
        served = [watcher for watcher in self.watchers.values() if watcher.is_served]
        lists = {asyncio.create_task(watcher.relist(since)): watcher.resource for watcher in served}
        try:
            await asyncio.gather(*(task for task, resource in lists.items() if resource.is_decisive))
            await asyncio.wait(lists, timeout=_SPARE_S)
        finally:
            for task in lists:
                task.cancel()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for watcher in self.watchers.values():
                group.create_task(watcher.run())
            group.create_task(self._discover())

    async def _discover(self) -> None:
        """CRDs that were missing may be installed: one request for all API groups tells."""
        while True:
            await asyncio.sleep(_DISCOVER_S * random.uniform(0.9, 1.1))
            missing = [watcher for watcher in self.watchers.values() if not watcher.is_served]
            if not missing:
                continue
            try:
                groups = msgspec.json.decode(await self._client.get("/apis"), type=_Groups)
            except (ApiError, UnansweredError):
                continue
            served = {version.api_version for group in groups.groups for version in group.versions}
            for watcher in missing:
                if watcher.resource.api_version in served:
                    if watcher.is_forbidden:
                        log.warning("may not be read", extra={"resource": str(watcher.resource)})
                    watcher.appeared.set()
