"""List and watch: follows the objects of one path, whatever happens to the connection or the server.

A list in pages, then a watch from the version of the list. A watch that ends is continued from the last version that
was received. One that is too old to continue (410) starts again with a list. A watch on which nothing arrives, not even
a bookmark, is taken for dead. What is done with the objects is up to a subclass.
"""

import asyncio
import random
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Generic, TypeVar

import msgspec

from maniple.api.decode.server_objects import Head, Version
from maniple.kube.transport.client import ApiError, Client, Status, UnansweredError

PAGE = 500
_TURNS_TO_SEND = 3  # turns of the event loop until a request has left
_WATCH_S = (240, 480)
_STABLE_S = 5.0  # a watch that lasted so long was a success

T = TypeVar("T")


class _Page(msgspec.Struct):
    class Metadata(msgspec.Struct, frozen=True):
        version: str = msgspec.field(name="resourceVersion", default="")
        rest: str = msgspec.field(name="continue", default="")

    metadata: Metadata = Metadata()
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


_PAGES = msgspec.json.Decoder(_Page)
_EVENTS = msgspec.json.Decoder(_Event)
_STATUSES = msgspec.json.Decoder(Status)
_HEADS = msgspec.json.Decoder(Head)


async def list_all(
    client: Client,
    path: str,
    read: Callable[[msgspec.Raw], T],
    query: Mapping[str, str] | None = None,
    add: Callable[[list[T]], Awaitable[None]] | None = None,
) -> tuple[list[T], str]:
    """Every object, and the version of the list. `add` is given them as they come, while more are on their way.

    A list that grew too old between pages is read again without pages; then `add` is given objects again.
    """

    async def ask(more: Mapping[str, str]) -> bytes:
        return await client.get(path, {**(query or {}), **more}, timeout_s=60.0)

    for limit in ({"limit": str(PAGE)}, {}):
        items: list[T] = []
        asking = asyncio.create_task(ask(limit))
        try:
            while True:
                page = _PAGES.decode(await asking)
                if page.metadata.rest:
                    asking = asyncio.create_task(ask({**limit, "continue": page.metadata.rest}))
                    for _ in range(_TURNS_TO_SEND):
                        await asyncio.sleep(0)
                part = [read(raw) for raw in page.items or ()]
                items += part
                if add is not None:
                    await add(part)
                if not page.metadata.rest:
                    return items, page.metadata.version
        except ApiError as error:
            if error.status != 410 or not limit:
                raise
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
    raise AssertionError("a list without pages cannot be too old")


class ListWatch(ABC, Generic[T]):
    """`silence_s`: a watch on which nothing arrives for so long is dead. Bookmarks come every minute or so."""

    def __init__(
        self,
        client: Client,
        path: str,
        query: Mapping[str, str] | None = None,
        silence_s: float = 130.0,
        longest_pause_s: float = 15.0,
    ) -> None:
        self._client = client
        self._path = path
        self._query = query or {}
        self._silence_s = silence_s
        self._longest_pause_s = longest_pause_s
        self.version = ""  # of the last change that was received; empty: a list is needed
        self.asked_at = 0.0  # when the last list was asked for, on the monotonic clock

    # -- what a subclass does with objects

    @abstractmethod
    def read(self, raw: msgspec.Raw) -> T: ...

    async def add(self, items: list[T]) -> None:
        """Some of the objects of a list, which `replace` is given too once it has come whole."""

    @abstractmethod
    async def replace(self, items: list[T], version: str) -> None:
        """All objects there are, as of a version."""

    @abstractmethod
    def put(self, item: T) -> str:
        """An object that is new or has changed. Returns its version."""

    @abstractmethod
    def remove(self, head: Version) -> None:
        """An object that is gone."""

    @abstractmethod
    def handle_failure(self, error: ApiError | UnansweredError) -> bool:
        """Whether to try again after this failure; if not, `changes` raises it."""

    def handle_unreadable(self, error: Exception) -> None:
        """An event could not be read."""
        raise error

    def connected(self) -> None:
        """A watch has begun."""

    # -- the loop

    async def changes(self) -> AsyncGenerator[None, None]:
        """Yields after the list and after every batch of events."""
        backoff = self._client.backoff(longest_s=self._longest_pause_s)
        while True:
            started = time.monotonic()
            failure: Exception | None = None
            was_continued = bool(self.version)
            try:
                if not self.version:
                    self.asked_at = started
                    items, version = await list_all(self._client, self._path, self.read, self._query, self.add)
                    await self.replace(items, version)
                    self.version = version
                    yield
                query = {
                    **self._query,
                    "watch": "1",
                    "allowWatchBookmarks": "true",
                    "resourceVersion": self.version,
                    "timeoutSeconds": str(random.randint(*_WATCH_S)),
                }
                async with self._client.stream(self._path, query, self._silence_s) as chunks:
                    self.connected()
                    rest = b""
                    async for chunk in chunks:
                        *lines, rest = (rest + chunk).split(b"\n") if rest else chunk.split(b"\n")
                        for line in lines:
                            if line:
                                self.take(line)
                        if lines:
                            yield
            except (ApiError, UnansweredError) as error:
                if isinstance(error, ApiError) and error.status == 410:
                    self.version = ""
                if not self.handle_failure(error):
                    raise
                if was_continued and not self.version:  # too old to continue: a list is needed, and nothing else
                    backoff.reset()
                    continue
                failure = error
            if time.monotonic() - started > _STABLE_S:
                backoff.reset()
            await backoff.wait(failure)

    def take(self, line: bytes) -> None:
        """One event of the watch. An event that cannot be read does not stop the others."""
        try:
            event = _EVENTS.decode(line)
            if event.type == "ERROR":
                status = _STATUSES.decode(event.object)
                raise ApiError(status.code, status.reason, status.message)
            if event.type in ("BOOKMARK", "DELETED"):
                head = _HEADS.decode(event.object).metadata
                version = head.resource_version
                if event.type == "DELETED":
                    self.remove(head)
            else:
                version = self.put(self.read(event.object))
            self.version = version or self.version
        except ApiError:
            raise
        except Exception as error:
            self.handle_unreadable(error)
