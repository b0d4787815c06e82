"""Kubernetes' own workloads: Job, JobSet, Deployment, ReplicaSet, StatefulSet and LeaderWorkerSet."""

from collections.abc import Sequence

from msgspec.structs import replace

from maniple.api.meta import Count
from maniple.api.types import PodTemplate, TemplateMeta
from maniple.api.workloads.common import Lenient, PodSet, Replicas, Size, Workload, WorkloadCondition, is_true

_SUSPENDED = "spec.suspend is true"
_JOBSET_LABEL = "jobset.sigs.k8s.io/jobset-name"
_REPLICATED_JOB_LABEL = "jobset.sigs.k8s.io/replicatedjob-name"
_JOB_INDEX_LABEL = "jobset.sigs.k8s.io/job-index"
LWS_LABEL = "leaderworkerset.sigs.k8s.io/name"
_LWS_GROUP = "leaderworkerset.sigs.k8s.io/group-index"
_LWS_REVISION = "leaderworkerset.sigs.k8s.io/template-revision-hash"
_EXCLUSIVE_TOPOLOGY = "alpha.jobset.sigs.k8s.io/exclusive-topology"


class JobSpec(Lenient, frozen=True):
    template: PodTemplate
    parallelism: Replicas = 1
    completions: Count | None = None
    suspend: bool = False

    def pods(self, succeeded: int = 0) -> int:
        """How many run at once."""
        if self.completions is None:
            return self.parallelism
        return max(0, min(self.parallelism, self.completions - succeeded))


class JobStatus(Lenient, frozen=True):
    succeeded: Count = 0
    conditions: tuple[WorkloadCondition, ...] = ()


class Job(Workload, frozen=True, kw_only=True):
    spec: JobSpec
    status: JobStatus = JobStatus()

    def pod_sets(self) -> Sequence[PodSet]:
        name, count = self.metadata.name, self.spec.pods(self.status.succeeded)
        labels = {"batch.kubernetes.io/job-name": name, "job-name": name}
        return [PodSet(name, count, self.spec.template, "spec.template", labels, replaces_finished=True)]

    def why_none(self) -> str:
        return _SUSPENDED if self.spec.suspend else ""

    def is_over(self) -> bool:
        return is_true(self.status.conditions, "Complete", "Failed")


class JobTemplate(Lenient, frozen=True):
    spec: JobSpec
    metadata: TemplateMeta = TemplateMeta()


class ReplicatedJob(Lenient, frozen=True):
    name: str
    template: JobTemplate
    replicas: Replicas = 1
    depends_on: tuple[object, ...] = ()


class JobSetSpec(Lenient, frozen=True):
    replicated_jobs: tuple[ReplicatedJob, ...] = ()
    suspend: bool = False


class JobSetStatus(Lenient, frozen=True):
    conditions: tuple[WorkloadCondition, ...] = ()


class JobSet(Workload, frozen=True, kw_only=True):
    SETS = "spec.replicatedJobs"

    spec: JobSetSpec
    status: JobSetStatus = JobSetStatus()

    def pod_sets(self) -> Sequence[PodSet]:
        return [
            pods_of_replicated_job(self.metadata.name, job, f"spec.replicatedJobs[{index}].template.spec.template")
            for index, job in enumerate(self.spec.replicated_jobs)
        ]

    def why_none(self) -> str:
        return _SUSPENDED if self.spec.suspend else ""

    def is_over(self) -> bool:
        return is_true(self.status.conditions, "Completed", "Failed")

    def unread(self) -> Sequence[str]:
        jobs = enumerate(self.spec.replicated_jobs)
        waits = [f"spec.replicatedJobs[{index}].dependsOn" for index, job in jobs if job.depends_on]
        topology = f"metadata.annotations[{_EXCLUSIVE_TOPOLOGY}]"
        return [*waits, *([topology] if _EXCLUSIVE_TOPOLOGY in self.metadata.annotations else [])]


def pods_of_replicated_job(owner: str, job: ReplicatedJob, path: str) -> PodSet:
    return PodSet(
        prefix=f"{owner}-{job.name}",
        count=job.template.spec.pods(),
        template=job.template.spec.template,
        path=path,
        labels={_JOBSET_LABEL: owner, _REPLICATED_JOB_LABEL: job.name},
        known_by=(_REPLICATED_JOB_LABEL,),
        role=job.name,
        copies=job.replicas,
        copy_label=_JOB_INDEX_LABEL,
    )


class ReplicatedSpec(Lenient, frozen=True):
    template: PodTemplate
    replicas: Replicas = 1


class Replicated(Workload, frozen=True, kw_only=True):
    spec: ReplicatedSpec

    def pod_sets(self) -> Sequence[PodSet]:
        name, spec = self.metadata.name, self.spec
        return [PodSet(name, spec.replicas, spec.template, "spec.template", replaces_finished=True)]


class Deployment(Replicated, frozen=True, kw_only=True):
    """Its ReplicaSets are read as parts of it."""


class ReplicaSet(Replicated, frozen=True, kw_only=True):
    pass


class Ordinals(Lenient, frozen=True):
    start: Replicas = 0


class StatefulSetSpec(ReplicatedSpec, frozen=True):
    ordinals: Ordinals = Ordinals()
    volume_claim_templates: tuple[object, ...] = ()


class StatefulSet(Replicated, frozen=True, kw_only=True):
    spec: StatefulSetSpec

    def pod_sets(self) -> Sequence[PodSet]:
        (pods,) = super().pod_sets()
        return [replace(pods, first=self.spec.ordinals.start)]

    def unread(self) -> Sequence[str]:
        return ["spec.volumeClaimTemplates"] if self.spec.volume_claim_templates else []


class LeaderWorkerTemplate(Lenient, frozen=True):
    worker_template: PodTemplate
    leader_template: PodTemplate | None = None
    size: Size = 1


class LeaderWorkerSetSpec(Lenient, frozen=True):
    leader_worker_template: LeaderWorkerTemplate
    replicas: Replicas = 1


class LeaderWorkerSet(Workload, frozen=True, kw_only=True):
    """Groups of a leader, `NAME-0`, and workers, `NAME-0-1`, …"""

    SETS = "spec.leaderWorkerTemplate"

    spec: LeaderWorkerSetSpec

    def pod_sets(self) -> Sequence[PodSet]:
        name, template = self.metadata.name, self.spec.leader_worker_template
        leader = "workerTemplate" if template.leader_template is None else "leaderTemplate"
        # Existing pods are told apart by their names: leaders have all labels that workers have.
        leaders = PodSet(
            prefix=name,
            count=self.spec.replicas,
            template=template.leader_template or template.worker_template,
            path=f"{self.SETS}.{leader}",
            labels={LWS_LABEL: name},
            known_by=(_LWS_REVISION,),
            role="leader",
            replaces_finished=True,
        )
        workers = PodSet(
            prefix=name,
            count=template.size - 1,
            template=template.worker_template,
            path=f"{self.SETS}.workerTemplate",
            labels={LWS_LABEL: name},
            known_by=(_LWS_REVISION,),
            role="worker",
            first=1,
            replaces_finished=True,
            copies=self.spec.replicas,
            copy_label=_LWS_GROUP,
        )
        return [leaders, workers]
