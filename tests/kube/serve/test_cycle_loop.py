"""What ends a rest, and when. A rest that ends at once ends without a timer: within a few turns of the event loop."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kube.transport.scripted_server import Request, Says, scripted
from maniple.api.decode.server_objects import read_live
from maniple.kube.serve.cycle_loop import Loop
from maniple.kube.serve.server import Server, Settings
from maniple.kube.transport.resource_kinds import NODES, PODS, RESOURCES, Resource
from maniple.scheduler import Plan

TURNS = 30
GROUPS = next(one for one in RESOURCES if one.kind == "PodGroup" and not one.is_foreign)


def meta(name: str, version: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "namespace": "ml", "uid": name, "resourceVersion": str(version), **more}


def pod(name: str, version: int, phase: str = "Pending", **spec: Any) -> dict[str, Any]:
    requests = {"limits": {"nvidia.com/gpu": "8"}}
    whole = {"schedulerName": "maniple", "containers": [{"name": "main", "resources": requests}], **spec}
    return {"metadata": meta(name, version), "spec": whole, "status": {"phase": phase}}


def node(version: int, **labels: str) -> dict[str, Any]:
    amounts = {"nvidia.com/gpu": "8", "cpu": "64", "memory": "512Gi", "pods": "110"}
    head = {**meta("n1", version, labels=labels), "namespace": ""}
    status = {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": head, "spec": {}, "status": status}


def put(server: Server, resource: Resource, item: dict[str, Any]) -> None:
    server.mirror.put(resource, read_live(json.dumps(item).encode(), resource.struct))
    server.loop.poke()


def with_server(test: Callable[[Server, list[Request]], Awaitable[None]]) -> None:
    """Runs the test with a server that has decided on one full node; binds are never answered well."""
    asked: list[Request] = []

    def answer(request: Request) -> Says:
        asked.append(request)
        return Says(201, {"kind": "Status", "status": "Success"})

    async def run() -> None:
        async with scripted(answer) as (_, client):
            server = Server(client, Settings(lease=None, runs_jobs=False))
            put(server, NODES, node(1))
            put(server, PODS, pod("first", 2, "Running", nodeName="n1"))
            await server.loop.cycle()
            await test(server, asked)
            await server.applier.writes.settle()
            await server.statuses.writes.settle()

    asyncio.run(run())


async def ends_at_once(rest: "asyncio.Task[None]") -> bool:
    for _ in range(TURNS):
        await asyncio.sleep(0)
    return rest.done()


def resting(loop: Loop) -> "asyncio.Task[None]":
    return asyncio.create_task(loop.rest(Plan()))


async def stop(rest: "asyncio.Task[None]") -> None:
    rest.cancel()
    await asyncio.gather(rest, return_exceptions=True)


@pytest.mark.parametrize(
    ("resource", "item"),
    [
        (PODS, pod("second", 3)),
        (PODS, pod("first", 3, "Succeeded", nodeName="n1")),
        (NODES, {**node(3), "metadata": {**node(3)["metadata"], "name": "n2", "uid": "n2"}}),
    ],
    ids=["a pod comes", "a pod ends", "a node comes"],
)
def test_what_may_let_somebody_start_ends_a_rest_at_once(resource: Resource, item: dict[str, Any]) -> None:
    async def test(server: Server, _: list[Request]) -> None:
        rest = resting(server.loop)
        assert not await ends_at_once(rest)
        put(server, resource, item)
        assert await ends_at_once(rest)

    with_server(test)


def test_a_pod_that_goes_ends_a_rest_at_once() -> None:
    async def test(server: Server, _: list[Request]) -> None:
        rest = resting(server.loop)
        assert not await ends_at_once(rest)
        server.mirror.remove(PODS, ("ml", "first"), 9)
        assert await ends_at_once(rest)

    with_server(test)


def test_other_changes_wait_for_more_of_them_and_not_for_a_newcomer() -> None:
    async def test(server: Server, _: list[Request]) -> None:
        rest = resting(server.loop)
        put(server, NODES, node(3, rack="a"))
        assert not await ends_at_once(rest)
        put(server, PODS, pod("second", 4))
        assert await ends_at_once(rest)

    with_server(test)


def test_a_gang_ends_a_rest_at_once_with_the_last_of_its_pods() -> None:
    async def test(server: Server, _: list[Request]) -> None:
        rest = resting(server.loop)
        put(server, GROUPS, {"metadata": meta("gang", 3), "spec": {"minMember": 2}})
        for number in (1, 2):
            assert not await ends_at_once(rest)
            one = pod(f"gang-{number}", 3 + number)
            one["metadata"]["labels"] = {"maniple.dev/pod-group": "gang"}
            put(server, PODS, one)
        assert await ends_at_once(rest)

    with_server(test)


def test_a_group_that_comes_after_its_pods_ends_a_rest_at_once() -> None:
    async def test(server: Server, _: list[Request]) -> None:
        rest = resting(server.loop)
        one = pod("gang-1", 3)
        one["metadata"]["labels"] = {"maniple.dev/pod-group": "gang"}
        put(server, PODS, one)
        assert not await ends_at_once(rest)
        put(server, GROUPS, {"metadata": meta("gang", 4), "spec": {"minMember": 1}})
        assert await ends_at_once(rest)

    with_server(test)


def test_pods_of_other_schedulers_do_not_end_a_rest() -> None:
    async def test(server: Server, _: list[Request]) -> None:
        rest = resting(server.loop)
        put(server, PODS, pod("second", 3, schedulerName="another"))
        assert not await ends_at_once(rest)
        await stop(rest)

    with_server(test)


def test_what_comes_during_a_cycle_is_decided_in_the_next_at_once() -> None:
    async def test(server: Server, _: list[Request]) -> None:
        cycle = asyncio.create_task(server.loop.cycle())
        await asyncio.sleep(0)
        put(server, PODS, pod("second", 3))
        await cycle
        rest = resting(server.loop)
        assert await ends_at_once(rest)

    with_server(test)


def test_while_many_binds_are_under_way_a_newcomer_waits_until_they_are_few() -> None:
    async def test(server: Server, _: list[Request]) -> None:
        server.applier.is_calm.clear()
        rest = resting(server.loop)
        put(server, PODS, pod("second", 3))
        assert not await ends_at_once(rest)
        server.applier.is_calm.set()
        assert await ends_at_once(rest)

    with_server(test)


def test_a_pod_that_is_decided_is_bound_without_a_timer() -> None:
    async def test(server: Server, asked: list[Request]) -> None:
        server.mirror.remove(PODS, ("ml", "first"), 3)
        put(server, PODS, pod("second", 4))
        await server.loop.cycle()
        await server.applier.writes.settle()
        assert [request.path for request in asked if request.path.endswith("/binding")] == [
            "/api/v1/namespaces/ml/pods/second/binding"
        ]

    with_server(test)
