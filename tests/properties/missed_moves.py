"""Tiny clusters of single pods: every set of those that may be moved is tried with every place of the gang."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from typing import NamedTuple

from hypothesis import strategies as st

from properties.raw_objects import Object
from properties.test_referee import group, node, pod

GPUS = 4  # of each node, unless some have fewer


class Running(NamedTuple):
    """A running pod."""

    at: int
    gpus: int
    may_be_on: tuple[int, ...] = ()  # the only nodes that it may be on; empty: any
    is_movable: bool = True


class Tiny(NamedTuple):
    sizes: tuple[int, ...]  # GPUs of each node
    jobs: tuple[Running, ...]
    need: int  # pods of the gang that waits
    size: int  # GPUs of each

    @property
    def free(self) -> list[int]:
        left = list(self.sizes)
        for job in self.jobs:
            left[job.at] -= job.gpus
        return left

    @property
    def running(self) -> list[Object]:
        """Without the gang that waits."""
        made = [node(f"n{number}", gpus=gpus) for number, gpus in enumerate(self.sizes)]
        for number, job in enumerate(self.jobs):
            name, rules = f"x{number}", dict[str, object]()
            if job.may_be_on:
                names = [f"n{at}" for at in job.may_be_on]
                match = {"key": "kubernetes.io/hostname", "operator": "In", "values": names}
                terms = {"nodeSelectorTerms": [{"matchExpressions": [match]}]}
                rules["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
            made.append(group(name, 1, movable=job.is_movable))
            made.append(pod(f"{name}-0", job.gpus, on=f"n{job.at}", group=name, cpu="10m", **rules))
        return _with_versions(made)

    @property
    def objects(self) -> list[Object]:
        pods = [pod(f"g-{n}", self.size, group="g", cpu="10m") for n in range(self.need)]
        return [*self.running, *_with_versions([group("g", self.need), *pods])]


def _with_versions(objects: list[Object]) -> list[Object]:
    ours = ("PodGroup",)
    return [{"apiVersion": "maniple.dev/v1alpha1" if item["kind"] in ours else "v1"} | item for item in objects]


@st.composite
def tiny_clusters(draw: st.DrawFn, *, are_alike: bool = True) -> Tiny:
    """Enough is free in all, and not together. `are_alike`: all nodes have four GPUs, and all pods may go anywhere."""
    nodes = draw(st.integers(2, 4))
    sizes = [GPUS] * nodes if are_alike else [draw(st.integers(1, GPUS)) for _ in range(nodes)]
    left, jobs = list(sizes), list[Running]()
    for _ in range(draw(st.integers(2, 6))):
        gpus = draw(st.sampled_from((1, 1, 2, 3)))
        open_nodes = [at for at in range(nodes) if left[at] >= gpus]
        if open_nodes:
            at = draw(st.sampled_from(open_nodes))
            left[at] -= gpus
            others = () if are_alike or draw(st.booleans()) else draw(st.sets(st.integers(0, nodes - 1)))
            is_movable = are_alike or draw(st.integers(0, 3)) > 0
            jobs.append(Running(at, gpus, tuple(sorted({at, *others})) if others else (), is_movable))
    size = draw(st.sampled_from((2, 3, 4)))
    return Tiny(tuple(sizes), tuple(jobs), draw(st.integers(1, max(1, min(2, sum(left) // size)))), size)


def can_start(tiny: Tiny, most_moved: int) -> bool:
    """Whether the gang can start if at most so many pods move, each to what is free now and the gang does not take."""
    free = tiny.free
    for count in range(most_moved + 1):
        for chosen in combinations([job for job in tiny.jobs if job.is_movable], count):
            later = list(free)
            for job in chosen:
                later[job.at] += job.gpus
            for counts in product(*(range(min(amount // tiny.size, tiny.need) + 1) for amount in later)):
                if sum(counts) == tiny.need:
                    after = [amount - taken * tiny.size for amount, taken in zip(later, counts, strict=True)]
                    rest = [min(now, then) for now, then in zip(free, after, strict=True)]
                    if fits(rest, chosen):
                        return True
    return False


def fits(free: Sequence[int], jobs: Sequence[Running]) -> bool:
    if not jobs:
        return True
    for at, amount in enumerate(free):
        if amount >= jobs[0].gpus and (not jobs[0].may_be_on or at in jobs[0].may_be_on):
            rest = [*free[:at], amount - jobs[0].gpus, *free[at + 1 :]]
            if fits(rest, jobs[1:]):
                return True
    return False


def could_empty(tiny: Tiny) -> bool:
    """Whether the pods of a partly used node find room on other nodes that are partly used."""
    free = tiny.free
    partly = [at for at, gpus in enumerate(tiny.sizes) if 0 < free[at] < gpus]
    for at in partly:
        mine = [job for job in tiny.jobs if job.at == at]
        others = [amount if other in partly and other != at else 0 for other, amount in enumerate(free)]
        if all(job.is_movable for job in mine) and fits(others, mine):
            return True
    return False
