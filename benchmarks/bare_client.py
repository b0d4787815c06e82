"""A bare client that only sends requests: the yardstick for the scheduler's binds a second.

`python -m benchmarks.bare_client KUBECONFIG PODS NODES` binds pods bare-00000 and so on, round the nodes.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from maniple.kube.transport.login import log_in

Object = dict[str, Any]

NAMESPACE = "bench"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
CONNECTIONS = 64
TIMEOUT_S = 900.0


class _Event(msgspec.Struct):
    class Object(msgspec.Struct):
        class Meta(msgspec.Struct):
            name: str
            version: str = msgspec.field(name="resourceVersion")

        metadata: Meta

    object: Object


_EVENTS = msgspec.json.Decoder(_Event)


class Bare:
    """Sends requests over as many connections as are useful."""

    def __init__(self, session: aiohttp.ClientSession, server: str) -> None:
        self._session, self._server = session, server

    @staticmethod
    @asynccontextmanager
    async def connect(kubeconfig: Path) -> AsyncIterator["Bare"]:
        address = (await log_in(str(kubeconfig))).address
        connector = aiohttp.TCPConnector(limit=CONNECTIONS, ssl=address.tls or True)
        async with aiohttp.ClientSession(connector=connector) as session:
            yield Bare(session, address.server)

    async def post(self, path: str, body: Object) -> None:
        headers = {"Content-Type": "application/json"}
        async with self._session.post(self._server + path, data=json.dumps(body), headers=headers) as answer:
            if answer.status not in (200, 201, 409):
                raise RuntimeError(f"POST {path}: {answer.status} {(await answer.text())[:300]}")
            await answer.read()

    async def post_all(self, requests: Iterable[tuple[str, Object]]) -> float:
        """Seconds that all of them took together."""
        waiting = iter(requests)
        start = time.perf_counter()

        async def work() -> None:
            for path, body in waiting:
                await self.post(path, body)

        await asyncio.gather(*(work() for _ in range(CONNECTIONS)))
        return time.perf_counter() - start

    async def delete_all(self, path: str) -> None:
        async with self._session.delete(f"{self._server}{path}?gracePeriodSeconds=0") as answer:
            await answer.read()

    async def watch_times(self, count: int, prefix: str) -> dict[str, float]:
        """When each of `count` pods of that name was seen bound, from now on.

        It reads only the names of pods that are bound from now on, to disturb the measurement as little as possible.
        """
        seen, version = dict[str, float](), await self._now()
        until = time.monotonic() + TIMEOUT_S
        while time.monotonic() < until:  # the server ends a watch that is too slow
            async for name, latest in self._bound(version):
                version = latest
                if name.startswith(prefix) and name not in seen:
                    seen[name] = time.perf_counter()
                    if len(seen) == count:
                        return seen
        raise RuntimeError(f"only {len(seen)} of {count} pods were bound")

    async def _now(self) -> str:
        """The version to watch from. Without one the server would first send every pod that there is."""
        async with self._session.get(f"{self._server}{PODS}?limit=1") as answer:
            return str((await answer.json())["metadata"]["resourceVersion"])

    async def _bound(self, version: str) -> AsyncIterator[tuple[str, str]]:
        """Name and version of every pod that has a node, and of those that get one until the server ends the watch."""
        query = f"watch=1&fieldSelector=spec.nodeName!=&resourceVersion={version}"
        headers = {"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with self._session.get(f"{self._server}{PODS}?{query}", timeout=timeout, headers=headers) as answer:
            rest = b""
            async for block in answer.content.iter_any():
                *lines, rest = (rest + block).split(b"\n")
                for line in lines:
                    meta = _EVENTS.decode(line).object.metadata
                    yield meta.name, meta.version


def binding(name: str, on: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "annotations": {"maniple.dev/gpus": "0"}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": on},
    }


async def bind_all(kubeconfig: Path, count: int, nodes: int) -> None:
    names = [(bare_name(number), node_name(number % nodes)) for number in range(count)]
    async with Bare.connect(kubeconfig) as bare:
        await bare.post_all((f"{PODS}/{name}/binding", binding(name, on)) for name, on in names)


def bare_name(number: int) -> str:
    return f"bare-{number:05d}"


def node_name(number: int) -> str:
    return f"node-{number:05d}"


if __name__ == "__main__":
    asyncio.run(bind_all(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
