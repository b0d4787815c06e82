"""A cluster under measurement: the processes that bind, and how fast they do."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.bare_client import NAMESPACE, PODS, Bare, bare_name
from benchmarks.live_objects import GROUPS, Request, plain_node, pod, pod_group
from tools.cluster import Cluster


class Process:
    """A process that binds."""

    def __init__(self, command: list[str], log: Path, tree: Path | None = None) -> None:
        self._log = log
        with log.open("wb") as out:
            self._process = subprocess.Popen([sys.executable, "-m", *command], stdout=out, stderr=out, cwd=tree)
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


def serve(kubeconfig: Path, log: Path, *more: str, tree: Path | None = None) -> Process:
    return Process(["maniple", "serve", "--kubeconfig", str(kubeconfig), "--no-leader-elect", *more], log, tree)


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
    """`tree`: another worktree, whose `maniple serve` is measured."""

    def __init__(self, cluster: Cluster, bare: Bare, folder: Path, tree: Path | None = None) -> None:
        self._cluster, self.bare, self._folder, self._tree = cluster, bare, folder, tree
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

    def serve(self) -> Process:
        return serve(self._kubeconfig, self._folder / "process.log", tree=self._tree)

    def peer(self) -> Peer:
        return Peer(self._cluster)

    async def _account(self) -> None:
        with self._cluster.client() as client:
            while not client.exists(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"):
                await asyncio.sleep(0.1)

    async def add_nodes(self, start: int, end: int) -> None:
        await self.bare.post_all(("/api/v1/nodes", plain_node(number)) for number in range(start, end))

    async def bare_rate(self, count: int, nodes: int) -> float:
        await self.bare.post_all((PODS, pod(bare_name(number), "nobody")) for number in range(count))
        command = ["benchmarks.bare_client", str(self._kubeconfig), str(count), str(nodes)]
        return await self._rate(count, "bare", lambda: Process(command, self._folder / "process.log"))

    async def our_rate(self, count: int, gang: int) -> float:
        prefix = f"gang{gang}"
        objects: list[Request] = []
        for number in range(count):
            group = f"{prefix}-{number // gang:05d}" if gang > 1 else ""
            if group and number % gang == 0:
                objects.append((GROUPS, pod_group(group, gang)))
            objects.append((PODS, pod(f"{prefix}-{number:05d}", "maniple", group)))
        await self.bare.post_all(objects)
        rate = await self._rate(count, prefix, self.serve)
        await self.bare.delete_all(GROUPS)
        return rate

    async def peer_rate(self, count: int) -> float:
        pods = ((PODS, pod(f"peer-{number:05d}", "default-scheduler")) for number in range(count))
        await self.bare.post_all(pods)
        return await self._rate(count, "peer", self.peer)

    async def _rate(self, count: int, prefix: str, start: Callable[[], Process | Peer]) -> float:
        """Binds a second from the first bind to the last, without the start of the scheduler."""
        first, last = await self.binding(prefix, count, start)
        return count / (last - first)

    async def binding(self, prefix: str, count: int, start: Callable[[], Process | Peer]) -> tuple[float, float]:
        """When the first and the last of `count` pods of that name were bound. Deletes all pods."""
        watching = asyncio.create_task(self.bare.watch_times(count, prefix))
        await asyncio.sleep(0)
        binder = start()
        try:
            while not watching.done():
                await asyncio.wait([watching], timeout=1)
                binder.check()
            times = watching.result().values()
        finally:
            watching.cancel()
            binder.stop()
        await self.bare.delete_all(PODS)
        return min(times), max(times)
