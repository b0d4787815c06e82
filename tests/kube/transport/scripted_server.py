"""A server on loopback that answers as a test tells it, and can be away: it is no Kubernetes, and knows no objects."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from maniple.kube.transport.client import Client
from maniple.kube.transport.http1 import Address
from maniple.kube.transport.login import Login


class Request(NamedTuple):
    method: str
    path: str
    query: dict[str, str]
    body: bytes

    @property
    def is_watch(self) -> bool:
        return "watch" in self.query


class Says(NamedTuple):
    status: int
    body: Any = None
    headers: tuple[str, ...] = ()


OPEN = Says(0)  # a watch on which nothing comes
STARTING = Says(
    429,
    {"kind": "Status", "code": 429, "reason": "TooManyRequests", "message": "storage is (re)initializing"},
    ("Retry-After: 1",),
)
TOO_OLD = Says(410, {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
UNKNOWN = Says(404, {"kind": "Status", "code": 404, "reason": "NotFound", "message": "no such kind"})
FORBIDDEN = Says(403, {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no rights"})


def list_of(*items: dict[str, Any], version: int = 10) -> Says:
    return Says(200, {"metadata": {"resourceVersion": str(version)}, "items": list(items)})


class ScriptedServer:
    def __init__(self, answer: Callable[[Request], Says]) -> None:
        self.answer = answer
        self.requests: list[tuple[float, Request]] = []
        self.port = 0
        self._is_away = False
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.serving: set[Any] = set()

    async def start(self) -> None:
        self._is_away = False
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def go_away(self) -> None:
        """Cuts all connections, and refuses new ones."""
        assert self._server is not None
        self._is_away = True
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        serving = asyncio.current_task()
        self.serving.add(serving)
        with suppress(asyncio.IncompleteReadError, OSError):
            while not self._is_away:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                method, target, _ = head.split(" ", 2)
                length = next((int(line[15:]) for line in head.split("\r\n") if line.startswith("Content-Length:")), 0)
                body = await reader.readexactly(length)
                url = urlsplit(target)
                request = Request(method, url.path, dict(parse_qsl(url.query)), body)
                self.requests.append((asyncio.get_running_loop().time(), request))
                says = self.answer(request)
                if says is OPEN:
                    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                    await reader.read()
                    break
                content = json.dumps(says.body).encode()
                lines = [f"HTTP/1.1 {says.status} Said", f"Content-Length: {len(content)}", *says.headers]
                writer.write("\r\n".join([*lines, "\r\n"]).encode() + content)
        self._writers.discard(writer)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        self.serving.discard(serving)

    def asked(self, path: str, since: float = 0.0) -> list[float]:
        """When requests for this path came, on the loop's clock."""
        return [at for at, request in self.requests if request.path == path and at >= since]


class _Address(Login):
    def __init__(self, port: int) -> None:
        super().__init__(None, None)
        self._port = port

    @property
    def address(self) -> Address:
        return Address(f"http://127.0.0.1:{self._port}")


@asynccontextmanager
async def scripted(answer: Callable[[Request], Says]) -> AsyncIterator[tuple[ScriptedServer, Client]]:
    server = ScriptedServer(answer)
    await server.start()
    try:
        async with Client(_Address(server.port)) as client:
            yield server, client
    finally:
        await server.go_away()
        # A socket that is open when the loop ends is found later, by whichever test runs then. A connection that was
        # accepted last is served only a few turns of the loop later.
        for _ in range(5):
            await asyncio.sleep(0)
        while server.serving:
            await asyncio.sleep(0.01)
