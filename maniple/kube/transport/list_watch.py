"""List and watch: keeps the mirror of one kind up to date, whatever happens to the connection or the server.

A list in pages, then a watch from where the list was taken. A watch that ends goes on from the last version seen; one
that is too old to go on (410) begins with a new list. A watch in which nothing is heard, not even a bookmark, is
taken for dead.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable

import msgspec

from maniple.api.decode.server_objects import Head, Live, read_live
from maniple.kube.serve.metrics import Metrics
from maniple.kube.transport.client import ApiError, Backoff, Client, Status, UnansweredError
from maniple.kube.transport.list_watch_types import EVENTS, PAGES
from maniple.kube.transport.mirror import Mirror, as_number
from maniple.kube.transport.resource_kinds import RESOURCES, Resource

log = logging.getLogger("maniple.watch")

PAGE = 500
SILENCE_S = 130.0  # the server sends a bookmark every minute or so, later when it is busy
_WATCH_S = (240, 480)
_DISCOVER_S = 10.0


class _Groups(msgspec.Struct):
    class Group(msgspec.Struct):
        class Version(msgspec.Struct):
            api_version: str = msgspec.field(name="groupVersion")

        versions: list[Version] = []

    groups: list[Group] = []


_STATUSES = msgspec.json.Decoder(Status)
_HEADS = msgspec.json.Decoder(Head)


async def list_all(client: Client, resource: Resource) -> tuple[list[Live], int]:
    """Every object, and the version as of which these are all. A list that grew too old between pages begins anew."""
    for limit in (str(PAGE), ""):
        lives: list[Live] = []
        rest = ""
        try:
            while True:
                query = {"limit": limit, "continue": rest} if rest else {"limit": limit} if limit else {}
                page = PAGES.decode(await client.get(resource.list_path, query, timeout_s=60.0))
                lives.extend(read_live(raw, resource.struct) for raw in page.items or ())
                rest = page.metadata.rest
                if not rest:
                    return lives, as_number(page.metadata.version)
        except ApiError as error:
            if error.status != 410 or not limit:
                raise
    raise AssertionError("a list without pages cannot be too old")


class Watcher:
    def __init__(
        self, client: Client, resource: Resource, mirror: Mirror, changed: Callable[[], None], metrics: Metrics
    ) -> None:
        self.resource = resource
        self.synced = asyncio.Event()
        self.listed_at = 0.0  # when the last full list was asked for, on the monotonic clock
        self.is_served = True
        self.is_forbidden = False
        self._client = client
        self.mirror = mirror
        self._changed = changed
        self._metrics = metrics
        self.version = 0  # 0: a list is needed
        self._turn: asyncio.Task[None] | None = None
        self._found = asyncio.Event()

    def found(self) -> None:
        """The server has its group now."""
        self._found.set()

    async def relist(self) -> None:
        """A new list, and all that was written before this call is known when it returns."""
        self.synced.clear()
        self.version = 0
        if self._turn is not None:
            self._turn.cancel()
        await self.synced.wait()

    async def run(self) -> None:
        backoff = Backoff()
        while True:
            started = time.monotonic()
            self._turn = asyncio.create_task(self._list_and_watch())
            error: Exception | None = None
            try:
                await self._turn
            except asyncio.CancelledError:
                mine = asyncio.current_task()
                if mine is None or mine.cancelling():
                    raise
                continue
            except ApiError as refusal:
                error = refusal
                if refusal.status == 410:
                    self.version = 0
                    self._count("too old")
                elif self.resource.may_lack(refusal.status):
                    self.is_forbidden = refusal.status == 403
                    await self._wait_until_served()
                    backoff.reset()
                    continue
                else:
                    self._count(f"status {refusal.status}")
                    log.warning("watch refused", extra={"resource": str(self.resource), "error": str(refusal)})
            except UnansweredError as silence:
                error = silence
                self._count("broken")
                log.info("watch broken", extra={"resource": str(self.resource), "error": str(silence)})
            if time.monotonic() - started > 5.0:
                backoff.reset()
            await backoff.wait(error)

    async def _wait_until_served(self) -> None:
        if self.is_served:
            self.is_served = False
            level = logging.DEBUG if self.resource.is_foreign else logging.WARNING
            log.log(level, "its CRD is not installed", extra={"resource": str(self.resource)})
        self.mirror.clear(self.resource)
        self.version = 0
        self.synced.set()
        self._changed()
        self._found.clear()
        await self._found.wait()

    async def _list_and_watch(self) -> None:
        if not self.version:
            asked = time.monotonic()
            lives, self.version = await list_all(self._client, self.resource)
            await self.mirror.replace(self.resource, lives, self.version)
            self.listed_at = asked
            self.is_served = True
            self.synced.set()
            self._changed()
            self._metrics.lists.labels(self.resource.plural).inc()
        await self._watch()

    async def _watch(self) -> None:
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": str(self.version),
            "timeoutSeconds": str(random.randint(*_WATCH_S)),
        }
        async with self._client.stream(self.resource.list_path, query, SILENCE_S) as chunks:
            rest = b""
            async for chunk in chunks:
                *lines, rest = (rest + chunk).split(b"\n") if rest else chunk.split(b"\n")
                for line in lines:
                    if line:
                        self.take(line)
                if lines:
                    self._changed()

    def take(self, line: bytes) -> None:
        try:
            event = EVENTS.decode(line)
            if event.type == "ERROR":
                status = _STATUSES.decode(event.object)
                raise ApiError(status.code, status.reason, status.message)
            if event.type == "BOOKMARK":
                self.version = as_number(_HEADS.decode(event.object).metadata.resource_version) or self.version
                return
            if event.type == "DELETED":
                head = _HEADS.decode(event.object).metadata
                version = as_number(head.resource_version)
                self.mirror.remove(self.resource, (head.namespace, head.name), version)
            else:
                live = read_live(event.object, self.resource.struct)
                version = as_number(live.head.resource_version)
                self.mirror.put(self.resource, live)
            self.version = version or self.version
        except (msgspec.DecodeError, UnicodeDecodeError) as error:  # not even a name: nothing to report it on
            self._count("unreadable")
            log.error("unreadable event", extra={"resource": str(self.resource), "error": str(error)})
        except ApiError:
            raise
        except Exception:  # a mistake of ours about one object must not stop the others
            self._count("unreadable")
            log.exception("event", extra={"resource": str(self.resource)})

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
        """All that was written before `since`, on the monotonic clock, is known when it returns."""
        old = [one for one in self.watchers.values() if one.is_served and one.listed_at < since]
        await asyncio.gather(*(watcher.relist() for watcher in old))

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for watcher in self.watchers.values():
                group.create_task(watcher.run())
            group.create_task(self._discover())

    async def _discover(self) -> None:
        """CRDs that were missing may come: one request for all of them tells."""
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
                    watcher.found()
