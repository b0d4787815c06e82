"""An ElasticJob in the snapshot: its current and allowed sizes, and its speed at each size."""

from collections.abc import Iterable
from dataclasses import dataclass

from maniple.api import kubernetes, types
from maniple.model.pod_identity import may_wait, pod_order, pod_role


@dataclass(frozen=True, slots=True)
class RoleSize:
    min: int
    max: int
    step: int
    size: int  # the replicas that the role should have now; replicas with a higher index are to be removed


@dataclass(frozen=True, slots=True)
class Elastic:
    roles: dict[str, RoleSize]  # in the order of the spec
    lead: str  # the first role that the job cannot run without
    curve: tuple[tuple[float, float], ...]  # (replicas of all roles, speed), replicas ascending; () means linear
    cooldown_until: float
    cooldown_s: float
    grow_after: float  # the job is not grown before this time, because new replicas failed to start
    restart_s: float

    @property
    def size(self) -> int:
        return sum(role.size for role in self.roles.values())

    def speed(self, replicas: int) -> float:
        """The speed with this many replicas. One replica has speed 1 unless the curve has another value."""
        return _speed(self.curve, replicas)

    def rendezvous(self, role: str, index: int) -> bool:
        """Whether this replica hosts the rendezvous of the job."""
        return index == 0 and role == self.lead


def read_elastic(
    job: types.ElasticJob, sizes: dict[str, int], resized: float | None, grow_after: float = 0.0
) -> Elastic:
    """`sizes`: as `current_sizes` returns them. `resized`: the time of the last resize, None if there was none."""
    spec = job.spec
    return Elastic(
        roles={role.name: RoleSize(role.least, role.most, role.step, sizes[role.name]) for role in spec.roles},
        lead=spec.lead,
        curve=_curve(job),
        cooldown_until=0.0 if resized is None else resized + spec.elastic.cooldown_seconds,
        cooldown_s=float(spec.elastic.cooldown_seconds),
        grow_after=grow_after,
        restart_s=float(spec.elastic.restart_seconds),
    )


def _curve(job: types.ElasticJob) -> tuple[tuple[float, float], ...]:
    """The declared speeds, replaced by measured ones where there are any.

    Measured throughput is scaled so that the smallest measured size has its declared speed.
    """
    declared = tuple(sorted((float(point.replicas), point.speedup) for point in job.spec.elastic.speedup))
    speeds = sorted((float(speed.replicas), speed.throughput) for speed in job.status.speeds)
    if not speeds:
        return declared
    smallest, throughput = speeds[0]
    unit = _speed(declared, smallest) / throughput
    measured = [(replicas, unit * speed) for replicas, speed in speeds]
    if not declared:
        # Sizes above the largest measured one are unknown. The curve is extended with its last slope.
        before = measured[-2] if len(measured) > 1 else (0.0, 0.0)
        last = measured[-1]
        slope = max(0.0, (last[1] - before[1]) / (last[0] - before[0]))
        most = float(max(sum(role.max for role in job.spec.roles), last[0]))
        if most > last[0]:
            measured.append((most, last[1] + slope * (most - last[0])))
    return tuple(sorted({**dict(declared), **dict(measured)}.items()))


def _speed(curve: tuple[tuple[float, float], ...], replicas: float) -> float:
    """The speed on the curve: linear from the origin and between points, constant after the last point."""
    if not curve:
        return float(replicas)
    before = (0.0, 0.0)
    for point in curve:
        if replicas <= point[0]:
            fraction = (replicas - before[0]) / (point[0] - before[0])
            return before[1] + fraction * (point[1] - before[1])
        before = point
    return before[1]


def role_sizes(
    roles: Iterable[types.ElasticRole], target: Iterable[types.RoleTarget], living: Iterable[tuple[str, int]]
) -> dict[str, int]:
    """Role -> replicas: the scheduler's last target, else the highest index plus one, and at least the minimum.

    A size is above the maximum if the maximum was lowered since. The controller then shrinks the role at once
    (elastic/target_sizes.py). In a plan the role keeps its size until a blocked gang reclaims the surplus.

    `living`: (role, index) of replicas that have not finished and are not terminating. It is read only if a role has no
    target.
    """
    least = {role.name: role.least for role in roles}
    sizes = {decided.role: decided.replicas for decided in target}
    if not least.keys() <= sizes.keys():
        present: dict[str, int] = {}
        for name, index in living:
            present[name] = max(present.get(name, 0), index + 1)
        sizes = present | sizes
    return {name: max(minimum, sizes.get(name, 0)) for name, minimum in least.items()}


def current_sizes(job: types.ElasticJob, pods: list[kubernetes.Pod]) -> dict[str, int]:
    """Role -> replicas. `pods`: all pods of the job."""
    living = ((pod_role(pod.metadata), replica_index(pod)) for pod in pods if may_wait(pod))
    return role_sizes(job.spec.roles, job.status.target, living)


def replica_index(pod: kubernetes.Pod) -> int:
    """The index of the pod among the replicas of its role."""
    return pod_order(pod.metadata.name, pod.metadata.labels)[1]
