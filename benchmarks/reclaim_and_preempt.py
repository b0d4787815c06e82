"""Reclaim and preempt in full clusters: gangs of many small pods, thousands of single pods, and large gangs.

Times are those of one cycle: decisions only, without explanations. Every cluster is full, and every waiting gang gets
room by evictions.
"""

import math
import random
import statistics
from collections.abc import Callable, Iterator

from benchmarks import generated_clusters
from benchmarks.generated_clusters import Object
from benchmarks.timing_and_results import Result, best, snapshot_of
from maniple.model.snapshot import Snapshot
from maniple.scheduler import Plan, schedule

Shape = tuple[int, str, str]

SMALL = (1, "8", "32Gi")
LARGE = (8, "64", "256Gi")  # all GPUs of a node
SIZES = (100, 500, 1_000)  # nodes
DAY_S = 24 * 3600


def reclaim() -> list[Result]:
    return [*(_one_gang(size) for size in (250, 500)), _single_pods(1_000), *_large_gangs("reclaim", _two_queues)]


def preempt() -> list[Result]:
    return list(_large_gangs("preempt", _two_priorities))


def _one_gang(size: int) -> Result:
    draw = random.Random(1)
    objects = [*generated_clusters.nodes(500), *_queues(), *_filled(draw, 500, 1, SMALL, "b")]
    objects += _waiting(draw, 1, size, SMALL, "a")
    seconds, plan = _cycle(snapshot_of(objects), evicted=size)
    name = f"reclaim: a gang of {size} pods, 500 nodes x 8 GPUs full of 1-GPU jobs"
    return Result(name, f"{seconds:.2f} s ({len(plan.evictions)} evictions)", "<= 1 s", seconds <= 1, seconds)


def _single_pods(nodes: int) -> Result:
    draw = random.Random(2)
    jobs = nodes * 4
    objects = [*generated_clusters.nodes(nodes), *_queues(), *_filled(draw, nodes, 1, SMALL, "b")]
    objects += _waiting(draw, jobs, 1, SMALL, "a")
    seconds, plan = _cycle(snapshot_of(objects), evicted=jobs)
    name = f"reclaim: {jobs:,} 1-GPU jobs, {nodes:,} nodes x 8 GPUs full of 1-GPU jobs"
    figure = f"{seconds:.1f} s ({len(plan.evictions):,} evictions)"
    return Result(name, figure, "<= 10 s", seconds <= 10, seconds)


def _large_gangs(action: str, cluster: Callable[[int], list[Object]]) -> Iterator[Result]:
    """As many claimants for each node in small and in large clusters, so that all the work grows with the cluster."""
    points = []
    for nodes in SIZES:
        seconds, plan = _cycle(snapshot_of(cluster(nodes)), evicted=nodes // 16 * 8)
        points.append((math.log(nodes), math.log(seconds)))
        name = f"{action}: {nodes // 16} gangs of 8 pods x 8 GPUs take the place of as many, {nodes:,} nodes"
        yield Result(name, f"{seconds:.2f} s ({len(plan.evictions)} evictions)", "none set", True, seconds)
    slope = _slope(points)
    yield Result(f"{action}: the same, growth with the nodes", f"nodes^{slope:.2f}", "<= nodes^1.3", slope <= 1.3)


def _slope(points: list[tuple[float, float]]) -> float:
    """The slope of the straight line that fits best."""
    at, height = zip(*points, strict=True)
    return statistics.linear_regression(at, height).slope


def _cycle(snapshot: Snapshot, evicted: int) -> tuple[float, Plan]:
    plans: list[Plan] = []
    seconds = best(lambda: plans.append(schedule(snapshot)))
    found = len(plans[-1].evictions)
    if found != evicted:
        raise RuntimeError(f"{found} evictions instead of {evicted}: this measures something else")
    return seconds, plans[-1]


# --- clusters


def _two_queues(nodes: int) -> list[Object]:
    draw = random.Random(3)
    made = [*generated_clusters.nodes(nodes // 16 * 16), *_queues(), *_filled(draw, nodes // 16 * 16, 8, LARGE, "b")]
    return [*made, *_waiting(draw, nodes // 16, 8, LARGE, "a")]


def _two_priorities(nodes: int) -> list[Object]:
    draw = random.Random(4)
    classes = [("low", -100), ("high", 100)]
    made: list[Object] = [
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
        for name, value in classes
    ]
    made += [*generated_clusters.nodes(nodes // 16 * 16), *_filled(draw, nodes // 16 * 16, 8, LARGE, "default", "low")]
    return [*made, *_waiting(draw, nodes // 16, 8, LARGE, "default", "high")]


def _queues() -> Iterator[Object]:
    """Two queues that deserve one half each."""
    for name in ("a", "b"):
        yield {"apiVersion": "maniple.dev/v1alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": {}}


def _filled(draw: random.Random, nodes: int, pods: int, shape: Shape, queue: str, priority: str = "") -> list[Object]:
    """Gangs of all ages on all GPUs, each spread over unrelated nodes."""
    places = [f"node-{number:05d}" for number in range(nodes) for _ in range(8 // shape[0])]
    draw.shuffle(places)
    made: list[Object] = []
    for number in range(len(places) // pods):
        mine = places[number * pods : (number + 1) * pods]
        made += generated_clusters.gang(
            f"run-{number:05d}", pods, shape, queue, draw.randrange(DAY_S), nodes=mine, priority=priority
        )
    return made


def _waiting(draw: random.Random, gangs: int, pods: int, shape: Shape, queue: str, priority: str = "") -> list[Object]:
    made: list[Object] = []
    for number in range(gangs):
        made += generated_clusters.gang(
            f"wait-{number:05d}", pods, shape, queue, draw.randrange(DAY_S), priority=priority
        )
    return made
