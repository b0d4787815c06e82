"""The pods that workloads would make: Jobs, Deployments and other systems' jobs of the input, for planning only.

What exists already counts: pods that a workload owns, directly or through others of the input, are not made again.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import count

from msgspec.structs import replace

from maniple.api import kubernetes, types
from maniple.api.decode.decode import Decoded
from maniple.api.decode.notes import Notes
from maniple.api.errors import InputError
from maniple.api.keys import Key, key_of, name_of
from maniple.api.labels import POD_GROUP_LABEL, ROLE_LABEL
from maniple.api.meta import ObjectMeta, OwnerReference
from maniple.api.phases import FINISHED
from maniple.api.workloads.common import PodSet, Workload
from maniple.api.workloads.kinds import KIND_OF
from maniple.api.workloads.kubeflow import ClusterTrainingRuntime, RuntimeSpec, TrainingRuntime, TrainJob
from maniple.api.workloads.kubernetes import LWS_LABEL, Deployment, JobSet, LeaderWorkerSet
from maniple.api.workloads.training import RayCluster, RayJob, RayService
from maniple.model.pod_identity import group_name

MOST_PODS = 200_000  # of all workloads together
# Of them, those without a gang. A decision is made about each of them, which takes ten times as long as a gang's pod.
MOST_SINGLE_PODS = 20_000

_HASH_LABEL = "pod-template-hash"
_JOBSET_LABEL = "jobset.sigs.k8s.io/jobset-name"
_RAY_LABEL = "ray.io/cluster"
_KUEUE_LABEL = "kueue.x-k8s.io/queue-name"


@dataclass
class Made:
    """What workloads would make, each with the place of the workload."""

    pods: list[tuple[kubernetes.Pod, str]] = field(default_factory=list)
    groups: list[tuple[types.PodGroup, str]] = field(default_factory=list)
    notes: Notes = field(default_factory=Notes)


def make_pods(decoded: Decoded, scheduler_name: str, *, strict: bool = True) -> Made:
    """`scheduler_name`: the scheduler of pods whose template names none. InputError for what cannot be."""
    made = Made()
    if not decoded.workloads:
        return made
    given = _with_runtimes(decoded.workloads)
    places = {id(item): f"{where}: {describe(item)}" for item, where in given}
    workloads = _distinct([item for item, _ in given], places, strict=strict)
    pods = [item for item in decoded.objects if isinstance(item, kubernetes.Pod)]
    groups = {key_of(item.metadata) for item in decoded.objects if isinstance(item, types.PodGroup)}
    owned = Owners(workloads).pods_of(pods)
    taken = {name_of(pod.metadata) for pod in pods}
    jobsets = {key_of(item.metadata) for item in workloads if isinstance(item, JobSet)}
    roots = [
        item
        for item in workloads
        if id(item) in owned and not (isinstance(item, TrainJob) and key_of(item.metadata) in jobsets)
    ]
    roots = [item for item in roots if not item.is_over()]
    roots = _not_too_many(roots, owned, places, made, strict=strict)
    counts: Counter[str] = Counter()
    of_kind: Counter[str] = Counter()
    made_groups: set[Key] = set()
    for item in roots:
        place, existing, kind = places[id(item)], owned[id(item)], KIND_OF[type(item)]
        if why := item.why_none():
            queue = item.metadata.labels.get(_KUEUE_LABEL)
            why += f"; Kueue holds it back, in its queue {queue}" * bool(queue)
            made.notes.add((kind, why), f"{place}: makes no pods: {why}")
            continue
        for remark in item.remarks():
            made.notes.add((kind, remark), f"{place}: {remark}")
        for name in item.unread():
            made.notes.add((kind, name), f"{place}: {name} has no counterpart here and is not read")
        group = _own_name(item.gang(), kind, made_groups)
        new = list(_pods(item, group, existing, taken, scheduler_name))
        made.pods += [(pod, place) for pod in new]
        if group is not None and key_of(group.metadata) not in groups and _needs(group, new):
            made.groups.append((group, place))
            made_groups.add(key_of(group.metadata))
        if new:
            of_kind[kind] += 1
            counts[kind] += len(new)
    if counts:
        listed = ", ".join(f"{counts[kind]} of {of_kind[kind]} {kind}" for kind in sorted(counts))
        made.notes.add("made", f"pods that do not exist yet are made from templates: {listed}")
    return made


def _not_too_many(
    workloads: Sequence[Workload],
    owned: Mapping[int, Sequence[kubernetes.Pod]],
    places: Mapping[int, str],
    made: Made,
    *,
    strict: bool,
) -> list[Workload]:
    """The workloads, if they make no more pods than can be planned at once. Else InputError.

    Unless `strict`, the largest of a real cluster are set aside instead.
    """
    makes = {id(item): item for item in workloads if not item.why_none()}
    for number_of, most, what in (
        (_total, MOST_PODS, "pods"),
        (_single_pods, MOST_SINGLE_PODS, "pods that form no gang"),
    ):
        numbers = {key: max(0, number_of(item) - len(owned[key])) for key, item in makes.items()}
        while (total := sum(numbers.values())) > most:
            largest = max(numbers, key=numbers.__getitem__)
            place, number = places[largest], numbers.pop(largest)
            if strict or not makes[largest].metadata.uid:
                message = f"the workloads of the input would make {total} {what}; expected at most {most}, with fewer"
                raise InputError([f"{message} workloads or replicas: {place} makes {number}"])
            problem = f"would make {number} {what}; expected at most {most} of all workloads"
            made.notes.set_aside(place, KIND_OF[type(makes.pop(largest))], [problem])
    return [item for item in workloads if item.why_none() or id(item) in makes]


def _total(item: Workload) -> int:
    return sum(pods.total for pods in item.pod_sets())


def _single_pods(item: Workload) -> int:
    return 0 if item.gang() is not None else sum(pods.total for pods in item.pod_sets() if not _names_group(pods))


def _names_group(pods: PodSet) -> bool:
    """Whether the template itself puts its pods into a gang."""
    meta = pods.template.metadata
    labelled = ObjectMeta(labels=meta.labels, annotations=meta.annotations)
    return bool(group_name(kubernetes.Pod(labelled, pods.template.spec)))


def _with_runtimes(workloads: Sequence[tuple[Workload, str]]) -> list[tuple[Workload, str]]:
    """TrainJobs with what their runtime says, if that is in the input."""
    runtimes: dict[tuple[str, str, str], RuntimeSpec] = {}
    for item, _ in workloads:
        if isinstance(item, TrainingRuntime):
            namespace = "" if isinstance(item, ClusterTrainingRuntime) else item.metadata.namespace
            runtimes[KIND_OF[type(item)], namespace, item.metadata.name] = item.spec

    def complete(item: Workload) -> Workload:
        if not isinstance(item, TrainJob):
            return item
        ref = item.spec.runtime_ref
        namespace = "" if ref.kind == "ClusterTrainingRuntime" else item.metadata.namespace
        return replace(item, runtime=runtimes.get((ref.kind, namespace, ref.name)))

    return [(complete(item), where) for item, where in workloads]


def _own_name(group: types.PodGroup | None, kind: str, taken: Set[Key]) -> types.PodGroup | None:
    """The group, under another name if a workload of another kind has one of that name."""
    if group is None or key_of(group.metadata) not in taken:
        return group
    return replace(group, metadata=replace(group.metadata, name=f"{group.metadata.name}-{kind.lower()}"))


def describe(item: Workload) -> str:
    return f"{KIND_OF[type(item)]} {name_of(item.metadata)}"


def _distinct(workloads: Sequence[Workload], places: dict[int, str], *, strict: bool) -> list[Workload]:
    """Each workload once. Unless `strict`, one of a real cluster may be in several dumps: the last counts."""
    seen: dict[tuple[type, str, str], Workload] = {}
    twice = []
    for item in workloads:
        key = (type(item), *key_of(item.metadata))
        if key in seen and (strict or not (item.metadata.uid and seen[key].metadata.uid)):
            twice.append(f"{places[id(item)]}: given twice; an object may stand in the input once")
        seen[key] = item
    if twice:
        raise InputError(twice)
    return list(seen.values())


def _needs(group: types.PodGroup, pods: Sequence[kubernetes.Pod]) -> bool:
    return any(group_name(pod) == group.metadata.name for pod in pods)


def owner_names(meta: ObjectMeta) -> set[str]:
    """`ns/name` of what has made the pod, and of what has made that, as far as its labels say."""
    names = [reference.name for reference in meta.owner_references if reference.controller]
    names += [name.removesuffix(f"-{meta.labels[_HASH_LABEL]}") for name in names if _HASH_LABEL in meta.labels]
    names += [meta.labels[label] for label in (_JOBSET_LABEL, _RAY_LABEL, LWS_LABEL) if label in meta.labels]
    return {f"{meta.namespace}/{name}" for name in names}


class Owners:
    """Which workload a pod or another workload belongs to."""

    def __init__(self, workloads: Sequence[Workload]) -> None:
        self._workloads = workloads
        self._by_name: dict[tuple[str, str, str], list[Workload]] = {}
        for item in workloads:
            key = (item.metadata.namespace, KIND_OF[type(item)], item.metadata.name)
            self._by_name.setdefault(key, []).append(item)
        self._deployments = self._index(Deployment)
        self._jobsets = self._index(TrainJob) | self._index(JobSet)  # a JobSet says more than its TrainJob
        ray_jobs = (item for item in workloads if isinstance(item, RayJob | RayService))
        self._ray_jobs = {(item.metadata.namespace, item.cluster_name): item for item in ray_jobs}
        self._ray_clusters = self._index(RayCluster)
        self._leader_worker_sets = self._index(LeaderWorkerSet)

    def _index(self, kind: type[Workload]) -> dict[tuple[str, str], Workload]:
        return {key_of(item.metadata): item for item in self._workloads if isinstance(item, kind)}

    def pods_of(self, pods: Sequence[kubernetes.Pod]) -> dict[int, list[kubernetes.Pod]]:
        """id of a workload that belongs to no other -> its pods that are not leaving."""
        owned: dict[int, list[kubernetes.Pod]] = {id(self._root(item)): [] for item in self._workloads}
        for pod in pods:
            owner = self._owner_of(pod.metadata)
            if owner is not None and pod.metadata.deletion_timestamp is None:
                owned[id(self._root(owner))].append(pod)
        return owned

    def _root(self, item: Workload) -> Workload:
        seen = {id(item)}
        while (owner := self._owner_of(item.metadata)) is not None and id(owner) not in seen:
            item = owner
            seen.add(id(item))
        return item

    def _owner_of(self, meta: ObjectMeta) -> Workload | None:
        reference = next((reference for reference in meta.owner_references if reference.controller), None)
        if reference is None:
            return None
        if reference.kind == "TrainJob":
            return None  # of a JobSet, which is complete
        candidates = self._by_name.get((meta.namespace, reference.kind, reference.name), [])
        for item in candidates:
            if not reference.uid or not item.metadata.uid or reference.uid == item.metadata.uid:
                return item
        return self._owner_by_label(meta, reference)

    def _owner_by_label(self, meta: ObjectMeta, reference: OwnerReference) -> Workload | None:
        """For a pod whose owner is not in the input, but the owner's owner is."""
        namespace, labels = meta.namespace, meta.labels
        if LWS_LABEL in labels:  # its pods belong to StatefulSets, and some of these to its leaders
            return self._leader_worker_sets.get((namespace, labels[LWS_LABEL]))
        template = labels.get(_HASH_LABEL, "")
        if reference.kind == "ReplicaSet" and template and reference.name.endswith(f"-{template}"):
            return self._deployments.get((namespace, reference.name.removesuffix(f"-{template}")))
        if reference.kind == "Job" and _JOBSET_LABEL in labels:
            return self._jobsets.get((namespace, labels[_JOBSET_LABEL]))
        if reference.kind in ("RayCluster", "RayJob", "RayService"):
            name = (namespace, labels.get(_RAY_LABEL, reference.name))
            return self._ray_clusters.get(name) or self._ray_jobs.get(name)
        if reference.kind == "JobSet":  # the owner of a Job
            return self._jobsets.get((namespace, reference.name))
        return None


