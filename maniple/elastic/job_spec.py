"""What the machine needs of an ElasticJob's spec, read once."""

from dataclasses import dataclass

from maniple.api import types
from maniple.api.labels import NPROC_ANNOTATION
from maniple.api.quantity import parse_quantity

ReplicaKey = tuple[str, int]  # role, index


@dataclass(frozen=True, slots=True)
class RoleSpec:
    name: str
    min: int  # the job does not go on with fewer replicas
    least: int  # replicas that it starts with and grows back to: min, or the pin
    most: int  # replicas that it may have: max, or the pin
    max: int  # replicas that it may have without the pin
    slots: int  # workers that each replica starts
    has_work: bool = True  # False: it has no GPUs while other roles have, as a role that only launches


@dataclass(frozen=True, slots=True)
class JobSpec:
    namespace: str
    name: str
    uid: str
    spec: types.ElasticJobSpec
    roles: tuple[RoleSpec, ...]
    is_leaving: bool  # it is being deleted

    @property
    def first(self) -> ReplicaKey:
        """The replica that all others connect to. It is never shrunk away."""
        return self.spec.lead, 0

    @property
    def has_agents(self) -> bool:
        """Whether its replicas hear of a new generation at once, and acknowledge it."""
        return self.spec.framework == "torch"

    @property
    def needs_first(self) -> bool:
        """Whether the other replicas cannot go on without the first: their framework cannot move its rendezvous."""
        return self.spec.framework in ("torchrun", "horovod")

    def pod(self, key: ReplicaKey) -> str:
        """The name of the replica's pod."""
        return f"{self.name}-{key[0]}-{key[1]}"


def read_job_spec(item: types.ElasticJob) -> JobSpec:
    meta = item.metadata
    is_leaving = meta.deletion_timestamp is not None
    return JobSpec(meta.namespace, meta.name, meta.uid, item.spec, _role_specs(item.spec.roles), is_leaving)


def _role_specs(roles: tuple[types.ElasticRole, ...]) -> tuple[RoleSpec, ...]:
    workers = [_workers(role) for role in roles]
    return tuple(
        RoleSpec(
            name=role.name,
            min=role.min,
            least=role.least,
            most=role.most,
            max=role.max,
            slots=max(1, count),
            has_work=count > 0 or not any(workers),
        )
        for role, count in zip(roles, workers, strict=True)
    )


def _workers(role: types.ElasticRole) -> int:
    """Workers that a replica starts: as many as it has GPUs, unless the annotation says otherwise."""
    nproc = role.template.metadata.annotations.get(NPROC_ANNOTATION, "")
    if nproc.isascii() and nproc.isdecimal():
        return max(1, int(nproc[:9]))
    limits = [container.resources.limits for container in role.template.spec.containers]
    return sum(_whole(limit.get(name, 0)) for limit in limits for name in types.GPU_RESOURCES)


def _whole(amount: str | int | float) -> int:
    try:
        return int(parse_quantity(str(amount)))
    except ValueError:
        return 0
