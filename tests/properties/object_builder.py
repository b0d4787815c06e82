"""Writes raw Kubernetes objects, as a user would write them in YAML, from drawn numbers.

Every object is valid, running pods never over-commit a node, and a gang runs only with at least its
minimum. Names are unique and times deterministic, so that an example that fails can be pasted into a file
and planned by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TypeAlias, TypeVar

from hypothesis import strategies as st

from properties.cluster_facts import Node, Pod, read_node, read_pod
from properties.gpu_facts import GPU, WHOLE, Device
from properties.kubernetes_rules import clashing_port, host_ports
from properties.raw_objects import Object, Resources, add

T = TypeVar("T")
Draw: TypeAlias = Callable[[st.SearchStrategy[object]], object]

OURS = "maniple.dev/v1alpha1"
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
GANG_LABELS = ("maniple.dev/pod-group", "maniple.dev/job")
AREA: Object = {"key": "area", "operator": "In", "values": ["north"]}
PRIORITIES = {"low": 10, "high": 1000}
# How the pods of other systems' groups say where they belong: (apiVersion, where, key).
FOREIGN_GROUPS = (
    ("scheduling.incubator.k8s.io/v1alpha1", "annotations", "scheduling.k8s.io/group-name"),
    ("scheduling.volcano.sh/v1beta1", "annotations", "scheduling.volcano.sh/group-name"),
    ("scheduling.x-k8s.io/v1alpha1", "labels", "scheduling.x-k8s.io/pod-group"),
)


@dataclass(frozen=True)
class Mix:
    """What may occur in a cluster."""

    rules_one_in: int = 3  # rules between pods; 0: never
    has_queues: bool = True
    limits_one_in: int = 3  # 0: never
    has_priorities: bool = True
    most_nodes: int = 8
    most_workloads: int = 9


@dataclass
class Host:
    """A node while the cluster is being built, and what is free on it."""

    node: Node
    free: Resources
    slots: int
    gpus: dict[str, Fraction]  # what is left of each healthy device
    pods: list[Object] = field(default_factory=list)


@dataclass
class Member:
    """A pod to build: its spec, labels and annotations."""

    name: str
    spec: Object
    labels: dict[str, str]
    annotations: dict[str, str] = field(default_factory=dict)


@dataclass
class Builder:
    draw_any: Draw
    mix: Mix
    objects: list[Object] = field(default_factory=list)
    hosts: list[Host] = field(default_factory=list)
    queues: list[str] = field(default_factory=lambda: ["default"])
    namespaces: list[str] = field(default_factory=lambda: ["default"])
    claims: list[str] = field(default_factory=list)
    notation: int = 0
    names_gpus: bool = False  # of all running pods of ours; else of most
    moment: int = 0

    def pick(self, *choices: T) -> T:
        chosen = self.draw_any(st.integers(0, len(choices) - 1))
        assert isinstance(chosen, int)
        return choices[chosen]

    def between(self, least: int, most: int) -> int:
        chosen = self.draw_any(st.integers(least, most))
        assert isinstance(chosen, int)
        return chosen

    def one_in(self, many: int) -> bool:
        return self.between(0, many - 1) == many - 1

    def add(self, api: str, kind: str, name: str, namespace: str = "", **parts: object) -> Object:
        """Ages are mostly distinct, sometimes equal."""
        self.moment += self.pick(1, 0, 5)
        metadata: Object = {"name": name}
        if namespace:
            metadata["namespace"] = namespace
        metadata["creationTimestamp"] = f"2026-01-01T00:{self.moment // 60:02}:{self.moment % 60:02}Z"
        extra = parts.pop("metadata", {})
        assert isinstance(extra, dict)
        manifest: Object = {"apiVersion": api, "kind": kind, "metadata": metadata | extra, **parts}
        self.objects.append(manifest)
        return manifest

    # Quantities: one notation a cluster.

    def cpu(self, milli: int) -> str:
        if self.notation == 1:
            return f"{milli / 1000:g}"
        return str(milli // 1000) if self.notation == 2 and milli % 1000 == 0 else f"{milli}m"

    def memory(self, mebi: int) -> str:
        if self.notation == 1:
            return str(mebi * 2**20)
        return f"{mebi // 1024}Gi" if self.notation == 2 and mebi % 1024 == 0 else f"{mebi}Mi"

    # The cluster.

    def start(self) -> None:
        self.notation = self.between(0, 2)
        if self.one_in(3):
            self.namespaces.append("team")
        for namespace in self.namespaces:
            self.add("v1", "Namespace", namespace, metadata={"labels": {"area": "north"} if self.one_in(2) else {}})
        if self.mix.has_priorities:
            for name, value in PRIORITIES.items():
                self.add("scheduling.k8s.io/v1", "PriorityClass", name, value=value)

    def add_node(
        self,
        name: str,
        cores: int,
        gibibytes: int,
        gpus: int,
        is_odd: bool = False,
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
    ) -> Host:
        """An odd node may be tainted, cordoned, not ready, or short of pod slots. An empty label is left out."""
        labels = {HOSTNAME: name, ZONE: self.pick("a", "b")} | (labels or {})
        labels = {key: value for key, value in labels.items() if value}
        if self.one_in(2):
            labels["disk"] = self.pick("ssd", "hdd")
        spec: Object = {}
        conditions: list[object] = [{"type": "Ready", "status": "True"}]
        allocatable: Object = {
            "cpu": self.cpu(cores * 1000),
            "memory": self.memory(gibibytes * 1024),
            "pods": "110",
        }
        if gpus:
            allocatable[GPU] = str(gpus)
        if is_odd:
            oddity = self.pick("taint", "drain", "prefer", "cordon", "unready", "unknown", "slots", "closed", "fpga")
            if oddity == "taint":
                spec["taints"] = [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]
            elif oddity == "drain":
                spec["taints"] = [{"key": "maintenance", "effect": "NoExecute"}]
            elif oddity == "prefer":
                spec["taints"] = [{"key": "slow", "value": "yes", "effect": "PreferNoSchedule"}]
            elif oddity == "cordon":
                spec["unschedulable"] = True
            elif oddity in {"unready", "unknown"}:
                conditions = [{"type": "Ready", "status": "False" if oddity == "unready" else "Unknown"}]
            elif oddity == "slots":
                allocatable["pods"] = str(self.between(1, 4))
            elif oddity == "closed":
                del allocatable["pods"]
            else:
                allocatable["example.com/fpga"] = "2"
        status: Object = {"allocatable": allocatable, "capacity": dict(allocatable), "conditions": conditions}
        metadata: Object = {"labels": labels}
        if annotations:
            metadata["annotations"] = annotations
        node = read_node(self.add("v1", "Node", name, metadata=metadata, spec=spec, status=status))
        slots = int(node.pod_limit)
        left = {device.id: WHOLE for device in node.hardware.healthy}
        host = Host(node, dict(node.allocatable), slots, left)
        self.hosts.append(host)
        return host

    def add_nodes(self) -> None:
        for index in range(self.between(1, self.mix.most_nodes)):
            gpus = self.pick(0, 2, 4, 1, 8)
            self.add_node(f"n{index}", self.pick(4, 1, 2, 8, 16), self.pick(8, 2, 4, 16), gpus, self.one_in(4))

    # Pods.

    def pod_spec(self, app: str, namespace: str) -> Object:
        """One shape: containers in one of the common notations, and where it may run."""
        cpu, memory, gpus = (
            self.pick(500, 0, 100, 1000, 2000),
            self.pick(256, 0, 64, 1024),
            self.pick(0, 1, 2, 1, 4),
        )
        container = self.container("main", cpu, memory, gpus)
        spec: Object = {"containers": [container]}
        match self.pick("one", "one", "one", "two", "init", "sidecar", "overhead", "limits", "fpga"):
            case "two":
                spec["containers"] = [container, self.container("log", 100, 64, 0)]
            case "init":
                spec["initContainers"] = [self.container("fetch", cpu + 500, 32, 0)]
            case "sidecar":
                sidecar: Object = self.container("mesh", 100, 32, 0) | {"restartPolicy": "Always"}
                spec["initContainers"] = [sidecar, self.container("fetch", 200, 32, 0)]
            case "overhead":
                spec["overhead"] = {"cpu": self.cpu(50)}
            case "limits":
                container["resources"] = {"limits": {"cpu": self.cpu(1000), "memory": self.memory(512)}}
            case "fpga":
                container["resources"] = {"limits": {"example.com/fpga": "1"}}
        if self.one_in(4):
            self.choose_nodes(spec)
        if self.mix.rules_one_in and self.one_in(self.mix.rules_one_in):
            self.add_rules(spec, {"app": app}, namespace)
        return spec

    def container(self, name: str, cpu: int, memory: int, gpus: int) -> Object:
        wanted: Object = {}
        if cpu:
            wanted["cpu"] = self.cpu(cpu)
        if memory:
            wanted["memory"] = self.memory(memory)
        written: Object = {"requests": wanted} if wanted else {}
        if gpus:
            written["limits"] = {GPU: str(gpus)}
        return {
            "name": name,
            "image": "registry.example/work:1",
            **({"resources": written} if written else {}),
        }

    def choose_nodes(self, spec: Object) -> None:
        match self.pick("selector", "affinity", "field", "gpu", "all"):
            case "selector":
                spec["nodeSelector"] = {"disk": "ssd"}
            case "affinity":
                expression = {"key": "disk", "operator": self.pick("NotIn", "In", "Exists", "DoesNotExist")}
                values = {"values": ["hdd"]} if str(expression["operator"]).endswith("In") else {}
                spec["affinity"] = node_affinity({"matchExpressions": [expression | values]})
            case "field":
                names = [f"n{self.between(0, 2)}"]
                expression = {"key": "metadata.name", "operator": "In"}
                zone = {"key": ZONE, "operator": "In", "values": ["b"]}
                by_name: Object = {"matchFields": [expression | {"values": names}]}
                spec["affinity"] = node_affinity(by_name, {"matchExpressions": [zone]})
            case "gpu":
                spec["tolerations"] = [{"key": "dedicated", "operator": "Equal", "value": "gpu"}]
            case "all":
                spec["tolerations"] = [{"operator": "Exists"}]

    def add_rules(self, spec: Object, labels: Mapping[str, str], namespace: str) -> None:
        """One rule between this pod and others, mostly of its own gang; sometimes two."""
        for _ in range(2 if self.one_in(4) else 1):
            self.add_rule(spec, labels, namespace)

    def add_rule(self, spec: Object, labels: Mapping[str, str], namespace: str) -> None:
        match self.pick("port", "anti", "anti", "spread", "spread", "together", "together", "volume", "disk"):
            case "port":
                self.add_port(spec)
            case "anti":
                self.add_term(spec, "podAntiAffinity", self.term(labels))
            case "together":
                for _ in range(2 if self.one_in(4) else 1):
                    self.add_term(spec, "podAffinity", self.term(labels))
            case "spread":
                constraints = spec.setdefault("topologySpreadConstraints", [])
                assert isinstance(constraints, list)
                taken = {constraint["topologyKey"] for constraint in constraints}
                constraints += [rule for rule in self.spread(labels) if rule["topologyKey"] not in taken]
            case "volume":
                claim = self.claim(namespace)
                spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
            case "disk":
                disk: Object = {"pdName": self.pick("d0", "d1"), "readOnly": self.one_in(3)}
                spec["volumes"] = [{"name": "disk", "gcePersistentDisk": disk}]

    def add_port(self, spec: Object) -> None:
        containers = spec["containers"]
        assert isinstance(containers, list)
        wanted = self.pick(8080, 9090)
        port: Object = {"containerPort": wanted, "hostPort": wanted}
        if self.one_in(4):
            port |= self.pick({"protocol": "UDP"}, {"hostIP": "10.0.0.1"}, {"hostIP": "10.0.0.2"})
        containers[0]["ports"] = [port]
        if self.one_in(4):
            spec["hostNetwork"] = True

    def add_term(self, spec: Object, kind: str, term: Object) -> None:
        affinity = spec.get("affinity") or {}
        assert isinstance(affinity, dict)
        key = "requiredDuringSchedulingIgnoredDuringExecution"
        terms = affinity.get(kind, {}).get(key, [])
        spec["affinity"] = affinity | {kind: {key: [*terms, term]}}

    def selector(self, labels: Mapping[str, str]) -> Object:
        """Pods like this one, of its own gang, or others."""
        app = self.pick(labels.get("app", "a"), labels.get("app", "a"), "a", "b")
        match self.pick("app", "app", "app", "gang", "in", "not", "there", "absent", "all"):
            case "gang":
                gang = {key: name for key, name in labels.items() if key in GANG_LABELS} or {"app": app}
                return {"matchLabels": gang}
            case "in":
                return {"matchExpressions": [{"key": "app", "operator": "In", "values": [app, "c"]}]}
            case "not":
                return {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [app]}]}
            case "there":
                return {"matchExpressions": [{"key": "tier", "operator": "Exists"}]}
            case "absent":
                return {"matchLabels": {"app": app}, "matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}
            case "all":
                return {}
        return {"matchLabels": {"app": app}}

    def term(self, labels: Mapping[str, str]) -> Object:
        term: Object = {"labelSelector": self.selector(labels), "topologyKey": self.pick(HOSTNAME, ZONE)}
        if self.one_in(5):
            term |= self.pick(
                {"namespaces": ["team"]},
                {"namespaceSelector": {}},
                {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "team"}}},
                {"namespaces": ["default"], "namespaceSelector": {"matchExpressions": [AREA]}},
            )
        if self.one_in(6):
            key = self.pick("matchLabelKeys", "mismatchLabelKeys")
            term |= {"labelSelector": {}, key: [self.pick("app", *GANG_LABELS)]}
        return term

    def spread(self, labels: Mapping[str, str]) -> list[Object]:
        rules: list[Object] = []
        for key in [HOSTNAME, ZONE] if self.one_in(4) else [self.pick(HOSTNAME, ZONE)]:
            rule: Object = {"maxSkew": self.between(1, 2), "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
            rule["labelSelector"] = self.selector(labels)
            if self.one_in(3):
                rule |= self.pick(
                    {"minDomains": self.between(2, 3)}, {"nodeTaintsPolicy": "Honor"}, {"nodeAffinityPolicy": "Ignore"}
                )
            if self.one_in(8):
                rule |= {"labelSelector": {}, "matchLabelKeys": ["app"]}
            rules.append(rule)
        return rules

    def claim(self, namespace: str) -> str:
        """A claim of its own, or one that another pod has."""
        known = [key.partition("/")[2] for key in self.claims if key.startswith(f"{namespace}/")]
        return self.pick(*known) if known and self.one_in(2) else self.add_volume(namespace)

    def add_volume(self, namespace: str) -> str:
        name = f"disk-{len(self.objects)}"
        size = {"storage": "10Gi"}
        zone = {"key": ZONE, "operator": "In", "values": [self.pick("a", "b")]}
        reach = {"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}}
        modes = [self.pick("ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod")]
        volume = {"capacity": size, "accessModes": modes, "nodeAffinity": reach}
        self.add("v1", "PersistentVolume", name, spec=volume, status={"phase": "Bound"})
        claim = {"volumeName": name, "accessModes": modes, "resources": {"requests": size}}
        self.add("v1", "PersistentVolumeClaim", name, namespace, spec=claim, status={"phase": "Bound"})
        self.claims.append(f"{namespace}/{name}")
        return name

    def add_pod(self, member: Member, namespace: str, scheduler: str, host: Host | None, leaves: bool = False) -> None:
        metadata: Object = {"labels": dict(member.labels)}
        annotations = dict(member.annotations)
        spec: Object = {"schedulerName": scheduler, **member.spec}
        if host is not None:
            spec["nodeName"] = host.node.name
            self.take(host, spec, annotations, scheduler)
            if leaves:
                metadata |= {"deletionTimestamp": "2026-01-01T01:00:00Z", "deletionGracePeriodSeconds": 30}
        if annotations:
            metadata["annotations"] = annotations
        status = {"phase": "Running" if host is not None else "Pending"}
        manifest = self.add("v1", "Pod", member.name, namespace, metadata=metadata, spec=spec, status=status)
        if host is not None:
            host.pods.append(manifest)

    def take(self, host: Host, spec: Object, annotations: dict[str, str], scheduler: str) -> None:
        """The devices of a running pod are known or not. Unknown ones are taken from the upper end."""
        pod = read_pod({"metadata": {"annotations": annotations}, "spec": spec})
        fitting = self.fitting(host, pod)
        count, is_named = (
            pod.gpu_count,
            not pod.ask.is_whole or (scheduler == "maniple" and (self.names_gpus or not self.one_in(4))),
        )
        if count:
            offset = self.between(0, len(fitting) - count) if is_named else len(fitting) - count
            chosen = fitting[offset : offset + count]
            for device in chosen:
                host.gpus[device.id] -= pod.ask.share_of(device) or WHOLE
            if is_named:
                annotations["maniple.dev/gpus"] = ",".join(device.id for device in chosen)
        else:
            chosen = []
        wanted = pod.requests_at(host.node, [device.id for device in chosen])
        add(host.free, {name: -amount for name, amount in wanted.items()})
        host.slots -= 1

    def fitting(self, host: Host, pod: Pod) -> list[Device]:
        """The devices that could take a share of the pod, all of one model: the model with the most such devices."""
        by_model: dict[str, list[Device]] = {}
        for device in host.node.hardware.healthy:
            share = pod.ask.share_of(device)
            if share is not None and host.gpus[device.id] >= share:
                by_model.setdefault(device.model, []).append(device)
        return max(by_model.values(), key=len, default=[])

    def find_host(self, member: Member, among: list[Host] | None = None) -> Host | None:
        """A node with room; the search starts at a random one."""
        hosts = self.hosts if among is None else among
        pod = read_pod({"metadata": {"name": "new", "annotations": member.annotations}, "spec": member.spec})
        start, has_ports = self.between(0, len(hosts) - 1), bool(host_ports(pod))
        for host in hosts[start:] + hosts[:start]:
            wanted = pod.requests_at(host.node)
            has_room = all(host.free.get(name, Fraction(0)) >= amount for name, amount in wanted.items())
            has_room &= len(self.fitting(host, pod)) >= pod.gpu_count
            if has_room and host.slots > 0 and not (has_ports and self.clashes(host, pod)):
                return host
        return None

    def clashes(self, host: Host, pod: Pod) -> bool:
        return any(clashing_port(pod, read_pod(other)) is not None for other in host.pods)

    def place(
        self,
        members: list[Member],
        namespace: str,
        least: int,
        running: int,
        all_leave: bool = False,
        among: list[Host] | None = None,
    ) -> None:
        """The first `running` members run if `least` of them find room; of those above `least` some leave."""
        placed = 0
        before = self.snapshot()
        for member in members[:running]:
            host = self.find_host(member, among)
            if host is None:
                break
            leaves = all_leave or (placed >= least and self.one_in(3))
            self.add_pod(member, namespace, "maniple", host, leaves)
            placed += 1
        if placed < least:
            self.restore(before)
            placed = 0
        for member in members[placed:]:
            self.add_pod(member, namespace, "maniple", None)

    def snapshot(self) -> tuple[int, list[Host]]:
        copies = [
            replace(host, free=dict(host.free), gpus=dict(host.gpus), pods=list(host.pods)) for host in self.hosts
        ]
        return len(self.objects), copies

    def restore(self, before: tuple[int, list[Host]]) -> None:
        length, self.hosts = before
        del self.objects[length:]


def node_affinity(*terms: Object) -> Object:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}