def _pods(
    item: Workload,
    group: types.PodGroup | None,
    existing: Sequence[kubernetes.Pod],
    taken: set[str],
    scheduler_name: str,
) -> Iterator[kubernetes.Pod]:
    """The pods that are missing. Their names become taken."""
    by_labels: dict[tuple[tuple[str, ...], tuple[str, ...]], list[kubernetes.Pod]] = {}
    by_prefix: dict[str, list[kubernetes.Pod]] = {}
    sets = [copy for pods in item.pod_sets() for copy in pods.each()]
    label_keys = {pods.known_by for pods in sets}
    for pod in existing:
        by_prefix.setdefault(pod.metadata.name.rpartition("-")[0], []).append(pod)
        for keys in label_keys:
            by_labels.setdefault((keys, _values(pod.metadata.labels, keys)), []).append(pod)
    for pods in sets:
        own = by_labels.get((pods.known_by, _values(pods.labels, pods.known_by))) or by_prefix.get(pods.prefix, [])
        if pods.replaces_finished:
            own = [pod for pod in own if pod.status.phase not in FINISHED]
        missing = pods.count - len(own)
        joins = next(filter(None, map(group_name, own)), "") if missing > 0 else ""
        for index in count(pods.first):
            if missing <= 0:
                break
            name = f"{pods.prefix}-{index}"
            if f"{item.metadata.namespace}/{name}" in taken:
                continue
            taken.add(f"{item.metadata.namespace}/{name}")
            missing -= 1
            yield _make(item, pods, name, group, joins, scheduler_name)


