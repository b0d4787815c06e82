"""While the API server is away it is asked often but not by all at once, and its first answer is enough to go on."""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kube.transport.scripted_server import (
    FORBIDDEN,
    OPEN,
    STARTING,
    TOO_OLD,
    UNKNOWN,
    Request,
    Says,
    list_of,
    scripted,
)
from maniple.api import kubernetes, types
from maniple.cluster.cache import Cache
from maniple.cluster.shared_cache import SharedCache
from maniple.kube.serve.metrics import Metrics
from maniple.kube.serve.mirror_feed import Feed, Watcher
from maniple.kube.transport.client import ApiError, Backoff, UnansweredError
from maniple.kube.transport.lease import Lease
from maniple.kube.transport.mirror import Mirror
from maniple.kube.transport.outage import Outage
from maniple.kube.transport.resource_kinds import PODS, RESOURCES
from maniple.model.pods_we_schedule import Ours

BUDGETS = next(one for one in RESOURCES if one.struct is kubernetes.PodDisruptionBudget)
OUR_GROUPS, *FOREIGN_GROUPS = (one for one in RESOURCES if one.read_as is types.PodGroup)
AWAY = UnansweredError("GET /: connection refused")
GROUP = {"metadata": {"name": "g", "namespace": "ns", "uid": "u", "resourceVersion": "5"}, "spec": {"minMember": 2}}


