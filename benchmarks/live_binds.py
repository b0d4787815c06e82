"""On a real API server: binds a second beside a bare client and kube-scheduler, and a restart in a large cluster.

`python -m benchmarks.live_binds` (`make bench-cluster`) starts its own cluster with tools/cluster and stops it.
Everything shares two cores with the API server and etcd, so figures are ratios within the run. Nodes are objects only:
nothing runs the pods that are bound.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.bare_client import NAMESPACE, PODS, Bare, Object, bare_name, node_name
from benchmarks.private_cluster import measure_on_a_cluster, say
from benchmarks.timing_and_results import Result
from tools.cluster import Cluster
from tools.cluster.kwok import node

GROUPS = f"/apis/maniple.dev/v1alpha1/namespaces/{NAMESPACE}/podgroups"


def plain_node(number: int) -> Object:
    made = node(node_name(number))
    made["metadata"].pop("annotations")
    made["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    return made


def pod(name: str, scheduler: str, group: str = "", on: str = "", gpus: int = 1) -> Object:
    amounts = {"cpu": "4", "memory": "16Gi", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    container = {"name": "work", "image": "work:1", "resources": {"requests": amounts, "limits": amounts}}
    labels = {"app": "bench", **({"maniple.dev/pod-group": group} if group else {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "schedulerName": scheduler,
            "containers": [container],
            "tolerations": [{"operator": "Exists"}],
            **({"nodeName": on} if on else {}),
        },
    }


class Process:
    """A process that binds."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._log = log
        with log.open("wb") as out:
            self._process = subprocess.Popen([sys.executable, "-m", *command], stdout=out, stderr=out)
        self._facts = Path("/proc") / str(self._process.pid)

    def check(self) -> None:
        if self._process.poll():
            raise RuntimeError(f"it ended with {self._process.returncode}:\n{self._log.read_text()[-2000:]}")

    def resident_mb(self) -> float:
        pages = int((self._facts / "statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def cpu_s(self) -> float:
        """Of all its threads, in user and system mode."""
        fields = (self._facts / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=60)


def serve(kubeconfig: Path, log: Path, *more: str) -> Process:
    return Process(["maniple", "serve", "--kubeconfig", str(kubeconfig), "--no-leader-elect", *more], log)


class Peer:
    """kube-scheduler."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        cluster.start("kube-scheduler")

    def check(self) -> None:
        """tools/cluster reports it if it ends."""

    def stop(self) -> None:
        self._cluster.kill("kube-scheduler")


class Bench:
    def __init__(self, cluster: Cluster, bare: Bare, folder: Path) -> None:
        self._cluster, self._bare, self._folder = cluster, bare, folder
        self._kubeconfig = cluster.kubeconfig()

    async def prepare(self, nodes: int) -> None:
        crds = Path(__file__).resolve().parents[1] / "deploy" / "crds"
        self._cluster.kubectl("apply", "--server-side", "-f", str(crds))
        self._cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        self._cluster.kubectl("create", "namespace", NAMESPACE)
        await self._account()
        # Its node controller would mark nodes without a kubelet as dead.
        self._cluster.kill("kube-controller-manager")
        await self.add_nodes(0, nodes)

    def _process(self, command: list[str]) -> Process:
        return Process(command, self._folder / "process.log")

    def _serve(self) -> Process:
        return serve(self._kubeconfig, self._folder / "process.log")

    async def _account(self) -> None:
        with self._cluster.client() as client:
            while not client.exists(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"):
                await asyncio.sleep(0.1)

    async def add_nodes(self, start: int, end: int) -> None:
        await self._bare.post_all(("/api/v1/nodes", plain_node(number)) for number in range(start, end))

    async def bare_rate(self, count: int, nodes: int) -> float:
        await self._bare.post_all((PODS, pod(bare_name(number), "nobody")) for number in range(count))
        command = ["benchmarks.bare_client", str(self._kubeconfig), str(count), str(nodes)]
        return await self._rate(count, "bare", lambda: self._process(command))

    async def our_rate(self, count: int, gang: int) -> float:
        prefix = f"gang{gang}"
        objects: list[tuple[str, Object]] = []
        for number in range(count):
            group = f"{prefix}-{number // gang:05d}" if gang > 1 else ""
            if group and number % gang == 0:
                spec = {"minMember": gang}
                kind = {"apiVersion": "maniple.dev/v1alpha1", "kind": "PodGroup"}
                objects.append((GROUPS, {**kind, "metadata": {"name": group}, "spec": spec}))
            objects.append((PODS, pod(f"{prefix}-{number:05d}", "maniple", group)))
        await self._bare.post_all(objects)
        rate = await self._rate(count, prefix, self._serve)
        await self._bare.delete_all(GROUPS)
        return rate

    async def peer_rate(self, count: int) -> float:
        pods = ((PODS, pod(f"peer-{number:05d}", "default-scheduler")) for number in range(count))
        await self._bare.post_all(pods)
        return await self._rate(count, "peer", lambda: Peer(self._cluster))

    async def _rate(self, count: int, prefix: str, start: Callable[[], Process | Peer]) -> float:
        """Binds a second from the first bind to the last, without the start of the scheduler."""
        watching = asyncio.create_task(self._bare.watch_bound(count, prefix))
        await asyncio.sleep(0)
        binder = start()
        try:
            while not watching.done():
                await asyncio.wait([watching], timeout=1)
                binder.check()
            first, last = watching.result()
        finally:
            binder.stop()
        await self._bare.delete_all(PODS)
        return count / (last - first)

    async def restart(self, nodes: int, pods: int, rest_s: float) -> list[Result]:
        # Seven of a node's eight GPUs are taken; the rest of its pods have none.
        placed = (
            (PODS, pod(f"run-{n:05d}", "maniple", on=node_name(n % nodes), gpus=int(n // nodes < 7)))
            for n in range(pods)
        )
        await self._bare.post_all(placed)
        await self._bare.post_all([(PODS, pod("new-0", "maniple"))])
        watching = asyncio.create_task(self._bare.watch_bound(1, "new"))
        start = time.perf_counter()
        scheduler = self._serve()
        try:
            _, bound = await watching
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
            Result(f"restart to first bind, {what}", f"{took:.1f} s", "<= 20 s", took <= 20),
            Result(f"resident memory, {what}", f"{size:,.0f} MB", "<= 1,000 MB", size <= 1_000),
            Result(f"processor at rest, {what}", f"{used:.1f} % of a core", "<= 3 %", used <= 3),
        ]


async def run(cluster: Cluster, options: argparse.Namespace, folder: Path) -> list[Result]:
    results: list[Result] = []
    async with Bare.connect(cluster.kubeconfig()) as bare:
        bench = Bench(cluster, bare, folder)
        await bench.prepare(options.nodes)
        cluster.kill("kube-scheduler")
        if options.times:
            results += await compare(bench, options)
        if options.large_pods:
            say(f"restart with {options.large_nodes} nodes and {options.large_pods} pods")
            await bench.add_nodes(options.nodes, options.large_nodes)
            results += await bench.restart(options.large_nodes, options.large_pods, options.rest)
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
    for name, what in (("single", "single pods"), ("gangs", "gangs of 10")):
        ratio = best[name] / best["bare"]
        figure = f"{best[name]:.0f} binds/s, {ratio:.2f} of a bare client's {best['bare']:.0f}"
        results.append(Result(f"{what}, {size}", figure, ">= 0.9 of a bare client", ratio >= 0.9))
    ratio = best["single"] / best["peer"]
    figure = f"{ratio:.2f} times kube-scheduler's {best['peer']:.0f} binds/s"
    results.append(Result(f"single pods, {size}", figure, "none set", True))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.live_binds", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--pods", type=int, default=5_000)
    parser.add_argument("--large-nodes", type=int, default=5_000)
    parser.add_argument("--large-pods", type=int, default=50_000, help="0: no restart")
    parser.add_argument("--rest", type=float, default=30.0, metavar="SECONDS", help="how long rest is measured")
    parser.add_argument("--times", type=int, default=2, help="how often to measure rates; the best counts")
    options = parser.parse_args()
    measure_on_a_cluster(lambda cluster, folder: asyncio.run(run(cluster, options, folder)), kube_scheduler=True)


if __name__ == "__main__":
    main()
