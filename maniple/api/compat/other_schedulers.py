"""The PodGroups and Queues of kube-batch, Volcano and scheduler-plugins, read as ours. See also upstream_podgroup.py.

Users of those schedulers change the schedulerName and nothing else. Fields that have no counterpart here are never
dropped silently: `unread` names those that were set, and the decoder adds a note.
"""

from collections.abc import Mapping

from maniple.api.compat.upstream_podgroup import UpstreamPodGroup
from maniple.api.meta import Int32, ObjectMeta, ResourceList, Struct
from maniple.api.types import DEFAULT_QUEUE, PodGroup, PodGroupRole, PodGroupSpec, Queue, QueueSpec

Unknown = Mapping[str, object]


class KubeBatchPodGroupSpec(Struct, frozen=True):
    min_member: Int32 = 1
    queue: str = DEFAULT_QUEUE
    priority_class_name: str = ""
    min_resources: ResourceList = {}


class KubeBatchPodGroup(Struct, frozen=True):
    metadata: ObjectMeta
    spec: KubeBatchPodGroupSpec = KubeBatchPodGroupSpec()
    status: dict[str, object] = {}

    def ours(self) -> PodGroup:
        spec = PodGroupSpec(
            min_member=max(1, self.spec.min_member),
            queue=self.spec.queue,
            priority_class_name=self.spec.priority_class_name,
        )
        return PodGroup(metadata=self.metadata, spec=spec)

    def unread(self) -> list[str]:
        return ["spec.minResources"] if self.spec.min_resources else []


class KubeBatchQueueSpec(Struct, frozen=True):
    weight: Int32 = 1
    capability: ResourceList = {}


class KubeBatchQueue(Struct, frozen=True):
    metadata: ObjectMeta
    spec: KubeBatchQueueSpec = KubeBatchQueueSpec()
    status: dict[str, object] = {}

    def ours(self) -> Queue:
        spec = QueueSpec(weight=max(1, self.spec.weight), limit=self.spec.capability)
        return Queue(metadata=self.metadata, spec=spec)

    def unread(self) -> list[str]:
        return []


class VolcanoPodGroupSpec(Struct, frozen=True):
    min_member: Int32 = 1
    min_task_member: dict[str, Int32] = {}
    queue: str = DEFAULT_QUEUE
    priority_class_name: str = ""
    min_resources: ResourceList = {}
    network_topology: Unknown = {}
    sub_group_policy: tuple[Unknown, ...] = ()


class VolcanoPodGroup(Struct, frozen=True):
    metadata: ObjectMeta
    spec: VolcanoPodGroupSpec = VolcanoPodGroupSpec()
    status: dict[str, object] = {}

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
        return PodGroup(metadata=self.metadata, spec=spec)

    def unread(self) -> list[str]:
        given = {
            "spec.minResources": self.spec.min_resources,
            "spec.networkTopology": self.spec.network_topology,
            "spec.subGroupPolicy": self.spec.sub_group_policy,
        }
        return [name for name, value in given.items() if value]


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


class VolcanoQueue(Struct, frozen=True):
    metadata: ObjectMeta
    spec: VolcanoQueueSpec = VolcanoQueueSpec()
    status: dict[str, object] = {}

    def ours(self) -> Queue:
        spec = QueueSpec(
            # Volcano's tree has a queue named root, which stands for the cluster; ours has none.
            parent="" if self.spec.parent == "root" else self.spec.parent,
            weight=max(1, self.spec.weight),
            guaranteed=self.spec.guarantee.resource,
            limit=self.spec.capability,
            reclaimable=self.spec.reclaimable,
            priority=self.spec.priority,
        )
        return Queue(metadata=self.metadata, spec=spec)

    def unread(self) -> list[str]:
        given = {
            "spec.deserved": self.spec.deserved,
            "spec.type": self.spec.type,
            "spec.dequeueStrategy": self.spec.dequeue_strategy,
            "spec.affinity": self.spec.affinity,
            "spec.extendClusters": self.spec.extend_clusters,
        }
        return [name for name, value in given.items() if value]


class CoschedulingPodGroupSpec(Struct, frozen=True):
    min_member: Int32 = 1
    min_resources: ResourceList = {}
    schedule_timeout_seconds: Int32 | None = None


class CoschedulingPodGroup(Struct, frozen=True):
    """scheduler-plugins' PodGroup. Its schedule timeout is not needed: a waiting gang holds no resources here."""

    metadata: ObjectMeta
    spec: CoschedulingPodGroupSpec = CoschedulingPodGroupSpec()
    status: dict[str, object] = {}

    def ours(self) -> PodGroup:
        return PodGroup(metadata=self.metadata, spec=PodGroupSpec(min_member=max(1, self.spec.min_member)))

    def unread(self) -> list[str]:
        return ["spec.minResources"] if self.spec.min_resources else []


ForeignObject = (
    KubeBatchPodGroup | KubeBatchQueue | VolcanoPodGroup | VolcanoQueue | CoschedulingPodGroup | UpstreamPodGroup
)
