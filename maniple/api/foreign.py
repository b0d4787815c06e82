"""The PodGroups and Queues of kube-batch, Volcano, scheduler-plugins and Kubernetes itself, read as ours.

Who comes from those systems changes one schedulerName and nothing else. A field of theirs that has no counterpart here
is never dropped in silence: `unread` names those that were set, and the reader passes that on as a note.
"""

from collections.abc import Mapping

import msgspec

from maniple.api.core import Pod
from maniple.api.meta import Int32, ObjectMeta, ResourceList, Struct
from maniple.api.types import POD_GROUP_LABEL, PodGroup, PodGroupRole, PodGroupSpec, Queue, QueueSpec

Unknown = Mapping[str, object]


class KubeBatchPodGroupSpec(Struct, frozen=True):
    min_member: Int32 = 1
    queue: str = ""
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
    queue: str = ""
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
            # Volcano's tree hangs below a queue named root that stands for the cluster; ours has no such queue.
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
    """scheduler-plugins' PodGroup. Its schedule timeout has no meaning where a gang never holds what it waits for."""

    metadata: ObjectMeta
    spec: CoschedulingPodGroupSpec = CoschedulingPodGroupSpec()
    status: dict[str, object] = {}

    def ours(self) -> PodGroup:
        return PodGroup(metadata=self.metadata, spec=PodGroupSpec(min_member=max(1, self.spec.min_member)))

    def unread(self) -> list[str]:
        return ["spec.minResources"] if self.spec.min_resources else []


class GangSchedulingPolicy(Struct, frozen=True):
    min_count: Int32 = 1


class UpstreamSchedulingPolicy(Struct, frozen=True):
    gang: GangSchedulingPolicy | None = None
    basic: Unknown | None = None


class UpstreamPodGroupSpec(Struct, frozen=True):
    scheduling_policy: UpstreamSchedulingPolicy = UpstreamSchedulingPolicy()
    priority_class_name: str = ""
    priority: Int32 | None = None  # what the server makes of the class
    preemption_policy: str = ""
    workload_ref: Unknown = {}  # from where the server's controllers have copied all this
    scheduling_constraints: Unknown = {}
    disruption_mode: Unknown = {}
    resource_claims: tuple[Unknown, ...] = ()
    parent_composite_pod_group_name: str = ""


class UpstreamPodGroup(Struct, frozen=True):
    """Kubernetes' own PodGroup, scheduling.k8s.io/v1beta1. Its pods name it in `spec.schedulingGroup`."""

    metadata: ObjectMeta
    spec: UpstreamPodGroupSpec = UpstreamPodGroupSpec()
    status: dict[str, object] = {}

    def ours(self) -> PodGroup:
        gang = self.spec.scheduling_policy.gang
        spec = PodGroupSpec(
            min_member=1 if gang is None else max(1, gang.min_count),
            priority_class_name=self.spec.priority_class_name,
        )
        return PodGroup(metadata=self.metadata, spec=spec)

    def unread(self) -> list[str]:
        given = {
            "spec.schedulingConstraints": self.spec.scheduling_constraints,
            "spec.disruptionMode": self.spec.disruption_mode,
            "spec.resourceClaims": self.spec.resource_claims,
            "spec.parentCompositePodGroupName": self.spec.parent_composite_pod_group_name,
        }
        return [name for name, value in given.items() if value]


ForeignObject = (
    KubeBatchPodGroup | KubeBatchQueue | VolcanoPodGroup | VolcanoQueue | CoschedulingPodGroup | UpstreamPodGroup
)


def with_gang_label(pod: Pod) -> Pod:
    """The pod with its gang in a label, as everybody else names theirs, if `spec.schedulingGroup` has it."""
    group = pod.spec.scheduling_group
    if group is None or not group.pod_group_name or POD_GROUP_LABEL in pod.metadata.labels:
        return pod
    labels = {**pod.metadata.labels, POD_GROUP_LABEL: group.pod_group_name}
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, labels=labels))
