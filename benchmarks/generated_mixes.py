"""Mixes of clusters: nodes, queues, sizes, shapes, load and ages vary, so that nothing can be tuned for one of them."""

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from benchmarks.generated_clusters import Object, gang, nodes, pod, topology

GPUS = 8  # of each node
NEW_S, OLD_S = 30.0, 36_000.0  # how long the youngest gang has waited
_HOUR_S = 3_600  # gangs that have waited for hours were created within one
_NEW_SPAN_S = 230  # the new ones within this: all have waited less than the 300 s of patience for a reservation
START_S = 1767225600.0  # 2026-01-01; an hour later the last gang was created


@dataclass(frozen=True)
class Mix:
    nodes: int = 1_000
    queues: int = 10
    depth: int = 1  # levels of queues
    sizes: str = "pareto"  # of gangs: one, ten, pareto, uniform
    shapes: int = 6  # different pods
    load: float = 1.5  # GPUs asked for, as a part of the cluster
    running: float = 0.5  # GPUs in use at the start
    is_old: bool = False  # all gangs have waited for hours; otherwise all for less than the patience
    elastic: float = 0.0  # the part of the running jobs, and of the waiting ones, that is elastic
    is_close: bool = False  # gangs ask for racks, and GPUs have links
    policy: str = "default"
    gangs: int = 0  # that wait; 0: as many as `load` says
    busy_queues: int = 0  # those in which gangs wait; 0: all
    settled: int = 0  # single pods that run besides, without GPUs
    is_even: bool = False  # single GPUs run, as many of each queue, and queues weigh the same: nobody has a claim

    @property
    def now(self) -> float:
        return START_S + _HOUR_S + (OLD_S if self.is_old else NEW_S)

    @property
    def name(self) -> str:
        words = [f"{self.nodes:,} nodes", f"{self.queues:,} queues" + f" in {self.depth} levels" * (self.depth > 1)]
        words += [f"sizes {self.sizes}", f"{self.shapes} shapes", f"{self.running:g} in use, {self.load:g} asked for"]
        words += ["old"] * self.is_old + [f"{self.elastic:g} elastic"] * (self.elastic > 0)
        words += [f"{self.gangs:,} gangs"] * (self.gangs > 0) + [f"{self.busy_queues:,} queues busy"] * (
            self.busy_queues > 0
        )
        words += [f"{self.settled:,} settled"] * (self.settled > 0) + ["even"] * self.is_even
        words += ["racks"] * self.is_close + [self.policy] * (self.policy != "default")
        return ", ".join(words)


