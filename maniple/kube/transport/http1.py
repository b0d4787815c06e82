"""HTTP/1.1 to one server: kept-alive connections, many small requests, and a few streams.

Written over httptools' parser: most of what a bind costs is the request, and a general client takes more than twice the
processor time (docs/decisions/013-own-http-client-library-login.md has the figures).
"""

import asyncio
import base64
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple, cast
from urllib.parse import SplitResult, unquote, urlsplit

import httptools

_CONNECT_S = 4.0  # a lost first packet is repeated after 1 s, 3 s, 7 s and so on: then a new attempt is sooner
_SECURE_S = 10.0
_HEAD_S = 30.0  # for the first bytes of a stream
# A peer that is gone without a word is noticed after 25 s, also by a stream on which nothing is expected.
_KEEPALIVE = (("SO_KEEPALIVE", 1), ("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
_KEEP_S = 75.0  # less than servers and proxies keep an idle connection
_MOST_UNREAD = 4 * 1024 * 1024  # bytes of a stream before reading pauses

TRANSIENT = (OSError, TimeoutError, httptools.HttpParserError)
"""Errors of a request that was not answered."""


class Address(NamedTuple):
    """Where the server is, and how to reach it."""

    server: str
    tls: ssl.SSLContext | None = None
    server_name: str | None = None  # in its certificate, if it differs from the host name
    proxy: str | None = None


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes


class _StaleError(ConnectionError):
    """A kept connection turned out to be closed: the server has not read the request."""


class _Connection(asyncio.Protocol):
    """One request at a time. Data goes to the parser, which calls the methods `on_…`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._headers: dict[str, str] = {}
        self._chunks: list[bytes] = []
        self._size = 0
        self._answer: asyncio.Future[Answer] | None = None
        self._more: asyncio.Event | None = None  # of a stream
        self._is_complete = True
        self._may_be_kept = False
        self._is_silent = True  # no byte of the answer has come
        self._lost: Exception | None = None
        self.is_used = False
        self.kept_at = 0.0

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are no subclass
        _keep_alive(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        if self._parser is None or self._is_complete:  # there was no request
            self.close()
            return
        self._is_silent = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(error)
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        lost = _StaleError if self.is_used and self._is_silent else ConnectionError
        self._fail(lost(str(error) if error else "the connection was closed"))

    def _fail(self, error: Exception) -> None:
        self._lost = self._lost or error
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
        if self._more is not None:
            self._more.set()

    # -- the parser's side

    def on_message_begin(self) -> None:
        if self._is_complete:  # a second answer to one request
            self.close()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._more is not None:
            self._resolve(b"")

    def on_body(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        if self._more is not None:
            self._more.set()
            self._size += len(chunk)
            if self._size > _MOST_UNREAD and self._transport is not None:
                self._transport.pause_reading()

    def on_message_complete(self) -> None:
        assert self._parser is not None
        self._is_complete = True
        self._may_be_kept = self._parser.should_keep_alive()  # known only now
        if self._more is not None:
            self._more.set()
        else:
            self._resolve(b"".join(self._chunks))

    def _resolve(self, body: bytes) -> None:
        assert self._parser is not None
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(Answer(self._parser.get_status_code(), self._headers, body))

    # -- our side

    @property
    def is_open(self) -> bool:
        return self._lost is None and self._transport is not None and not self._transport.is_closing()

    @property
    def may_be_kept(self) -> bool:
        return self.is_open and self._is_complete and self._may_be_kept

    def send(self, request: bytes, is_stream: bool = False) -> asyncio.Future[Answer]:
        """The whole answer; for a stream its head."""
        if self._transport is None or self._lost is not None:
            raise _StaleError("the connection was closed")
        self._parser = httptools.HttpResponseParser(self)
        self._headers, self._chunks, self._size = {}, [], 0
        self._is_complete, self._may_be_kept, self._is_silent = False, False, True
        self._more = asyncio.Event() if is_stream else None
        self._answer = self._loop.create_future()
        self._transport.write(request)
        return self._answer

    async def chunks(self, silence_s: float) -> AsyncIterator[bytes]:
        """Blocks of a stream. TimeoutError after `silence_s` without a byte."""
        assert self._more is not None
        while True:
            if not self._chunks:
                if self._is_complete:
                    return
                if self._lost is not None:
                    raise self._lost
                self._more.clear()
                async with asyncio.timeout(silence_s):
                    await self._more.wait()
                continue
            block = b"".join(self._chunks)
            self._chunks = []
            if self._size > _MOST_UNREAD and self._transport is not None:
                self._transport.resume_reading()
            self._size = 0
            yield block

    async def secure(self, context: ssl.SSLContext, name: str) -> None:
        """Switches to TLS, after a proxy has connected."""
        assert self._transport is not None
        secured = await self._loop.start_tls(self._transport, self, context, server_hostname=name)
        self._transport = cast(asyncio.Transport, secured)

    def time_out(self) -> None:
        self._fail(TimeoutError("no answer in time"))
        self.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class Pool:
    """`address` is called for every new connection: a login may be renewed."""

    def __init__(self, address: Callable[[], Address]) -> None:
        self._address = address
        self._kept: list[_Connection] = []
        self._host = urlsplit(address().server).netloc

    def close(self) -> None:
        while self._kept:
            self._kept.pop().close()

    async def request(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None, timeout_s: float
    ) -> Answer:
        """The answer, whatever its status. Raises one of TRANSIENT if there is none."""
        request = self._encoded(method, path, headers, body)
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        while True:
            connection = self._pick()
            if connection is None:
                async with asyncio.timeout_at(until):
                    connection = await self._connect()
            # A bare timer, because asyncio.timeout costs a quarter of a request.
            timer = loop.call_at(until, connection.time_out)
            try:
                answer = await connection.send(request)
            except _StaleError:
                # Only a request that may be done twice is sent again: the server may have read it after all.
                if method != "GET":
                    raise
                continue
            except TimeoutError:
                self.close()  # if one connection is dead, the other kept ones most likely are too
                raise
            except BaseException:
                connection.close()
                raise
            finally:
                timer.cancel()
            self._keep(connection)
            return answer

    @asynccontextmanager
    async def stream(
        self, path: str, headers: Mapping[str, str], silence_s: float
    ) -> AsyncIterator[tuple[Answer, AsyncIterator[bytes]]]:
        """Head and blocks of an answer that may never end, on its own connection."""
        connection = await self._connect()
        try:
            async with asyncio.timeout(min(silence_s, _HEAD_S)):
                head = await connection.send(self._encoded("GET", path, headers, None), is_stream=True)
            yield head, connection.chunks(silence_s)
        finally:
            connection.close()

    def _pick(self) -> _Connection | None:
        oldest = time.monotonic() - _KEEP_S
        while self._kept:
            connection = self._kept.pop()
            if connection.is_open and connection.kept_at > oldest:
                return connection
            connection.close()
        return None

    def _keep(self, connection: _Connection) -> None:
        if connection.may_be_kept:
            connection.is_used, connection.kept_at = True, time.monotonic()
            self._kept.append(connection)
        else:
            connection.close()

    async def _connect(self) -> _Connection:
        address = self._address()
        server = urlsplit(address.server)
        self._host = server.netloc
        host = server.hostname or ""
        name = address.server_name or host
        loop = asyncio.get_running_loop()
        connection = _Connection(loop)
        if address.proxy is None:
            # Connecting and TLS in one step: uvloop prints a traceback if a connection is lost between two.
            expected = name if address.tls is not None else None
            async with asyncio.timeout(_CONNECT_S if address.tls is None else _SECURE_S):
                await loop.create_connection(
                    lambda: connection, host, _port(server), ssl=address.tls, server_hostname=expected
                )
            return connection
        proxy = urlsplit(address.proxy)
        async with asyncio.timeout(_CONNECT_S):
            await loop.create_connection(lambda: connection, proxy.hostname or "", _port(proxy))
        try:
            async with asyncio.timeout(_SECURE_S):
                answer = await connection.send(_tunnel(server, proxy), is_stream=True)
                if answer.status != 200:
                    raise ConnectionError(f"the proxy {proxy.hostname}:{_port(proxy)} answered {answer.status}")
                if address.tls is not None:
                    await connection.secure(address.tls, name)
        except BaseException:
            connection.close()
            raise
        return connection

    def _encoded(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self._host}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        if any("\r" in line or "\n" in line for line in lines):
            raise ValueError(f"{method} {path}: a line break in a header")
        return "\r\n".join([*lines, "\r\n"]).encode("latin-1") + (body or b"")


def _keep_alive(connected: socket.socket | None) -> None:
    if connected is None:
        return
    for name, value in _KEEPALIVE:
        level = socket.SOL_SOCKET if name.startswith("SO_") else socket.IPPROTO_TCP
        with suppress(OSError, AttributeError):  # not every system has all of them
            connected.setsockopt(level, getattr(socket, name), value)


def _port(url: SplitResult) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


def _tunnel(server: SplitResult, proxy: SplitResult) -> bytes:
    name = server.hostname or ""
    target = f"[{name}]:{_port(server)}" if ":" in name else f"{name}:{_port(server)}"
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if proxy.username:
        credentials = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}".encode()
        lines.append(f"Proxy-Authorization: Basic {base64.b64encode(credentials).decode()}")
    return "\r\n".join([*lines, "\r\n"]).encode("latin-1")
