"""The size that each role should have: what the scheduler counts (model/elastic.py), cut to the role's maximum."""

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from maniple.api import types
from maniple.elastic.events import Replica
from maniple.elastic.job_spec import JobSpec
from maniple.model.elastic import role_sizes


def wanted_sizes(job: JobSpec, target: Iterable[types.RoleTarget], replicas: Iterable[Replica]) -> dict[str, int]:
    """Role -> replicas that the job should have now."""
    sizes = role_sizes(job.spec.roles, target, (replica.key for replica in replicas if replica.is_alive))
    return {role.name: min(role.most, sizes[role.name]) for role in job.spec.roles}


def as_target(sizes: Mapping[str, int]) -> tuple[types.RoleTarget, ...]:
    return tuple(types.RoleTarget(role, size) for role, size in sizes.items())


def decided_sizes(status: types.ElasticJobStatus) -> dict[str, int]:
    return {target.role: target.replicas for target in status.target}


def resized(status: types.ElasticJobStatus, sizes: Mapping[str, int], now: datetime) -> types.ElasticJobStatus:
    """The status after a resize to these sizes of all roles."""
    return msgspec.structs.replace(status, target=as_target(sizes), last_resize_time=now, resizes=status.resizes + 1)
