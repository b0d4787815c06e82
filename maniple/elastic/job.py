"""What the machine must know of an ElasticJob: its spec, read once, and the size that the scheduler decided."""

from dataclasses import dataclass

from maniple.api import types
from maniple.api.labels import NPROC_ANNOTATION
from maniple.api.quantity import parse_quantity

Place = tuple[str, int]  # role, index


@dataclass(frozen=True, slots=True)
class Role:
    name: str
    min: int  # replicas without which the job does not go on
    least: int  # replicas that it starts with, and is brought back to: min, or the pin
    most: int  # replicas that it may have now: max, or the pin
    slots: int  # workers that a replica starts
    max: int  # replicas that it may have once it is not pinned
    has_work: bool = True  # False: it has no GPUs where others have, as one that only launches


@dataclass(frozen=True, slots=True)
class Job:
    namespace: str
    name: str
    uid: str
    roles: tuple[Role, ...]
    lead: str  # the first role that the job cannot be without
    framework: str
    grace_s: float
    start_s: float
    restart_policy: str
    backoff_limit: int
    deadline_s: float | None
    ttl_s: float | None
    clean: str
    is_suspended: bool
    is_leaving: bool

    @property
    def first(self) -> Place:
        """The replica where all others meet, which is never shrunk away."""
        return self.lead, 0

    @property
    def has_agents(self) -> bool:
        """Whether its replicas hear of a new generation at once, and answer."""
        return self.framework == "torch"

    @property
    def needs_first(self) -> bool:
        """Whether the others cannot go on without the first: the meeting point of these is not ours to move."""
        return self.framework in ("torchrun", "horovod")

    def pod(self, place: Place) -> str:
        return f"{self.name}-{place[0]}-{place[1]}"


def read_job(item: types.ElasticJob) -> Job:
    meta, spec = item.metadata, item.spec
    return Job(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        roles=_roles(spec.roles),
        lead=spec.lead,
        framework=spec.framework,
        grace_s=float(spec.elastic.grace_seconds),
        start_s=float(spec.start_seconds),
        restart_policy=spec.restart_policy,
        backoff_limit=spec.backoff_limit,
        deadline_s=spec.active_deadline_seconds,
        ttl_s=spec.ttl_seconds_after_finished,
        clean=spec.clean_pod_policy,
        is_suspended=spec.suspend,
        is_leaving=meta.deletion_timestamp is not None,
    )


def _roles(written: tuple[types.ElasticRole, ...]) -> tuple[Role, ...]:
    slots = [_slots(role) for role in written]
    return tuple(
        Role(role.name, role.min, role.least, role.most, max(1, own), role.max, own > 0 or not any(slots))
        for role, own in zip(written, slots, strict=True)
    )


def _slots(role: types.ElasticRole) -> int:
    said = role.template.metadata.annotations.get(NPROC_ANNOTATION, "")
    if said.isascii() and said.isdecimal():
        return max(1, int(said[:9]))
    limits = [container.resources.limits for container in role.template.spec.containers]
    return sum(_whole(limit.get(name, 0)) for limit in limits for name in types.GPU_RESOURCES)


def _whole(amount: str | int | float) -> int:
    try:
        return int(parse_quantity(str(amount)))
    except ValueError:
        return 0
