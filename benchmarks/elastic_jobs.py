"""Elastic jobs on a real API server: a cold start with many of them, and the delay of a new size.

`python -m benchmarks.elastic_jobs` starts its own cluster with tools/cluster and stops it. Nodes are simulated;
the API server, etcd and KWOK share the machine with `maniple serve`.
"""

import argparse
import asyncio
import time
from pathlib import Path

from benchmarks.bare_client import NAMESPACE, PODS, Bare, Object
from benchmarks.live_process import serve
from benchmarks.private_cluster import measure_on_a_cluster, say
from benchmarks.timing_and_results import Result
from tools.cluster import Client, Cluster, free_port, wait_until
from tools.cluster.kwok import node

JOBS = f"/apis/maniple.dev/v1alpha1/namespaces/{NAMESPACE}/elasticjobs"
ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_S = 600.0


def job(name: str) -> Object:
    amounts = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}
    container = {"name": "work", "image": "work:1", "resources": {"limits": amounts}}
    role = {"name": "worker", "min": 1, "max": 8, "template": {"spec": {"containers": [container]}}, "pin": 1}
    head = {"apiVersion": "maniple.dev/v1alpha1", "kind": "ElasticJob", "metadata": {"name": name}}
    return head | {"spec": {"roles": [role], "elastic": {"graceSeconds": 1}}}


def measure(cluster: Cluster, count: int, folder: Path) -> list[Result]:
    with cluster.client() as client:
        client.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        cluster.kubectl("apply", "--server-side", "-f", str(ROOT / "deploy" / "crds"))
        cluster.kubectl("wait", "--for=condition=Established", "crds", "--all", "--timeout=30s")
        cluster.create_nodes([node(f"node-{number:04d}", gpus=64) for number in range(count // 64 + 2)])
        asyncio.run(_post(cluster, count))

        def phases() -> list[str]:
            return [item.get("status", {}).get("phase", "") for item in client.get(JOBS)["items"]]

        agents = ("--agents", f"127.0.0.1:{free_port()}")  # so that every job has its Secret, as in an installation
        say(f"{count} jobs from cold")
        start = time.perf_counter()
        scheduler = serve(cluster.kubeconfig(), folder / "serve.log", *agents)
        try:
            wait_until("pods of all", lambda: _pods(client) >= count, TIMEOUT_S, every_s=0.2)
            made = time.perf_counter() - start
            wait_until("all to run", lambda: phases().count("Running") == count, TIMEOUT_S, every_s=0.5)
            running = time.perf_counter() - start
            scheduler.stop()
            say("again, with everything there")
            start = time.perf_counter()
            scheduler = serve(cluster.kubeconfig(), folder / "serve.log", *agents)
            delays = [_delay(cluster, number) for number in range(10)]
        finally:
            scheduler.stop()
    first, rest = delays[0], sorted(delays[1:])
    middle = rest[len(rest) // 2]
    return [
        Result(f"pods of {count:,} jobs made, from cold", f"{made:.1f} s", "<= 30 s", made <= 30),
        Result(f"{count:,} jobs running, from cold", f"{running:.1f} s", "none set", True),
        Result("first resize after a restart of serve", f"{first:.1f} s", "none set", True),
        Result(
            "size changed to pod made, at rest", f"{middle:.2f} s, at most {rest[-1]:.2f} s", "<= 1 s", rest[-1] <= 1
        ),
    ]


async def _post(cluster: Cluster, count: int) -> None:
    async with Bare.connect(cluster.kubeconfig()) as bare:
        await bare.post_all((JOBS, job(f"job-{number:05d}")) for number in range(count))


def _pods(client: Client) -> int:
    """How many there are. Reading them all would slow down what is measured."""
    page = client.get(f"{PODS}?limit=1")
    return len(page["items"]) + int(page["metadata"].get("remainingItemCount", 0))


def _delay(cluster: Cluster, number: int) -> float:
    """Seconds from a new size of a job to its new pod."""
    name = f"job-{number:05d}"
    with cluster.client() as client:
        role = client.get(f"{JOBS}/{name}")["spec"]["roles"][0]
        start = time.perf_counter()
        client.patch(f"{JOBS}/{name}", {"spec": {"roles": [role | {"pin": 2}]}})
        wait_until("the pod", lambda: client.exists(f"{PODS}/{name}-worker-1"), TIMEOUT_S, every_s=0.01)
        took = time.perf_counter() - start
    time.sleep(2)  # rest
    return took


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.elastic_jobs", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000)
    options = parser.parse_args()
    measure_on_a_cluster(lambda cluster, folder: measure(cluster, options.jobs, folder))


if __name__ == "__main__":
    main()
