"""Our own objects, `maniple.dev/v1alpha1`: Queue, PodGroup, ElasticJob and Topology.

The CRDs in deploy/crds are generated from these types (`make crds`): descriptions, bounds, enumerations and defaults
are written here once.
"""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta

from maniple.api.kubernetes import PodSpec
from maniple.api.meta import Count, Labels, ObjectMeta, ResourceList, Struct, Text

GROUP = "maniple.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

DEFAULT_QUEUE = "default"
RESERVED_ENV_PREFIX = "MANIPLE_"  # environment variables that the controller and the agent set and read
RESERVED_MOUNT_PATH = "/var/run/maniple"  # the controller mounts volumes below it
GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe")

Replicas = Annotated[int, Meta(ge=0, le=100_000)]
Seconds = Annotated[int, Meta(ge=0, le=2**31 - 1)]
RoleName = Annotated[str, Meta(pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=40)]


class StatusCondition(Struct, frozen=True, omit_defaults=True):
    """A condition in Kubernetes' usual form."""

    # An observedGeneration of 0 is not written: `kubectl wait` would take the condition for older than the object.

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int = 0


class QueueSpec(Struct, frozen=True):
    parent: Annotated[
        str, Meta(max_length=253, description="The queue above this one; empty at the top of the tree.")
    ] = ""
    weight: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="Share of what is left after the guarantees, relative to its siblings.",
        ),
    ] = 1
    guaranteed: Annotated[
        ResourceList,
        # 15: before Kubernetes 1.34 the rule guaranteed <= limit would cost the API server too much for more.
        Meta(max_length=15, description="What the queue gets before weights count, as far as it asks for it."),
    ] = {}
    limit: Annotated[
        ResourceList,
        Meta(description="The most the queue and the queues below it may hold; what is not named is not limited."),
    ] = {}
    reclaimable: Annotated[
        bool,
        Meta(description="Whether other queues may take back what this one holds above its deserved share."),
    ] = True
    priority: Annotated[
        int, Meta(ge=-(2**31), le=2**31 - 1, description="Queues with a higher priority are served first.")
    ] = 0


class QueueStatus(Struct, frozen=True):
    deserved: ResourceList = {}
    allocated: ResourceList = {}
    pending_jobs: Count = 0
    running_jobs: Count = 0
    conditions: tuple[StatusCondition, ...] = ()


class Queue(Struct, frozen=True):
    """A tenant's line of jobs, in a tree of queues that share the cluster."""

    metadata: ObjectMeta
    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()


class TopologyRequest(Struct, frozen=True):
    required: Annotated[
        str,
        Meta(
            max_length=63,
            description="Level of the Topology that must hold the whole gang: all in one such domain, or wait.",
        ),
    ] = ""
    preferred: Annotated[
        str, Meta(max_length=63, description="Level of the Topology that should hold the whole gang.")
    ] = ""


class GpuModel(Struct, frozen=True):
    """A GPU model that a pod may have."""

    model: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=63,
            description="Words of the node's product label, such as A100 or A100-SXM4; * is any other model.",
        ),
    ]
    speed: Annotated[float, Meta(gt=0, le=1_000_000, description="How fast its pods are on it, relatively.")] = 1.0


GpuModels = Annotated[
    tuple[GpuModel, ...],
    Meta(
        max_length=32,
        description="Models its pods may have, the one liked best first; a pod's annotation wins. Empty: any.",
    ),
]
MixedGpuModels = Annotated[
    bool, Meta(description="Whether pods with the same list of models may be on different models at once.")
]


class PodGroupRole(Struct, frozen=True):
    name: Annotated[RoleName, Meta(description="Value of the pods' label maniple.dev/role.")]
    min_member: Annotated[Replicas, Meta(description="Pods of this role that must start together with the rest.")]
    gpu_models: GpuModels = ()


class PodGroupSpec(Struct, frozen=True):
    min_member: Annotated[int, Meta(ge=1, le=100_000, description="Pods that start together or not at all.")] = 1
    queue: Annotated[str, Meta(max_length=253, description="The queue that pays for it.")] = DEFAULT_QUEUE
    priority_class_name: Annotated[
        str,
        Meta(
            max_length=253,
            description="PriorityClass of the gang; empty: the highest priority among its pods.",
        ),
    ] = ""
    preemptable: Annotated[bool, Meta(description="Whether the gang may be evicted for others.")] = True
    min_runtime_seconds: Annotated[
        Seconds, Meta(description="For so long after its start the gang is not evicted for others.")
    ] = 0
    topology: Annotated[TopologyRequest, Meta(description="How close its pods must or should be.")] = TopologyRequest()
    roles: Annotated[
        tuple[PodGroupRole, ...], Meta(max_length=64, description="Minimums of its own for pods of a role.")
    ] = ()
    mixed_gpu_models: MixedGpuModels = False


