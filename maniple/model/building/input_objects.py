"""Typed objects sorted by kind: the input of a Snapshot. Refuses duplicates, and adds the pods that jobs imply."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from maniple.api import kubernetes, types
from maniple.api.decode.decode import Decoded, Object
from maniple.api.errors import InputError
from maniple.api.gpu.requests import write_models
from maniple.api.labels import GPU_MODELS_ANNOTATION, INDEX_LABEL, JOB_LABEL, ROLE_LABEL
from maniple.api.meta import ObjectMeta
from maniple.model.building.cluster_tables import Ours
from maniple.model.building.job_builder import is_loose, job_key, key_of
from maniple.model.building.replica_checks import misplaced_note, replica_problems
from maniple.model.elastic import current_sizes, replica_index
from maniple.model.pod_identity import pod_role


@dataclass
class Objects:
    nodes: list[kubernetes.Node] = field(default_factory=list)
    pods: list[kubernetes.Pod] = field(default_factory=list)
    priority_classes: list[kubernetes.PriorityClass] = field(default_factory=list)
    budgets: list[kubernetes.PodDisruptionBudget] = field(default_factory=list)
    volumes: list[kubernetes.PersistentVolume] = field(default_factory=list)
    claims: list[kubernetes.PersistentVolumeClaim] = field(default_factory=list)
    namespaces: list[kubernetes.Namespace] = field(default_factory=list)
    queues: list[types.Queue] = field(default_factory=list)
    pod_groups: list[types.PodGroup] = field(default_factory=list)
    elastic_jobs: list[types.ElasticJob] = field(default_factory=list)
    topologies: list[types.Topology] = field(default_factory=list)
    implied: list[kubernetes.Pod] = field(
        default_factory=list
    )  # pods that jobs will create; pending, whatever they say
    decoded: Decoded = field(default_factory=Decoded)

    def by_kind(self) -> dict[type, list[Any]]:
        """The lists, by the type of what is in them."""
        return {
            kubernetes.Node: self.nodes,
            kubernetes.Pod: self.pods,
            kubernetes.PriorityClass: self.priority_classes,
            kubernetes.PodDisruptionBudget: self.budgets,
            kubernetes.PersistentVolume: self.volumes,
            kubernetes.PersistentVolumeClaim: self.claims,
            kubernetes.Namespace: self.namespaces,
            types.Queue: self.queues,
            types.PodGroup: self.pod_groups,
            types.ElasticJob: self.elastic_jobs,
            types.Topology: self.topologies,
        }

    def place_of(self, item: Object) -> str:
        """File, document and name of an object, for error messages."""
        for found, where in zip(self.decoded.objects, self.decoded.where, strict=True):
            if found is item:
                return f"{where}: {describe(item)}"
        return describe(item)


def describe(item: Object) -> str:
    namespace = f"{item.metadata.namespace}/" if item.metadata.namespace else ""
    return f"{type(item).__name__} {namespace}{item.metadata.name}"


def sort_objects(decoded: Decoded, *, scheduler_name: str) -> Objects:
    """The objects by kind, with the pods that ElasticJobs without pods imply. InputError where one is given twice."""
    objects = Objects(decoded=decoded)
    rooms = objects.by_kind()
    seen: set[tuple[type, str, str]] = set()
    twice: list[str] = []
    for at, item in enumerate(decoded.objects):
        key = (type(item), item.metadata.namespace, item.metadata.name)
        if key in seen:
            twice.append(f"{decoded.where[at]}: {describe(item)}: given twice; an object may stand in the input once")
        seen.add(key)
        rooms[type(item)].append(item)
    check_pods(objects)
    objects.implied = list(implied_pods(objects.elastic_jobs, objects.pods, scheduler_name=scheduler_name))
    twice += [
        f"{describe(pod)}: is in the input, but ElasticJob {pod.metadata.labels[JOB_LABEL]} will create a pod "
        f"of that name; give the pod its labels, or rename it"
        for pod in objects.implied
        if (kubernetes.Pod, pod.metadata.namespace, pod.metadata.name) in seen
    ]
    if twice:
        raise InputError(twice)
    return objects


def check_pods(objects: Objects) -> None:
    """InputError if pods contradict the gangs that they say they belong to."""
    there = pods_by_job(objects.pods) if objects.elastic_jobs else {}
    wrong = [
        f"{objects.place_of(pod)}: {problem}"
        for job in objects.elastic_jobs
        for pod, problem in replica_problems(job, there.get((job.metadata.namespace, job.metadata.name), ()))
    ]
    declared = {job_key(job.metadata, "ElasticJob") for job in objects.elastic_jobs}
    loose = {job_key(group.metadata, "PodGroup") for group in objects.pod_groups if is_loose(group)}
    for pod in objects.pods:
        note = misplaced_note(pod, key_of(pod, Ours(every_pod=True), declared, (), loose))
        wrong += [f"{objects.place_of(pod)}: {note}"] if note is not None else []
    if wrong:
        raise InputError(wrong)


def implied_pods(
    jobs: Sequence[types.ElasticJob], pods: Iterable[kubernetes.Pod], *, scheduler_name: str
) -> Iterator[kubernetes.Pod]:
    """The replicas that jobs are to have now, as far as they are not there yet."""
    if not jobs:
        return
    there = pods_by_job(pods)
    for job in jobs:
        if job.status.phase in ("Succeeded", "Failed"):
            continue
        mine = there.get((job.metadata.namespace, job.metadata.name), [])
        sizes = current_sizes(job, mine)
        decided = {target.role for target in job.status.target}
        for role in job.spec.roles:
            has = {replica_index(pod) for pod in mine if pod_role(pod.metadata) == role.name}
            missing: Iterator[int] = (index for index in range(sizes[role.name]) if index not in has)
            if mine and role.name not in decided:
                # Without a decision, who has pods has all that it is to have, if that is no less than its minimum.
                missing = islice(missing, max(0, role.least - len(has)))
            for index in missing:
                yield make_replica(job, role, index, scheduler_name)


def beyond_their_size(jobs: Sequence[types.ElasticJob], pods: Iterable[kubernetes.Pod]) -> set[str]:
    """ns/name of replicas that their jobs have been made too small to have."""
    there = pods_by_job(pods)
    found = set()
    for job in jobs:
        decided = {target.role for target in job.status.target}
        mine = there.get((job.metadata.namespace, job.metadata.name), []) if decided else []
        sizes = current_sizes(job, mine)
        for pod in mine:
            role = pod_role(pod.metadata)
            if role in decided and replica_index(pod) >= sizes[role]:
                found.add(f"{pod.metadata.namespace}/{pod.metadata.name}")
    return found


def pods_by_job(pods: Iterable[kubernetes.Pod]) -> dict[tuple[str, str], list[kubernetes.Pod]]:
    """(namespace, ElasticJob) -> its pods."""
    found: dict[tuple[str, str], list[kubernetes.Pod]] = {}
    for pod in pods:
        name = pod.metadata.labels.get(JOB_LABEL)
        if name:
            found.setdefault((pod.metadata.namespace, name), []).append(pod)
    return found


def replica_name(job: types.ElasticJob, role: types.ElasticRole, index: int) -> str:
    return f"{job.metadata.name}-{role.name}-{index}"


def make_replica(job: types.ElasticJob, role: types.ElasticRole, index: int, scheduler_name: str) -> kubernetes.Pod:
    meta, template = job.metadata, role.template
    labels = {
        **template.metadata.labels,
        JOB_LABEL: meta.name,
        ROLE_LABEL: role.name,
        INDEX_LABEL: str(index),
    }
    annotations = template.metadata.annotations
    if role.gpu_models and GPU_MODELS_ANNOTATION not in annotations:
        annotations = {**annotations, GPU_MODELS_ANNOTATION: write_models(role.gpu_models)}
    spec = template.spec
    fields = {name: getattr(spec, name) for name in spec.__struct_fields__}
    fields |= {
        "scheduler_name": scheduler_name,
        "priority_class_name": spec.priority_class_name or job.spec.priority_class_name,
    }
    return kubernetes.Pod(
        metadata=ObjectMeta(
            name=replica_name(job, role, index),
            namespace=meta.namespace,
            labels=labels,
            annotations=annotations,
            creation_timestamp=meta.creation_timestamp,
        ),
        spec=kubernetes.PodSpec(**fields),
    )


def next_replicas(
    job: types.ElasticJob, sizes: dict[str, int], scheduler_name: str
) -> list[tuple[types.ElasticRole, kubernetes.Pod]]:
    """Of every role that may grow the first replica that it would have more."""
    if job.spec.suspend or job.status.phase in ("Succeeded", "Failed"):
        return []
    return [
        (role, make_replica(job, role, sizes[role.name], scheduler_name))
        for role in job.spec.roles
        if sizes[role.name] < role.most
    ]
