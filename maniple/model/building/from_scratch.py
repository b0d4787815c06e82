"""Objects to Snapshot in one step: the incremental builder, run once. Raises the contradictions it reports."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from maniple.model.building.incremental import SnapshotBuilder, key_of_object
from maniple.model.building.input_objects import Objects
from maniple.model.disruption_budgets import find_budgets
from maniple.model.plugin_reads import Reads
from maniple.model.pods_we_schedule import Ours
from maniple.model.queues import tree_problems, with_default
from maniple.model.snapshot import Snapshot


def build_snapshot(
    objects: Objects, ours: Ours | None = None, now: float | None = None, reads: Reads | None = None
) -> Snapshot:
    """The snapshot of `objects` at `now` (default: the latest time that any of them mentions).

    Raises InputError with every contradiction between objects.
    """
    # What else is wrong depends on the queues, so a broken tree is reported alone.
    objects.refuse(tree_problems(with_default(objects.queues)))
    builder = SnapshotBuilder(ours or Ours(), reads)
    with _paused_gc():
        for items in objects.by_kind().values():
            for item in items:
                builder.put(item)
        for pod in objects.implied:
            builder.put(pod)
        snapshot = builder.snapshot(now)
    if builder.wrong:
        # Problems of implied pods are left out: the problem is their ElasticJob's, which is reported.
        items = [*objects.nodes, *objects.pod_groups, *objects.elastic_jobs, *objects.pods]
        objects.refuse((item, text) for item in items for text in builder.wrong.get(key_of_object(item), ()))
    # Budgets count all existing pods: also those that no decision depends on, and none that are still to be created.
    return replace(snapshot, budgets=find_budgets(objects.budgets, objects.pods))


@contextmanager
def _paused_gc() -> Iterator[None]:
    """Nothing that is allocated here becomes garbage before the end, so that collections would only cost time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
