"""Jobs of training systems: Volcano's Job, Kubeflow's PyTorchJob and TrainJob, Ray's RayCluster and RayJob."""

from collections.abc import Mapping, Sequence

from msgspec import field

from maniple.api.errors import Problem
from maniple.api.kubernetes import Container, PodSpec, ResourceRequirements
from maniple.api.meta import Int32, ObjectMeta
from maniple.api.types import PodGroup, PodGroupRole, PodGroupSpec, PodTemplate
from maniple.api.workloads.common import Closed, Lenient, PodSet, Replicas, Size, Workload, WorkloadCondition, is_true

_VOLCANO_OVER = ("Completed", "Failed", "Aborted", "Terminated", "Aborting", "Completing", "Terminating")


def _group(
    meta: ObjectMeta, name: str, least: int, queue: str, priority: str, roles: Sequence[PodGroupRole] = ()
) -> PodGroup:
    created = meta.creation_timestamp
    metadata = ObjectMeta(name=name, namespace=meta.namespace, uid=meta.uid, creation_timestamp=created)
    spec = PodGroupSpec(max(1, least), queue=queue, priority_class_name=priority, roles=tuple(roles))
    return PodGroup(metadata, spec)


def _too_many(path: str, found: int, most: int) -> Problem:
    return Problem(path, f"expected at most {most}, the number of pods, found {found}")


# -- Volcano


class VolcanoTask(Lenient, frozen=True):
    template: PodTemplate
    name: str = ""
    replicas: Replicas = 1
    min_available: Replicas | None = None


class VolcanoJobSpec(Lenient, frozen=True):
    tasks: tuple[VolcanoTask, ...] = ()
    min_available: Replicas | None = None
    queue: str = ""
    priority_class_name: str = ""
    scheduler_name: str = ""


class VolcanoJobState(Lenient, frozen=True):
    phase: str = ""


class VolcanoJobStatus(Lenient, frozen=True):
    state: VolcanoJobState = VolcanoJobState()


class VolcanoJob(Workload, frozen=True, kw_only=True):
    SETS = "spec.tasks"

    spec: VolcanoJobSpec
    status: VolcanoJobStatus = VolcanoJobStatus()

    def wrong(self) -> Sequence[Problem]:
        tasks, least = self.spec.tasks, self.spec.min_available
        total = sum(task.replicas for task in tasks)
        wrong = [
            _too_many(f"spec.tasks[{index}].minAvailable", task.min_available, task.replicas)
            for index, task in enumerate(tasks)
            if task.min_available is not None and task.min_available > task.replicas
        ]
        return [*wrong, _too_many("spec.minAvailable", least, total)] if least is not None and least > total else wrong

    def pod_sets(self) -> Sequence[PodSet]:
        name = self.metadata.name
        return [
            PodSet(
                prefix=f"{name}-{role}",
                count=task.replicas,
                template=task.template,
                path=f"spec.tasks[{index}].template",
                labels={"volcano.sh/job-name": name, "volcano.sh/task-spec": role},
                known_by=("volcano.sh/task-spec",),
                role=role,
                priority_class_name=self.spec.priority_class_name,
            )
            for index, (role, task) in enumerate(self._tasks())
        ]

    def _tasks(self) -> list[tuple[str, VolcanoTask]]:
        return [(task.name or f"default{index}", task) for index, task in enumerate(self.spec.tasks)]

    def gang(self) -> PodGroup:
        total = sum(task.replicas for task in self.spec.tasks)
        least = total if self.spec.min_available is None else self.spec.min_available
        roles = [
            PodGroupRole(name, min(task.min_available, task.replicas))
            for name, task in self._tasks()
            if task.min_available is not None
        ]
        if sum(role.min_member for role in roles) > least:
            roles = []  # as in Volcano: then only the minimum of the job counts
        uid = self.metadata.uid
        name = f"{self.metadata.name}-{uid}" if uid else self.metadata.name
        return _group(self.metadata, name, least, self.spec.queue, self.spec.priority_class_name, roles)

    def is_over(self) -> bool:
        return self.status.state.phase in _VOLCANO_OVER

    def scheduler_name(self) -> str:
        return self.spec.scheduler_name


# -- Kubeflow


class ReplicaSpec(Lenient, frozen=True):
    template: PodTemplate
    replicas: Replicas = 1


