"""Typed objects by kind: the input of a Snapshot. Refuses duplicates, and adds the pods that jobs will create."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import msgspec

from maniple.api import kubernetes, types
from maniple.api.decode.decode import Decoded, Object
from maniple.api.errors import InputError
from maniple.api.gpu.requests import write_models
from maniple.api.keys import Key, ObjectKey, key_of, name_of
from maniple.api.labels import BIND_FAILURES_ANNOTATION, GPU_MODELS_ANNOTATION, INDEX_LABEL, JOB_LABEL, ROLE_LABEL
from maniple.api.meta import LabelRequirement, ObjectMeta
from maniple.api.phases import FINISHED
from maniple.model.building.job_builder import is_gang
from maniple.model.building.replica_checks import misplaced_note, replica_problems
from maniple.model.elastic import current_sizes, replica_index
from maniple.model.pod_identity import gang_of, job_key, named_gangs, pod_role

NextReplica = tuple[types.ElasticRole, kubernetes.Pod]


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
    implied: list[kubernetes.Pod] = field(default_factory=list)  # pods that jobs will create
    decoded: Decoded = field(default_factory=Decoded)

    def by_kind(self) -> dict[type, list[Any]]:
        """The lists by the type of their objects."""
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
        for decoded, where in zip(self.decoded.objects, self.decoded.where, strict=True):
            if decoded is item:
                return f"{where}: {describe(item)}"
        return describe(item)


def describe(item: Object) -> str:
    namespace = f"{item.metadata.namespace}/" if item.metadata.namespace else ""
    return f"{type(item).__name__} {namespace}{item.metadata.name}"


def sort_objects(decoded: Decoded, *, scheduler_name: str) -> Objects:
    """The objects by kind, with the pods that ElasticJobs will create. InputError if an object is given twice."""
    objects = Objects(decoded=decoded)
    by_kind = objects.by_kind()
    seen: set[ObjectKey] = set()
    twice: list[str] = []
    for item, where in zip(decoded.objects, decoded.where, strict=True):
        key = (type(item), item.metadata.namespace, item.metadata.name)
        if key in seen:
            twice.append(f"{where}: {describe(item)}: given twice; an object may stand in the input once")
        seen.add(key)
        by_kind[type(item)].append(item)
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
    """Raises InputError if pods contradict the gangs that they name."""
    by_job = pods_by_job(objects.pods) if objects.elastic_jobs else {}
    wrong = [
        f"{objects.place_of(pod)}: {problem}"
        for job in objects.elastic_jobs
        for pod, problem in replica_problems(job, by_job.get(key_of(job.metadata), ()))
    ]
    gangs = {job_key(job.metadata, "ElasticJob") for job in objects.elastic_jobs}
    gangless = {job_key(group.metadata, "PodGroup") for group in objects.pod_groups if not is_gang(group)}
    for pod in objects.pods:
        if BIND_FAILURES_ANNOTATION in pod.metadata.annotations:
            gang = gang_of(name_of(pod.metadata), named_gangs(pod), is_ours=True, gangs=gangs, gangless=gangless)
            note = misplaced_note(pod, gang)
            wrong += [f"{objects.place_of(pod)}: {note}"] if note is not None else []
    if wrong:
        raise InputError(wrong)


def implied_pods(
    jobs: Sequence[types.ElasticJob], pods: Iterable[kubernetes.Pod], *, scheduler_name: str
) -> Iterator[kubernetes.Pod]:
    """The replicas that jobs should have now and that do not exist yet."""
    if not jobs:
        return
    by_job = pods_by_job(pods)
    for job in jobs:
        if job.status.phase in FINISHED:
            continue
        own = by_job.get(key_of(job.metadata), [])
        sizes = current_sizes(job, own)
        decided = {target.role for target in job.status.target}
        for role in job.spec.roles:
            existing = {replica_index(pod) for pod in own if pod_role(pod.metadata) == role.name}
            missing: Iterator[int] = (index for index in range(sizes[role.name]) if index not in existing)
            if own and role.name not in decided:
                # Without a decision, a job that has pods is complete, unless it has fewer than its minimum.
                missing = islice(missing, max(0, role.least - len(existing)))
            for index in missing:
                yield make_replica(job, role, index, scheduler_name)


def beyond_their_size(jobs: Sequence[types.ElasticJob], pods: Iterable[kubernetes.Pod]) -> set[str]:
    """ "namespace/name" of replicas beyond the size that was decided for their jobs."""
    by_job = pods_by_job(pods)
    beyond = set()
    for job in jobs:
        decided = {target.role for target in job.status.target}
        own = by_job.get(key_of(job.metadata), []) if decided else []
        sizes = current_sizes(job, own)
        for pod in own:
            role = pod_role(pod.metadata)
            if role in decided and replica_index(pod) >= sizes[role]:
                beyond.add(name_of(pod.metadata))
    return beyond


def pods_by_job(pods: Iterable[kubernetes.Pod]) -> dict[Key, list[kubernetes.Pod]]:
    """Key of an ElasticJob -> the pods that name it."""
    by_job: dict[Key, list[kubernetes.Pod]] = {}
    for pod in pods:
        name = pod.metadata.labels.get(JOB_LABEL)
        if name:
            by_job.setdefault((pod.metadata.namespace, name), []).append(pod)
    return by_job


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
    template_spec = template.spec
    spec = msgspec.structs.replace(
        template_spec,
        scheduler_name=scheduler_name,
        priority_class_name=template_spec.priority_class_name or job.spec.priority_class_name,
        node_name="",
        affinity=(
            with_node(template_spec.affinity, template_spec.node_name)
            if template_spec.node_name
            else template_spec.affinity
        ),
    )
    return kubernetes.Pod(
        metadata=ObjectMeta(
            name=replica_name(job, role, index),
            namespace=meta.namespace,
            labels=labels,
            annotations=annotations,
            creation_timestamp=meta.creation_timestamp,
        ),
        spec=spec,
    )


def with_node(affinity: kubernetes.Affinity | None, node: str) -> kubernetes.Affinity:
    """The affinity with a requirement for this node.

    A node's name in a template says where the pod may go. In a pod it would be a binding that bypasses the scheduler.
    """
    affinity = affinity or kubernetes.Affinity()
    nodes = affinity.node_affinity or kubernetes.NodeAffinity()
    required = nodes.required_during_scheduling_ignored_during_execution
    terms = required.node_selector_terms if required else (kubernetes.NodeSelectorTerm(),)
    here = LabelRequirement(key="metadata.name", operator="In", values=(node,))
    selector = kubernetes.NodeSelector(
        tuple(msgspec.structs.replace(term, match_fields=(*term.match_fields, here)) for term in terms)
    )
    nodes = msgspec.structs.replace(nodes, required_during_scheduling_ignored_during_execution=selector)
    return msgspec.structs.replace(affinity, node_affinity=nodes)


def next_replicas(job: types.ElasticJob, sizes: dict[str, int], scheduler_name: str) -> list[NextReplica]:
    """The next replica of every role that may grow."""
    if job.spec.suspend or job.status.phase in FINISHED:
        return []
    return [
        (role, make_replica(job, role, sizes[role.name], scheduler_name))
        for role in job.spec.roles
        if sizes[role.name] < role.most
    ]
