"""On a real API server: how long pods wait for their node, when they arrive alone, behind a backlog, and all at once.

Part of `python -m benchmarks.live_binds`, which starts the cluster. A pod's wait begins when its creation is answered
and ends when a watcher, which reads only names, sees it bound. Client and watcher share a process of their own.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from benchmarks.bare_client import PODS, node_name
from benchmarks.live_objects import GROUPS, Request, pod, pod_group, queue_object
from benchmarks.live_process import Bench
from benchmarks.private_cluster import say
from benchmarks.timing_and_results import Result

OURS, PEER = "maniple", "default-scheduler"
QUEUES = "/apis/maniple.dev/v1alpha1/queues"
_ALONE_PER_S, _BEHIND_PER_S = 50.0, 10.0


async def alone(bench: Bench, nodes: int, seconds: float, settle_s: float) -> list[Result]:
    """Pods arrive at a steady rate, and nothing else waits."""
    rate = _ALONE_PER_S
    what = f"created to bound, {rate:g} pods/s offered, nothing else waiting, {nodes:,} nodes"
    results = []
    for scheduler, aim in ((OURS, (10, 60)), (PEER, None)):
        say(f"{what}: {scheduler}")
        async with _running(bench, scheduler, settle_s):
            waits = await _arrivals(bench, scheduler, rate, seconds)
        await bench.bare.delete_all(PODS)
        results.append(_latency(what, scheduler, waits, aim))
    return results


async def behind_a_backlog(
    bench: Bench, nodes: int, backlog: int, queues: int, seconds: float, settle_s: float
) -> list[Result]:
    """Small pods that fit arrive behind large ones that do not, in many queues."""
    rate = _BEHIND_PER_S
    what = f"small pods, {rate:g}/s, behind {backlog:,} one-pod gangs in {queues} queues, {nodes:,} nodes"
    await bench.bare.post_all(map(queue_object, range(queues)))
    results = []
    for scheduler, aim in ((OURS, (50, 300)), (PEER, None)):
        say(f"{what}: {scheduler}")
        await bench.bare.post_all(_one_gpu_taken(nodes))
        await bench.bare.post_all(_large(backlog, queues, scheduler))
        async with _running(bench, scheduler, settle_s):
            waits = await _arrivals(bench, scheduler, rate, seconds)
        await bench.bare.delete_all(PODS)
        await bench.bare.delete_all(GROUPS)
        results.append(_latency(what, scheduler, waits, aim))
    await bench.bare.delete_all(QUEUES)
    return results


def _one_gpu_taken(nodes: int) -> Iterable[Request]:
    """By another scheduler's pods, which nobody evicts."""
    for number in range(nodes):
        yield PODS, pod(f"taken-{number:05d}", "another", on=node_name(number))


def _large(count: int, queues: int, scheduler: str) -> Iterable[Request]:
    for number in range(count):
        name = f"large-{number:05d}"
        yield GROUPS, pod_group(name, 1, f"queue-{number % queues}")
        yield PODS, pod(name, scheduler, name, gpus=8)


async def half_fit(bench: Bench, nodes: int, count: int, queues: int) -> list[Result]:
    """Single pods of many queues, of which half fit; beside a bare client that binds as many as fit."""
    free = [count * (number + 1) // (2 * nodes) - count * number // (2 * nodes) for number in range(nodes)]
    fit = sum(free)
    what = f"{count:,} single pods over {queues} queues, half fit, {nodes:,} nodes"
    say(what)
    bare = await bench.bare_rate(fit, nodes)
    await bench.bare.post_all(map(queue_object, range(queues)))
    taken = (
        (PODS, pod(f"taken-{number:05d}", "another", on=node_name(number), gpus=8 - room))
        for number, room in enumerate(free)
        if room < 8
    )
    await bench.bare.post_all(taken)
    await bench.bare.post_all(
        (PODS, pod(f"one-{number:05d}", OURS, queue=f"queue-{number % queues}")) for number in range(count)
    )
    started = time.perf_counter()
    first, last = await bench.binding("one", fit, bench.serve)
    await bench.bare.delete_all(QUEUES)
    rate, begun = fit / (last - first), first - started
    return [
        Result(
            what,
            f"{rate:.0f} binds/s, {rate / bare:.2f} of a bare client's {bare:.0f}",
            ">= 0.9 of a bare client",
            rate >= 0.9 * bare,
        ),
        Result("the same: first bind after the start of the process", f"{begun:.1f} s", "<= 1 s", begun <= 1),
    ]


@asynccontextmanager
async def _running(bench: Bench, scheduler: str, settle_s: float) -> AsyncIterator[None]:
    """The scheduler runs, has bound a first pod, and has had time to look at all others."""
    watching = asyncio.create_task(bench.bare.watch_times(1, "first"))
    await bench.bare.post(PODS, pod("first-0", scheduler))
    binder = bench.serve() if scheduler == OURS else bench.peer()
    try:
        await watching
        await asyncio.sleep(settle_s)
        yield
        binder.check()
    finally:
        watching.cancel()
        binder.stop()


async def _arrivals(bench: Bench, scheduler: str, rate: float, seconds: float) -> list[float]:
    """The seconds that each pod waited."""
    count = int(rate * seconds)
    names = [f"small-{number:05d}" for number in range(count)]
    created: dict[str, float] = {}
    watching = asyncio.create_task(bench.bare.watch_times(count, "small"))
    start = time.perf_counter() + 0.5

    async def create(number: int) -> None:
        await asyncio.sleep(max(0.0, start + number / rate - time.perf_counter()))
        await bench.bare.post(PODS, pod(names[number], scheduler))
        created[names[number]] = time.perf_counter()

    await asyncio.gather(*map(create, range(count)))
    bound = await watching
    return sorted(max(0.0, bound[name] - created[name]) for name in names)


def _latency(what: str, scheduler: str, waits: list[float], aim: tuple[int, int] | None) -> Result:
    middle, worst = (1000 * waits[min(len(waits) - 1, int(part * len(waits)))] for part in (0.5, 0.99))
    name = what if scheduler == OURS else "the same: kube-scheduler"
    figure = f"p50 {middle:.0f} ms, p99 {worst:.0f} ms"
    if aim is None:
        return Result(name, figure, "none set", True)
    return Result(name, figure, f"p50 <= {aim[0]} ms, p99 <= {aim[1]} ms", middle <= aim[0] and worst <= aim[1])
