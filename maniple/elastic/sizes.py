"""How many replicas of each role the job is to have now."""

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from maniple.api import types
from maniple.elastic.events import Replica
from maniple.elastic.job import Job


def wanted_sizes(
    job: Job, target: Iterable[types.RoleTarget], replicas: Iterable[Replica], *, keeps_first: bool
) -> dict[str, int]:
    """What the scheduler decided, else as many as there are, and always between the bounds of the role.

    This is how the scheduler counts too (model/elastic.py). `keeps_first`: the job runs, and needs its meeting point.
    """
    decided = {one.role: one.replicas for one in target}
    there: dict[str, int] = {}
    for replica in replicas:
        if replica.is_alive:
            there[replica.role] = max(there.get(replica.role, 0), replica.index + 1)
    sizes = {}
    for role in job.roles:
        size = decided.get(role.name, there.get(role.name, 0))
        sizes[role.name] = max(role.least, min(role.most, size))
    if keeps_first:
        sizes[job.lead] = max(1, sizes[job.lead])
    return sizes


def as_target(sizes: Mapping[str, int]) -> tuple[types.RoleTarget, ...]:
    return tuple(types.RoleTarget(role, size) for role, size in sizes.items())


def decided_sizes(status: types.ElasticJobStatus) -> dict[str, int]:
    return {target.role: target.replicas for target in status.target}


def resized(status: types.ElasticJobStatus, sizes: Mapping[str, int], now: datetime) -> types.ElasticJobStatus:
    """The status after a resize to these sizes of all roles."""
    return msgspec.structs.replace(status, target=as_target(sizes), last_resize_time=now, resizes=status.resizes + 1)
