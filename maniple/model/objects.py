"""Typed objects sorted by kind: the input of a Snapshot. Refuses duplicates, and adds the pods that jobs imply."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from maniple.api import core, types
from maniple.api.decode import Decoded, Object
from maniple.api.errors import InputError
from maniple.api.gpuwish import write_models
from maniple.api.meta import ObjectMeta


@dataclass
class Objects:
    nodes: list[core.Node] = field(default_factory=list)
    pods: list[core.Pod] = field(default_factory=list)
    priority_classes: list[core.PriorityClass] = field(default_factory=list)
    budgets: list[core.PodDisruptionBudget] = field(default_factory=list)
    volumes: list[core.PersistentVolume] = field(default_factory=list)
    claims: list[core.PersistentVolumeClaim] = field(default_factory=list)
    namespaces: list[core.Namespace] = field(default_factory=list)
    queues: list[types.Queue] = field(default_factory=list)
    pod_groups: list[types.PodGroup] = field(default_factory=list)
    elastic_jobs: list[types.ElasticJob] = field(default_factory=list)
    topologies: list[types.Topology] = field(default_factory=list)
    implied: list[core.Pod] = field(default_factory=list)  # pods that jobs will create; pending, whatever they say
    decoded: Decoded = field(default_factory=Decoded)

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
    rooms: dict[type, list[Any]] = {
        core.Node: objects.nodes,
        core.Pod: objects.pods,
        core.PriorityClass: objects.priority_classes,
        core.PodDisruptionBudget: objects.budgets,
        core.PersistentVolume: objects.volumes,
        core.PersistentVolumeClaim: objects.claims,
        core.Namespace: objects.namespaces,
        types.Queue: objects.queues,
        types.PodGroup: objects.pod_groups,
        types.ElasticJob: objects.elastic_jobs,
        types.Topology: objects.topologies,
    }
    seen: set[tuple[type, str, str]] = set()
    twice: list[str] = []
    for at, item in enumerate(decoded.objects):
        key = (type(item), item.metadata.namespace, item.metadata.name)
        if key in seen:
            twice.append(f"{decoded.where[at]}: {describe(item)}: given twice; an object may stand in the input once")
        seen.add(key)
        rooms[type(item)].append(item)
    objects.implied = list(implied_pods(objects.elastic_jobs, objects.pods, scheduler_name=scheduler_name))
    twice += [
        f"{describe(pod)}: is in the input, but ElasticJob {pod.metadata.labels[types.JOB_LABEL]} will create a pod "
        f"of that name; give the pod its labels, or rename it"
        for pod in objects.implied
        if (core.Pod, pod.metadata.namespace, pod.metadata.name) in seen
    ]
    if twice:
        raise InputError(twice)
    return objects


def implied_pods(
    jobs: Sequence[types.ElasticJob], pods: Iterable[core.Pod], *, scheduler_name: str
) -> Iterable[core.Pod]:
    """The first `min` pods of each role of every job that has no pods yet and is not over."""
    if not jobs:
        return
    have = {(pod.metadata.namespace, pod.metadata.labels.get(types.JOB_LABEL)) for pod in pods}
    for job in jobs:
        meta = job.metadata
        if (meta.namespace, meta.name) in have or job.status.phase in ("Succeeded", "Failed"):
            continue
        for role in job.spec.roles:
            for index in range(role.min):
                yield _replica(job, role, index, scheduler_name)


def _replica(job: types.ElasticJob, role: types.ElasticRole, index: int, scheduler_name: str) -> core.Pod:
    meta, template = job.metadata, role.template
    labels = {
        **template.metadata.labels,
        types.JOB_LABEL: meta.name,
        types.ROLE_LABEL: role.name,
        types.INDEX_LABEL: str(index),
    }
    annotations = template.metadata.annotations
    if role.gpu_models and types.GPU_MODELS_ANNOTATION not in annotations:
        annotations = {**annotations, types.GPU_MODELS_ANNOTATION: write_models(role.gpu_models)}
    spec = template.spec
    fields = {name: getattr(spec, name) for name in spec.__struct_fields__}
    fields |= {
        "scheduler_name": scheduler_name,
        "priority_class_name": spec.priority_class_name or job.spec.priority_class_name,
    }
    return core.Pod(
        metadata=ObjectMeta(
            name=f"{meta.name}-{role.name}-{index}",
            namespace=meta.namespace,
            labels=labels,
            annotations=annotations,
            creation_timestamp=meta.creation_timestamp,
        ),
        spec=core.PodSpec(**fields),
    )
