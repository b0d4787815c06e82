"""Kubernetes' own objects, the parts that scheduling reads. What is not declared here is skipped while decoding."""

from datetime import datetime

from msgspec import field

from maniple.api.meta import (
    Count,
    Int32,
    Int64,
    LabelRequirement,
    Labels,
    LabelSelector,
    ObjectMeta,
    ResourceList,
    Struct,
)


class Taint(Struct, frozen=True):
    key: str
    effect: str
    value: str = ""


class NodeSpec(Struct, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class Condition(Struct, frozen=True):
    type: str
    status: str


class ContainerImage(Struct, frozen=True):
    names: tuple[str, ...] = ()
    size_bytes: Int64 = 0


class NodeStatus(Struct, frozen=True):
    capacity: ResourceList = {}
    allocatable: ResourceList = {}
    conditions: tuple[Condition, ...] = ()
    images: tuple[ContainerImage, ...] = ()
    declared_features: tuple[str, ...] = ()


class Node(Struct, frozen=True):
    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class NodeSelectorTerm(Struct, frozen=True):
    match_expressions: tuple[LabelRequirement, ...] = ()
    match_fields: tuple[LabelRequirement, ...] = ()


class NodeSelector(Struct, frozen=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...]


class PreferredSchedulingTerm(Struct, frozen=True):
    weight: int
    preference: NodeSelectorTerm


class NodeAffinity(Struct, frozen=True):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] = ()


class PodAffinityTerm(Struct, frozen=True):
    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(Struct, frozen=True):
    weight: int
    pod_affinity_term: PodAffinityTerm


class PodAffinity(Struct, frozen=True):
    """Both `podAffinity` and `podAntiAffinity` have this form."""

    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] = ()


class Affinity(Struct, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Struct, frozen=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class TopologySpreadConstraint(Struct, frozen=True):
    max_skew: Int32
    topology_key: str
    when_unsatisfiable: str
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] = ()


class ResourceRequirements(Struct, frozen=True):
    requests: ResourceList = {}
    limits: ResourceList = {}


class ContainerPort(Struct, frozen=True):
    container_port: int = 0
    host_port: int = 0
    host_ip: str = field(name="hostIP", default="")
    protocol: str = "TCP"


class ContainerRestartRule(Struct, frozen=True):
    action: str = ""


class Container(Struct, frozen=True):
    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""
    restart_policy_rules: tuple[ContainerRestartRule, ...] = ()


class ClaimSource(Struct, frozen=True):
    claim_name: str


class GCEPersistentDisk(Struct, frozen=True):
    pd_name: str
    read_only: bool = False


class AWSElasticBlockStore(Struct, frozen=True):
    volume_id: str = field(name="volumeID")
    read_only: bool = False


class RBD(Struct, frozen=True):
    monitors: tuple[str, ...] = ()
    pool: str = "rbd"
    image: str = ""
    read_only: bool = False


class ISCSI(Struct, frozen=True):
    iqn: str = ""
    read_only: bool = False


class AzureDisk(Struct, frozen=True):
    disk_uri: str = field(name="diskURI", default="")


class DiskByID(Struct, frozen=True):
    """Of Cinder or Portworx."""

    volume_id: str = field(name="volumeID", default="")


class PersistentVolumeClaimSpec(Struct, frozen=True):
    volume_name: str = ""
    access_modes: tuple[str, ...] = ()
    storage_class_name: str | None = None
    resources: ResourceRequirements = ResourceRequirements()
    selector: LabelSelector | None = None
    volume_mode: str = "Filesystem"
    volume_attributes_class_name: str = ""


class ClaimTemplate(Struct, frozen=True):
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()


class EphemeralVolume(Struct, frozen=True):
    """A claim that is created with the pod and deleted with it."""

    volume_claim_template: ClaimTemplate = ClaimTemplate()


class Volume(Struct, frozen=True):
    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: EphemeralVolume | None = None
    gce_persistent_disk: GCEPersistentDisk | None = None
    aws_elastic_block_store: AWSElasticBlockStore | None = None
    rbd: RBD | None = None
    iscsi: ISCSI | None = None
    azure_disk: AzureDisk | None = None
    cinder: DiskByID | None = None
    portworx_volume: DiskByID | None = None