def _values(labels: Mapping[str, str], keys: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(labels.get(key, "") for key in keys)


def _make(
    item: Workload, pods: PodSet, name: str, group: types.PodGroup | None, joins: str, scheduler_name: str
) -> kubernetes.Pod:
    """`joins`: the group of pods that exist already."""
    template, meta = pods.template, item.metadata
    pod = kubernetes.Pod(
        metadata=ObjectMeta(
            name=name,
            namespace=meta.namespace,
            uid=meta.uid,  # what is wrong with a real cluster's objects is set aside
            labels={**template.metadata.labels, **pods.labels},
            annotations=template.metadata.annotations,
            creation_timestamp=meta.creation_timestamp,
            owner_references=(OwnerReference(KIND_OF[type(item)], meta.name, meta.uid, True),),
        ),
        spec=replace(
            template.spec,
            scheduler_name=template.spec.scheduler_name or item.scheduler_name() or scheduler_name,
            priority_class_name=template.spec.priority_class_name or pods.priority_class_name,
        ),
    )
    gang = joins or ("" if group is None else group.metadata.name)
    if not gang or group_name(pod):
        return pod
    labels = {ROLE_LABEL: pods.role, **pod.metadata.labels, POD_GROUP_LABEL: gang}
    return replace(pod, metadata=replace(pod.metadata, labels=labels))
