"""Kubernetes events: what we did, for `kubectl describe` and `kubectl events`.

A repeated event is counted in the series of the first. Events have the lowest priority: they have one narrow lane, and
what it cannot take is dropped and counted.
"""

import asyncio
import logging
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import msgspec

from maniple.api.keys import Key
from maniple.api.timestamps import format_micro_time
from maniple.kube.serve.metrics import Metrics
from maniple.kube.transport.client import JSON, MERGE_PATCH, ApiError, Client, NotLeadingError, UnansweredError
from maniple.kube.transport.resource_kinds import Resource

log = logging.getLogger("maniple.events")

_PER_SECOND = 10.0
_MOST_WAITING = 500
_REMEMBERED = 4096
_SERIES_S = 30.0  # a series is written at most this often
_LONGEST_NOTE = 1000


class Regarding(msgspec.Struct, frozen=True, rename="camel"):
    """The object of an event."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, resource: Resource, key: Key, uid: str) -> "Regarding":
        return cls(resource.api_version, resource.kind, *key, uid)


@dataclass
class _Series:
    path: str
    count: int = 1
    written: float = 0.0


class Events:
    def __init__(self, client: Client, metrics: Metrics, reporter: str) -> None:
        self._client = client
        self._metrics = metrics
        self._reporter = reporter[:128]
        self.must_wait: Callable[[], bool] = lambda: False  # while something more urgent is under way
        self._known: OrderedDict[tuple[str, str, str], _Series] = OrderedDict()
        self._waiting: asyncio.Queue[tuple[str, str, bytes]] = asyncio.Queue(_MOST_WAITING)

    def add(
        self, regarding: Regarding, reason: str, note: str, action: str, kind: Literal["Normal", "Warning"] = "Normal"
    ) -> None:
        note = note if len(note) <= _LONGEST_NOTE else note[: _LONGEST_NOTE - 1] + "…"
        key = (regarding.uid or regarding.name, reason, note)
        series = self._known.get(key)
        if series is not None:
            self._known.move_to_end(key)
            series.count += 1
            if time.monotonic() - series.written >= _SERIES_S:
                series.written = time.monotonic()
                body = {"series": {"count": series.count, "lastObservedTime": _now()}}
                self._send("PATCH", series.path, msgspec.json.encode(body))
            return
        if self._waiting.full():  # checked before encoding: thousands may be bound at once
            self._metrics.events.labels("dropped").inc()
            return
        namespace = regarding.namespace or "default"
        name = f"{regarding.name[:200]}.{uuid.uuid4().hex[:16]}"
        folder = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
        self._known[key] = _Series(f"{folder}/{name}", written=time.monotonic())
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        event = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": _now(),
            "reportingController": "maniple.dev/scheduler",
            "reportingInstance": self._reporter,
            "action": action,
            "reason": reason,
            "regarding": regarding,
            "note": note,
            "type": kind,
        }
        self._send("POST", folder, msgspec.json.encode(event))

    def _send(self, method: str, path: str, body: bytes) -> None:
        try:
            self._waiting.put_nowait((method, path, body))
        except asyncio.QueueFull:
            self._metrics.events.labels("dropped").inc()

    async def run(self) -> None:
        while True:
            method, path, body = await self._waiting.get()
            while self.must_wait():
                await asyncio.sleep(1 / _PER_SECOND)
            await self._write(method, path, body)
            await asyncio.sleep(1 / _PER_SECOND)

    async def flush(self) -> None:
        """Writes what is queued, before the process ends."""
        while not self._waiting.empty():
            await self._write(*self._waiting.get_nowait())

    async def _write(self, method: str, path: str, body: bytes) -> None:
        try:
            content_type = MERGE_PATCH if method == "PATCH" else JSON
            await self._client.write(self._client.events, method, path, body, content_type)
            self._metrics.events.labels("written").inc()
        except (ApiError, UnansweredError, NotLeadingError) as error:
            self._metrics.events.labels("failed").inc()
            log.debug("event not written", extra={"error": str(error)})


def _now() -> str:
    return format_micro_time(time.time())
