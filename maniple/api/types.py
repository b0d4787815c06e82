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
MOST_WEIGHT = 1_000_000  # of a queue
GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe")

Replicas = Annotated[int, Meta(ge=0, le=100_000)]
Seconds = Annotated[int, Meta(ge=0, le=2**31 - 1)]
QueueName = Annotated[
    str, Meta(max_length=253, description="The queue whose share it uses. Empty: that of its namespace, else default.")
]
CountedQueue = Annotated[
    str, Meta(description="The queue that it is in: the one it names, else that of its namespace, else default.")
]
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
            ge=0,
            le=MOST_WEIGHT,
            description="Share of what is left after the guarantees, relative to the queue's siblings. "
            "0: only what no sibling with a weight asks for.",
        ),
    ] = 1
    weights: Annotated[
        dict[str, int],
        # The bounds are checked in validate/ours.py, where the error can name the resource.
        Meta(
            description="The weight for single resources, instead of `weight`.",
            extra_json_schema={
                "maxProperties": 64,
                "additionalProperties": {"type": "integer", "format": "int32", "minimum": 0, "maximum": MOST_WEIGHT},
            },
        ),
    ] = {}
    guaranteed: Annotated[
        ResourceList,
        # Before Kubernetes 1.34 the rule guaranteed <= limit costs the API server too much for more than 15.
        Meta(max_length=15, description="What the queue gets, as far as it asks for it, before weights count."),
    ] = {}
    limit: Annotated[
        ResourceList,
        Meta(description="The most that the queue and those below it may hold. Other resources are not limited."),
    ] = {}
    reclaimable: Annotated[
        bool, Meta(description="Whether other queues may reclaim what this one holds above its deserved share.")
    ] = True
    priority: Annotated[
        int, Meta(ge=-(2**31), le=2**31 - 1, description="Queues with a higher priority are served first.")
    ] = 0
    min_runtime_seconds: (
        Annotated[
            Seconds,
            Meta(description="The minRuntimeSeconds of its jobs that name none. Default: that of the queue above."),
        ]
        | None
    ) = None


class QueueStatus(Struct, frozen=True):
    deserved: ResourceList = {}
    allocated: ResourceList = {}
    pending_jobs: Count = 0
    running_jobs: Count = 0
    conditions: tuple[StatusCondition, ...] = ()


class Queue(Struct, frozen=True):
    """The jobs of a tenant. Queues form a tree and share the cluster."""

    metadata: ObjectMeta
    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()


class TopologyRequest(Struct, frozen=True):
    required: Annotated[
        str,
        Meta(max_length=63, description="Level of the Topology: the whole gang starts in one domain of it, or waits."),
    ] = ""
    preferred: Annotated[
        str, Meta(max_length=63, description="Level of the Topology: the whole gang should be in one domain of it.")
    ] = ""


class GpuModel(Struct, frozen=True):
    """A GPU model that pods may run on."""

    model: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=63,
            description="Words of the node's product label, such as A100 or A100-SXM4; * is any other model.",
        ),
    ]
    speed: Annotated[float, Meta(gt=0, le=1_000_000, description="Relative speed of pods on it.")] = 1.0


GpuModels = Annotated[
    tuple[GpuModel, ...],
    Meta(
        max_length=32,
        description="Models its pods may run on, the preferred one first. A pod's annotation wins. Empty: any.",
    ),
]
MixedGpuModels = Annotated[
    bool, Meta(description="Whether pods with the same list of models may run on different models at the same time.")
]


class PodGroupRole(Struct, frozen=True):
    name: Annotated[RoleName, Meta(description="Value of the pods' label maniple.dev/role.")]
    min_member: Annotated[Replicas, Meta(description="Pods of this role that must start together with the others.")]
    gpu_models: GpuModels = ()


class PodGroupSpec(Struct, frozen=True):
    min_member: Annotated[int, Meta(ge=1, le=100_000, description="Pods that start together or not at all.")] = 1
    queue: QueueName = ""
    priority_class_name: Annotated[
        str, Meta(max_length=253, description="PriorityClass of the gang. Empty: the highest priority of its pods.")
    ] = ""
    preemptable: Annotated[bool, Meta(description="Whether the gang may be evicted for others.")] = True
    min_runtime_seconds: (
        Annotated[
            Seconds,
            Meta(description="For this long after its start the gang is not evicted for others. Default: its queue's."),
        ]
        | None
    ) = None
    stale_seconds: Annotated[
        Seconds,
        Meta(description="A gang that stays below its minimum for this long gives back what it holds. 0: never."),
    ] = 600
    movable: Annotated[
        bool,
        Meta(
            description="Whether its pods may be moved to other nodes, to make room for others or for more order "
            "if the policy says so."
        ),
    ] = False
    topology: Annotated[TopologyRequest, Meta(description="How close its pods must or should be.")] = TopologyRequest()
    roles: Annotated[tuple[PodGroupRole, ...], Meta(max_length=64, description="Minimums for pods of a role.")] = ()
    mixed_gpu_models: MixedGpuModels = False