def fixed() -> list[Mix]:
    """Each dimension alone, and the corners in which they meet."""
    singles, tens = Mix(sizes="one", queues=100, load=2), Mix(sizes="ten", load=2)
    base = [
        Mix(nodes=10_000, queues=100, load=1.0, running=0, is_old=True),
        Mix(nodes=10_000, queues=100, load=1.0, running=0),
        singles,
        replace(singles, shapes=60),
        replace(singles, is_old=True),
        replace(singles, running=0),
        tens,
        replace(tens, queues=1, running=0),
        replace(tens, is_old=True, queues=100),
        replace(tens, is_old=True, queues=100, running=1.0),
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


def quick() -> list[Mix]:
    """Eight of the fixed ones: one of each kind."""
    mixes = fixed()
    return [mixes[number] for number in (2, 6, 8, 11, 15, 19, 20, 38)]


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


# --- clusters


def cluster(mix: Mix, seed: int = 1) -> list[Object]:
    draw = random.Random(seed)
    product = "Tesla-V100-SXM2-32GB" if mix.is_close else ""
    made = [*nodes(mix.nodes, GPUS, product), *([topology()] if mix.is_close else [])]
    leaves = _queues(mix, made)
    shapes = [_even_shape(number) if mix.is_even else _shape(draw, number) for number in range(mix.shapes)]
    free = [GPUS] * mix.nodes
    total, asked, number = mix.nodes * GPUS, 0.0, 0
    while asked < mix.running * total:
        size, shape = (1, _even_shape(0)) if mix.is_even else (_size(draw, mix), draw.choice(shapes))
        places = _places(free, size, shape[0])
        if places is None:  # the rest of the cluster is full of single GPUs
            size, shape = 1, (1, "4", "16Gi")
            places = _places(free, 1, 1)
            if places is None:
                break
        queue = leaves[number % len(leaves)] if mix.is_even else draw.choice(leaves)
        if draw.random() < mix.elastic:
            made += _elastic(f"run-{number:06d}", shape, queue, size, places)
        else:
            made += gang(f"run-{number:06d}", size, shape, queue, 0, nodes=places)
        asked += max(size * shape[0], 1 / GPUS)
        number += 1
    made += _settled(mix)
    return [*made, *_waiting(mix, draw, shapes, leaves, number, asked)]


def _waiting(
    mix: Mix, draw: random.Random, shapes: list[tuple[int, str, str]], leaves: list[str], number: int, asked: float
) -> Iterator[Object]:
    """`number` of the first one, `asked` for already by those that run."""
    end, most, leaves = number + mix.gangs, mix.load * mix.nodes * GPUS, leaves[: mix.busy_queues or None]
    while number < end if mix.gangs else asked < most:
        size, shape = _size(draw, mix), draw.choice(shapes)
        created = number % _HOUR_S if mix.is_old else _HOUR_S - number % _NEW_SPAN_S - 1
        if mix.elastic and draw.random() < mix.elastic:
            yield from _elastic(f"wait-{number:06d}", shape, draw.choice(leaves), size, (), created)
        else:
            is_small = size * shape[0] <= 128
            close = {draw.choice(("preferred", "required")): "rack"} if mix.is_close and is_small else None
            yield from gang(f"gang-{number:06d}", size, shape, draw.choice(leaves), created, close)
        asked += max(size * shape[0], 1 / GPUS)
        number += 1


def _settled(mix: Mix) -> Iterator[Object]:
    for number in range(mix.settled):
        node = f"node-{number % mix.nodes:05d}"
        yield pod(f"settled-{number:06d}", (0, "50m", "64Mi"), {}, created="2026-01-01T00:00:00Z", node=node)


def _queues(mix: Mix, made: list[Object]) -> list[str]:
    """Writes the queues. Returns the names of those without children."""
    if mix.depth == 1:
        levels = [mix.queues]
    else:
        fan = max(2, round(mix.queues ** (1 / mix.depth)))
        levels = [fan**level for level in range(1, mix.depth)] + [mix.queues]
    for level, count in enumerate(levels):
        for number in range(count):
            spec: Object = {"weight": 1 if mix.is_even else 1 + number % 5}
            if level:
                spec["parent"] = f"q{level - 1}-{number % levels[level - 1]:04d}"
            metadata = {"name": f"q{level}-{number:04d}", "uid": f"q{level}-{number}"}
            made.append({"apiVersion": "maniple.dev/v1alpha1", "kind": "Queue", "metadata": metadata, "spec": spec})
    return [f"q{mix.depth - 1}-{number:04d}" for number in range(levels[-1])]


def _shape(draw: random.Random, number: int) -> tuple[int, str, str]:
    gpus = (1, 8, 2, 4)[number] if number < 4 else draw.choice((1, 1, 2, 4, 8))
    return gpus, str(gpus * draw.randint(4, 15)), f"{gpus * draw.randint(8, 100)}Gi"


def _even_shape(number: int) -> tuple[int, str, str]:
    """The same CPU and memory for each GPU: no queue is better off with gangs of other shapes."""
    gpus = (1, 8, 2, 4)[number % 4]
    return gpus, str(8 * gpus), f"{32 * gpus}Gi"


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


def _elastic(
    name: str, shape: tuple[int, str, str], queue: str, size: int, places: Sequence[str], created: int = 0
) -> Iterator[Object]:
    """`places`: where its pods run, `size` of them; without any it waits with as many pods as it must have."""
    moment = f"2026-01-01T{created // 3600:02d}:{created // 60 % 60:02d}:{created % 60:02d}Z"
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
        "status": {"target": [{"role": "worker", "replicas": size if places else least}]},
    }
    for index in range(size if places else least):
        labels = {"maniple.dev/job": name, "maniple.dev/role": "worker", "maniple.dev/index": str(index)}
        node = places[index] if places else None
        yield pod(f"{name}-worker-{index}", shape, labels, created=moment, node=node)
