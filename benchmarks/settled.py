"""A full cluster in which 20,000 gangs wait in 100 queues: what a cycle costs when little has changed, or nothing."""

import gc
import statistics

from benchmarks.generated_mixes import Mix
from benchmarks.measured_mixes import Play
from benchmarks.timing_and_results import Result

LEAST_ROUNDS, MOST_ROUNDS = 3, 20
_BUDGET_S = 5.0  # of the cycles that count, if the least number of rounds takes no longer
# In one that is not even, queues go on reclaiming from each other.
_FULL = Mix(nodes=1_000, queues=100, running=1.0, gangs=20_000, is_even=True)


def settled() -> list[Result]:
    results = []
    for mix, ages in ((_FULL, "all new"), (Mix(**vars(_FULL) | {"is_old": True}), "all older than the patience")):
        ended_s, nothing_s = measure(mix, MOST_ROUNDS)
        for what, seconds, most in (("one pod has ended", ended_s, 0.05), ("nothing has changed", nothing_s, 0.005)):
            middle = statistics.median(seconds)
            figure = f"{middle * 1e3:.1f} ms, at most {max(seconds) * 1e3:.1f} ms"
            name = f"20,000 gangs wait in 100 queues, {ages}; {what}"
            results.append(Result(name, figure, f"<= {most * 1e3:.0f} ms", middle <= most, middle))
    return results


def measure(mix: Mix, rounds: int) -> tuple[list[float], list[float]]:
    """Cycles before which one pod has ended, and cycles before which nothing happened: `rounds` at most."""
    play = Play(mix)
    _settle(play)
    gc.freeze()
    ended_s: list[float] = []
    nothing_s: list[float] = []
    while len(ended_s) < rounds and (len(ended_s) < LEAST_ROUNDS or sum(ended_s + nothing_s) < _BUDGET_S):
        play.end_a_pod()
        ended_s.append(play.cycle())
        play.apply()
        _settle(play)
        nothing_s.append(play.cycle())
    gc.unfreeze()
    return ended_s, nothing_s


def _settle(play: Play) -> None:
    """Until a plan changes nothing. Some never come to rest: then the last one counts as if it did."""
    for _ in range(5):
        play.cycle()
        play.apply()
        if not play.plan.decides:
            break