class PodGroupStatus(Struct, frozen=True):
    phase: Literal["", "Pending", "Running", "Unknown", "Finished"] = ""
    queue: CountedQueue = ""
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
    """Replicas of one kind. Their pods are named <job>-<role>-<index>."""

    name: Annotated[RoleName, Meta(description="Value of the pods' label maniple.dev/role.")]
    min: Annotated[Replicas, Meta(description="Replicas that start together or not at all.")]
    max: Annotated[Replicas, Meta(description="The most replicas that the role grows to.")]
    template: PodTemplate
    step: Annotated[int, Meta(ge=1, le=100_000, description="The role grows and shrinks by this many replicas.")] = 1
    gpu_models: GpuModels = ()
    pin: Annotated[Replicas, Meta(description="The size that it starts with and is kept at: min to max.")] | None = None

    @property
    def least(self) -> int:
        """Replicas that the role starts with and grows back to. After losses it may go on with fewer, down to min."""
        return self.min if self.pin is None else self.pin

    @property
    def most(self) -> int:
        return self.max if self.pin is None else self.pin


class SpeedupPoint(Struct, frozen=True):
    replicas: Annotated[int, Meta(ge=1, le=100_000, description="Replicas of all roles together.")]
    speedup: Annotated[float, Meta(gt=0, description="Progress per second relative to one replica.")]


class Elasticity(Struct, frozen=True):
    speedup: Annotated[
        tuple[SpeedupPoint, ...], Meta(max_length=64, description="Speed by size. It is linear between points.")
    ] = ()
    cooldown_seconds: Annotated[Seconds, Meta(description="The shortest time between two resizes.")] = 60
    grace_seconds: Annotated[Seconds, Meta(description="How long a replica may take to checkpoint at its end.")] = 30
    restart_seconds: Annotated[Seconds, Meta(description="How long the job stands still during a resize.")] = 30


class ElasticJobSpec(Struct, frozen=True):
    roles: Annotated[
        tuple[ElasticRole, ...], Meta(min_length=1, max_length=16, description="Kinds of replicas, such as worker.")
    ]
    queue: QueueName = ""
    priority_class_name: Annotated[str, Meta(max_length=253, description="PriorityClass of the job and its pods.")] = ""
    framework: Annotated[
        Literal["torch", "torchrun", "horovod", "none"], Meta(description="How workers learn of a new size.")
    ] = "torch"
    elastic: Annotated[Elasticity, Meta(description="What resizing gains and costs.")] = Elasticity()
    preemptable: Annotated[bool, Meta(description="Whether the job may be evicted for others.")] = True
    min_runtime_seconds: (
        Annotated[
            Seconds,
            Meta(description="For this long after its start the job is not evicted for others. Default: its queue's."),
        ]
        | None
    ) = None
    movable: (
        Annotated[
            bool,
            Meta(
                description="Whether its replicas may be moved to other nodes, to make room for others or for more "
                "order if the policy says so. Unset: unless framework is none, which checkpoints nothing."
            ),
        ]
        | None
    ) = None
    topology: Annotated[TopologyRequest, Meta(description="How close its pods must or should be.")] = TopologyRequest()
    mixed_gpu_models: MixedGpuModels = False
    suspend: Annotated[bool, Meta(description="While true the job holds no resources.")] = False
    restart_policy: Annotated[
        Literal["Always", "OnFailure", "Never", "ExitCode"],
        Meta(description="Whether a replica that ended is started again. ExitCode: if its exit code is 128 or more."),
    ] = "OnFailure"
    backoff_limit: Annotated[Count, Meta(description="Restarts after failures before the job fails.")] = 6
    active_deadline_seconds: (
        Annotated[int, Meta(ge=1, le=2**31 - 1, description="The job fails if it takes longer than this.")] | None
    ) = None
    ttl_seconds_after_finished: (
        Annotated[Seconds, Meta(description="How long after its end the job is deleted.")] | None
    ) = None
    start_seconds: Annotated[
        int, Meta(ge=1, le=2**31 - 1, description="How long a replica may take to become ready once it has a node.")
    ] = 600
    clean_pod_policy: Annotated[
        Literal["Running", "All", "None"], Meta(description="Which pods are deleted when the job ends.")
    ] = "Running"

    @property
    def is_movable(self) -> bool:
        """Workers of the frameworks checkpoint before they are stopped."""
        return self.framework != "none" if self.movable is None else self.movable

    @property
    def lead(self) -> str:
        """The first role with a min of 1 or more. Its first replica is the rendezvous and decides on success."""
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
    """A replica in a generation. Its position in the list gives its ranks."""

    pod: str
    uid: str
    role: str
    index: Count
    address: str = ""
    slots: Annotated[int, Meta(ge=1, description="Workers that the replica starts.")] = 1


