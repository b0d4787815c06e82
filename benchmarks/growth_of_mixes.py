"""How cycles grow with each dimension of a mix: it is doubled three times, and all others stay.

An exponent of 0 is no growth, 1 is twice the work for twice as much. Calls are those of Python and of what it calls in
C; they are the same in each run, and do not see how long the arrays are. Processor time does, and it is noisy.
"""

import cProfile
import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from benchmarks.generated_mixes import Mix
from benchmarks.measured_mixes import Meter, Play, processor_s

# Half in use, and more waits than fits. What is free stays 400 GPUs when nodes are added: those are full.
BASE = Mix(nodes=100, queues=10, gangs=100)
CYCLES = 5  # after the first; the median counts
_TIMES = (1, 2, 4, 8)


def dimensions(base: Mix) -> dict[str, Callable[[int], Mix]]:
    """For each dimension the mix in which there is so many times as much of it."""
    return {
        "nodes, the new ones full": lambda times: replace(
            base, nodes=base.nodes * times, running=1 - (1 - base.running) / times
        ),
        "queues": lambda times: replace(base, queues=base.queues * times),
        "waiting gangs": lambda times: replace(base, gangs=base.gangs * times),
        "shapes": lambda times: replace(base, shapes=base.shapes * times),
        "running jobs": lambda times: replace(base, settled=base.nodes * 4 * times),
        "reservations: queues whose gangs are old": lambda times: replace(
            base, is_old=True, queues=base.queues * max(_TIMES), busy_queues=base.queues * times
        ),
    }


@dataclass(frozen=True)
class Growth:
    dimension: str
    first_calls: float
    first_s: float
    next_calls: float
    next_s: float


def growths(base: Mix, seed: int, say: Callable[[str], None]) -> Iterator[Growth]:
    for dimension, of in dimensions(base).items():
        found: dict[Meter, list[tuple[float, float]]] = {calls: [], processor_s: []}
        for times in _TIMES:
            for meter, amounts in found.items():
                say(f"{dimension} × {times}")
                amounts.append(_cycles(of(times), seed, meter))
        exponents = [_exponent([amount[which] for amount in amounts]) for which in (0, 1) for amounts in found.values()]
        yield Growth(dimension, *exponents)


def calls(run: Callable[[], object]) -> float:
    profile = cProfile.Profile()
    profile.enable()
    run()
    profile.disable()
    return sum(entry.callcount for entry in profile.getstats())


def _cycles(mix: Mix, seed: int, meter: Meter) -> tuple[float, float]:
    """What the first cycle takes, without the first snapshot, and the median of those after it."""
    play = Play(mix, seed)
    play.cache.snapshot(play.now)
    first = play.cycle(meter)
    amounts = []
    for _ in range(CYCLES):
        play.apply()
        play.end_a_pod()
        amounts.append(play.cycle(meter))
    return first, statistics.median(amounts)


def _exponent(amounts: list[float]) -> float:
    """The slope of the line through the logarithms."""
    xs, ys = [math.log(times) for times in _TIMES], [math.log(max(amount, 1e-9)) for amount in amounts]
    return statistics.linear_regression(xs, ys).slope
