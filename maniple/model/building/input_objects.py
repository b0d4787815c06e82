"""Typed objects by kind: the input of a Snapshot. Refuses duplicates and contradictions."""

from dataclasses import dataclass, field
from typing import Any

from maniple.api import kubernetes, types
from maniple.api.decode.decode import Decoded, Object
from maniple.api.errors import InputError
from maniple.api.keys import ObjectKey, key_of, name_of
from maniple.api.labels import BIND_FAILURES_ANNOTATION, JOB_LABEL
from maniple.model.building.implied_pods import implied_pods, pods_by_job
from maniple.model.building.job_builder import is_gang
from maniple.model.building.replica_checks import misplaced_note, replica_problems
from maniple.model.building.workload_pods import make_pods
from maniple.model.pod_identity import gang_of, job_key, named_gangs


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
    made = make_pods(decoded, scheduler_name)
    new_objects: list[tuple[Object, str]] = [*made.groups, *made.pods]
    for new, where in new_objects:
        decoded.objects.append(new)
        decoded.where.append(where)
        by_kind[type(new)].append(new)
        seen.add((type(new), *key_of(new.metadata)))
    decoded.notes += made.notes
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
