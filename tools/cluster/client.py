"""The smallest client of an API server: one request, JSON in and out, with a certificate of the cluster.

For starting a cluster, and for tests that check it independently. Maniple itself never uses it, so that a mistake
in its own client cannot hide here.
"""

import http.client
import itertools
import json
import os
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Self

from tools.cluster.cluster_layout import ClusterError, Layout

IDLE_S = 20.0  # a connection that has been idle for longer may be closed by the server this very moment
TRANSIENT = (ConnectionError, TimeoutError, ssl.SSLError, http.client.HTTPException, OSError)
# How long what comes at once on an idle machine may take on a busy one. Only what never comes costs so much.
PATIENCE_S = 180.0
# Below what the system hands out for outgoing connections, and below the ports of clusters.
FREE_PORTS = range(10000, 20000)


class ApiError(ClusterError):
    """The API server refused: status code, reason, message."""

    def __init__(self, code: int, body: dict[str, Any]) -> None:
        super().__init__(f"{code} {body.get('reason', '')}: {body.get('message', '')}")
        self.code = code
        self.reason = body.get("reason", "")


class Client:
    """Requests to one cluster as one user. Each thread has its own connection, kept open."""

    def __init__(self, layout: Layout, port: int, user: str = "admin", timeout_s: float = 30.0) -> None:
        certificates = layout.certificates
        self._context = ssl.create_default_context(cafile=certificates.certificate("cluster"))
        self._context.load_cert_chain(certificates.certificate(user), certificates.key(user))
        self._port = port
        self._timeout_s = timeout_s
        self._local = threading.local()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes this thread's connection."""
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None

    def get(self, path: str) -> Any:
        return self.request("GET", path)

    def post(self, path: str, body: Any) -> Any:
        return self.request("POST", path, body)

    def delete(self, path: str, body: Any = None) -> Any:
        return self.request("DELETE", path, body)

    def patch(self, path: str, body: Any, kind: str = "application/merge-patch+json") -> Any:
        return self.request("PATCH", path, body, kind)

    def request(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        """Sends one request; the decoded answer (text where it is not JSON), or an ApiError."""
        code, text = self.raw(method, path, body, kind)
        try:
            decoded = json.loads(text)
        except json.JSONDecodeError:
            decoded = text.decode(errors="replace")
        if code >= 400:
            raise ApiError(code, decoded if isinstance(decoded, dict) else {"message": decoded})
        return decoded

    def raw(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> tuple[int, bytes]:
        connection = self._connection()
        data = None if body is None else json.dumps(body)
        try:
            connection.request(method, path, data, {"Content-Type": kind, "Accept": "application/json"})
            answer = connection.getresponse()
            content = answer.read()
            self._local.used_at = time.monotonic()
            return answer.status, content
        except BaseException:
            self.close()
            raise

    def _connection(self) -> http.client.HTTPSConnection:
        if time.monotonic() - getattr(self._local, "used_at", 0.0) > IDLE_S:
            self.close()
        connection: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = http.client.HTTPSConnection(
                "127.0.0.1", self._port, timeout=self._timeout_s, context=self._context
            )
            self._local.connection = connection
        return connection

    def is_ready(self, path: str = "/readyz") -> bool:
        """True if the server answers 200 there; a refused connection means not ready."""
        try:
            return self.raw("GET", path)[0] == 200
        except TRANSIENT:
            return False

    def exists(self, path: str) -> bool:
        return self.is_ready(path)


def wait_until(what: str, condition: Callable[[], bool], timeout_s: float = PATIENCE_S, every_s: float = 0.05) -> None:
    """Waits until a condition is true; raises an error that names it after the timeout."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise ClusterError(f"waited {timeout_s:.0f} s for {what}")
        time.sleep(every_s)


def _ports() -> Iterator[int]:
    """The ports of this process, in turn: each worker of a test run has its own."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    share = FREE_PORTS[int(worker) % 8 :: 10] if worker.isdecimal() else FREE_PORTS[8 + os.getpid() % 2 :: 10]
    start = random.randrange(len(share))
    return itertools.cycle([*share[start:], *share[:start]])


_PORTS = _ports()


def free_port() -> int:
    """For a server that is started later, perhaps repeatedly: no other caller gets the port meanwhile."""
    return next(port for port in _PORTS if is_free(port))


def is_free(port: int) -> bool:
    with socket.socket() as trial:
        try:
            trial.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
