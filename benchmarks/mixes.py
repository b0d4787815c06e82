"""Mixes of clusters: nodes, queues, sizes, shapes, load and ages vary, so that nothing can be tuned for one of them.

    python -m benchmarks.mixes                       forty fixed ones
    python -m benchmarks.mixes --random 20 --seed 7  fresh ones
    python -m benchmarks.mixes --only '310 nodes'    those with this in their names

For each mix: pods decided in a second by the first cycle (decided: bound, or explained), and how long a cycle takes in
which one thing has changed: a running job has ended.
"""

import argparse
import gc
import itertools
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.generated_clusters import Object, dump, gang, nodes, pod, topology
from maniple.api import kubernetes
from maniple.api.decode.decode import decode
from maniple.cluster.cache import Cache
from maniple.model.snapshot import Snapshot
from maniple.scheduler import Plan, Policy, load_policy, schedule

GPUS = 8  # of each node
NEW_S, OLD_S = 30.0, 36_000.0  # how long gangs have waited: less than the patience for a reservation, and more
CYCLES = 12  # in which one job has ended
_START_S = 1767225600.0  # 2026-01-01
KUBE_BATCH = Path(__file__).parent.parent / "examples" / "policies" / "kube-batch.yaml"


@dataclass(frozen=True)
class Mix:
    nodes: int = 1_000
    queues: int = 10
    depth: int = 1  # levels of queues
    sizes: str = "pareto"  # of gangs: one, ten, pareto, uniform
    shapes: int = 6  # different pods
    load: float = 1.5  # GPUs asked for, as a part of the cluster
    running: float = 0.5  # GPUs in use at the start
    is_old: bool = False  # gangs have waited for hours
    elastic: float = 0.0  # the part of the running jobs that is elastic
    is_close: bool = False  # gangs ask for racks, and GPUs have links
    policy: str = "default"

    @property
    def name(self) -> str:
        words = [f"{self.nodes:,} nodes", f"{self.queues:,} queues" + f" in {self.depth} levels" * (self.depth > 1)]
        words += [f"sizes {self.sizes}", f"{self.shapes} shapes", f"{self.running:g} in use, {self.load:g} asked for"]
        words += ["old"] * self.is_old + [f"{self.elastic:g} elastic"] * (self.elastic > 0)
        words += ["racks"] * self.is_close + [self.policy] * (self.policy != "default")
        return ", ".join(words)


def fixed() -> list[Mix]:
    """Each dimension alone, and the corners in which they meet."""
    singles, tens = Mix(sizes="one", queues=100, load=2), Mix(sizes="ten", load=2)
    base = [
        Mix(nodes=10_000, queues=100, load=1.0, running=0, is_old=True),
        Mix(nodes=10_000, queues=100, load=1.0, running=0),
        singles,
        _with(singles, shapes=60),
        _with(singles, is_old=True),
        _with(singles, running=0),
        tens,
        _with(tens, queues=1, running=0),
        _with(tens, is_old=True, queues=100),
        _with(tens, is_old=True, queues=100, running=1.0),
    ]
    kube_batch = [
        Mix(nodes=310, queues=4, sizes=sizes, running=1.0, load=load, policy="kube-batch")
        for sizes, load in (("one", 1.01), ("ten", 1.5), ("one", 1.5))
    ]
    elastic = [
        Mix(nodes=310, queues=4, sizes="uniform", running=1.0, load=load, elastic=0.5, is_old=is_old)
        for load, is_old in itertools.product((1.05, 2.0, 5.0), (False, True))
    ]
    dimensions = [
        Mix(nodes=100),
        Mix(nodes=100, load=3, queues=100),
        Mix(nodes=5_000),
        Mix(nodes=5_000, is_old=True, queues=100, load=1.2, running=1.0),
        Mix(queues=1),
        Mix(queues=1, is_old=True),
        Mix(queues=1_000, is_old=True),
        Mix(queues=100, depth=3, is_old=True),
        Mix(queues=100, depth=3, load=3, running=1.0),
        Mix(sizes="uniform"),
        Mix(sizes="uniform", is_old=True, queues=100, load=3),
        Mix(sizes="uniform", shapes=200, queues=100),
        Mix(shapes=1),
        Mix(shapes=200),
        Mix(shapes=200, sizes="one", is_old=True, load=3),
        Mix(load=0.3, running=0.1),
        Mix(load=3, is_old=True),
        Mix(elastic=1.0, running=0.7),
        Mix(elastic=1.0, running=1.0, is_old=True),
        Mix(is_close=True),
        Mix(is_close=True, is_old=True, queues=100, load=3, running=1.0),
    ]
    return base + kube_batch + elastic + dimensions


