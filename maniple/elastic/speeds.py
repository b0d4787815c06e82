"""The measured speed-up curve: what workers report of a generation becomes the speed of that many replicas."""

from dataclasses import dataclass

from maniple.api import types

ENOUGH = 3  # reports; the first of a generation tells of starting up, and does not count
MOST = 64
_NEWS = 0.05  # a mean that differs by less says nothing new


@dataclass(frozen=True, slots=True)
class Samples:
    """Of one generation."""

    generation: int = 0
    count: int = 0
    mean: float = 0.0

    def add(self, generation: int, throughput: float) -> "Samples":
        if generation != self.generation:
            return Samples(generation)
        weight = 1 / min(self.count + 1, 10)  # the last ten count, about
        return Samples(generation, self.count + 1, self.mean + weight * (throughput - self.mean))


def measured(
    before: tuple[types.MeasuredSpeed, ...], samples: Samples, replicas: int
) -> tuple[types.MeasuredSpeed, ...]:
    """The speeds with what has been learned of this size, once it is enough, and new."""
    if samples.count < ENOUGH or samples.mean <= 0 or replicas < 1:
        return before
    known = {one.replicas: one for one in before}
    old = known.get(replicas)
    if old is not None and abs(old.throughput - samples.mean) <= _NEWS * old.throughput:
        return before
    known[replicas] = types.MeasuredSpeed(replicas, float(f"{samples.mean:.6g}"))  # its unit may be tiny
    if len(known) > MOST:
        return before
    return tuple(known[size] for size in sorted(known))