class JobGeneration(Struct, frozen=True):
    """One size of the job: its members in the order of their ranks, and where they meet."""

    number: Annotated[Count, Meta(description="1, 2, 3 and so on, without gaps.")] = 0
    members: tuple[GenerationMember, ...] = ()
    coordinator: Annotated[str, Meta(description="Address of the first member.")] = ""
    port: Annotated[Count, Meta(description="A port of the coordinator that no recent generation has used.")] = 0
    stop: Annotated[bool, Meta(description="There are no members: all workers checkpoint and stop.")] = False
    time: Annotated[datetime | None, Meta(description="When it was decided.")] = None


class JobFailures(Struct, frozen=True):
    """Failures that count towards backoffLimit."""

    count: Count = 0
    generation: Annotated[Count, Meta(description="Generation of the last failure. Each fails at most once.")] = 0
    pods: Annotated[tuple[str, ...], Meta(description="Uids of failed pods that are counted and still exist.")] = ()
    retry_time: Annotated[datetime | None, Meta(description="Failed replicas do not start again before this.")] = None


class MeasuredSpeed(Struct, frozen=True):
    replicas: Annotated[int, Meta(ge=1, le=100_000, description="Replicas of all roles together.")]
    throughput: Annotated[float, Meta(gt=0, description="As the job's workers reported it, in their own unit.")]


class JobProgress(Struct, frozen=True):
    """The progress of the job, as its workers last reported it."""

    step: Annotated[int, Meta(ge=0, description="The step that the job has reached.")] = 0
    total: Annotated[int | None, Meta(description="All steps, if workers reported it.")] = None
    throughput: Annotated[float | None, Meta(description="Of all workers together, in their own unit.")] = None
    time: Annotated[datetime | None, Meta(description="When it was reported. None: never.")] = None


class ElasticJobStatus(Struct, frozen=True):
    phase: Literal[
        "", "Pending", "Starting", "Running", "Growing", "Shrinking", "Restarting", "Suspended", "Succeeded", "Failed"
    ] = ""
    queue: CountedQueue = ""
    conditions: tuple[StatusCondition, ...] = ()
    target: Annotated[tuple[RoleTarget, ...], Meta(description="The size the scheduler decided, by role.")] = ()
    last_resize_time: Annotated[
        datetime | None, Meta(description="When its size last changed. The cool-down starts then.")
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
    speeds: Annotated[tuple[MeasuredSpeed, ...], Meta(max_length=64, description="Measured speed by size.")] = ()
    grow_after: Annotated[
        datetime | None, Meta(description="New replicas did not start: the job is not grown again before this.")
    ] = None
    progress: JobProgress = JobProgress()


class ElasticJob(Struct, frozen=True):
    """A job whose roles run at any size between min and max."""

    metadata: ObjectMeta
    spec: ElasticJobSpec
    status: ElasticJobStatus = ElasticJobStatus()


class TopologyLevel(Struct, frozen=True):
    name: Annotated[RoleName, Meta(description="The name that gangs use for this level, for example rack.")]
    node_label: Annotated[
        Text, Meta(description="Node label whose value is the domain, for example topology.kubernetes.io/rack.")
    ]


class TopologySpec(Struct, frozen=True):
    levels: Annotated[
        tuple[TopologyLevel, ...], Meta(min_length=1, max_length=16, description="From the widest to the narrowest.")
    ]


class Topology(Struct, frozen=True):
    """Node labels that say how close nodes are, from the widest level to the narrowest."""

    metadata: ObjectMeta
    spec: TopologySpec
