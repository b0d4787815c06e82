"""Writes raw Kubernetes objects, as a user would write them in YAML, from drawn numbers.

Every object is valid, running pods never over-commit a node, and a gang runs only with at least its
minimum. Names are unique and times deterministic, so that an example that fails can be pasted into a file
and planned by hand.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction

from properties.cluster_facts import Node, Pod, read_node, read_pod
from properties.gpu_facts import GPU, WHOLE, Device
from properties.kubernetes_rules import clashing_port, host_ports
from properties.object_writer import HOSTNAME, PRIORITIES, ZONE
from properties.pod_rules import PodRules
from properties.raw_objects import Object, Resources, add

# How the pods of other systems' groups say where they belong: (apiVersion, where, key).
FOREIGN_GROUPS = (
    ("scheduling.incubator.k8s.io/v1alpha1", "annotations", "scheduling.k8s.io/group-name"),
    ("scheduling.volcano.sh/v1beta1", "annotations", "scheduling.volcano.sh/group-name"),
    ("scheduling.x-k8s.io/v1alpha1", "labels", "scheduling.x-k8s.io/pod-group"),
)


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
class Builder(PodRules):
    hosts: list[Host] = field(default_factory=list)
    queues: list[str] = field(default_factory=lambda: ["default"])
    names_gpus: bool = False  # of all running pods of ours; else of most

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

    def add_pod(self, member: Member, namespace: str, scheduler: str, host: Host | None, leaves: bool = False) -> None:
        metadata: Object = {"labels": dict(member.labels)}
        annotations = dict(member.annotations)
        spec: Object = {"schedulerName": scheduler, **member.spec}
        if host is not None:
            spec["nodeName"] = host.node.name
            self.take(host, spec, annotations, scheduler)
            if leaves:
                # Every third pod or so is stuck, if there are any of the others, which tell the time.
                ends = "2026-01-01T01:00:00Z" if self.moment % 3 else "2026-01-01T00:30:00Z"
                metadata |= {"deletionTimestamp": ends, "deletionGracePeriodSeconds": 30}
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
