"""Tiny clusters of single pods that may all be moved: every set of them is tried with every place of the gang."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from typing import NamedTuple

from hypothesis import strategies as st

from properties.raw_objects import Object
from properties.test_referee import group, node, pod

GPUS = 4  # of each node


class Tiny(NamedTuple):
    """Nodes of four GPUs."""

    nodes: int
    jobs: tuple[tuple[int, int], ...]  # the node of each running pod, and its GPUs
    need: int  # pods of the gang that waits
    size: int  # GPUs of each

    @property
    def free(self) -> list[int]:
        left = [GPUS] * self.nodes
        for at, gpus in self.jobs:
            left[at] -= gpus
        return left

    @property
    def running(self) -> list[Object]:
        """Without the gang that waits."""
        made = [node(f"n{number}", gpus=GPUS) for number in range(self.nodes)]
        for number, (at, gpus) in enumerate(self.jobs):
            name = f"x{number}"
            made += [group(name, 1, movable=True), pod(f"{name}-0", gpus, on=f"n{at}", group=name, cpu="10m")]
        return _with_versions(made)

    @property
    def objects(self) -> list[Object]:
        pods = [pod(f"g-{n}", self.size, group="g", cpu="10m") for n in range(self.need)]
        return [*self.running, *_with_versions([group("g", self.need), *pods])]


def _with_versions(objects: list[Object]) -> list[Object]:
    ours = ("PodGroup",)
    return [{"apiVersion": "maniple.dev/v1alpha1" if item["kind"] in ours else "v1"} | item for item in objects]


@st.composite
def tiny_clusters(draw: st.DrawFn) -> Tiny:
    """Enough is free in all, and not together."""
    nodes = draw(st.integers(2, 4))
    left, jobs = [GPUS] * nodes, []
    for _ in range(draw(st.integers(2, 6))):
        gpus = draw(st.sampled_from((1, 1, 2, 3)))
        open_nodes = [at for at in range(nodes) if left[at] >= gpus]
        if open_nodes:
            at = draw(st.sampled_from(open_nodes))
            left[at] -= gpus
            jobs.append((at, gpus))
    size = draw(st.sampled_from((2, 3, 4)))
    return Tiny(nodes, tuple(jobs), draw(st.integers(1, max(1, min(2, sum(left) // size)))), size)


def can_start(tiny: Tiny, most_moved: int) -> bool:
    """Whether the gang can start if at most so many pods move, each to what is free now and the gang does not take."""
    free = tiny.free
    for count in range(most_moved + 1):
        for chosen in combinations(tiny.jobs, count):
            later = list(free)
            for at, gpus in chosen:
                later[at] += gpus
            for counts in product(*(range(min(amount // tiny.size, tiny.need) + 1) for amount in later)):
                if sum(counts) == tiny.need:
                    after = [amount - taken * tiny.size for amount, taken in zip(later, counts, strict=True)]
                    rest = [min(now, then) for now, then in zip(free, after, strict=True)]
                    if fits(rest, sorted((gpus for _, gpus in chosen), reverse=True)):
                        return True
    return False


def fits(free: Sequence[int], sizes: Sequence[int]) -> bool:
    if not sizes:
        return True
    for at, amount in enumerate(free):
        if amount >= sizes[0]:
            rest = [*free[:at], amount - sizes[0], *free[at + 1 :]]
            if fits(rest, sizes[1:]):
                return True
    return False


def could_empty(tiny: Tiny) -> bool:
    """Whether the pods of a partly used node find room on other nodes that are partly used."""
    free = tiny.free
    partly = [at for at in range(tiny.nodes) if 0 < free[at] < GPUS]
    return any(
        fits(
            [free[other] for other in partly if other != at],
            sorted((gpus for place, gpus in tiny.jobs if place == at), reverse=True),
        )
        for at in partly
    )
