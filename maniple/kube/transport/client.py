"""Requests to the API server: lanes that limit how many are under way, errors as values, login.

Every write goes through here, and is refused here if this replica does not lead.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Self
from urllib.parse import urlencode

import msgspec

from maniple.kube.transport.http1 import TRANSIENT, Answer, Pool
from maniple.kube.transport.login import LOGIN_ERRORS, Login
from maniple.kube.transport.outage import LONGEST_PAUSE_S, Outage

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
JSON = "application/json"

TIMEOUT_S = 30.0
_HEADERS = {
    "Accept": JSON,
    "Accept-Encoding": "identity",  # compression costs more than it saves
    "User-Agent": "maniple",
}
_MOST_REFUSALS = 5


class ApiError(Exception):
    """An answer of the server that is an error."""

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
        """Whether the same request may succeed later."""
        return self.status == 429 or self.status >= 500

    @property
    def is_starting(self) -> bool:
        """Whether the server has not read this kind yet. That takes less time than the pause that it asks for."""
        return self.status == 429 and "storage is (re)initializing" in self.message


class UnansweredError(Exception):
    """No answer: the connection broke, or it took too long. The request may have been carried out all the same."""


class NotLeadingError(Exception):
    """A write was refused here, before it was sent: another replica may lead."""


class Cause(msgspec.Struct, frozen=True):
    """One error in an object, and its field."""

    field: str = ""
    message: str = ""


class _Details(msgspec.Struct):
    retry_after_seconds: float = msgspec.field(name="retryAfterSeconds", default=0.0)
    causes: tuple[Cause, ...] = ()


class Status(msgspec.Struct):
    """The API server's answer in place of an object."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


class Backoff:
    """Longer pauses after each failure, with jitter: requests that failed together must not come back together.

    While the server is away pauses stay short, and its first answer ends them.
    """

    def __init__(self, first_s: float = 0.2, longest_s: float = 15.0, outage: Outage | None = None) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._outage = outage
        self._was_answered = True
        self.failures = 0

    def reset(self) -> None:
        self.failures = 0

    def pause_s(self, error: Exception | None = None) -> float:
        is_answered = not isinstance(error, UnansweredError)
        if is_answered and not self._was_answered:
            self.reset()
        self._was_answered = is_answered
        self.failures += 1
        asked = (error.retry_after_s or 0.0) if isinstance(error, ApiError) else 0.0
        is_starting = isinstance(error, ApiError) and error.is_starting
        longest = self._longest_s
        if is_starting or (self._outage is not None and self._outage.is_recent):
            longest = min(longest, LONGEST_PAUSE_S)
            if is_starting:
                asked = 0.0
            elif not isinstance(error, ApiError) or error.status != 429:  # an overloaded server is obeyed
                asked = min(asked, longest)
        full = min(longest, self._first_s * 2.0 ** min(self.failures - 1, 20))
        return max(asked, full) * random.uniform(0.75, 1.25)

    async def wait(self, error: Exception | None = None) -> None:
        pause_s = self.pause_s(error)
        if self._outage is None:
            await asyncio.sleep(pause_s)
        else:
            await self._outage.pause(pause_s)


class Patience:
    """Tolerates some refusals (403): a server that has just started may not have read its roles yet."""

    def __init__(self) -> None:
        self._refusals = 0

    def reset(self) -> None:
        self._refusals = 0

    def has(self, error: ApiError) -> bool:
        """Whether to send the same request again later."""
        self._refusals += error.status == 403
        return error.is_transient or (error.status == 403 and self._refusals <= _MOST_REFUSALS)


# Limits the requests of one kind that are under way: binds never queue behind status, nor status behind events.
Lane = asyncio.Semaphore


class Client:
    """Use as an async context manager. `seconds_left` is for how long writes are allowed; None: without limit."""

    def __init__(self, login: Login) -> None:
        self._login = login
        self._pool = Pool(lambda: login.address)
        self._renewing = asyncio.Lock()
        self.outage = Outage()
        self.seconds_left: Callable[[], float] | None = None
        self.reads = Lane(8)
        self.binds = Lane(64)
        self.evictions = Lane(16)
        self.statuses = Lane(8)
        self.events = Lane(2)
        self.jobs = Lane(32)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._pool.close()

    async def get(self, path: str, query: Mapping[str, str] | None = None, timeout_s: float = TIMEOUT_S) -> bytes:
        async with self.reads:
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
        """A write that only the leader may do. It ends before the lease does.

        A body that depends on the server's state is a function, called when the lane is free.
        """
        async with lane:
            left = timeout_s if self.seconds_left is None else self.seconds_left()
            if left <= 0:
                raise NotLeadingError(f"{method} {path}")
            content = body if isinstance(body, bytes) else body()
            return await self._send(method, path, content, content_type, min(timeout_s, left))

    async def contend(self, method: str, path: str, body: bytes, timeout_s: float) -> bytes:
        """A write of the lease itself, which is allowed without leading."""
        return await self._send(method, path, body, JSON, timeout_s)

    async def get_urgently(self, path: str, timeout_s: float) -> bytes:
        """A read that does not wait for others: lists that a dead server does not answer take a minute."""
        return await self._send("GET", path, None, JSON, timeout_s)

    def may_pass(self, error: ApiError) -> bool:
        """Whether the same request may succeed later. A server that has just started does not know all rights yet."""
        return error.is_transient or (error.status in (401, 403) and self.outage.is_recent)

    def backoff(self, first_s: float = 0.2, longest_s: float = 15.0) -> Backoff:
        return Backoff(first_s, longest_s, self.outage)

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
        token = await self._authorization()
        try:
            answer = await self._pool.request(method, whole, _headers(token, body, content_type), body, timeout_s)
            if answer.status == 401:  # the token has been replaced
                token = await self._renewed(token)
                answer = await self._pool.request(method, whole, _headers(token, body, content_type), body, timeout_s)
        except TRANSIENT as error:
            self.outage.note_silence()
            raise UnansweredError(f"{method} {self._login.address.server}{path}: {_describe(error)}") from None
        self.outage.note_answer(answer.status)
        if answer.status >= 400:
            raise _refusal(answer)
        return answer.body

    @asynccontextmanager
    async def stream(
        self, path: str, query: Mapping[str, str], silence_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """A watch: an answer that does not end. UnansweredError after `silence_s` without a byte."""
        token = await self._authorization()
        is_answered = False
        try:
            async with self._pool.stream(f"{path}?{urlencode(query)}", _headers(token), silence_s) as (head, blocks):
                is_answered = True
                self.outage.note_answer(head.status)
                if head.status >= 400:
                    if head.status == 401:  # the next attempt uses another token
                        await self._renewed(token)
                    raise _refusal(head._replace(body=b"".join([block async for block in blocks])))
                yield blocks
        except TRANSIENT as error:
            if not is_answered:  # a watch that breaks is no outage yet
                self.outage.note_silence()
            raise UnansweredError(f"watch {self._login.address.server}{path}: {_describe(error)}") from None

    async def _authorization(self) -> str | None:
        try:
            return await self._login.authorization()
        except LOGIN_ERRORS as error:  # a plugin or a file may work again
            raise UnansweredError(f"logging in: {error}") from None

    async def _renewed(self, refused: str | None) -> str | None:
        """A token in place of a refused one. It is renewed once, however many requests were refused together."""
        async with self._renewing:
            token = await self._authorization()
            if token != refused:
                return token
            try:
                await self._login.renew()
            except LOGIN_ERRORS as error:
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


def _describe(error: BaseException) -> str:
    return str(error) or type(error).__name__