class SchedulingPolicy(Lenient, frozen=True):
    min_available: Replicas | None = None
    queue: str = ""
    priority_class: str = ""


class RunPolicy(Lenient, frozen=True):
    scheduling_policy: SchedulingPolicy | None = None
    suspend: bool = False


class PyTorchReplicas(Closed, frozen=True):
    master: ReplicaSpec | None = field(name="Master", default=None)
    worker: ReplicaSpec | None = field(name="Worker", default=None)

    def by_type(self) -> dict[str, ReplicaSpec]:
        both = {"Master": self.master, "Worker": self.worker}
        return {name: spec for name, spec in both.items() if spec is not None}


class PyTorchJobSpec(Lenient, frozen=True):
    pytorch_replica_specs: PyTorchReplicas
    run_policy: RunPolicy = RunPolicy()


class ConditionStatus(Lenient, frozen=True):
    conditions: tuple[WorkloadCondition, ...] = ()


class PyTorchJob(Workload, frozen=True, kw_only=True):
    SETS = "spec.pytorchReplicaSpecs"

    spec: PyTorchJobSpec
    status: ConditionStatus = ConditionStatus()

    def wrong(self) -> Sequence[Problem]:
        policy = self.spec.run_policy.scheduling_policy
        if policy is None or policy.min_available is None or policy.min_available <= self._total:
            return []
        return [_too_many("spec.runPolicy.schedulingPolicy.minAvailable", policy.min_available, self._total)]

    @property
    def _total(self) -> int:
        return sum(spec.replicas for spec in self.spec.pytorch_replica_specs.by_type().values())

    def pod_sets(self) -> Sequence[PodSet]:
        policy = self.spec.run_policy.scheduling_policy or SchedulingPolicy()
        return [
            PodSet(
                prefix=f"{self.metadata.name}-{kind.lower()}",
                count=spec.replicas,
                template=spec.template,
                path=f"spec.pytorchReplicaSpecs.{kind}.template",
                labels={
                    "training.kubeflow.org/job-name": self.metadata.name,
                    "training.kubeflow.org/replica-type": kind.lower(),
                },
                known_by=("training.kubeflow.org/replica-type",),
                role=kind.lower(),
                priority_class_name=policy.priority_class,
            )
            for kind, spec in self.spec.pytorch_replica_specs.by_type().items()
        ]

    def gang(self) -> PodGroup | None:
        policy = self.spec.run_policy.scheduling_policy
        if policy is None:
            return None
        least = self._total if policy.min_available is None else policy.min_available
        return _group(self.metadata, self.metadata.name, least, policy.queue, policy.priority_class)

    def why_none(self) -> str:
        return "spec.runPolicy.suspend is true" if self.spec.run_policy.suspend else ""

    def is_over(self) -> bool:
        return is_true(self.status.conditions, "Succeeded", "Failed")


class Trainer(Lenient, frozen=True):
    image: str = ""
    num_nodes: Size = 1
    resources_per_node: ResourceRequirements = ResourceRequirements()


class TrainJobSpec(Lenient, frozen=True):
    trainer: Trainer | None = None
    suspend: bool = False


class TrainJob(Workload, frozen=True, kw_only=True):
    """Its runtime is not read. What it says itself counts: the number of nodes, and the resources of each."""

    spec: TrainJobSpec
    status: ConditionStatus = ConditionStatus()

    def pod_sets(self) -> Sequence[PodSet]:
        trainer, name = self.spec.trainer or Trainer(), self.metadata.name
        container = Container(name="node", image=trainer.image, resources=trainer.resources_per_node)
        template = PodTemplate(spec=PodSpec(containers=(container,)))
        labels = {"jobset.sigs.k8s.io/jobset-name": name, "jobset.sigs.k8s.io/replicatedjob-name": "node"}
        return [PodSet(f"{name}-node-0", trainer.num_nodes, template, "spec.trainer", labels, tuple(labels), "node")]

    def why_none(self) -> str:
        if self.spec.suspend:
            return "spec.suspend is true"
        if self.spec.trainer is None:
            return "spec.trainer is not set, and its runtime is not read"
        return ""

    def is_over(self) -> bool:
        return is_true(self.status.conditions, "Complete", "Failed")

    def unread(self) -> Sequence[str]:
        return ["spec.runtimeRef"]


# -- Ray


