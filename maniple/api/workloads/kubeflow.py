"""Kubeflow's jobs: PyTorchJob, TFJob and their like, MPIJob; TrainJob with its runtime."""

from collections.abc import Mapping, Sequence

from msgspec import field
from msgspec.structs import replace

from maniple.api.errors import Problem
from maniple.api.kubernetes import Container, PodSpec, ResourceRequirements
from maniple.api.types import PodGroup, PodTemplate
from maniple.api.workloads.common import (
    Closed,
    Lenient,
    PodSet,
    Replicas,
    Size,
    Workload,
    WorkloadCondition,
    gang_of,
    is_true,
    too_many,
)
from maniple.api.workloads.kubernetes import JobSetSpec, ReplicatedJob, pods_of_replicated_job

# -- Jobs with replicas of several types


class ReplicaSpec(Lenient, frozen=True):
    template: PodTemplate
    replicas: Replicas = 1


class ReplicaTypes(Closed, frozen=True):
    def by_type(self) -> dict[str, ReplicaSpec]:
        names = zip(self.__struct_fields__, self.__struct_encode_fields__, strict=True)
        return {written: spec for name, written in names if (spec := getattr(self, name)) is not None}


class MasterAndWorker(ReplicaTypes, frozen=True):
    master: ReplicaSpec | None = field(name="Master", default=None)
    worker: ReplicaSpec | None = field(name="Worker", default=None)


class TFReplicas(ReplicaTypes, frozen=True):
    chief: ReplicaSpec | None = field(name="Chief", default=None)
    master: ReplicaSpec | None = field(name="Master", default=None)
    ps: ReplicaSpec | None = field(name="PS", default=None)
    worker: ReplicaSpec | None = field(name="Worker", default=None)
    evaluator: ReplicaSpec | None = field(name="Evaluator", default=None)


class MPIReplicas(ReplicaTypes, frozen=True):
    launcher: ReplicaSpec | None = field(name="Launcher", default=None)
    worker: ReplicaSpec | None = field(name="Worker", default=None)


class SchedulingPolicy(Lenient, frozen=True):
    min_available: Replicas | None = None
    queue: str = ""
    priority_class: str = ""


class RunPolicy(Lenient, frozen=True):
    scheduling_policy: SchedulingPolicy | None = None
    suspend: bool = False


class ElasticPolicy(Lenient, frozen=True):
    min_replicas: Replicas | None = None
    max_replicas: Replicas | None = None

    def clip(self, replicas: int) -> int:
        most = replicas if self.max_replicas is None else min(replicas, self.max_replicas)
        return max(most, self.min_replicas or 0)


class KubeflowSpec(Lenient, frozen=True, kw_only=True):
    run_policy: RunPolicy = RunPolicy()
    elastic_policy: ElasticPolicy = ElasticPolicy()


class PyTorchJobSpec(KubeflowSpec, frozen=True, kw_only=True):
    pytorch_replica_specs: MasterAndWorker


class TFJobSpec(KubeflowSpec, frozen=True, kw_only=True):
    tf_replica_specs: TFReplicas


class MPIJobSpec(KubeflowSpec, frozen=True, kw_only=True):
    mpi_replica_specs: MPIReplicas


class XGBoostJobSpec(KubeflowSpec, frozen=True, kw_only=True):
    xgb_replica_specs: MasterAndWorker


class PaddleJobSpec(KubeflowSpec, frozen=True, kw_only=True):
    paddle_replica_specs: MasterAndWorker


class JAXJobSpec(KubeflowSpec, frozen=True, kw_only=True):
    jax_replica_specs: MasterAndWorker


class ConditionStatus(Lenient, frozen=True):
    conditions: tuple[WorkloadCondition, ...] = ()


class KubeflowJob(Workload, frozen=True, kw_only=True):
    spec: KubeflowSpec
    status: ConditionStatus = ConditionStatus()

    @property
    def _field(self) -> str:
        return self.SETS.removeprefix("spec.")

    def _by_type(self) -> Mapping[str, ReplicaSpec]:
        spec = self.spec
        names = zip(spec.__struct_fields__, spec.__struct_encode_fields__, strict=True)
        types: ReplicaTypes = getattr(spec, next(name for name, written in names if written == self._field))
        elastic = spec.elastic_policy
        return {
            kind: replace(each, replicas=elastic.clip(each.replicas)) if kind == "Worker" else each
            for kind, each in types.by_type().items()
        }

    def wrong(self) -> Sequence[Problem]:
        policy = self.spec.run_policy.scheduling_policy
        if policy is None or policy.min_available is None or policy.min_available <= self._total:
            return []
        return [too_many("spec.runPolicy.schedulingPolicy.minAvailable", policy.min_available, self._total)]

    @property
    def _total(self) -> int:
        return sum(spec.replicas for spec in self._by_type().values())

    def pod_sets(self) -> Sequence[PodSet]:
        policy = self.spec.run_policy.scheduling_policy or SchedulingPolicy()
        return [
            PodSet(
                prefix=f"{self.metadata.name}-{kind.lower()}",
                count=spec.replicas,
                template=spec.template,
                path=f"{self.SETS}.{kind}.template",
                labels={
                    "training.kubeflow.org/job-name": self.metadata.name,
                    "training.kubeflow.org/replica-type": kind.lower(),
                },
                known_by=("training.kubeflow.org/replica-type",),
                role=kind.lower(),
                priority_class_name=policy.priority_class,
            )
            for kind, spec in self._by_type().items()
        ]

    def gang(self) -> PodGroup | None:
        policy = self.spec.run_policy.scheduling_policy
        if policy is None:
            return None
        least = policy.min_available
        if least is None:
            # An elastic job begins with its minimum.
            elastic, by_type = self.spec.elastic_policy.min_replicas, self._by_type()
            least = sum(
                spec.replicas if elastic is None or kind != "Worker" else elastic for kind, spec in by_type.items()
            )
        return gang_of(self.metadata, self.metadata.name, least, policy.queue, policy.priority_class)

    def why_none(self) -> str:
        return "spec.runPolicy.suspend is true" if self.spec.run_policy.suspend else ""

    def is_over(self) -> bool:
        return is_true(self.status.conditions, "Succeeded", "Failed")


