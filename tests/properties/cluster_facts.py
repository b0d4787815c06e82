"""What the raw Kubernetes objects of a cluster say, read once into plain values, for the referee alone.

It must never import anything of maniple: a mistake shared by the judge and the judged is invisible.
Numbers are exact (Fraction), so that no tolerance is needed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction

from properties.elastic_job_facts import Elasticity, moment, read_elasticity
from properties.gpu_facts import (
    FRACTION_ANNOTATION,
    GPU,
    GPUS,
    MEMORY_ANNOTATION,
    Ask,
    Hardware,
    amount_asked,
    read_ask,
    read_hardware,
)
from properties.raw_objects import Object, Resources, add, at, flat, number, resources, rows, strings, table, text
from properties.raw_objects import key_of as key_of  # noqa: PLC0414  tests/scenarios finds it here
from properties.raw_objects import quantity as quantity  # noqa: PLC0414

SCHEDULER = "maniple"
DEFAULT_QUEUE = "default"
JOB_LABEL, ROLE_LABEL, INDEX_LABEL = "maniple.dev/job", "maniple.dev/role", "maniple.dev/index"
GROUP_LABEL, COSCHEDULING_LABEL = "maniple.dev/pod-group", "scheduling.x-k8s.io/pod-group"
KUBE_BATCH_ANNOTATION, VOLCANO_ANNOTATION = "scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name"
GPUS_ANNOTATION = "maniple.dev/gpus"
HOSTNAME_LABEL = "kubernetes.io/hostname"
KEPT_S = 300  # seconds for which places are kept for pods that were moved
PROTECTED_CLASSES = ("system-cluster-critical", "system-node-critical")


@dataclass(frozen=True)
class Node:
    name: str
    labels: dict[str, str]
    allocatable: Resources
    gpu_count: int
    pod_limit: Fraction
    taints: list[object]
    is_unschedulable: bool
    is_ready: bool
    hardware: Hardware = field(default_factory=Hardware)


@dataclass(frozen=True, eq=False)
class Pod:
    key: str
    namespace: str
    labels: dict[str, str]
    spec: Object
    requests: Resources
    gang: str
    role: str
    is_ours: bool
    priority_class: str = ""
    ask: Ask = field(default_factory=Ask)
    index: int = 0  # its place in the count of its gang

    @property
    def gpu_count(self) -> int:
        return self.ask.count

    def requests_at(self, node: Node, gpus: Iterable[str] = ()) -> Resources:
        """What the pod takes of this node. GPU memory is a different share of different GPUs."""
        if self.ask.memory is None:
            return self.requests
        given = [device for gpu in gpus for device in [node.hardware.find(gpu)] if device is not None]
        return self.requests | {GPU: amount_asked(self.ask, given or node.hardware.healthy, bool(given))}


@dataclass(frozen=True)
class Gang:
    key: str
    min_member: int = 1
    role_min: dict[str, int] = field(default_factory=dict)
    queue: str = DEFAULT_QUEUE
    is_preemptable: bool = True
    is_movable: bool = False
    min_runtime_s: int | None = None  # what it says itself
    stale_at: int | None = None  # when it gives back what it holds, if it is not whole by then
    priority_class: str = ""
    required: str = ""  # levels of a Topology
    preferred: str = ""
    is_mixed: bool = False  # its pods may be on GPUs of several models
    role_models: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def models_of(self, pod: Pod) -> tuple[str, ...]:
        """The models that a pod of this gang may have; the pod's own list wins over its role's."""
        return pod.ask.models or self.role_models.get(pod.role, ())

    def missing(self, roles_of_members: list[str]) -> int:
        """The fewest pods that are missing before the gang may run."""
        by_role = sum(max(0, least - roles_of_members.count(role)) for role, least in self.role_min.items())
        return max(self.min_member - len(roles_of_members), by_role, 0)


@dataclass(frozen=True)
class Queue:
    name: str
    parent: str
    limit: Resources
    min_runtime_s: int | None = None  # what it says itself


@dataclass(frozen=True)
class Job:
    """An ElasticJob: its gang, its sizes, and its possible pods."""

    gang: Gang
    elastic: Elasticity

    def replica(self, role: str, index: int) -> Pod:
        namespace, _, name = self.gang.key.partition("/")
        template = self.elastic.roles[role].template
        own = {JOB_LABEL: name, ROLE_LABEL: role, INDEX_LABEL: str(index)}
        metadata = {
            "namespace": namespace,
            "name": f"{name}-{role}-{index}",
            "labels": strings(template, "metadata", "labels") | own,
            "annotations": strings(template, "metadata", "annotations"),
        }
        return read_pod({"metadata": metadata, "spec": table(template, "spec")})


@dataclass(frozen=True)
class Budget:
    """A PodDisruptionBudget: how many pods may be evicted (None: unknown), or how many must stay."""

    namespace: str
    selector: object
    allowed: int | None
    least: int | None  # None: a percentage, which is not judged here


@dataclass(frozen=True)
class Facts:
    """The part of a cluster that no plan changes."""

    nodes: dict[str, Node]
    gangs: dict[str, Gang]
    jobs: dict[str, Job]
    queues: dict[str, Queue]
    namespaces: dict[str, dict[str, str]]
    volume_terms: dict[str, list[object]]
    unready_claims: frozenset[str] = frozenset()  # not bound although nothing waits for a pod, or being deleted
    claims_of_one_pod: frozenset[str] = frozenset()
    levels: dict[str, tuple[str, ...]] = field(default_factory=dict)  # the node labels from the widest down to it
    budgets: tuple[Budget, ...] = ()
    priorities: dict[str, int] = field(default_factory=dict)  # PriorityClass -> value

    def domain(self, node: Node, level: str) -> tuple[str, ...] | None:
        """Equal names in different wider domains are different domains; a node without all labels is in none."""
        labels = {HOSTNAME_LABEL: node.name} | node.labels
        path = self.levels[level]
        return tuple(labels[key] for key in path) if all(key in labels for key in path) else None

    def smallest_asked(self, pod: Pod) -> Resources:
        """What an unplaced pod counts for: the smallest amount possible."""
        if pod.ask.memory is None:
            return pod.requests
        devices = [device for node in self.nodes.values() for device in node.hardware.healthy]
        return pod.requests | {GPU: amount_asked(pod.ask, devices)}

    def gang(self, key: str) -> Gang:
        return self.gangs.get(key) or Gang(key)

    def min_runtime_s(self, gang: Gang) -> int:
        """What the gang says, else the nearest queue that says something."""
        queues = (self.queues[name].min_runtime_s for name in self.queue_line(gang.queue) if name in self.queues)
        return next((seconds for seconds in (gang.min_runtime_s, *queues) if seconds is not None), 0)

    def queue_line(self, name: str) -> list[str]:
        """The queue and all queues above it."""
        line: list[str] = []
        while name and name not in line:
            line.append(name)
            name = self.queues[name].parent if name in self.queues else ""
        return line


def requests_of(spec: object, status: object = None) -> Resources:
    """What the pod takes from its node: all containers and sidecars, or the peak during its start.

    `status`: of a pod that may be resized in place. Of the sums of what its containers ask for, were granted and have,
    the largest counts; the first does not if the node has refused it for ever.
    """
    reports = [*rows(status, "initContainerStatuses"), *rows(status, "containerStatuses")]
    by_name = {text(report, "name"): report for report in reports}
    refusals = [row for row in rows(status, "conditions") if text(row, "type") == "PodResizePending"]

    def asked(container: object) -> Resources:
        return resources(at(container, "resources", "limits")) | resources(at(container, "resources", "requests"))

    def granted(container: object) -> Resources:
        return resources(at(by_name.get(text(container, "name")), "allocatedResources")) or asked(container)

    def actual(container: object) -> Resources:
        return resources(at(by_name.get(text(container, "name")), "resources", "requests")) or granted(container)

    sums = [total_of(spec, granted), total_of(spec, actual)] if by_name else []
    if not sums or not any(text(row, "reason") == "Infeasible" for row in refusals):
        sums.append(total_of(spec, asked))
    total = {name: max(part.get(name, Fraction(0)) for part in sums) for name in {n for part in sums for n in part}}
    add(total, resources(at(spec, "overhead")))
    return {name: amount for name, amount in total.items() if amount}


def total_of(spec: object, wanted: Callable[[object], Resources]) -> Resources:
    running: Resources = {}
    sidecars: Resources = {}
    peak: Resources = {}
    for container in rows(spec, "containers"):
        add(running, wanted(container))
    for container in rows(spec, "initContainers"):
        moment = dict(sidecars)
        add(moment, wanted(container))
        if text(container, "restartPolicy") == "Always":
            sidecars = moment
        peak = {name: max(peak.get(name, Fraction(0)), moment.get(name, Fraction(0))) for name in peak | moment}
    add(running, sidecars)
    return {name: max(running.get(name, Fraction(0)), peak.get(name, Fraction(0))) for name in running | peak}


def gang_of(item: object) -> str:
    """The gang a pod belongs to; a pod that names none is a gang of one with its own name."""
    namespace = text(item, "metadata", "namespace", default="default")
    labels, annotations = strings(item, "metadata", "labels"), strings(item, "metadata", "annotations")
    name = (
        labels.get(JOB_LABEL)
        or labels.get(GROUP_LABEL)
        or annotations.get(KUBE_BATCH_ANNOTATION)
        or annotations.get(VOLCANO_ANNOTATION)
        or labels.get(COSCHEDULING_LABEL)
        or text(item, "metadata", "name")
    )
    return f"{namespace}/{name}"


def read_pod(item: object) -> Pod:
    labels = strings(item, "metadata", "labels")
    requests = requests_of(at(item, "spec"), at(item, "status"))
    annotations = strings(item, "metadata", "annotations")
    ask = read_ask(annotations, requests)
    if annotations.keys() & {FRACTION_ANNOTATION, MEMORY_ANNOTATION}:
        requests[GPU] = ask.count * ask.part
    return Pod(
        key=key_of(item),
        namespace=text(item, "metadata", "namespace", default="default"),
        labels=labels,
        spec=table(item, "spec"),
        requests=requests,
        gang=gang_of(item),
        role=labels.get(ROLE_LABEL, ""),
        is_ours=text(item, "spec", "schedulerName") == SCHEDULER or JOB_LABEL in labels,
        priority_class=text(item, "spec", "priorityClassName"),
        ask=ask,
        index=index_of(labels, text(item, "metadata", "name")),
    )


def index_of(labels: dict[str, str], name: str) -> int:
    written = labels.get(INDEX_LABEL, "")
    found = written if written.isdecimal() else name[len(name.rstrip("0123456789")) :]
    return int(found or "0")


def read_node(item: object) -> Node:
    status = table(item, "status")
    allocatable = resources(status.get("allocatable", status.get("capacity")))
    ready = [text(row, "status") for row in rows(status, "conditions") if text(row, "type") == "Ready"]
    labels, annotations = strings(item, "metadata", "labels"), strings(item, "metadata", "annotations")
    count = int(sum(allocatable.get(name, Fraction(0)) for name in GPUS))
    hardware = read_hardware(labels, annotations, count)
    if GPU in allocatable and len(hardware.healthy) < count:
        allocatable[GPU] = Fraction(len(hardware.healthy))
    return Node(
        name=text(item, "metadata", "name"),
        labels=labels,
        allocatable=allocatable,
        gpu_count=int(sum(allocatable.get(name, Fraction(0)) for name in GPUS)),
        pod_limit=allocatable.get("pods", Fraction(0 if text(item, "metadata", "uid") else 110)),
        taints=rows(item, "spec", "taints"),
        is_unschedulable=at(item, "spec", "unschedulable") is True,
        is_ready=all(answer == "True" for answer in ready),
        hardware=hardware,
    )


def read_role_models(roles: list[object]) -> dict[str, tuple[str, ...]]:
    return {
        text(role, "name"): tuple(text(entry, "model") for entry in rows(role, "gpuModels"))
        for role in roles
        if rows(role, "gpuModels")
    }


def read_closeness(gang: Gang, spec: Object) -> Gang:
    return replace(
        gang,
        required=text(spec, "topology", "required"),
        preferred=text(spec, "topology", "preferred"),
        is_mixed=spec.get("mixedGpuModels") is True,
        role_models=read_role_models(rows(spec, "roles")),
    )


def read_min_runtime(spec: object) -> int | None:
    return None if at(spec, "minRuntimeSeconds") is None else number(spec, "minRuntimeSeconds")


def read_group(item: object) -> Gang:
    spec = table(item, "spec")
    gang = Gang(
        key=key_of(item),
        min_member=number(spec, "minMember", default=1),
        role_min={text(role, "name"): number(role, "minMember", default=1) for role in rows(spec, "roles")},
        queue=text(spec, "queue") or DEFAULT_QUEUE,
        is_preemptable=spec.get("preemptable") is not False,
        is_movable=spec.get("movable") is True,
        min_runtime_s=read_min_runtime(spec),
        priority_class=text(spec, "priorityClassName"),
        stale_at=read_stale_at(item),
    )
    return read_closeness(gang, spec)


def read_stale_at(item: object) -> int | None:
    since = moment(strings(item, "metadata", "annotations").get("maniple.dev/incomplete-since"))
    seconds = number(item, "spec", "staleSeconds", default=600)
    if since is None or not seconds:
        return None
    moved = strings(item, "metadata", "annotations").get("maniple.dev/moved")
    move = {} if moved is None else json.loads(moved)
    moved_at, until = moment(move.get("at")), moment(move.get("until"))
    if until is None and moved_at is not None:
        until = moved_at + KEPT_S
    return since + seconds if until is None else max(since + seconds, until)


def read_job(item: object) -> Job:
    key, spec = key_of(item), table(item, "spec")
    role_min = {text(role, "name"): number(role, "min", default=1) for role in rows(spec, "roles")}
    gang = Gang(
        key=key,
        min_member=sum(role_min.values()),
        role_min=role_min,
        queue=text(spec, "queue") or DEFAULT_QUEUE,
        is_preemptable=spec.get("preemptable") is not False,
        is_movable=spec.get("movable", text(spec, "framework") != "none") is True,
        min_runtime_s=read_min_runtime(spec),
        priority_class=text(spec, "priorityClassName"),
    )
    return Job(read_closeness(gang, spec), read_elasticity(item))


def read_volumes(items: list[object]) -> dict[str, list[object]]:
    """For each claim with a volume: the node selector terms of that volume."""
    volumes = {
        text(item, "metadata", "name"): rows(item, "spec", "nodeAffinity", "required", "nodeSelectorTerms")
        for item in items
        if text(item, "kind") == "PersistentVolume"
    }
    terms: dict[str, list[object]] = {}
    for item in items:
        volume = text(item, "spec", "volumeName")
        if text(item, "kind") == "PersistentVolumeClaim" and volumes.get(volume):
            terms[key_of(item)] = volumes[volume]
    return terms


def read_unready_claims(items: list[object]) -> frozenset[str]:
    classes = [item for item in items if text(item, "kind") == "StorageClass"]
    late = {
        text(item, "metadata", "name") for item in classes if text(item, "volumeBindingMode") == "WaitForFirstConsumer"
    }
    marks = {"storageclass.kubernetes.io/is-default-class": "true"}
    default = [text(item, "metadata", "name") for item in classes if strings(item, "metadata", "annotations") == marks]
    return frozenset(
        key_of(item)
        for item in items
        if text(item, "kind") == "PersistentVolumeClaim"
        and (
            text(item, "metadata", "deletionTimestamp")
            or (
                not text(item, "spec", "volumeName")
                and text(item, "spec", "storageClassName", default=(default or ["-"])[0]) not in late
            )
        )
    )


def read_claims_of_one_pod(items: list[object]) -> frozenset[str]:
    claims = (item for item in items if text(item, "kind") == "PersistentVolumeClaim")
    return frozenset(key_of(claim) for claim in claims if "ReadWriteOncePod" in rows(claim, "spec", "accessModes"))


def read_budget(item: object) -> Budget:
    allowed = at(item, "status", "disruptionsAllowed")
    return Budget(
        namespace=text(item, "metadata", "namespace", default="default"),
        selector=at(item, "spec", "selector"),
        allowed=None if allowed is None else number(allowed),
        least=_least(item),
    )


def _least(item: object) -> int | None:
    """Pods that must stay; None for a percentage, which is not judged here."""
    given = at(item, "spec", "minAvailable")
    if given is None:
        return 1 if at(item, "spec", "maxUnavailable") is None else None
    return None if text(item, "spec", "minAvailable").endswith("%") else number(given)


def read_levels(topologies: list[object]) -> dict[str, tuple[str, ...]]:
    levels: dict[str, tuple[str, ...]] = {}
    for item in topologies:
        path: tuple[str, ...] = ()
        for level in rows(item, "spec", "levels"):
            path = (*path, text(level, "nodeLabel"))
            levels[text(level, "name")] = path
    return levels


def read_facts(objects: Iterable[object]) -> Facts:
    items = list(flat(objects))
    kinds: dict[str, list[object]] = {}
    for item in items:
        kinds.setdefault(text(item, "kind"), []).append(item)
    nodes = [read_node(item) for item in kinds.get("Node", [])]
    jobs = [read_job(item) for item in kinds.get("ElasticJob", [])]
    gangs = [read_group(item) for item in kinds.get("PodGroup", [])] + [job.gang for job in jobs]
    queues = [
        Queue(
            name=text(item, "metadata", "name"),
            parent=text(item, "spec", "parent"),
            limit=resources(at(item, "spec", "limit") or at(item, "spec", "capability")),
            min_runtime_s=read_min_runtime(at(item, "spec")),
        )
        for item in kinds.get("Queue", [])
    ]
    return Facts(
        nodes={node.name: node for node in nodes},
        gangs={gang.key: gang for gang in gangs},
        jobs={job.gang.key: job for job in jobs},
        queues={queue.name: queue for queue in queues},
        namespaces={
            name: strings(item, "metadata", "labels") | {"kubernetes.io/metadata.name": name}
            for item in kinds.get("Namespace", [])
            for name in [text(item, "metadata", "name")]
        },
        volume_terms=read_volumes(items),
        unready_claims=read_unready_claims(items),
        claims_of_one_pod=read_claims_of_one_pod(items),
        levels=read_levels(kinds.get("Topology", [])),
        budgets=tuple(read_budget(item) for item in kinds.get("PodDisruptionBudget", [])),
        priorities={text(item, "metadata", "name"): number(item, "value") for item in kinds.get("PriorityClass", [])},
    )