class PodGroupStatus(Struct, frozen=True):
    phase: Literal["", "Pending", "Running", "Unknown", "Finished"] = ""
    conditions: tuple[StatusCondition, ...] = ()
    pending: Count = 0
    running: Count = 0
    succeeded: Count = 0
    failed: Count = 0


class PodGroup(Struct, frozen=True):
    """A gang of pods: at least `minMember` of them start together, or none."""

    metadata: ObjectMeta
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


class TemplateMeta(Struct, frozen=True):
    name: str = ""
    labels: Labels = {}
    annotations: Labels = {}


class PodTemplate(Struct, frozen=True):
    spec: PodSpec
    metadata: TemplateMeta = TemplateMeta()


class ElasticRole(Struct, frozen=True):
    """Replicas of one kind; their pods are <job>-<role>-<index>."""

    name: Annotated[RoleName, Meta(description="Value of the pods' label maniple.dev/role.")]
    min: Annotated[Replicas, Meta(description="Replicas that start together or not at all.")]
    max: Annotated[Replicas, Meta(description="Replicas beyond which the role does not grow.")]
    template: PodTemplate
    step: Annotated[int, Meta(ge=1, le=100_000, description="The role grows and shrinks by this many replicas.")] = 1
    gpu_models: GpuModels = ()
    pin: Annotated[Replicas, Meta(description="The size that it starts with and is kept at; min to max.")] | None = None

    @property
    def least(self) -> int:
        """Replicas that it starts with and is brought back to; what is lost may leave it with fewer, down to min."""
        return self.min if self.pin is None else self.pin

    @property
    def most(self) -> int:
        return self.max if self.pin is None else self.pin


class SpeedupPoint(Struct, frozen=True):
    replicas: Annotated[int, Meta(ge=1, le=100_000, description="Replicas of all roles together.")]
    speedup: Annotated[float, Meta(gt=0, description="Progress per second relative to one replica.")]


class Elasticity(Struct, frozen=True):
    speedup: Annotated[
        tuple[SpeedupPoint, ...],
        Meta(max_length=64, description="Measured or declared speed by size; between points it is linear."),
    ] = ()
    cooldown_seconds: Annotated[Seconds, Meta(description="For so long after a resize there is no other.")] = 60
    grace_seconds: Annotated[Seconds, Meta(description="How long a replica may take to checkpoint before it goes.")] = (
        30
    )
    restart_seconds: Annotated[Seconds, Meta(description="How long the job stands still at each resize.")] = 30


class ElasticJobSpec(Struct, frozen=True):
    roles: Annotated[
        tuple[ElasticRole, ...], Meta(min_length=1, max_length=16, description="Kinds of replicas, such as worker.")
    ]
    queue: Annotated[str, Meta(max_length=253, description="The queue that pays for it.")] = DEFAULT_QUEUE
    priority_class_name: Annotated[str, Meta(max_length=253, description="PriorityClass of the job and its pods.")] = ""
    framework: Annotated[
        Literal["torch", "torchrun", "horovod", "none"], Meta(description="How its workers learn of a new size.")
    ] = "torch"
    elastic: Annotated[Elasticity, Meta(description="What resizing gains and costs.")] = Elasticity()
    preemptable: Annotated[bool, Meta(description="Whether the job may be evicted for others.")] = True
    min_runtime_seconds: Annotated[
        Seconds, Meta(description="For so long after its start the job is not evicted for others.")
    ] = 0
    topology: Annotated[TopologyRequest, Meta(description="How close its pods must or should be.")] = TopologyRequest()
    mixed_gpu_models: MixedGpuModels = False
    suspend: Annotated[bool, Meta(description="While true the job holds no resources.")] = False
    restart_policy: Annotated[
        Literal["Always", "OnFailure", "Never", "ExitCode"],
        Meta(description="Whether a replica that ended is started again; ExitCode: if it exited with 128 or more."),
    ] = "OnFailure"
    backoff_limit: Annotated[Count, Meta(description="Restarts after failures before the job has failed.")] = 6
    active_deadline_seconds: (
        Annotated[int, Meta(ge=1, le=2**31 - 1, description="The job has failed if it takes longer than this.")] | None
    ) = None
    ttl_seconds_after_finished: (
        Annotated[Seconds, Meta(description="So long after its end the job is deleted.")] | None
    ) = None
    start_seconds: Annotated[
        int,
        Meta(ge=1, le=2**31 - 1, description="How long a replica may take to be ready once it has a node."),
    ] = 600
    clean_pod_policy: Annotated[
        Literal["Running", "All", "None"], Meta(description="Which pods are deleted when the job has ended.")
    ] = "Running"

    @property
    def lead(self) -> str:
        """The first role that the job cannot be without: where its replicas meet, and who speaks for it."""
        return next((role.name for role in self.roles if role.min), self.roles[0].name)