class PyTorchJob(KubeflowJob, frozen=True, kw_only=True):
    SETS = "spec.pytorchReplicaSpecs"
    spec: PyTorchJobSpec


class TFJob(KubeflowJob, frozen=True, kw_only=True):
    SETS = "spec.tfReplicaSpecs"
    spec: TFJobSpec


class MPIJob(KubeflowJob, frozen=True, kw_only=True):
    SETS = "spec.mpiReplicaSpecs"
    spec: MPIJobSpec


class XGBoostJob(KubeflowJob, frozen=True, kw_only=True):
    SETS = "spec.xgbReplicaSpecs"
    spec: XGBoostJobSpec


class PaddleJob(KubeflowJob, frozen=True, kw_only=True):
    SETS = "spec.paddleReplicaSpecs"
    spec: PaddleJobSpec


class JAXJob(KubeflowJob, frozen=True, kw_only=True):
    SETS = "spec.jaxReplicaSpecs"
    spec: JAXJobSpec


# -- TrainJob and its runtime


class MLPolicy(Lenient, frozen=True):
    num_nodes: Size = 1


class RuntimeTemplate(Lenient, frozen=True):
    spec: JobSetSpec = JobSetSpec()


class RuntimeSpec(Lenient, frozen=True):
    template: RuntimeTemplate = RuntimeTemplate()
    ml_policy: MLPolicy = MLPolicy()
    pod_group_policy: dict[str, object] = {}


class TrainingRuntime(Workload, frozen=True, kw_only=True):
    """The template of TrainJobs that name it. It makes no pods itself."""

    spec: RuntimeSpec

    def pod_sets(self) -> Sequence[PodSet]:
        """Its templates, so that they are checked."""
        paths = "spec.template.spec.replicatedJobs[{}].template.spec.template"
        return [
            replace(pods_of_replicated_job(self.metadata.name, job, paths.format(index)), count=0)
            for index, job in enumerate(self.spec.template.spec.replicated_jobs)
        ]

    def why_none(self) -> str:
        return "TrainJobs that name it make them"

    def is_over(self) -> bool:
        return True


class ClusterTrainingRuntime(TrainingRuntime, frozen=True, kw_only=True):
    """The same for all namespaces."""


class RuntimeRef(Lenient, frozen=True):
    name: str = ""
    kind: str = "ClusterTrainingRuntime"


class Trainer(Lenient, frozen=True):
    image: str = ""
    num_nodes: Size | None = None
    resources_per_node: ResourceRequirements = ResourceRequirements()


class TrainJobSpec(Lenient, frozen=True):
    trainer: Trainer | None = None
    runtime_ref: RuntimeRef = RuntimeRef()
    suspend: bool = False


class TrainJob(Workload, frozen=True, kw_only=True):
    """What it says itself counts, and the rest is in its runtime, if that is in the input."""

    spec: TrainJobSpec
    status: ConditionStatus = ConditionStatus()
    runtime: RuntimeSpec | None = None  # found in the input

    def pod_sets(self) -> Sequence[PodSet]:
        trainer, name = self.spec.trainer or Trainer(), self.metadata.name
        if self.runtime is not None and self.runtime.template.spec.replicated_jobs:
            return [
                self._of_runtime(job, trainer, self.runtime.ml_policy.num_nodes)
                for job in self.runtime.template.spec.replicated_jobs
            ]
        container = Container(name="node", image=trainer.image, resources=trainer.resources_per_node)
        template = PodTemplate(spec=PodSpec(containers=(container,)))
        labels = {"jobset.sigs.k8s.io/jobset-name": name, "jobset.sigs.k8s.io/replicatedjob-name": "node"}
        count = trainer.num_nodes or 1
        return [PodSet(f"{name}-node-0", count, template, "spec.trainer", labels, tuple(labels), "node")]

    def _of_runtime(self, job: ReplicatedJob, trainer: Trainer, nodes: int) -> PodSet:
        pods = pods_of_replicated_job(self.metadata.name, job, f"the runtime's job {job.name}")
        if job.name != "node":
            return pods
        own = trainer.resources_per_node
        containers = tuple(
            replace(container, resources=own)
            if container.name == "node" and (own.limits or own.requests)
            else container
            for container in pods.template.spec.containers
        )
        template = replace(pods.template, spec=replace(pods.template.spec, containers=containers))
        return replace(pods, count=trainer.num_nodes or nodes, template=template)

    def gang(self) -> PodGroup | None:
        if self.runtime is None or not self.runtime.pod_group_policy:
            return None
        return gang_of(self.metadata, self.metadata.name, sum(pods.total for pods in self.pod_sets()))

    def why_none(self) -> str:
        if self.spec.suspend:
            return "spec.suspend is true"
        if self.spec.trainer is None and self.runtime is None:
            return "spec.trainer is not set, and its runtime is not in the input"
        return ""

    def is_over(self) -> bool:
        return is_true(self.status.conditions, "Complete", "Failed")

    def remarks(self) -> Sequence[str]:
        if self.runtime is not None:
            return ()
        ref = self.spec.runtime_ref
        return [f"{ref.kind} {ref.name} is not in the input: only what spec.trainer says counts"]