def drawn(count: int, seed: int) -> list[Mix]:
    draw = random.Random(seed)
    return [
        Mix(
            nodes=int(10 ** draw.uniform(2, 4)),
            queues=int(10 ** draw.uniform(0, 3)),
            depth=draw.choice((1, 1, 2, 3)),
            sizes=draw.choice(("one", "ten", "pareto", "uniform")),
            shapes=int(10 ** draw.uniform(0, math.log10(200))),
            load=round(draw.uniform(0.3, 3), 2),
            running=draw.choice((0.0, 0.5, 1.0)),
            is_old=draw.random() < 0.5,
            elastic=draw.choice((0.0, 0.0, 0.5, 1.0)),
            is_close=draw.random() < 0.25,
            policy=draw.choice(("default", "default", "default", "kube-batch")),
        )
        for _ in range(count)
    ]


def _with(mix: Mix, **changes: object) -> Mix:
    return Mix(**(vars(mix) | changes))


# --- clusters


def cluster(mix: Mix, seed: int = 1) -> list[Object]:
    draw = random.Random(seed)
    product = "Tesla-V100-SXM2-32GB" if mix.is_close else ""
    made = [*nodes(mix.nodes, GPUS, product), *([topology()] if mix.is_close else [])]
    leaves = _queues(mix, made)
    shapes = [_shape(draw, number) for number in range(mix.shapes)]
    free = [GPUS] * mix.nodes
    total, asked, number = mix.nodes * GPUS, 0.0, 0
    while asked < mix.running * total:
        size, shape = _size(draw, mix), draw.choice(shapes)
        places = _places(free, size, shape[0])
        if places is None:  # the rest of the cluster is full of single GPUs
            size, shape = 1, (1, "4", "16Gi")
            places = _places(free, 1, 1)
            if places is None:
                break
        queue = draw.choice(leaves)
        if draw.random() < mix.elastic:
            made += _elastic(f"run-{number:06d}", shape, queue, places)
        else:
            made += gang(f"run-{number:06d}", size, shape, queue, 0, nodes=places)
        asked += max(size * shape[0], 1 / GPUS)
        number += 1
    while asked < mix.load * total:
        size, shape = _size(draw, mix), draw.choice(shapes)
        close = {draw.choice(("preferred", "required")): "rack"} if mix.is_close and size * shape[0] <= 128 else None
        made += gang(f"gang-{number:06d}", size, shape, draw.choice(leaves), number % 3600, close)
        asked += max(size * shape[0], 1 / GPUS)
        number += 1
    return made


def _queues(mix: Mix, made: list[Object]) -> list[str]:
    """Writes the queues. Returns the names of those without children."""
    if mix.depth == 1:
        levels = [mix.queues]
    else:
        fan = max(2, round(mix.queues ** (1 / mix.depth)))
        levels = [fan**level for level in range(1, mix.depth)] + [mix.queues]
    for level, count in enumerate(levels):
        for number in range(count):
            spec: Object = {"weight": 1 + number % 5}
            if level:
                spec["parent"] = f"q{level - 1}-{number % levels[level - 1]:04d}"
            metadata = {"name": f"q{level}-{number:04d}", "uid": f"q{level}-{number}"}
            made.append({"apiVersion": "maniple.dev/v1alpha1", "kind": "Queue", "metadata": metadata, "spec": spec})
    return [f"q{mix.depth - 1}-{number:04d}" for number in range(levels[-1])]


def _shape(draw: random.Random, number: int) -> tuple[int, str, str]:
    gpus = (1, 8, 2, 4)[number] if number < 4 else draw.choice((1, 1, 2, 4, 8))
    return gpus, str(gpus * draw.randint(4, 15)), f"{gpus * draw.randint(8, 100)}Gi"


def _size(draw: random.Random, mix: Mix) -> int:
    match mix.sizes:
        case "one":
            return 1
        case "ten":
            return 10
        case "pareto":
            return min(64, int(draw.paretovariate(1.2)))
    return draw.randint(1, 64)


def _places(free: list[int], size: int, gpus: int) -> list[str] | None:
    """Nodes with room, from the last one on. None: there are too few among the last 200 that have some."""
    chosen: list[int] = []
    while free and free[-1] == 0:
        free.pop()
    for node in range(len(free) - 1, max(-1, len(free) - 200), -1):
        while len(chosen) < size and free[node] >= gpus and gpus:
            free[node] -= gpus
            chosen.append(node)
        if len(chosen) == size:
            return [f"node-{node:05d}" for node in chosen]
    for node in chosen:
        free[node] += gpus
    return None


