"""Shared by the benchmarks: a snapshot of objects, the time of the fastest of a few runs, and the Result to print."""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import generated_clusters
from maniple.api.decode.decode import decode
from maniple.model.building.from_scratch import build_snapshot
from maniple.model.building.input_objects import sort_objects
from maniple.model.snapshot import Snapshot


@dataclass(frozen=True)
class Result:
    name: str
    figure: str
    aim: str
    met: bool
    seconds: float | None = None  # processor time, for comparing trees; None: the figure is not a time


def snapshot_of(objects: list[generated_clusters.Object]) -> Snapshot:
    decoded = decode([("bench", generated_clusters.dump(objects))])
    return build_snapshot(sort_objects(decoded, scheduler_name="maniple"))


def best(run: Callable[[], object], times: int = 3) -> float:
    """Seconds of processor time of the fastest run: on a shared machine the least disturbed one.

    The scheduler uses one core and waits for nothing, so on an idle machine this is the wall-clock time.
    """
    found = []
    for _ in range(times):
        gc.collect()
        start = time.process_time()
        run()
        found.append(time.process_time() - start)
    return min(found)
