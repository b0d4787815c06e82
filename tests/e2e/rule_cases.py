"""Random small clusters with Kubernetes' placement rules and one pending pod each, as objects for an API server.

All cases live in one cluster at the same time. So every name, label key and topology key has the number of its case in
it, and the pending pod selects the nodes of its case. Objects are in the order in which they are created; what a server
does not take when an object is created (status, a deletion) follows as a `Step` of its own.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]
NAMESPACE = "cases"
STORAGE = "/apis/storage.k8s.io/v1"
CLAIMS = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
VOLUMES = "/api/v1/persistentvolumes"
MODES = ("ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany")


@dataclass(frozen=True)
class Step:
    method: str  # POST, PATCH or DELETE
    path: str
    body: Object | None = None


@dataclass
class Case:
    number: int
    steps: list[Step] = field(default_factory=list)  # everything but the pending pod
    pod: Object = field(default_factory=dict)
    nodes: list[str] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)  # what the case is about, for messages


def make_case(seed: int, number: int, *, compares_taints: bool = False) -> Case:
    """`number`: names of two cases with different numbers never meet. `compares_taints`: tolerations have Gt and Lt."""
    return _Maker(random.Random(seed), number, compares_taints).make()


class _Maker:
    def __init__(self, rng: random.Random, number: int, compares_taints: bool) -> None:
        self.rng = rng
        self.case = Case(number)
        self.compares_taints = compares_taints
        self.zone, self.host, self.app = (f"c{number}.example.com/{key}" for key in ("zone", "host", "app"))
        self.driver = f"disks{number}.example.com"

    def one_in(self, count: int) -> bool:
        return self.rng.randrange(count) == 0

    def name(self, text: str) -> str:
        return f"{text}-{self.case.number}"

    def add(self, method: str, path: str, body: Object | None = None) -> None:
        self.case.steps.append(Step(method, path, body))

    def make(self) -> Case:
        rng = self.rng
        for index in range(rng.randint(1, 3)):
            self.add_node(index)
        # Rules that no node can meet tell little: they are in few cases.
        names = sorted(_RULES if self.one_in(5) else _RULES.keys() - _HOPELESS)
        chosen = rng.sample(names, rng.choice([1, 1, 2, 3]))
        self.case.rules = chosen
        pod = self.new_pod("pending")
        running = [self.new_pod(f"running{index}") for index in range(rng.randint(0, 3))]
        for rule in chosen:
            _RULES[rule](self, pod, running)
        for other in running:
            self.add_running(other)
        self.case.pod = pod
        return self.case

    # -- objects

    def add_node(self, index: int) -> None:
        rng, name = self.rng, self.name(f"node{index}")
        amounts = {"cpu": rng.choice(["2", "4", "8"]), "memory": "8Gi"}
        if not self.one_in(8):
            amounts["pods"] = rng.choice(["1", "2", "110", "110"])
        labels = {"case": str(self.case.number), self.host: name, "kubernetes.io/hostname": name}
        if not self.one_in(5):
            labels[self.zone] = rng.choice("ab")
            labels["topology.kubernetes.io/zone"] = labels[self.zone]
        node = {
            "metadata": {"name": name, "labels": labels},
            "spec": {"unschedulable": self.one_in(10)},
            "status": {
                "capacity": amounts,
                "allocatable": amounts,
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}],
            },
        }
        self.add("POST", "/api/v1/nodes", node)
        taints = []
        if self.one_in(3):
            effect = rng.choice(["NoSchedule", "NoExecute", "PreferNoSchedule"])
            taints.append({"key": self.name("team"), "value": rng.choice(["5", "10", "blue"]), "effect": effect})
        # The server adds a taint to every new node, until its controller finds the node ready. No controller runs here.
        self.add("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": taints}})
        self.case.nodes.append(name)

    def new_pod(self, name: str) -> Object:
        rng = self.rng
        requests = rng.choice([{}, {"cpu": "500m"}, {"cpu": "1"}, {"cpu": "2"}])
        spec: Object = {
            "containers": [{"name": "main", "image": "training:1", "resources": {"requests": dict(requests)}}],
            "nodeSelector": {"case": str(self.case.number)},
            "terminationGracePeriodSeconds": 3600,
            "automountServiceAccountToken": False,
        }
        labels = {self.app: rng.choice("xy")} if not self.one_in(4) else {}
        return {"metadata": {"name": self.name(name), "labels": labels}, "spec": spec}

    def add_running(self, pod: Object) -> None:
        name, node = pod["metadata"]["name"], self.rng.choice(self.case.nodes)
        status = pod.pop("status", {"phase": "Running"})
        if self.one_in(8):
            status = {"phase": "Succeeded"}
        self.add("POST", PODS, {**pod, "spec": {**pod["spec"], "nodeName": node}})
        self.add("PATCH", f"{PODS}/{name}/status", {"status": status})
        if status["phase"] == "Running" and self.one_in(5):
            self.add("DELETE", f"{PODS}/{name}")

    # -- rules

    def tolerations(self, pod: Object, _running: list[Object]) -> None:
        operators = ["Equal", "Exists", *(["Gt", "Lt"] if self.compares_taints else [])]
        operator = self.rng.choice(operators)
        toleration = {"key": self.name("team"), "operator": operator}
        if operator != "Exists":
            toleration["value"] = self.rng.choice(["5", "7", "10"])
        if self.one_in(2):
            toleration["effect"] = self.rng.choice(["NoSchedule", "NoExecute"])
        pod["spec"]["tolerations"] = [toleration]

    def node_affinity(self, pod: Object, _running: list[Object]) -> None:
        rng = self.rng
        expression: Object = {"key": self.zone, "operator": rng.choice(["In", "NotIn", "Exists", "DoesNotExist"])}
        if "In" in expression["operator"]:
            expression["values"] = [rng.choice("ab")]
        terms = [{"matchExpressions": [expression]}]
        if self.one_in(3):
            fields = {"key": "metadata.name", "operator": "In", "values": [rng.choice(self.case.nodes)]}
            terms.append({"matchFields": [fields]})
        required = {"nodeSelectorTerms": terms}
        affinity = pod["spec"].setdefault("affinity", {})
        affinity["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": required}

    def host_ports(self, pod: Object, running: list[Object]) -> None:
        for each in (pod, *running):
            if each is not pod and self.one_in(3):
                continue
            port: Object = {"containerPort": 80, "hostPort": 8080}
            if self.one_in(4):
                port |= self.rng.choice([{"protocol": "UDP"}, {"hostIP": "10.0.0.1"}, {"hostIP": "10.0.0.2"}])
            match self.rng.choice(["container", "container", "sidecar", "init"]):
                case "container":
                    each["spec"]["containers"][0]["ports"] = [port]
                case kind:
                    extra: Object = {"name": "extra", "image": "training:1", "ports": [port]}
                    extra |= {"restartPolicy": "Always"} if kind == "sidecar" else {}
                    each["spec"]["initContainers"] = [extra]

    def _term(self) -> Object:
        selector: Object = {"matchLabels": {self.app: self.rng.choice("xy")}}
        if self.one_in(4):
            selector = {"matchExpressions": [{"key": self.app, "operator": "Exists"}]}
        return {"labelSelector": selector, "topologyKey": self.rng.choice([self.zone, self.host])}

    def pod_affinity(self, pod: Object, running: list[Object]) -> None:
        kind = self.rng.choice(["podAffinity", "podAntiAffinity"])
        owners = [pod] if kind == "podAffinity" else self.rng.sample([pod, *running], 1)
        for owner in owners:
            affinity = owner["spec"].setdefault("affinity", {})
            affinity[kind] = {"requiredDuringSchedulingIgnoredDuringExecution": [self._term()]}

    def spread(self, pod: Object, _running: list[Object]) -> None:
        constraint = {**self._term(), "maxSkew": self.rng.randint(1, 2), "whenUnsatisfiable": "DoNotSchedule"}
        if self.one_in(5):
            constraint["whenUnsatisfiable"] = "ScheduleAnyway"
        elif self.one_in(3):
            constraint |= self.rng.choice(
                [{"minDomains": 2}, {"nodeTaintsPolicy": "Honor"}, {"nodeAffinityPolicy": "Ignore"}]
            )
        pod["spec"]["topologySpreadConstraints"] = [constraint]

    def resize(self, _pod: Object, running: list[Object]) -> None:
        for each in running:
            has = {"cpu": self.rng.choice(["500m", "1", "2", "4"])}
            state = {"state": {"running": {}}, "ready": True, "restartCount": 0, "image": "training:1", "imageID": ""}
            container = {"name": "main", "allocatedResources": has, "resources": {"requests": has}, **state}
            each["status"] = {"phase": "Running", "containerStatuses": [container]}
            if self.one_in(3):
                refused = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
                each["status"]["conditions"] = [refused]

    def bound_claim(self, pod: Object, running: list[Object]) -> None:
        mode = self.rng.choice(MODES)
        self._use(pod, self._bound("data", mode))
        for each in running:
            if mode != "ReadWriteOnce" and self.one_in(2):
                self._use(each, self.name("data"))

    def deleted_claim(self, pod: Object, _running: list[Object]) -> None:
        name = self._bound("gone", "ReadWriteOnce")
        self.add("DELETE", f"{CLAIMS}/{name}")
        self._use(pod, name)

    def missing_claim(self, pod: Object, _running: list[Object]) -> None:
        self._use(pod, self.name("nowhere"))

    def unbound_claim(self, pod: Object, _running: list[Object]) -> None:
        storage_class = self._class()
        name = self.name("unbound")
        self._claim(name, "ReadWriteOnce", storage_class)
        self._use(pod, name)

    def ephemeral_claim(self, pod: Object, _running: list[Object]) -> None:
        storage_class = self._class()
        spec = {**_claim_spec("ReadWriteOnce"), "storageClassName": storage_class}
        template = {"volumeClaimTemplate": {"spec": spec}}
        pod["spec"].setdefault("volumes", []).append({"name": "scratch", "ephemeral": template})
        if self.one_in(2):  # a claim of this name that is not the pod's
            self._claim(f"{pod['metadata']['name']}-scratch", "ReadWriteOnce", storage_class)

    def volume_limits(self, pod: Object, running: list[Object]) -> None:
        for node in self.case.nodes:
            if not self.one_in(4):
                driver = {"name": self.driver, "nodeID": node, "allocatable": {"count": self.rng.randint(1, 2)}}
                body = {"metadata": {"name": node}, "spec": {"drivers": [{**driver, "topologyKeys": None}]}}
                self.add("POST", f"{STORAGE}/csinodes", body)
        shared = self._bound("disk", "ReadWriteMany", reach=False)
        for index, each in enumerate((pod, *running)):
            own = self._bound(f"disk{index}", "ReadWriteMany", reach=False)
            for claim in self.rng.choice([[shared], [own], [shared, own]]):
                self._use(each, claim)

    # -- storage

    def _use(self, pod: Object, claim: str) -> None:
        volumes = pod["spec"].setdefault("volumes", [])
        if all(volume.get("persistentVolumeClaim", {}).get("claimName") != claim for volume in volumes):
            volumes.append({"name": f"v{len(volumes)}", "persistentVolumeClaim": {"claimName": claim}})

    def _claim(self, name: str, mode: str, storage_class: str | None = None, volume: str = "") -> None:
        spec = _claim_spec(mode) | {"storageClassName": storage_class or ""}
        annotations = {"pv.kubernetes.io/bind-completed": "yes"} if volume else {}
        body = {"metadata": {"name": name, "annotations": annotations}, "spec": spec}
        if volume:
            spec["volumeName"] = volume
        self.add("POST", CLAIMS, body)
        self.add("PATCH", f"{CLAIMS}/{name}/status", {"status": {"phase": "Bound" if volume else "Pending"}})

    def _bound(self, text: str, mode: str, *, reach: bool = True) -> str:
        name = self.name(text)
        labels = {"topology.kubernetes.io/zone": self.rng.choice("ab")} if reach and self.one_in(3) else {}
        self._volume(name, mode, "", labels=labels, reach=reach and self.one_in(2), claim=name)
        self._claim(name, mode, volume=name)
        return name

    def _volume(self, name: str, mode: str, storage_class: str, *, labels: Object, reach: bool, claim: str) -> None:
        spec: Object = {
            "capacity": {"storage": self.rng.choice(["1Gi", "10Gi"])},
            "accessModes": [mode],
            "storageClassName": storage_class,
            "csi": {"driver": self.driver, "volumeHandle": name},
            "persistentVolumeReclaimPolicy": "Retain",
        }
        if claim:
            spec["claimRef"] = {"kind": "PersistentVolumeClaim", "namespace": NAMESPACE, "name": claim}
        if reach:
            expression = {"key": self.host, "operator": "In", "values": [self.rng.choice(self.case.nodes)]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
        self.add("POST", VOLUMES, {"metadata": {"name": name, "labels": labels}, "spec": spec})
        self.add("PATCH", f"{VOLUMES}/{name}/status", {"status": {"phase": "Bound" if claim else "Available"}})

    def _class(self) -> str:
        rng, name = self.rng, self.name(f"class{len(self.case.steps)}")
        if self.one_in(6):
            return name  # does not exist
        item: Object = {
            "metadata": {"name": name},
            "provisioner": rng.choice([self.driver, self.driver, "kubernetes.io/no-provisioner"]),
            "volumeBindingMode": rng.choice(["WaitForFirstConsumer", "WaitForFirstConsumer", "Immediate"]),
        }
        if self.one_in(2):
            expression = {"key": self.zone, "values": rng.choice([["a"], ["b"], ["a", "b"]])}
            item["allowedTopologies"] = [{"matchLabelExpressions": [expression]}]
        self.add("POST", f"{STORAGE}/storageclasses", item)
        if self.one_in(2):
            self._volume(f"free-{name}", "ReadWriteOnce", name, labels={}, reach=self.one_in(2), claim="")
        return name


def _claim_spec(mode: str) -> Object:
    return {"accessModes": [mode], "resources": {"requests": {"storage": "5Gi"}}}


_RULES = {
    rule.__name__: rule
    for rule in (
        _Maker.tolerations,
        _Maker.node_affinity,
        _Maker.host_ports,
        _Maker.pod_affinity,
        _Maker.spread,
        _Maker.resize,
        _Maker.bound_claim,
        _Maker.deleted_claim,
        _Maker.missing_claim,
        _Maker.unbound_claim,
        _Maker.ephemeral_claim,
        _Maker.volume_limits,
    )
}
_HOPELESS = {"deleted_claim", "missing_claim"}