class SchedulingGate(Struct, frozen=True):
    name: str


class PodSchedulingGroup(Struct, frozen=True):
    """The PodGroup of Kubernetes' own (scheduling.k8s.io) that a pod belongs to."""

    pod_group_name: str = ""


class PodResourceClaim(Struct, frozen=True):
    """A claim of dynamic resource allocation (DRA)."""

    name: str = ""


class PodSpec(Struct, frozen=True):
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    overhead: ResourceList = {}
    scheduler_name: str = ""
    node_name: str = ""
    node_selector: Labels = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    priority: Int32 | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    host_network: bool = False
    host_users: bool | None = None
    volumes: tuple[Volume, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    scheduling_group: PodSchedulingGroup | None = None
    resource_claims: tuple[PodResourceClaim, ...] = ()
    active_deadline_seconds: Int64 | None = None
    termination_grace_period_seconds: Int64 | None = None


class ContainerStatus(Struct, frozen=True):
    """What a container has now. It differs from the spec while the pod is resized in place."""

    name: str = ""
    allocated_resources: ResourceList = {}
    resources: ResourceRequirements | None = None


class PodCondition(Struct, frozen=True):
    type: str
    status: str = ""
    reason: str = ""


class PodStatus(Struct, frozen=True):
    phase: str = "Pending"
    start_time: datetime | None = None
    nominated_node_name: str = ""
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    conditions: tuple[PodCondition, ...] = ()
    allocated_resources: ResourceList = {}
    resources: ResourceRequirements | None = None


class Pod(Struct, frozen=True):
    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class PriorityClass(Struct, frozen=True):
    metadata: ObjectMeta
    value: int
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"


class PodDisruptionBudgetSpec(Struct, frozen=True):
    selector: LabelSelector | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None


class PodDisruptionBudgetStatus(Struct, frozen=True):
    disruptions_allowed: Count | None = None


class PodDisruptionBudget(Struct, frozen=True):
    metadata: ObjectMeta
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


class VolumeNodeAffinity(Struct, frozen=True):
    required: NodeSelector | None = None


class CSIVolume(Struct, frozen=True):
    driver: str
    volume_handle: str = ""


class ClaimReference(Struct, frozen=True):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class PersistentVolumeSpec(Struct, frozen=True):
    node_affinity: VolumeNodeAffinity | None = None
    csi: CSIVolume | None = None
    gce_persistent_disk: GCEPersistentDisk | None = None
    aws_elastic_block_store: AWSElasticBlockStore | None = None
    azure_disk: AzureDisk | None = None
    cinder: DiskByID | None = None
    portworx_volume: DiskByID | None = None
    claim_ref: ClaimReference | None = None
    storage_class_name: str = ""
    access_modes: tuple[str, ...] = ()
    capacity: ResourceList = {}
    volume_mode: str = "Filesystem"
    volume_attributes_class_name: str = ""


class VolumeStatus(Struct, frozen=True):
    """Of a PersistentVolume or a PersistentVolumeClaim."""

    phase: str = ""


class PersistentVolume(Struct, frozen=True):
    metadata: ObjectMeta
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: VolumeStatus = VolumeStatus()


class PersistentVolumeClaim(Struct, frozen=True):
    metadata: ObjectMeta
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: VolumeStatus = VolumeStatus()


class TopologyRequirement(Struct, frozen=True):
    key: str
    values: tuple[str, ...]


class TopologySelectorTerm(Struct, frozen=True):
    match_label_expressions: tuple[TopologyRequirement, ...] = ()


class StorageClass(Struct, frozen=True):
    metadata: ObjectMeta
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()


class VolumeCount(Struct, frozen=True):
    """The most volumes of a CSI driver that can be attached to a node. None: no limit."""

    count: Count | None = None


class CSIDriverOnNode(Struct, frozen=True):
    name: str
    allocatable: VolumeCount | None = None


class CSINodeSpec(Struct, frozen=True):
    drivers: tuple[CSIDriverOnNode, ...] = ()


class CSINode(Struct, frozen=True):
    metadata: ObjectMeta
    spec: CSINodeSpec = CSINodeSpec()


class Namespace(Struct, frozen=True):
    metadata: ObjectMeta