async def until(is_true: Callable[[], object], timeout_s: float = 30.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not is_true():
            await asyncio.sleep(0.01)


def mirror() -> Mirror:
    return Mirror(SharedCache(Cache(Ours())))


# -- pauses


def away() -> Outage:
    outage = Outage()
    outage.note_silence()
    return outage


def test_pauses_stay_short_however_long_the_server_is_away() -> None:
    backoff = Backoff(outage=away())
    pauses = [backoff.pause_s(AWAY) for _ in range(1000)]
    assert max(pauses) <= 1.25
    assert min(pauses[10:]) >= 0.75  # and it is not asked without rest


def test_the_first_answer_begins_the_pauses_anew() -> None:
    backoff = Backoff(0.2, 15.0)
    for _ in range(10):
        backoff.pause_s(AWAY)
    assert backoff.pause_s(ApiError(503, "", "starting")) <= 0.25
    assert backoff.pause_s(ApiError(503, "", "starting")) <= 0.5


def test_a_storage_that_is_initializing_is_asked_again_before_it_asks_for_that() -> None:
    error = ApiError(429, "TooManyRequests", "storage is (re)initializing", retry_after_s=1.0)
    backoff = Backoff(0.2)
    assert backoff.pause_s(error) <= 0.25
    assert max(backoff.pause_s(error) for _ in range(50)) <= 1.25


def test_an_overloaded_server_is_obeyed_also_after_an_outage() -> None:
    error = ApiError(429, "TooManyRequests", "too many requests", retry_after_s=20.0)
    assert Backoff(outage=away()).pause_s(error) >= 15
    assert Backoff().pause_s(error) >= 15


def test_a_starting_server_that_asks_for_much_patience_is_asked_every_second() -> None:
    error = ApiError(503, "ServiceUnavailable", "not all paths are installed", retry_after_s=20.0)
    assert Backoff(outage=away()).pause_s(error) <= 1.25
    assert Backoff().pause_s(error) >= 15


def test_all_who_wait_go_on_when_the_server_is_back_but_not_at_once() -> None:
    async def run() -> list[float]:
        outage = away()
        back_at = 0.0

        async def wait() -> float:
            await outage.pause(60.0)
            return time.monotonic() - back_at

        waiting = [asyncio.create_task(wait()) for _ in range(100)]
        await asyncio.sleep(0)
        outage.note_answer(503)  # not back yet
        outage.note_answer(403)
        await asyncio.sleep(0.1)
        assert not any(task.done() for task in waiting)
        back_at = time.monotonic()
        outage.note_answer(200)
        return sorted(await asyncio.gather(*waiting))

    moments = asyncio.run(run())
    assert moments[-1] < 30  # not the pause of a minute
    assert moments[50] - moments[0] > 0.05
    assert moments[-1] - moments[0] > 0.15


def test_a_server_that_cannot_reach_its_etcd_is_away_too() -> None:
    outage = Outage()
    outage.note_answer(500)
    assert outage.is_on
    outage.note_answer(404)
    assert not outage.is_on


def test_one_unanswered_request_among_answered_ones_is_no_outage() -> None:
    outage = Outage()
    outage.note_answer(200)
    outage.note_silence()
    assert not outage.is_on
    assert not outage.is_recent


# -- watches


def watching(run: Callable[[Any, Any], Awaitable[None]], answer: Callable[[Request], Says]) -> None:
    async def main() -> None:
        async with scripted(answer) as (server, client), asyncio.timeout(60):
            await run(server, client)

    asyncio.run(main())


def test_a_watch_goes_on_soon_after_the_server_is_back() -> None:
    """It is too old then, and two lists are refused by a storage that is not ready."""
    script: list[Says] = []

    def answer(request: Request) -> Says:
        if script:
            return script.pop(0)
        return OPEN if request.is_watch else list_of()

    async def run(server: Any, client: Any) -> None:
        watcher = Watcher(client, PODS, mirror(), lambda: None, Metrics())
        following = asyncio.create_task(watcher.run())
        await until(watcher.synced.is_set)
        await until(lambda: len(server.requests) == 2)
        await server.go_away()
        await asyncio.sleep(4.0)  # by then pauses that double would be seconds
        script[:] = [TOO_OLD, STARTING, STARTING]
        before = len(server.requests)
        await server.start()
        back_at = asyncio.get_running_loop().time()
        await until(lambda: server.requests[-1][1].is_watch and not script and len(server.requests) > before + 3)
        took_s = asyncio.get_running_loop().time() - back_at
        print(f"the watch is there {took_s:.2f} s after the server")
        assert took_s < 10.0  # 2 s at most on an idle machine: pauses of 1.25 s, 0.25 s and 0.5 s
        following.cancel()

    watching(run, answer)


def test_a_watch_that_is_too_old_again_and_again_is_not_a_busy_loop() -> None:
    def answer(request: Request) -> Says:
        return TOO_OLD if request.is_watch else list_of()

    async def run(server: Any, client: Any) -> None:
        watcher = Watcher(client, PODS, mirror(), lambda: None, Metrics())
        following = asyncio.create_task(watcher.run())
        await asyncio.sleep(1.0)
        assert len(server.requests) <= 12
        following.cancel()

    watching(run, answer)


@pytest.mark.parametrize("says", [UNKNOWN, FORBIDDEN])
def test_after_an_outage_gangs_are_not_forgotten_because_the_server_does_not_know_their_kind_yet(says: Says) -> None:
    is_starting = False

    def answer(request: Request) -> Says:
        if is_starting:
            return says
        return OPEN if request.is_watch else list_of(GROUP)

    async def run(server: Any, client: Any) -> None:
        nonlocal is_starting
        known = mirror()
        resource = OUR_GROUPS if says is UNKNOWN else FOREIGN_GROUPS[0]
        watcher = Watcher(client, resource, known, lambda: None, Metrics())
        following = asyncio.create_task(watcher.run())
        await until(lambda: known.seen(resource))
        await server.go_away()
        await until(lambda: client.outage.is_on)
        is_starting = True
        before = len(server.requests)
        await server.start()
        await until(lambda: len(server.requests) > before + 2)
        assert known.seen(resource)
        assert watcher.is_served
        is_starting = False
        before = len(server.requests)
        await until(lambda: len(server.requests) > before and server.requests[-1][1].is_watch)
        assert known.seen(resource)
        following.cancel()

    watching(run, answer)


def test_without_an_outage_a_kind_that_is_gone_is_gone() -> None:
    is_there = True

    def answer(request: Request) -> Says:
        if not is_there:
            return UNKNOWN
        return Says(200, {}) if request.is_watch else list_of(GROUP)

    async def run(server: Any, client: Any) -> None:  # noqa: ARG001
        nonlocal is_there
        known = mirror()
        watcher = Watcher(client, OUR_GROUPS, known, lambda: None, Metrics())
        following = asyncio.create_task(watcher.run())
        await until(lambda: known.seen(OUR_GROUPS))
        is_there = False
        await until(lambda: not watcher.is_served)
        assert not known.seen(OUR_GROUPS)
        following.cancel()

    watching(run, answer)


def test_a_new_leader_waits_for_pods_but_not_for_budgets() -> None:
    """Leaders write pods. Budgets they only read, and the last known ones will do."""
    refused: set[str] = set()

    def answer(request: Request) -> Says:
        if request.path in refused:
            return STARTING
        return OPEN if request.is_watch else list_of()

    async def run(server: Any, client: Any) -> None:
        feed = Feed(client, mirror(), lambda: None, Metrics())
        running = asyncio.create_task(feed.run())
        await feed.synced()
        refused.add(BUDGETS.list_path)
        async with asyncio.timeout(20):
            await feed.relist(time.monotonic())
        assert feed.is_synced
        refused.add(PODS.list_path)
        relisting = asyncio.create_task(feed.relist(time.monotonic()))
        await until(lambda: len(server.asked(PODS.list_path)) > 8)
        assert not relisting.done()
        refused.clear()
        await relisting
        running.cancel()

    watching(run, answer)


def test_a_list_that_is_on_its_way_is_not_asked_for_again() -> None:
    def answer(request: Request) -> Says:
        return OPEN if request.is_watch else list_of()

    async def run(server: Any, client: Any) -> None:
        feed = Feed(client, mirror(), lambda: None, Metrics())
        since = time.monotonic()
        running = asyncio.create_task(feed.run())
        await feed.synced()
        await feed.relist(since)
        lists = [request for _, request in server.requests if request.path == PODS.list_path and not request.is_watch]
        assert len(lists) == 1
        running.cancel()

    watching(run, answer)


# -- the lease


class LeaseStore:
    """Keeps one lease, and counts its versions."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0

    def answer(self, request: Request) -> Says:
        if request.method == "GET":
            return UNKNOWN if self.lease is None else Says(200, self.lease)
        body = json.loads(request.body)
        given = body["metadata"].get("resourceVersion", "")
        if self.lease is not None and given != self.lease["metadata"]["resourceVersion"]:
            return Says(409, {"kind": "Status", "code": 409, "reason": "Conflict", "message": "changed"})
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        self.lease = body
        return Says(200, body)


def test_a_lease_loop_rests_while_the_server_is_away_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "maniple.lease")
    store = LeaseStore()

    async def run(server: Any, client: Any) -> None:
        lease = Lease(client, "ns", "maniple", "b", lambda _: None)
        other = Lease(client, "ns", "maniple", "a", lambda _: None)
        await other.turn()
        await lease.turn()  # another holds it
        lease._changed_at -= 60.0  # and it is free by now: this is what made the loop ask without rest
        await server.go_away()
        turns = 0
        turn = lease.turn

        async def counted() -> None:
            nonlocal turns
            turns += 1
            await turn()

        lease.turn = counted  # type: ignore[method-assign,assignment]
        running = asyncio.create_task(lease.run())
        await asyncio.sleep(4.0)
        assert 3 <= turns <= 20
        warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert len(warnings) == 1
        await server.start()
        await lease.led()
        summary = next(record for record in caplog.records if record.getMessage() == "lease answered again")
        assert summary.__dict__["failures"] >= 3
        assert summary.__dict__["seconds"] > 2
        running.cancel()

    watching(run, store.answer)


def test_who_gets_its_own_lease_back_knows_its_own_writes() -> None:
    """What it has listed counts; if another led meanwhile, only what it lists from now on."""
    store = LeaseStore()

    async def run(server: Any, client: Any) -> None:  # noqa: ARG001
        ours, other = (Lease(client, "ns", "maniple", name, lambda _: None) for name in ("a", "b"))
        await ours.turn()
        assert ours.is_leading
        since = ours.since
        ours._is_leader, ours._write_until = False, time.monotonic() - 20.0  # as after an outage
        await ours.turn()
        assert ours.is_leading
        assert ours.term == 2
        assert ours.since == since
        await other.turn()
        other._changed_at -= 60.0
        await other.turn()
        assert other.is_leading
        ours._is_leader, ours._write_until = False, time.monotonic() - 20.0
        await ours.turn()
        ours._changed_at -= 60.0
        asked_at = time.monotonic()
        await ours.turn()
        assert ours.is_leading
        assert ours.since >= asked_at

    watching(run, store.answer)


def test_a_lease_is_read_although_lists_are_not_answered() -> None:
    store = LeaseStore()

    async def run(server: Any, client: Any) -> None:  # noqa: ARG001
        for _ in range(8):
            await client.reads.acquire()
        lease = Lease(client, "ns", "maniple", "a", lambda _: None)
        async with asyncio.timeout(10):
            await lease.turn()
        assert lease.is_leading

    watching(run, store.answer)
