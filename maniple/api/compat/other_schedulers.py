"""The PodGroups and Queues of kube-batch, Volcano and scheduler-plugins, read as ours. See also upstream_podgroup.py.

Users of those schedulers change the schedulerName and nothing else. Fields that have no counterpart here are never
dropped silently: `unread` names those that were set, and the decoder adds a note.
"""

from collections.abc import Mapping
from typing import ClassVar

from maniple.api.compat.upstream_podgroup import UpstreamPodGroup
from maniple.api.meta import Int32, ObjectMeta, ResourceList, Struct
from maniple.api.quantity import QuantityError, parse_quantity
from maniple.api.types import PodGroup, PodGroupRole, PodGroupSpec, PodGroupStatus, Queue, QueueSpec

Unknown = Mapping[str, object]
_ROOT = "root"
_OVER = ("Finished", "Completed", "Failed")  # phases of their PodGroups

Amount = str | int | float  # of a resource


def _is_less(one: Amount, other: Amount) -> bool:
    """False for what is no quantity, which is an error later."""
    try:
        return parse_quantity(str(one)) < parse_quantity(str(other))
    except QuantityError:
        return False


class OtherObject(Struct, frozen=True):
    UNREAD: ClassVar[tuple[str, ...]] = ()  # fields of the spec that have no counterpart here

    metadata: ObjectMeta
    spec: Struct
    status: dict[str, object] = {}

    def unread(self) -> list[str]:
        """The paths of those that are set."""
        names = zip(self.spec.__struct_fields__, self.spec.__struct_encode_fields__, strict=True)
        return [f"spec.{written}" for name, written in names if name in self.UNREAD and getattr(self.spec, name)]

    def group_status(self) -> PodGroupStatus:
        """Of a PodGroup only whether it is over counts: then it does not wait for pods."""
        return PodGroupStatus(phase="Finished" if self.status.get("phase") in _OVER else "")


class KubeBatchPodGroupSpec(Struct, frozen=True):
    min_member: Int32 = 1
    queue: str = ""
    priority_class_name: str = ""
    min_resources: ResourceList = {}


class KubeBatchPodGroup(OtherObject, frozen=True):
    UNREAD = ("min_resources",)
    spec: KubeBatchPodGroupSpec = KubeBatchPodGroupSpec()

    def ours(self) -> PodGroup:
        spec = PodGroupSpec(
            min_member=max(1, self.spec.min_member),
            queue=self.spec.queue,
            priority_class_name=self.spec.priority_class_name,
        )
        return PodGroup(self.metadata, spec, self.group_status())


class KubeBatchQueueSpec(Struct, frozen=True):
    weight: Int32 = 1
    capability: ResourceList = {}


class KubeBatchQueue(OtherObject, frozen=True):
    spec: KubeBatchQueueSpec = KubeBatchQueueSpec()

    def ours(self) -> Queue:
        spec = QueueSpec(weight=max(1, self.spec.weight), limit=self.spec.capability)
        return Queue(metadata=self.metadata, spec=spec)


class VolcanoPodGroupSpec(Struct, frozen=True):
    min_member: Int32 = 1
    min_task_member: dict[str, Int32] = {}
    queue: str = ""
    priority_class_name: str = ""
    min_resources: ResourceList = {}
    network_topology: Unknown = {}
    sub_group_policy: tuple[Unknown, ...] = ()


class VolcanoPodGroup(OtherObject, frozen=True):
    UNREAD = ("min_resources", "network_topology", "sub_group_policy")
    spec: VolcanoPodGroupSpec = VolcanoPodGroupSpec()

    def ours(self) -> PodGroup:
        roles = tuple(
            PodGroupRole(name=name, min_member=max(0, count))
            for name, count in sorted(self.spec.min_task_member.items())
        )
        spec = PodGroupSpec(
            min_member=max(1, self.spec.min_member, sum(role.min_member for role in roles)),
            queue=self.spec.queue,
            priority_class_name=self.spec.priority_class_name,
            roles=roles,
        )
        return PodGroup(self.metadata, spec, self.group_status())


class VolcanoGuarantee(Struct, frozen=True):
    resource: ResourceList = {}


class VolcanoQueueSpec(Struct, frozen=True):
    weight: Int32 = 1
    capability: ResourceList = {}
    deserved: ResourceList = {}
    guarantee: VolcanoGuarantee = VolcanoGuarantee()
    reclaimable: bool = True
    parent: str = ""
    priority: Int32 = 0
    type: str = ""
    dequeue_strategy: str = ""
    affinity: Unknown = {}
    extend_clusters: tuple[Unknown, ...] = ()


class VolcanoQueue(OtherObject, frozen=True):
    UNREAD = ("type", "dequeue_strategy", "affinity", "extend_clusters")
    spec: VolcanoQueueSpec = VolcanoQueueSpec()

    def unread(self) -> list[str]:
        state = self.status.get("state")
        return [*super().unread(), *([f"status.state ({state})"] if state in ("Closed", "Closing") else [])]

    @property
    def is_cluster(self) -> bool:
        """Volcano's tree has a queue named root, which stands for the cluster; ours has none."""
        return self.metadata.name == _ROOT

    def _guaranteed(self) -> ResourceList:
        """What the queue gets before weights count: `deserved`, within its capability, or `guarantee` if that is more.

        Others use what it does not ask for, and give it back when it does: so means `deserved` in Volcano.
        """
        guarantee, capability = self.spec.guarantee.resource, self.spec.capability
        amounts = dict(guarantee)
        for name, deserved in self.spec.deserved.items():
            most = capability.get(name, deserved)
            due = most if _is_less(most, deserved) else deserved
            amounts[name] = guarantee[name] if name in guarantee and _is_less(due, guarantee[name]) else due
        return amounts

    def ours(self) -> Queue:
        spec = QueueSpec(
            parent="" if self.spec.parent == _ROOT else self.spec.parent,
            weight=max(1, self.spec.weight),
            guaranteed=self._guaranteed(),
            limit=self.spec.capability,
            reclaimable=self.spec.reclaimable,
            priority=self.spec.priority,
        )
        return Queue(metadata=self.metadata, spec=spec)


class CoschedulingPodGroupSpec(Struct, frozen=True):
    min_member: Int32 = 1
    min_resources: ResourceList = {}
    schedule_timeout_seconds: Int32 | None = None


class CoschedulingPodGroup(OtherObject, frozen=True):
    """scheduler-plugins' PodGroup. Its schedule timeout is not needed: a waiting gang holds no resources here."""

    UNREAD = ("min_resources",)
    spec: CoschedulingPodGroupSpec = CoschedulingPodGroupSpec()

    def ours(self) -> PodGroup:
        return PodGroup(self.metadata, PodGroupSpec(min_member=max(1, self.spec.min_member)), self.group_status())


ForeignObject = (
    KubeBatchPodGroup | KubeBatchQueue | VolcanoPodGroup | VolcanoQueue | CoschedulingPodGroup | UpstreamPodGroup
)