class ReplicaCounts(Struct, frozen=True):
    pending: Count = 0
    starting: Count = 0
    running: Count = 0
    succeeded: Count = 0
    failed: Count = 0


class RoleTarget(Struct, frozen=True):
    role: RoleName
    replicas: Replicas


class GenerationMember(Struct, frozen=True):
    """A replica that takes part in a generation; its place in the list gives its ranks."""

    pod: str
    uid: str
    role: str
    index: Count
    address: str = ""
    slots: Annotated[int, Meta(ge=1, description="Workers that it starts.")] = 1


class JobGeneration(Struct, frozen=True):
    """One size of the job: who takes part, in the order of their ranks, and where they meet."""

    number: Annotated[Count, Meta(description="1, 2, 3 and so on; none is left out or used twice.")] = 0
    members: tuple[GenerationMember, ...] = ()
    coordinator: Annotated[str, Meta(description="Address of the first member.")] = ""
    port: Annotated[Count, Meta(description="A port of the coordinator that no recent generation has used.")] = 0
    stop: Annotated[bool, Meta(description="Nobody takes part: all are to checkpoint and stop.")] = False
    time: Annotated[datetime | None, Meta(description="When it was decided.")] = None


class JobFailures(Struct, frozen=True):
    """Failures that count towards backoffLimit."""

    count: Count = 0
    generation: Annotated[Count, Meta(description="Generation of the last one: each fails once.")] = 0
    pods: Annotated[tuple[str, ...], Meta(description="Uids of failed pods that are counted and still there.")] = ()
    retry_time: Annotated[datetime | None, Meta(description="What has failed is not started again before.")] = None


class MeasuredSpeed(Struct, frozen=True):
    replicas: Annotated[int, Meta(ge=1, le=100_000, description="Replicas of all roles together.")]
    throughput: Annotated[float, Meta(gt=0, description="What the job's workers reported, in their own unit.")]


class JobProgress(Struct, frozen=True):
    """How far the job is, as its workers last reported."""

    step: Annotated[int, Meta(ge=0, description="The step that it has reached.")] = 0
    total: Annotated[int | None, Meta(description="Steps in all, if they said so.")] = None
    throughput: Annotated[float | None, Meta(description="In their own unit, of all of them together.")] = None
    time: Annotated[datetime | None, Meta(description="When they reported it; none: they never have.")] = None


class ElasticJobStatus(Struct, frozen=True):
    phase: Literal[
        "",
        "Pending",
        "Starting",
        "Running",
        "Growing",
        "Shrinking",
        "Restarting",
        "Suspended",
        "Succeeded",
        "Failed",
    ] = ""
    conditions: tuple[StatusCondition, ...] = ()
    target: Annotated[tuple[RoleTarget, ...], Meta(description="The size the scheduler decided, by role.")] = ()
    last_resize_time: Annotated[
        datetime | None, Meta(description="When its size last changed; its cool-down counts from there.")
    ] = None
    replicas: ReplicaCounts = ReplicaCounts()
    restarts: Count = 0
    resizes: Count = 0
    generation: Annotated[JobGeneration, Meta(description="The size it runs at.")] = JobGeneration()
    failures: JobFailures = JobFailures()
    start_time: Annotated[datetime | None, Meta(description="When it first ran since it was created or resumed.")] = (
        None
    )
    completion_time: Annotated[datetime | None, Meta(description="When it succeeded or failed.")] = None
    speeds: Annotated[tuple[MeasuredSpeed, ...], Meta(max_length=64, description="How fast it was at which size.")] = ()
    grow_after: Annotated[
        datetime | None, Meta(description="Newcomers did not start: it is not grown again before this.")
    ] = None
    progress: JobProgress = JobProgress()


class ElasticJob(Struct, frozen=True):
    """A job whose roles run at any size between min and max."""

    metadata: ObjectMeta
    spec: ElasticJobSpec
    status: ElasticJobStatus = ElasticJobStatus()


class TopologyLevel(Struct, frozen=True):
    name: Annotated[RoleName, Meta(description="What gangs call this level, for example rack.")]
    node_label: Annotated[
        Text,
        Meta(description="Node label whose value is the domain, for example topology.kubernetes.io/rack."),
    ]


class TopologySpec(Struct, frozen=True):
    levels: Annotated[
        tuple[TopologyLevel, ...],
        Meta(min_length=1, max_length=16, description="From the widest to the narrowest."),
    ]


class Topology(Struct, frozen=True):
    """Which node labels say how close nodes are, from the widest level to the narrowest."""

    metadata: ObjectMeta
    spec: TopologySpec
