"""What an ElasticJob declares about its sizes, for the referee alone: bounds, steps, cool-down, speed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction

from properties.raw_objects import Object, at, number, quantity, rows, table, text

HORIZON_S = 3600  # a resize has to pay back within so long, if the policy says nothing else


def moment(written: object) -> int | None:
    """Seconds since 1970 of a Kubernetes timestamp."""
    if written is None or not str(written):
        return None
    read = datetime.fromisoformat(str(written).replace("Z", "+00:00"))
    return int((read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp())


def written_moment(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def newest(items: Iterable[object]) -> int:
    """The newest time that objects mention: the time of the decision, if none is given."""
    paths = (
        ("metadata", "creationTimestamp"),
        ("metadata", "deletionTimestamp"),
        ("status", "startTime"),
        ("status", "lastResizeTime"),
    )
    return max((moment(at(item, *path)) or 0 for item in items for path in paths), default=0)


@dataclass(frozen=True)
class Role:
    name: str
    least: int
    most: int
    step: int = 1
    template: Object = field(default_factory=dict)


@dataclass(frozen=True)
class Elasticity:
    roles: dict[str, Role]
    cooldown_s: int = 60
    restart_s: int = 30
    curve: tuple[tuple[int, Fraction], ...] = ()  # replicas of all roles -> speed-up, by replicas
    target: dict[str, int] = field(default_factory=dict)  # sizes that were decided
    resized: int | None = None  # when the job was resized last
    grow_after: int | None = None  # it does not grow before this
    wants_pods: bool = True

    @property
    def first_role(self) -> str:
        """The role where the others meet: the first one with a minimum above zero."""
        return next((name for name, role in self.roles.items() if role.least > 0), next(iter(self.roles), ""))

    def speed(self, replicas: int) -> Fraction | None:
        """Linear between points, flat after the last; unknown before the first."""
        if not self.curve:
            return Fraction(replicas)
        before = [point for point in self.curve if point[0] <= replicas]
        behind = [point for point in self.curve if point[0] > replicas]
        if not before:
            return None
        (low, slow) = before[-1]
        if not behind:
            return slow
        (high, fast) = behind[0]
        return slow + (fast - slow) * Fraction(replicas - low, high - low)

    def pays_back(self, old: int, new: int) -> bool:
        slow, fast = self.speed(old), self.speed(new)
        if slow is None or fast is None:
            return True
        return fast > slow and (fast - slow) * HORIZON_S >= slow * self.restart_s


def read_elasticity(item: object) -> Elasticity:
    spec, status = table(item, "spec"), table(item, "status")
    roles = [
        Role(
            name=text(role, "name"),
            least=number(role, "min", default=1),
            most=number(role, "max", default=1),
            step=number(role, "step", default=1),
            template=table(role, "template"),
        )
        for role in rows(spec, "roles")
    ]
    points = [(number(row, "replicas"), quantity(text(row, "speedup"))) for row in rows(spec, "elastic", "speedup")]
    return Elasticity(
        roles={role.name: role for role in roles},
        cooldown_s=number(spec, "elastic", "cooldownSeconds", default=60),
        restart_s=number(spec, "elastic", "restartSeconds", default=30),
        curve=tuple(sorted(points)),
        target={text(row, "role"): number(row, "replicas") for row in rows(status, "target")},
        resized=moment(status.get("lastResizeTime")),
        grow_after=moment(status.get("growAfter")),
        wants_pods=spec.get("suspend") is not True and text(status, "phase") not in {"Succeeded", "Failed"},
    )
