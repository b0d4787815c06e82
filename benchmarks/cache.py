"""The Cache: the cost of loading a cluster, and of a snapshot after one change and after a thousand."""

import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import generated_clusters
from benchmarks.timing_and_results import Result
from maniple.api import kubernetes
from maniple.api.decode.decode import Object, decode
from maniple.cluster.cache import Cache
from maniple.scheduler.framework.plan import Bind

NODES, GANGS, GANG_SIZE, RUNNING = 5_000, 5_000, 10, 3_500
_GPUS_IN_USE = 7  # of the 8 of each node; the last one is for those who come


def cache() -> list[Result]:
    """In its own process, to measure its memory."""
    command = [sys.executable, "-c", "from benchmarks.cache import measure; measure()"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    where = f"{NODES:,} nodes x 8 GPUs, {GANGS * GANG_SIZE:,} pods in {GANGS:,} gangs"
    memory = f"{found['held_mb']:.0f} MB beside {found['objects_mb']:.0f} MB of objects"
    return [
        _seconds(f"Cache: loading {where}", found["load_s"], 4.0),
        _milliseconds("Cache: a snapshot after one pod was bound", found["one_s"], 10),
        _milliseconds("Cache: a snapshot after 1,000 pods were bound", found["many_s"], 100),
        _milliseconds("Cache: a snapshot after a node was cordoned", found["cordon_s"], 10),
        _seconds("Cache: everything anew, after a node came", found["anew_s"], 4.0),
        Result("Cache: memory", memory, "<= 200 MB", found["held_mb"] <= 200),
    ]


def _seconds(name: str, seconds: float, most: float) -> Result:
    return Result(name, f"{seconds:.2f} s", f"<= {most:.0f} s", seconds <= most, seconds)


def _milliseconds(name: str, seconds: float, most: int) -> Result:
    return Result(name, f"{seconds * 1e3:.1f} ms", f"<= {most} ms", seconds <= most / 1e3, seconds)


def measure() -> None:
    """Prints seconds of processor time, each the best of a few, and megabytes."""
    before = _resident_mb()
    items = _objects()
    gc.collect()
    gc.freeze()
    objects_mb = _resident_mb() - before
    held = Cache()
    load_s = _processor_s(lambda: _load(held, items))
    held_mb = _resident_mb() - before - objects_mb
    load_s = min(load_s, *(_processor_s(lambda: _load(Cache(), items)) for _ in range(2)))
    waiting = [
        f"train/{pod.metadata.name}" for pod in items if isinstance(pod, kubernetes.Pod) and not pod.spec.node_name
    ]
    nodes = [node for node in items if isinstance(node, kubernetes.Node)]

    def bind(pods: list[str]) -> Callable[[], None]:
        def run() -> None:
            for number, pod in enumerate(pods):
                held.assume_bind(pod, Bind(pod, nodes[number].metadata.name, ("7",)))
            held.snapshot(0.0)

        return run

    def cordon() -> None:
        node = nodes.pop()
        held.put(kubernetes.Node(node.metadata, kubernetes.NodeSpec(unschedulable=True), node.status))
        held.snapshot(0.0)

    def join() -> None:
        node = nodes.pop()
        held.remove(kubernetes.Node, "", node.metadata.name)
        held.snapshot(0.0)

    figures = {
        "load_s": load_s,
        "one_s": min(_processor_s(bind([pod])) for pod in waiting[:20]),
        "many_s": min(_processor_s(bind(waiting[start : start + 1_000])) for start in range(1_000, 6_000, 1_000)),
        "cordon_s": min(_processor_s(cordon) for _ in range(20)),
        "anew_s": min(_processor_s(join) for _ in range(3)),
        "held_mb": held_mb,
        "objects_mb": objects_mb,
    }
    print(json.dumps(figures))


def _load(into: Cache, items: list[Object]) -> None:
    for item in items:
        into.put(item)
    into.snapshot(0.0)


def _objects() -> list[Object]:
    raw = list(generated_clusters.nodes(NODES))
    for number in range(GANGS):
        first = number * GANG_SIZE
        places = [f"node-{(first + index) // _GPUS_IN_USE:05d}" for index in range(GANG_SIZE)]
        made = list(
            generated_clusters.gang(f"g{number:05d}", GANG_SIZE, (1, "8", "32Gi"), "default", number, nodes=places)
        )
        for index, pod in enumerate(made[1:]):
            meta, spec = pod["metadata"], pod["spec"]
            assert isinstance(meta, dict)
            assert isinstance(spec, dict)
            if number < RUNNING:
                meta["annotations"] = {"maniple.dev/gpus": str((first + index) % _GPUS_IN_USE)}
            else:
                del spec["nodeName"]
        raw += made
    return decode([("bench", generated_clusters.dump(raw))]).objects


def _processor_s(run: Callable[[], None]) -> float:
    gc.collect()
    start = time.process_time()
    run()
    return time.process_time() - start


def _resident_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/status says nothing of VmRSS")