class RayGroup(Lenient, frozen=True):
    template: PodTemplate


class RayWorkers(RayGroup, frozen=True, kw_only=True):
    group_name: str
    replicas: Replicas | None = None
    min_replicas: Replicas = 0
    max_replicas: Int32 | None = None
    num_of_hosts: Size = 1
    suspend: bool = False

    def pods(self) -> int:
        """Without a number of replicas there are as few as allowed."""
        replicas = self.min_replicas if self.replicas is None else max(self.replicas, self.min_replicas)
        if self.max_replicas is not None:
            replicas = min(replicas, max(0, self.max_replicas))
        return 0 if self.suspend else replicas * self.num_of_hosts

    def least(self) -> int:
        return 0 if self.suspend else self.min_replicas * self.num_of_hosts


class RayClusterSpec(Lenient, frozen=True):
    head_group_spec: RayGroup
    worker_group_specs: tuple[RayWorkers, ...] = ()
    enable_in_tree_autoscaling: bool = False
    suspend: bool = False

    def pod_sets(self, name: str, path: str) -> list[PodSet]:
        groups: list[tuple[str, str, int, RayGroup]] = [("head", "headgroup", 1, self.head_group_spec)]
        groups += [
            (f"{group.group_name}-worker", group.group_name, group.pods(), group) for group in self.worker_group_specs
        ]
        paths = ["headGroupSpec", *(f"workerGroupSpecs[{index}]" for index in range(len(self.worker_group_specs)))]
        return [
            PodSet(
                prefix=f"{name}-{prefix}",
                count=count,
                template=group.template,
                path=f"{path}.{own_path}.template",
                labels={"ray.io/cluster": name, "ray.io/group": role},
                known_by=("ray.io/group",),
                role=role,
            )
            for (prefix, role, count, group), own_path in zip(groups, paths, strict=True)
        ]

    def gang(self, meta: ObjectMeta, name: str) -> PodGroup | None:
        """KubeRay makes a gang if a batch scheduler is asked for. With autoscaling it begins with the minimum."""
        labels: Mapping[str, str] = meta.labels
        if labels.get("ray.io/gang-scheduling-enabled") != "true" and "ray.io/scheduler-name" not in labels:
            return None
        is_elastic = self.enable_in_tree_autoscaling
        least = 1 + sum(group.least() if is_elastic else group.pods() for group in self.worker_group_specs)
        priority = labels.get("ray.io/priority-class-name", "")
        return _group(meta, f"ray-{name}-pg", least, labels.get("volcano.sh/queue-name", ""), priority)


class RayJobStatus(Lenient, frozen=True):
    job_deployment_status: str = ""
    ray_cluster_name: str = ""


class RayCluster(Workload, frozen=True, kw_only=True):
    spec: RayClusterSpec

    def pod_sets(self) -> Sequence[PodSet]:
        return self.spec.pod_sets(self.metadata.name, "spec")

    def gang(self) -> PodGroup | None:
        return self.spec.gang(self.metadata, self.metadata.name)

    def why_none(self) -> str:
        return "spec.suspend is true" if self.spec.suspend else ""


class RayJobSpec(Lenient, frozen=True):
    ray_cluster_spec: RayClusterSpec | None = None
    cluster_selector: dict[str, str] = {}
    suspend: bool = False


class RayJob(Workload, frozen=True, kw_only=True):
    """The pods of its RayCluster. The pod that submits the job is not counted: it asks for next to nothing."""

    spec: RayJobSpec
    status: RayJobStatus = RayJobStatus()

    def pod_sets(self) -> Sequence[PodSet]:
        cluster = self.spec.ray_cluster_spec
        return [] if cluster is None else cluster.pod_sets(self.cluster_name, "spec.rayClusterSpec")

    def gang(self) -> PodGroup | None:
        cluster = self.spec.ray_cluster_spec
        return None if cluster is None else cluster.gang(self.metadata, self.cluster_name)

    @property
    def cluster_name(self) -> str:
        return self.status.ray_cluster_name or self.metadata.name

    def why_none(self) -> str:
        if self.spec.suspend:
            return "spec.suspend is true"
        if self.spec.ray_cluster_spec is None:
            return "spec.rayClusterSpec is not set: it runs on a cluster that exists"
        return ""

    def is_over(self) -> bool:
        return self.status.job_deployment_status in ("Complete", "Failed")
