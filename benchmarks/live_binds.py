"""On a real API server: binds a second beside a bare client and kube-scheduler, and a restart in a large cluster.

`python -m benchmarks.live_binds` (`make bench-cluster`) starts its own cluster with tools/cluster and stops it.
Everything shares two cores with the API server and etcd, so figures are ratios within the run. Nodes are objects only:
nothing runs the pods that are bound.
"""

import argparse
import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.bare_client import PODS, Bare, node_name
from benchmarks.live_latency import alone, behind_a_backlog, half_fit
from benchmarks.live_objects import pod
from benchmarks.live_process import Bench
from benchmarks.private_cluster import measure_on_a_cluster, say
from benchmarks.timing_and_results import Result
from tools.cluster import Cluster

CASES = ("rates", "alone", "backlog", "half-fit", "restart")


async def restart(bench: Bench, nodes: int, pods: int, rest_s: float) -> list[Result]:
    # Seven of a node's eight GPUs are taken; the rest of its pods have none.
    placed = (
        (PODS, pod(f"run-{n:05d}", "maniple", on=node_name(n % nodes), gpus=int(n // nodes < 7))) for n in range(pods)
    )
    await bench.bare.post_all(placed)
    await bench.bare.post_all([(PODS, pod("new-0", "maniple"))])
    watching = asyncio.create_task(bench.bare.watch_times(1, "new"))
    start = time.perf_counter()
    scheduler = bench.serve()
    try:
        (bound,) = (await watching).values()
        took = bound - start
        await asyncio.sleep(5)  # the work after a start is not rest
        before = scheduler.cpu_s()
        await asyncio.sleep(rest_s)
        used = (scheduler.cpu_s() - before) / rest_s * 100
        size = scheduler.resident_mb()
    finally:
        scheduler.stop()
    what = f"{nodes:,} nodes, {pods:,} pods"
    return [
        Result(f"restart to first bind, {what}", f"{took:.1f} s", "<= 6 s", took <= 6),
        Result(f"resident memory, {what}", f"{size:,.0f} MB", "<= 1,000 MB", size <= 1_000),
        Result(f"processor at rest, {what}", f"{used:.1f} % of a core", "<= 3 %", used <= 3),
    ]


async def run(cluster: Cluster, options: argparse.Namespace, folder: Path) -> list[Result]:
    results: list[Result] = []
    async with Bare.connect(cluster.kubeconfig()) as bare:
        bench = Bench(cluster, bare, folder, options.tree)
        await bench.prepare(options.nodes)
        cluster.kill("kube-scheduler")
        cases = options.only
        if "rates" in cases:
            results += await compare(bench, options)
        if "alone" in cases:
            results += await alone(bench, options.nodes, options.seconds, options.settle)
        if "backlog" in cases:
            backlog = options.pods // 2
            results += await behind_a_backlog(
                bench, options.nodes, backlog, options.queues, options.seconds, options.settle
            )
        if "half-fit" in cases:
            results += await half_fit(bench, options.nodes, options.pods, options.queues)
        if "restart" in cases:
            say(f"restart with {options.large_nodes} nodes and {options.large_pods} pods")
            await bench.add_nodes(options.nodes, options.large_nodes)
            results += await restart(bench, options.large_nodes, options.large_pods, options.rest)
    return results


async def compare(bench: Bench, options: argparse.Namespace) -> list[Result]:
    rates: dict[str, list[float]] = {"bare": [], "single": [], "gangs": [], "peer": []}
    for number in range(options.times):
        say(f"binds, run {number + 1} of {options.times}")
        rates["bare"].append(await bench.bare_rate(options.pods, options.nodes))
        rates["single"].append(await bench.our_rate(options.pods, 1))
        rates["gangs"].append(await bench.our_rate(options.pods, 10))
        rates["peer"].append(await bench.peer_rate(options.pods))
        say(", ".join(f"{name} {each[-1]:.0f}/s" for name, each in rates.items()))
    best = {name: max(each) for name, each in rates.items()}
    size = f"{options.pods:,} pods on {options.nodes:,} nodes"
    results = []
    for name, what, aim in (("single", "single pods", 0.9), ("gangs", "gangs of 10", 0.95)):
        ratio = best[name] / best["bare"]
        figure = f"{best[name]:.0f} binds/s, {ratio:.2f} of a bare client's {best['bare']:.0f}"
        results.append(Result(f"{what}, {size}", figure, f">= {aim} of a bare client", ratio >= aim))
    ratio = best["single"] / best["peer"]
    figure = f"{ratio:.2f} times kube-scheduler's {best['peer']:.0f} binds/s"
    results.append(Result(f"single pods, {size}", figure, "none set", True))
    return results


def read_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.live_binds", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--pods", type=int, default=5_000)
    parser.add_argument("--large-nodes", type=int, default=5_000)
    parser.add_argument("--large-pods", type=int, default=50_000)
    parser.add_argument("--queues", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=30.0, help="how long pods arrive where their wait is measured")
    parser.add_argument("--only", nargs="+", choices=CASES, default=CASES, metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--tree", type=Path, help="measure the `maniple serve` of another worktree")
    parser.add_argument("--rest", type=float, default=30.0, metavar="SECONDS", help="how long rest is measured")
    parser.add_argument("--times", type=int, default=2, help="how often to measure rates; the best counts")
    parser.add_argument("--settle", type=float, default=10.0, metavar="SECONDS", help="between a start and arrivals")
    return parser.parse_args(arguments)


def main() -> None:
    options = read_options()
    measure_on_a_cluster(lambda cluster, folder: asyncio.run(run(cluster, options, folder)), kube_scheduler=True)


if __name__ == "__main__":
    main()
