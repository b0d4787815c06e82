"""Consolidate in clusters whose free GPUs are scattered: large gangs that start only where many small jobs move away.

Times are those of one cycle: decisions only, explanations included.
"""

import random
from functools import cache

from benchmarks import generated_clusters
from benchmarks.generated_clusters import Object
from benchmarks.timing_and_results import Result, best, snapshot_of
from maniple.scheduler import Plan, Policy, load_policy, schedule
from maniple.scheduler.framework.policy import default_policy_text

SMALL = (1, "8", "32Gi")
LARGE = (8, "64", "256Gi")  # all GPUs of a node
DAY_S = 24 * 3600


def consolidate() -> list[Result]:
    return [_one_gang(pods) for pods in (8, 64)]


def _one_gang(pods: int) -> Result:
    """On each node 5 to 8 of its 8 GPUs are in use."""
    draw = random.Random(5)
    objects: list[Object] = list(generated_clusters.nodes(1_000))
    for node in range(1_000):
        for number in range(draw.randint(5, 8)):
            name, place = f"run-{node:04d}-{number}", f"node-{node:05d}"
            group, *rest = generated_clusters.gang(name, 1, SMALL, "default", draw.randrange(DAY_S), nodes=[place])
            group["spec"] = {"minMember": 1, "queue": "default", "movable": True}
            objects += [group, *rest]
    objects += generated_clusters.gang("wait", pods, LARGE, "default", 0)
    snapshot = snapshot_of(objects)
    plans: list[Plan] = []
    seconds = best(lambda: plans.append(schedule(snapshot, _policy())))
    moves = len(plans[-1].moves)
    if not moves or len(plans[-1].nominations) != pods:
        raise RuntimeError(f"{moves} moves, {len(plans[-1].nominations)} nominations: this measures something else")
    name = f"consolidate: a gang of {pods} pods x 8 GPUs, 1,000 nodes x 8 GPUs with 1-GPU jobs on 5 to 8"
    return Result(name, f"{seconds:.2f} s ({moves} moves)", "<= 2 s", seconds <= 2, seconds)


@cache
def _policy() -> Policy:
    text = default_policy_text().decode().replace("preempt, backfill", "preempt, consolidate, backfill")
    more = '  - name: consolidation\n    arguments: {movesPerHour: "1000"}\n'
    return load_policy(f"{text.rstrip()}\n{more}".encode(), "policy of the benchmark")
