"""How large an elastic job is, may be, and how fast it is at which size: an ElasticJob's part of the snapshot."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from maniple.api import kubernetes, types
from maniple.api.phases import FINISHED
from maniple.model.pod_identity import pod_order, pod_role


@dataclass(frozen=True, slots=True)
class RoleSize:
    min: int
    max: int
    step: int
    size: int  # replicas that the role is to have now; those with a higher index are on their way out


@dataclass(frozen=True, slots=True)
class Elastic:
    roles: dict[str, RoleSize]  # in the order of the spec
    lead: str  # the first role that the job cannot be without
    curve: tuple[tuple[float, float], ...]  # (replicas of all roles, speed), replicas ascending; () means linear
    cooldown_until: float
    cooldown_s: float
    grow_after: float  # it is not grown before, because newcomers did not start
    restart_s: float

    @property
    def size(self) -> int:
        return sum(role.size for role in self.roles.values())

    def speed(self, replicas: int) -> float:
        """How fast the job is with so many replicas, where one replica has the speed 1 unless the curve says else."""
        return _speed(self.curve, replicas)

    def rendezvous(self, role: str, index: int) -> bool:
        """Whether it is the replica where all others meet."""
        return index == 0 and role == self.lead


def read_elastic(
    job: types.ElasticJob, sizes: dict[str, int], resized: float | None, grow_after: float = 0.0
) -> Elastic:
    """`sizes` as `current_sizes` has them; `resized`: when its size last changed, None if it never has."""
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
    """What was declared, and over it what was measured, in the declared unit at the smallest size that was measured."""
    declared = tuple(sorted((float(point.replicas), point.speedup) for point in job.spec.elastic.speedup))
    speeds = sorted((float(speed.replicas), speed.throughput) for speed in job.status.speeds)
    if not speeds:
        return declared
    smallest, throughput = speeds[0]
    unit = _speed(declared, smallest) / throughput
    measured = [(replicas, unit * each) for replicas, each in speeds]
    if not declared:
        # Nobody knows what comes after the largest size that was measured: it goes on as it did last.
        before = measured[-2] if len(measured) > 1 else (0.0, 0.0)
        last = measured[-1]
        slope = max(0.0, (last[1] - before[1]) / (last[0] - before[0]))
        most = float(max(sum(role.max for role in job.spec.roles), last[0]))
        if most > last[0]:
            measured.append((most, last[1] + slope * (most - last[0])))
    return tuple(sorted({**dict(declared), **dict(measured)}.items()))


def _speed(curve: tuple[tuple[float, float], ...], replicas: float) -> float:
    """Between points the curve is straight, before the first it comes from the origin, after the last it is flat."""
    if not curve:
        return float(replicas)
    before = (0.0, 0.0)
    for point in curve:
        if replicas <= point[0]:
            part = (replicas - before[0]) / (point[0] - before[0])
            return before[1] + part * (point[1] - before[1])
        before = point
    return before[1]


class SizedRole(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def least(self) -> int:
        """The minimum, or the pin."""


def role_sizes(
    roles: Iterable[SizedRole], target: Iterable[types.RoleTarget], living: Iterable[tuple[str, int]]
) -> dict[str, int]:
    """Role -> replicas: what the scheduler decided last, else one more than the highest index, at least the minimum.

    It is above the maximum if that was lowered since. Then the controller shrinks the role at once (elastic/sizes.py);
    in a plan the role keeps its size until a blocked gang takes the surplus back.

    `living` are (role, index) of the replicas that neither have finished nor are being deleted. It is read only if a
    role has no target.
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
    """The sizes of a job's roles. `pods` are all pods of the job."""
    living = (
        (pod_role(pod.metadata), replica_index(pod))
        for pod in pods
        if pod.status.phase not in FINISHED and pod.metadata.deletion_timestamp is None
    )
    return role_sizes(job.spec.roles, job.status.target, living)


def replica_index(pod: kubernetes.Pod) -> int:
    """Its number among the replicas of its role."""
    return pod_order(pod.metadata.name, pod.metadata.labels)[1]