def _elastic(name: str, shape: tuple[int, str, str], queue: str, places: Sequence[str]) -> Iterator[Object]:
    moment, size = "2026-01-01T00:00:00Z", len(places)
    template = {"spec": pod(name, shape, {}, created=moment)["spec"]}
    least = max(1, size // 2)
    yield {
        "apiVersion": "maniple.dev/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": name, "namespace": "train", "uid": name, "creationTimestamp": moment},
        "spec": {
            "queue": queue,
            "roles": [{"name": "worker", "min": least, "max": 2 * size, "template": template}],
        },
        "status": {"target": [{"role": "worker", "replicas": size}]},
    }
    for index, node in enumerate(places):
        labels = {"maniple.dev/job": name, "maniple.dev/role": "worker", "maniple.dev/index": str(index)}
        yield pod(f"{name}-worker-{index}", shape, labels, created=moment, node=node)


# --- measuring


@dataclass(frozen=True)
class Figures:
    name: str
    pods: int  # that waited
    bound: int
    first_s: float  # processor time of the first cycle
    cycles_s: list[float]  # of those after it, snapshots included

    @property
    def rate(self) -> float:
        return self.pods / self.first_s

    @property
    def p50_ms(self) -> float:
        return statistics.median(self.cycles_s) * 1e3

    @property
    def longest_ms(self) -> float:
        return max(self.cycles_s) * 1e3


def measure(mix: Mix, seed: int = 1) -> Figures:
    """Plays the first cycle, and then cycles before each of which one running pod has ended."""
    cache = Cache()
    for item in decode([("mix", dump(cluster(mix, seed)))]).objects:
        cache.put(item)
    policy = load_policy(KUBE_BATCH.read_bytes(), str(KUBE_BATCH)) if mix.policy == "kube-batch" else None
    now = _START_S + 3_600 + (OLD_S if mix.is_old else NEW_S)
    snapshot, plan, first_s = _cycle(cache, policy, now)
    pods = sum(job.waiting_pods for job in snapshot.waiting)
    bound = len(plan.binds)
    _apply(cache, plan)
    draw, cycles_s = random.Random(seed), list[float]()
    for number in range(CYCLES):
        running = [pod.pod for job in snapshot.jobs for pod in job.placed]
        if running:
            cache.remove(kubernetes.Pod, *draw.choice(running).split("/"))
        snapshot, plan, seconds = _cycle(cache, policy, now + 1 + number)
        cycles_s.append(seconds)
        _apply(cache, plan)
    return Figures(mix.name, pods, bound, first_s, cycles_s)


def _cycle(cache: Cache, policy: Policy | None, now: float) -> tuple[Snapshot, Plan, float]:
    gc.collect()
    start = time.process_time()
    snapshot = cache.snapshot(now)
    plan = schedule(snapshot, policy)
    return snapshot, plan, time.process_time() - start


def _apply(cache: Cache, plan: Plan) -> None:
    """Pods are bound, and victims are gone at once."""
    for bind in plan.binds:
        cache.assume_bind(bind.pod, bind)
    for eviction in plan.evictions:
        cache.remove(kubernetes.Pod, *eviction.pod.split("/"))
    for resize in plan.resizes:
        cache.assume_size(resize.job, {resize.role: resize.to_size}, 0.0)
        for leaver in resize.leaves:
            cache.remove(kubernetes.Pod, *leaver.pod.split("/"))
    cache.promise({nomination.pod: nomination.node for nomination in plan.nominations}, plan.claimants)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mixes", description=__doc__)
    parser.add_argument(
        "--random", type=int, metavar="N", help="so many mixes drawn at random instead of the fixed list"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", metavar="TEXT", default="", help="only mixes with this in their name")
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
    options = parser.parse_args(arguments)
    mixes = fixed() if options.random is None else drawn(options.random, options.seed)
    found = []
    if options.output == "table":
        print("| mix | pods | bound | decided/s | first cycle | p50 | longest |\n|---|---|---|---|---|---|---|")
    for mix in mixes:
        if options.only not in mix.name:
            continue
        figures = measure(mix, options.seed)
        found.append(figures)
        if options.output == "table":
            print(
                f"| {figures.name} | {figures.pods:,} | {figures.bound:,} | {figures.rate:,.0f} | "
                f"{figures.first_s:.2f} s | {figures.p50_ms:.1f} ms | {figures.longest_ms:.1f} ms |",
                flush=True,
            )
    if options.output == "json":
        json.dump([vars(figures) for figures in found], sys.stdout)
    elif found:
        rates, cycles = sorted(f.rate for f in found), sorted(f.p50_ms for f in found)
        print(f"\nworst {rates[0]:,.0f} pods decided/s, median {statistics.median(rates):,.0f}")
        print(f"longest median cycle {cycles[-1]:,.1f} ms, median {statistics.median(cycles):,.1f} ms")


if __name__ == "__main__":
    main()
