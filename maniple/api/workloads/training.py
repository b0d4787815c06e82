"""Jobs of training systems: Volcano's Job, Ray's RayCluster, RayJob and RayService. Kubeflow's: kubeflow.py."""

from collections.abc import Mapping, Sequence

from maniple.api.errors import Problem
from maniple.api.meta import Int32, ObjectMeta
from maniple.api.types import PodGroup, PodGroupRole, PodTemplate
from maniple.api.workloads.common import Lenient, PodSet, Replicas, Size, Workload, gang_of, too_many

_VOLCANO_OVER = ("Completed", "Failed", "Aborted", "Terminated", "Aborting", "Completing", "Terminating")


# -- Volcano


class VolcanoTask(Lenient, frozen=True):
    template: PodTemplate
    name: str = ""
    replicas: Replicas = 1
    min_available: Replicas | None = None
    depends_on: dict[str, object] = {}


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
            too_many(f"spec.tasks[{index}].minAvailable", task.min_available, task.replicas)
            for index, task in enumerate(tasks)
            if task.min_available is not None and task.min_available > task.replicas
        ]
        return [*wrong, too_many("spec.minAvailable", least, total)] if least is not None and least > total else wrong

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
        return gang_of(self.metadata, name, least, self.spec.queue, self.spec.priority_class_name, roles)

    def is_over(self) -> bool:
        return self.status.state.phase in _VOLCANO_OVER

    def unread(self) -> Sequence[str]:
        return [f"spec.tasks[{index}].dependsOn" for index, task in enumerate(self.spec.tasks) if task.depends_on]

    def scheduler_name(self) -> str:
        return self.spec.scheduler_name


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
        return gang_of(meta, f"ray-{name}-pg", least, labels.get("volcano.sh/queue-name", ""), priority)


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


class RayServiceSpec(Lenient, frozen=True):
    ray_cluster_config: RayClusterSpec


class RayServiceClusterStatus(Lenient, frozen=True):
    ray_cluster_name: str = ""


class RayServiceStatus(Lenient, frozen=True):
    active_service_status: RayServiceClusterStatus = RayServiceClusterStatus()


class RayService(Workload, frozen=True, kw_only=True):
    """The pods of one RayCluster. The second that exists during an upgrade is not counted."""

    spec: RayServiceSpec
    status: RayServiceStatus = RayServiceStatus()

    @property
    def cluster_name(self) -> str:
        return self.status.active_service_status.ray_cluster_name or self.metadata.name

    def pod_sets(self) -> Sequence[PodSet]:
        return self.spec.ray_cluster_config.pod_sets(self.cluster_name, "spec.rayClusterConfig")

    def gang(self) -> PodGroup | None:
        return self.spec.ray_cluster_config.gang(self.metadata, self.cluster_name)
