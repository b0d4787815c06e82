"""Queues: what each holds, what it deserves, and how many of its jobs run and wait."""

from collections.abc import Iterable

import msgspec

from maniple.api import types
from maniple.api.meta import ResourceList
from maniple.api.quantity import QuantityError, parse_quantity
from maniple.views.ages_and_amounts import number


class QueueView(msgspec.Struct, frozen=True, rename="camel"):
    """A Queue with the status that `maniple serve` wrote."""

    name: str
    allocated: ResourceList
    deserved: ResourceList
    running_jobs: int
    pending_jobs: int

    @property
    def allocated_gpus(self) -> str:
        return _gpus(self.allocated)

    @property
    def deserved_gpus(self) -> str:
        return _gpus(self.deserved)


def queue_views(queues: Iterable[types.Queue]) -> tuple[QueueView, ...]:
    """By name."""
    views = []
    for queue in queues:
        status = queue.status
        jobs = status.running_jobs, status.pending_jobs
        views.append(QueueView(queue.metadata.name, status.allocated, status.deserved, *jobs))
    return tuple(sorted(views, key=lambda view: view.name))


def _gpus(resources: ResourceList) -> str:
    """`8`, `434.5`, or of several GPU resources `8+4`"""
    return "+".join(_count(resources[name]) for name in types.GPU_RESOURCES if name in resources) or "0"


def _count(written: str | int | float) -> str:
    """A share may be a fraction, which Kubernetes writes as `434500m`. What is no quantity stays as it is."""
    try:
        return number(float(parse_quantity(str(written))))
    except QuantityError:
        return str(written)
