"""The measured speed-up curve: throughput that workers report in a generation, by number of replicas."""

from dataclasses import dataclass

from maniple.api import types

ENOUGH = 3  # reports; the first of a generation is not counted, because it includes the start
MOST = 64  # sizes that are remembered
_CHANGE = 0.05  # a smaller relative change of the mean is not written


@dataclass(frozen=True, slots=True)
class Samples:
    """The reports of one generation."""

    generation: int = 0
    count: int = 0
    mean: float = 0.0

    def add(self, generation: int, throughput: float) -> "Samples":
        if generation != self.generation:
            return Samples(generation)
        weight = 1 / min(self.count + 1, 10)  # about the last ten count
        return Samples(generation, self.count + 1, self.mean + weight * (throughput - self.mean))


def measured(
    speeds: tuple[types.MeasuredSpeed, ...], samples: Samples, replicas: int
) -> tuple[types.MeasuredSpeed, ...]:
    """`speeds` with the mean of `samples` at this size, once there are enough and the change is worth writing."""
    if samples.count < ENOUGH or samples.mean <= 0 or replicas < 1:
        return speeds
    by_size = {speed.replicas: speed for speed in speeds}
    old = by_size.get(replicas)
    if old is not None and abs(old.throughput - samples.mean) <= _CHANGE * old.throughput:
        return speeds
    by_size[replicas] = types.MeasuredSpeed(replicas, float(f"{samples.mean:.6g}"))  # its unit may be tiny
    if len(by_size) > MOST:
        return speeds
    return tuple(by_size[size] for size in sorted(by_size))
