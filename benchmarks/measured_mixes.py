"""Plays a mix: a first cycle, and cycles before each of which one running pod has ended. Says what they took.

It runs against other trees, too (see compare_mixes.py): where a cycle explains by itself, that is not apart.
"""

import gc
import inspect
import math
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.generated_clusters import dump
from benchmarks.generated_mixes import Mix, cluster
from maniple.api import kubernetes
from maniple.api.decode.decode import decode
from maniple.cluster.cache import Cache
from maniple.model.snapshot import Snapshot
from maniple.scheduler import Plan, load_policy, schedule

KUBE_BATCH = Path(__file__).parent.parent / "examples" / "policies" / "kube-batch.yaml"
LEAST_CYCLES, MOST_CYCLES = 12, 200
BUDGET_S = 4.0  # of processor time for the cycles after the first, unless the least number takes longer
_BETWEEN_S = 0.1  # from one cycle to the next: so little that gangs that are new stay so
IS_LAZY = "has_reasons" not in inspect.signature(schedule).parameters  # a cycle explains nothing by itself

Meter = Callable[[Callable[[], object]], float]


def processor_s(run: Callable[[], object]) -> float:
    """The scheduler uses one core and waits for nothing: on an idle machine this is the time on the wall."""
    gc.collect()
    start = time.process_time()
    run()
    return time.process_time() - start


@dataclass(frozen=True)
class Figures:
    name: str
    pods: int  # that waited
    bound: int
    first_s: float  # the first cycle: the first snapshot, and the plan
    explained_s: float | None  # all that wait after it; None: within the cycle
    cycles_s: list[float]  # those after it, snapshots included

    @property
    def rate(self) -> float:
        """Pods decided in a second: bound, or found to wait."""
        return self.pods / self.first_s

    @property
    def p50_ms(self) -> float:
        return statistics.median(self.cycles_s) * 1e3

    @property
    def p99_ms(self) -> float:
        """With less than 100 cycles the longest."""
        return sorted(self.cycles_s)[math.ceil(0.99 * len(self.cycles_s)) - 1] * 1e3

    def complete(self) -> dict[str, object]:
        return vars(self) | {"rate": self.rate, "p50_ms": self.p50_ms, "p99_ms": self.p99_ms}


class Play:
    """A cluster of a mix, in which cycles are played."""

    def __init__(self, mix: Mix, seed: int = 1) -> None:
        self.cache = Cache()
        for item in decode([("mix", dump(cluster(mix, seed)))]).objects:
            self.cache.put(item)
        self._policy = load_policy(KUBE_BATCH.read_bytes(), str(KUBE_BATCH)) if mix.policy == "kube-batch" else None
        self.now = mix.now
        self._draw = random.Random(seed)
        self.snapshot: Snapshot  # of the last cycle
        self.plan: Plan

    def cycle(self, meter: Meter = processor_s) -> float:
        """Plans, and returns what that took. What is planned has not happened yet."""
        took = meter(self._cycle)
        self.now += _BETWEEN_S
        return took

    def _cycle(self) -> None:
        self.snapshot = self.cache.snapshot(self.now)
        self.plan = schedule(self.snapshot, self._policy)

    def apply(self) -> None:
        """Pods are bound, and victims are gone at once."""
        plan = self.plan
        for bind in plan.binds:
            self.cache.assume_bind(bind.pod, bind)
        for eviction in plan.evictions:
            self.cache.remove(kubernetes.Pod, *eviction.pod.split("/"))
        for resize in plan.resizes:
            self.cache.assume_size(resize.job, {resize.role: resize.to_size}, 0.0)
            for leaver in resize.leaves:
                self.cache.remove(kubernetes.Pod, *leaver.pod.split("/"))
        self.cache.promise({nomination.pod: nomination.node for nomination in plan.nominations}, plan.claimants)

    def end_a_pod(self) -> None:
        running = [pod.pod for job in self.snapshot.jobs for pod in job.placed]
        if running:
            self.cache.remove(kubernetes.Pod, *self._draw.choice(running).split("/"))


def measure(mix: Mix, seed: int = 1) -> Figures:
    """As many cycles as the budget allows: the same ones in each run, up to their number."""
    play = Play(mix, seed)
    first_s = play.cycle()
    pods, bound = sum(job.waiting_pods for job in play.snapshot.waiting), len(play.plan.binds)
    explained_s = processor_s(lambda: play.plan.waiting) if IS_LAZY else None
    play.apply()
    gc.freeze()  # a collection before each cycle looks at what is new
    cycles_s: list[float] = []
    while len(cycles_s) < LEAST_CYCLES or (len(cycles_s) < MOST_CYCLES and sum(cycles_s) < BUDGET_S):
        play.end_a_pod()
        cycles_s.append(play.cycle())
        play.apply()
    gc.unfreeze()
    return Figures(mix.name, pods, bound, first_s, explained_s, cycles_s)
