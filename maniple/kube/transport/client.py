"""Requests to the API server: kept-alive connections, lanes that bound how many are under way, errors as values.

The one place through which every write goes, and so the one that refuses writes of whoever is not the leader.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self
from urllib.parse import urlencode

import msgspec

from maniple.api.errors import InputError
from maniple.kube.transport.http1 import TRANSIENT, Answer, Place, Pool
from maniple.kube.transport.login import ConfigException, Login

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
JSON = "application/json"

TIMEOUT_S = 30.0
_HEADERS = {
    "Accept": JSON,
    "Accept-Encoding": "identity",
    "User-Agent": "maniple",
}  # compressing costs more than it saves
_MOST_REFUSALS = 5


class ApiError(Exception):
    """The server's answer, if it is none of those one hopes for."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        retry_after_s: float | None = None,
        causes: tuple["Cause", ...] = (),
    ) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_s = retry_after_s
        self.causes = causes

    @property
    def is_transient(self) -> bool:
        """Whether the same request may well succeed later."""
        return self.status == 429 or self.status >= 500


class UnansweredError(Exception):
    """No answer: the connection broke, or it took too long. What was asked may have been done all the same."""


class NotLeadingError(Exception):
    """A write was refused here, before it was sent: another replica may be the leader."""


class Cause(msgspec.Struct, frozen=True):
    """One thing that is wrong with an object, and its field."""

    field: str = ""
    message: str = ""


class _Details(msgspec.Struct):
    retry_after_seconds: float = msgspec.field(name="retryAfterSeconds", default=0.0)
    causes: tuple[Cause, ...] = ()


class Status(msgspec.Struct):
    """What the API server says in place of an object."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


class Backoff:
    """Longer pauses after each failure, with jitter, so that many who failed together do not come back together."""

    def __init__(self, first_s: float = 0.2, longest_s: float = 15.0) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self.failures = 0

    def reset(self) -> None:
        self.failures = 0

    def pause_s(self, at_least_s: float = 0.0) -> float:
        self.failures += 1
        full = min(self._longest_s, self._first_s * 2.0 ** min(self.failures - 1, 20))
        return max(at_least_s, full) * random.uniform(0.75, 1.25)

    async def wait(self, error: Exception | None = None) -> None:
        asked = error.retry_after_s if isinstance(error, ApiError) else None
        await asyncio.sleep(self.pause_s(asked or 0.0))


class Patience:
    """With refusals of what was allowed before: a server that has just started does not know yet who may do what."""

    def __init__(self) -> None:
        self._refusals = 0

    def reset(self) -> None:
        self._refusals = 0

    def has(self, error: ApiError) -> bool:
        """Whether the same request may well succeed later."""
        self._refusals += error.status == 403
        return error.is_transient or (error.status == 403 and self._refusals <= _MOST_REFUSALS)


class Lane:
    """So many requests of a kind at once: binds never queue behind status, nor status behind events."""

    def __init__(self, width: int) -> None:
        self.places = asyncio.Semaphore(width)


class Client:
    """Use as an async context manager. `seconds_left` is how long writes are allowed; None: as long as one likes."""

    def __init__(self, login: Login) -> None:
        self._login = login
        self._pool = Pool(lambda: Place(login.server, login.ssl, login.server_name, login.proxy))
        self._renewing = asyncio.Lock()
        self.seconds_left: Callable[[], float] | None = None
        self.reads = Lane(8)
        self.binds = Lane(64)
        self.evictions = Lane(16)
        self.statuses = Lane(8)
        self.events = Lane(2)
        self.jobs = Lane(32)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.close()

    async def get(self, path: str, query: Mapping[str, str] | None = None, timeout_s: float = TIMEOUT_S) -> bytes:
        async with self.reads.places:
            return await self._send("GET", path, None, JSON, timeout_s, query)

    async def write(
        self,
        lane: Lane,
        method: str,
        path: str,
        body: bytes | Callable[[], bytes],
        content_type: str = JSON,
        timeout_s: float = TIMEOUT_S,
    ) -> bytes:
        """A write that only the leader may do; it ends before its lease does.

        A body that depends on what the server has is put together when its turn has come.
        """
        async with lane.places:
            left = timeout_s if self.seconds_left is None else self.seconds_left()
            if left <= 0:
                raise NotLeadingError(f"{method} {path}")
            made = body if isinstance(body, bytes) else body()
            return await self._send(method, path, made, content_type, min(timeout_s, left))

    async def contend(self, method: str, path: str, body: bytes, timeout_s: float) -> bytes:
        """A write of the lease itself, which those who do not lead make too."""
        return await self._send(method, path, body, JSON, timeout_s)

    async def _send(
        self,
        method: str,
        path: str,
        body: bytes | None,
        content_type: str,
        timeout_s: float,
        query: Mapping[str, str] | None = None,
    ) -> bytes:
        whole = f"{path}?{urlencode(query)}" if query else path
        said = await self._authorization()
        try:
            answer = await self._pool.request(method, whole, _headers(said, body, content_type), body, timeout_s)
            if answer.status == 401:  # a token that has been replaced meanwhile
                said = await self._renewed(said)
                answer = await self._pool.request(method, whole, _headers(said, body, content_type), body, timeout_s)
        except TRANSIENT as error:
            raise UnansweredError(f"{method} {self._login.server}{path}: {_said(error)}") from None
        if answer.status >= 400:
            raise _refusal(answer)
        return answer.body

    @asynccontextmanager
    async def stream(
        self, path: str, query: Mapping[str, str], silence_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """A watch: an answer that does not end. UnansweredError after `silence_s` without a byte."""
        said = await self._authorization()
        try:
            async with self._pool.stream(f"{path}?{urlencode(query)}", _headers(said), silence_s) as (head, blocks):
                if head.status >= 400:
                    if head.status == 401:  # the next try says something else
                        await self._renewed(said)
                    raise _refusal(head._replace(body=b"".join([block async for block in blocks])))
                yield blocks
        except TRANSIENT as error:
            raise UnansweredError(f"watch {self._login.server}{path}: {_said(error)}") from None

    async def _authorization(self) -> str | None:
        try:
            return await self._login.authorization()
        except (InputError, ConfigException, OSError, ValueError) as error:  # a plugin or a file that fails for now
            raise UnansweredError(f"logging in: {error}") from None

    async def _renewed(self, refused: str | None) -> str | None:
        """What to say now that the server has refused that; asked for once, however many were refused together."""
        async with self._renewing:
            said = await self._authorization()
            if said != refused:
                return said
            try:
                await self._login.renew()
            except (InputError, ConfigException, OSError, ValueError) as error:
                raise UnansweredError(f"logging in again: {error}") from None
        return await self._authorization()


def _headers(authorization: str | None, body: bytes | None = None, content_type: str = JSON) -> dict[str, str]:
    headers = dict(_HEADERS)
    if body is not None:
        headers["Content-Type"] = content_type
    if authorization:
        headers["Authorization"] = authorization
    return headers


def _refusal(answer: Answer) -> ApiError:
    try:
        status = msgspec.json.decode(answer.body, type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        status = Status(message=answer.body[:500].decode(errors="replace"))
    after = answer.headers.get("retry-after", "")
    retry_after_s = float(after) if after.isdigit() else None
    if retry_after_s is None and status.details is not None and status.details.retry_after_seconds:
        retry_after_s = status.details.retry_after_seconds
    causes = () if status.details is None else status.details.causes
    return ApiError(answer.status, status.reason, status.message, retry_after_s, causes)


def _said(error: BaseException) -> str:
    return str(error) or type(error).__name__
