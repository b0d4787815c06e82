"""Consolidate in clusters whose free GPUs are scattered: large gangs that start only where many small jobs move away.

Also what the idle pass costs while nothing waits. Times are those of one cycle: decisions only, without explanations.
"""

import random
from collections.abc import Sequence
from functools import cache
from statistics import median

from benchmarks import generated_clusters
from benchmarks.generated_clusters import Object
from benchmarks.timing_and_results import Result, best, snapshot_of
from maniple.model.snapshot import Snapshot
from maniple.scheduler import Plan, Policy, load_policy, schedule
from maniple.scheduler.framework.policy import default_policy_text

DAY_S = 24 * 3600
NODES = 1_000
SHAPES = {gpus: (gpus, str(8 * gpus), f"{32 * gpus}Gi") for gpus in (1, 2, 4, 8)}


def consolidate() -> list[Result]:
    results = [
        _one_gang("a gang of 8 pods x 8 GPUs", 8, 8),
        _one_gang("a gang of 64 pods x 8 GPUs", 64, 8),
        _one_gang("a gang of 64 pods x 4 GPUs", 64, 4),
        _one_gang("a gang of 64 pods x 8 GPUs, nodes of 4, 8 and 16 GPUs, jobs of 1, 2 and 4", 64, 8, is_mixed=True),
        _one_gang("a gang of 64 pods x 1 GPU in one rack of 16 nodes", 64, 1, close={"required": "rack"}),
    ]
    seconds = [result.seconds for result in results[1:] if result.seconds is not None]
    figure = f"{median(seconds):.2f} s, and {max(seconds):.2f} s at worst"
    results.append(Result("consolidate: a gang of 64 pods, the median of these", figure, "<= 2 s", max(seconds) <= 2))
    return [*results, *_idle()]


def _one_gang(
    what: str, pods: int, gpus: int, *, is_mixed: bool = False, close: dict[str, str] | None = None
) -> Result:
    objects = _scattered(is_mixed=is_mixed)
    objects += generated_clusters.gang("wait", pods, SHAPES[gpus], "default", 0, close)
    snapshot = snapshot_of(objects)
    plans: list[Plan] = []
    policy = _policy(is_idle=False)
    seconds = best(lambda: plans.append(schedule(snapshot, policy)))
    moves = len(plans[-1].moves)
    if not moves or len(plans[-1].nominations) != pods:
        raise RuntimeError(f"{moves} moves, {len(plans[-1].nominations)} nominations: this measures something else")
    name = f"consolidate: {what}, 1,000 nodes with scattered GPUs"
    return Result(name, f"{seconds:.2f} s ({moves} moves)", "<= 2 s", seconds <= 2, seconds)


def _scattered(*, is_mixed: bool = False, free: Sequence[int] = (0, 1, 2, 3)) -> list[Object]:
    """On each node a few GPUs are free, and small jobs that may be moved hold the others."""
    draw = random.Random(5)
    objects: list[Object] = [generated_clusters.topology()]
    if is_mixed:
        by_size = [list(generated_clusters.nodes(NODES, gpus)) for gpus in (4, 8, 16)]
        objects += [by_size[number % 3][number] for number in range(NODES)]
    else:
        objects += generated_clusters.nodes(NODES)
    for number in range(NODES):
        size = (4, 8, 16)[number % 3] if is_mixed else 8
        left, name = size - draw.choice(free), f"node-{number:05d}"
        while left > 0:
            gpus = min(left, draw.choice((1, 2, 4)), 4) if is_mixed else 1
            gpus = gpus if gpus in SHAPES else 1
            left -= gpus
            run = f"run-{number:04d}-{left}"
            moment = draw.randrange(DAY_S)
            group, *rest = generated_clusters.gang(run, 1, SHAPES[gpus], "default", moment, nodes=[name])
            group["spec"] = {"minMember": 1, "queue": "default", "movable": True}
            objects += [group, *rest]
    return objects


def _idle() -> list[Result]:
    """A cycle while nothing waits: one that empties a node, and ones that find nothing to do."""
    results = []
    scattered, full = snapshot_of(_scattered()), snapshot_of(_scattered(free=(0,)))
    plans: list[Plan] = []

    def measure(what: str, snapshot: Snapshot, *, is_idle: bool, is_known: bool = False) -> None:
        policies = [_policy(is_idle=is_idle)] * 4 if is_known else [_new_policy(is_idle=is_idle) for _ in range(4)]
        if is_known:
            schedule(snapshot, policies[0])
        seconds = best(lambda: plans.append(schedule(snapshot, policies.pop())))
        moves = len(plans[-1].moves)
        name = f"idle pass: 1,000 nodes x 8 GPUs, {what}"
        results.append(Result(name, f"{1000 * seconds:.1f} ms ({moves} moves)", "none", True, seconds))

    measure("6,500 1-GPU jobs: the pass is off", scattered, is_idle=False)
    measure("6,500 1-GPU jobs: a node is emptied", scattered, is_idle=True)
    measure("full of 8,000 1-GPU jobs: the pass is off", full, is_idle=False)
    measure("full of 8,000 1-GPU jobs: nothing is found", full, is_idle=True)
    measure("full of 8,000 1-GPU jobs: nothing has changed since", full, is_idle=True, is_known=True)
    return results


def _new_policy(*, is_idle: bool) -> Policy:
    text = default_policy_text().decode().replace("preempt, backfill", "preempt, consolidate, backfill")
    arguments = f'{{movesPerHour: "1000", consolidate.idle: "{str(is_idle).lower()}"}}'
    more = f"  - name: consolidation\n    arguments: {arguments}\n"
    return load_policy(f"{text.rstrip()}\n{more}".encode(), "policy of the benchmark")


@cache
def _policy(*, is_idle: bool) -> Policy:
    return _new_policy(is_idle=is_idle)
