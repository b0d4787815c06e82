"""A cycle starts its binds before it explains anybody, and says why gangs wait in the statuses that it writes."""

import asyncio
import json
import threading
from typing import Any

import pytest

from kube.transport.scripted_server import Request, Says, scripted
from maniple.api.decode.server_objects import read_live
from maniple.kube.serve.server import Server, Settings
from maniple.kube.transport.resource_kinds import NODES, PODS, Resource
from maniple.model.pod_identity import JobKey
from maniple.scheduler.explain.unexplained import Unexplained
from maniple.scheduler.framework.hooks import Reason

GPUS = "nvidia.com/gpu"


def put(server: Server, resource: Resource, name: str, namespace: str, **item: Any) -> None:
    meta = {"name": name, "namespace": namespace, "uid": name, "resourceVersion": "1"}
    server.mirror.put(resource, read_live(json.dumps({"metadata": meta, **item}).encode(), resource.struct))


def pod(server: Server, name: str, gpus: int) -> None:
    container = {"name": "main", "resources": {"limits": {GPUS: str(gpus)}}}
    spec = {"schedulerName": "maniple", "containers": [container]}
    put(server, PODS, name, "ml", spec=spec, status={"phase": "Pending"})


def test_binds_are_under_way_when_the_others_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Request] = []
    seen: list[tuple[JobKey, bool, bool]] = []

    def answer(request: Request) -> Says:
        asked.append(request)
        return Says(201, {"kind": "Status", "status": "Success"})

    async def run() -> None:
        async with scripted(answer) as (_, client):
            server = Server(client, Settings(lease=None, runs_jobs=False))
            amounts = {GPUS: "8", "cpu": "64", "memory": "512Gi", "pods": "110"}
            ready = [{"type": "Ready", "status": "True"}]
            put(server, NODES, "n1", "", spec={}, status={"allocatable": amounts, "conditions": ready})
            pod(server, "fits", 4)
            for number in range(3):
                pod(server, f"waits-{number}", 6 + number)
            real, main = Unexplained.reason, threading.get_ident()

            def note(self: Unexplained, gang: JobKey) -> Reason | None:
                seen.append((gang, server.cache.is_assumed_bound("ml/fits"), threading.get_ident() == main))
                return real(self, gang)

            monkeypatch.setattr(Unexplained, "reason", note)
            await server.loop.cycle()
            await server.applier.writes.settle()
            await server.statuses.writes.settle()

    asyncio.run(run())
    assert sorted(gang for gang, *_ in seen) == [(f"ml/waits-{number}", "Pod") for number in range(3)]
    assert {(is_bound, is_in_loop) for _, is_bound, is_in_loop in seen} == {(True, False)}
    told = {request.path for request in asked if request.method == "PATCH" and b"nvidia.com/gpu" in request.body}
    assert len([path for path in told if "/pods/waits-" in path]) == 3
