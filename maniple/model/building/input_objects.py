"""Typed objects by kind: the input of a Snapshot. Refuses duplicates and contradictions."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from maniple.api import kubernetes, types
from maniple.api.decode.decode import Decoded, Object
from maniple.api.decode.notes import Notes
from maniple.api.decode.set_aside import HOLDS
from maniple.api.errors import MOST_MESSAGES, InputError, did_you_mean, shown
from maniple.api.keys import ObjectKey, key_of, name_of
from maniple.api.labels import BIND_FAILURES_ANNOTATION, JOB_LABEL
from maniple.api.phases import FINISHED
from maniple.api.quantity import parse_quantity
from maniple.model.building.cluster_tables import fixed_names
from maniple.model.building.contradictions import node_notes, pod_notes, queue_notes
from maniple.model.building.implied_pods import limited_implied_pods, pods_by_job
from maniple.model.building.job_builder import is_gang
from maniple.model.building.replica_checks import misplaced_note, replica_problems
from maniple.model.building.workload_pods import make_pods
from maniple.model.pod_identity import gang_of, job_key, named_gangs

MOST_RESOURCES = 1000  # tables have a row for each of them, for every node and pod


@dataclass
class Objects:
    nodes: list[kubernetes.Node] = field(default_factory=list)
    pods: list[kubernetes.Pod] = field(default_factory=list)
    priority_classes: list[kubernetes.PriorityClass] = field(default_factory=list)
    budgets: list[kubernetes.PodDisruptionBudget] = field(default_factory=list)
    volumes: list[kubernetes.PersistentVolume] = field(default_factory=list)
    claims: list[kubernetes.PersistentVolumeClaim] = field(default_factory=list)
    storage_classes: list[kubernetes.StorageClass] = field(default_factory=list)
    csi_nodes: list[kubernetes.CSINode] = field(default_factory=list)
    namespaces: list[kubernetes.Namespace] = field(default_factory=list)
    queues: list[types.Queue] = field(default_factory=list)
    pod_groups: list[types.PodGroup] = field(default_factory=list)
    elastic_jobs: list[types.ElasticJob] = field(default_factory=list)
    topologies: list[types.Topology] = field(default_factory=list)
    implied: list[kubernetes.Pod] = field(default_factory=list)  # pods that jobs will create
    decoded: Decoded = field(default_factory=Decoded)
    strict: bool = True  # whether contradictions between objects of a real cluster are errors
    notes: Notes = field(default_factory=Notes)
    _set_aside: dict[int, tuple[Object, dict[str, None]]] = field(default_factory=dict)  # with what is wrong

    def by_kind(self) -> dict[type, list[Any]]:
        """The lists by the type of their objects."""
        return {
            kubernetes.Node: self.nodes,
            kubernetes.Pod: self.pods,
            kubernetes.PriorityClass: self.priority_classes,
            kubernetes.PodDisruptionBudget: self.budgets,
            kubernetes.PersistentVolume: self.volumes,
            kubernetes.PersistentVolumeClaim: self.claims,
            kubernetes.StorageClass: self.storage_classes,
            kubernetes.CSINode: self.csi_nodes,
            kubernetes.Namespace: self.namespaces,
            types.Queue: self.queues,
            types.PodGroup: self.pod_groups,
            types.ElasticJob: self.elastic_jobs,
            types.Topology: self.topologies,
        }

    def refuse(self, problems: Iterable[tuple[Object, str]]) -> None:
        """Raises InputError with the problems of objects; those of a real cluster become notes, unless strict."""
        wrong: list[tuple[Object, str]] = []
        for item, text in problems:
            if self.strict or not item.metadata.uid:
                wrong.append((item, text))
            else:
                self._set_aside.setdefault(id(item), (item, {}))[1][text] = None
        if wrong:
            first = dict.fromkeys(f"{self.place_of(item)}: {text}" for item, text in wrong[:MOST_MESSAGES])
            rest = len(wrong) - MOST_MESSAGES
            raise InputError([*first, *([f"… and {rest} more"] if rest > 0 else [])])

    def note_set_aside(self) -> None:
        """Adds a note on each object that contradicts others, once."""
        for item, problems in self._set_aside.values():
            is_held = isinstance(item, kubernetes.Pod) and bool(item.spec.node_name)
            self.notes.set_aside(describe(item), type(item).__name__, list(problems), HOLDS if is_held else "")
        self._set_aside.clear()

    def place_of(self, item: Object) -> str:
        """File, document and name of an object, for error messages."""
        for decoded, where in zip(self.decoded.objects, self.decoded.where, strict=True):
            if decoded is item:
                return f"{where}: {describe(item)}"
        return describe(item)


def describe(item: Object) -> str:
    namespace = f"{item.metadata.namespace}/" if item.metadata.namespace else ""
    return f"{type(item).__name__} {namespace}{item.metadata.name}"


def sort_objects(decoded: Decoded, *, scheduler_name: str, strict: bool = True) -> Objects:
    """The objects by kind, with the pods that ElasticJobs will create. InputError if an object is given twice.

    Unless `strict`, an object of a real cluster may be in several dumps: the last counts.
    """
    objects = Objects(decoded=decoded, strict=strict)
    by_kind = objects.by_kind()
    seen: dict[ObjectKey, Object] = {}
    positions: dict[ObjectKey, int] = {}
    twice: list[str] = []
    for item, where in zip(decoded.objects, decoded.where, strict=True):
        key = (type(item), item.metadata.namespace, item.metadata.name)
        before = seen.get(key)
        seen[key] = item
        if before is None:
            positions[key] = len(by_kind[type(item)])
            by_kind[type(item)].append(item)
        elif strict or not (item.metadata.uid and before.metadata.uid):
            twice.append(f"{where}: {describe(item)}: given twice; an object may stand in the input once")
        else:
            by_kind[type(item)][positions[key]] = item
            objects.notes.add(("twice", type(item)), f"{where}: {describe(item)}: given twice; the last counts")
    made = make_pods(decoded, scheduler_name, strict=strict)
    new_objects: list[tuple[Object, str]] = [*made.groups, *made.pods]
    for new, where in new_objects:
        decoded.objects.append(new)
        decoded.where.append(where)
        by_kind[type(new)].append(new)
        seen[type(new), new.metadata.namespace, new.metadata.name] = new
    decoded.notes += made.notes.lines()
    _check_resources(objects)
    check_pods(objects)
    _note_missing_nodes(objects)
    _note_contradictions(objects)
    objects.implied = limited_implied_pods(objects.elastic_jobs, objects.pods, scheduler_name=scheduler_name)
    twice += [
        f"{describe(pod)}: is in the input, but ElasticJob {pod.metadata.labels[JOB_LABEL]} will create a pod "
        f"of that name; give the pod its labels, or rename it"
        for pod in objects.implied
        if (kubernetes.Pod, pod.metadata.namespace, pod.metadata.name) in seen
    ]
    if twice:
        raise InputError(twice)
    return objects


def _check_resources(objects: Objects) -> None:
    """Raises InputError if nodes and queues name more resources than tables can be made for."""
    names = fixed_names(objects.nodes, objects.queues)
    if len(names) > MOST_RESOURCES:
        numbers = {describe(item): len(fixed_names([item], [])) for item in objects.nodes}
        numbers |= {describe(item): len(fixed_names([], [item])) for item in objects.queues}
        most = max(numbers, key=numbers.__getitem__)
        found = f"found {len(names)}, most of them ({numbers[most]}) in {most}"
        raise InputError([f"expected at most {MOST_RESOURCES} different resources in all nodes and queues, {found}"])


def _note_contradictions(objects: Objects) -> None:
    classes = {item.metadata.name: item.value for item in objects.priority_classes}
    of_nodes: dict[str, Fraction] = dict.fromkeys(fixed_names(objects.nodes, []), Fraction(0))
    guaranteed = {name for queue in objects.queues for name in queue.spec.guaranteed if name in of_nodes}
    for node in objects.nodes if guaranteed else ():
        amounts = node.status.allocatable or node.status.capacity
        for name in guaranteed & amounts.keys():
            of_nodes[name] += Fraction(parse_quantity(str(amounts[name])))
    noted: list[tuple[Object, tuple[object, str]]] = [
        *((node, note) for node in objects.nodes for note in node_notes(node)),
        *((pod, note) for pod in objects.pods for note in pod_notes(pod, classes)),
        *queue_notes(objects.queues, of_nodes),
    ]
    for item, (kind, text) in noted:
        objects.notes.add(kind, f"{describe(item)}: {text}")


def _note_missing_nodes(objects: Objects) -> None:
    """Notes pods whose node is not in the input: they hold nothing."""
    names = {node.metadata.name for node in objects.nodes}
    is_first = True
    for pod in objects.pods:
        node = pod.spec.node_name
        if node and node not in names and pod.status.phase not in FINISHED:
            hint = did_you_mean(node, names) if is_first else ""
            is_first = False
            what = f"its node {shown(node)} is not in the input, so that it holds nothing there{hint}"
            objects.notes.add("missing node", f"{describe(pod)}: {what}")


def check_pods(objects: Objects) -> None:
    """Raises InputError if pods contradict the gangs that they name."""
    by_job = pods_by_job(objects.pods) if objects.elastic_jobs else {}
    wrong: list[tuple[Object, str]] = [
        (pod, str(problem))
        for job in objects.elastic_jobs
        for pod, problem in replica_problems(job, by_job.get(key_of(job.metadata), ()))
    ]
    gangs = {job_key(job.metadata, "ElasticJob") for job in objects.elastic_jobs}
    gangless = {job_key(group.metadata, "PodGroup") for group in objects.pod_groups if not is_gang(group)}
    for pod in objects.pods:
        if BIND_FAILURES_ANNOTATION in pod.metadata.annotations:
            gang = gang_of(name_of(pod.metadata), named_gangs(pod), is_ours=True, gangs=gangs, gangless=gangless)
            note = misplaced_note(pod, gang)
            wrong += [(pod, str(note))] if note is not None else []
    objects.refuse(wrong)
