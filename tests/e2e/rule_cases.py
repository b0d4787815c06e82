"""Random small clusters with Kubernetes' placement rules and one pending pod each, as objects for an API server.

All cases live in one cluster at the same time. So every name, label key and topology key has the number of its case in
it, and the pending pod selects the nodes of its case. Objects are in the order in which they are created; what a server
does not take when an object is created (status, a deletion) follows as a `Step` of its own.

The rules are in rules_of_pods.py and rules_of_volumes.py. Amounts are few and small, so that "just fits" and "one too
many" are both frequent.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]
NAMESPACE = "cases"
OTHER_NAMESPACE = "other-cases"  # its label team is "other"
RUNTIME_CLASS = "with-overhead"  # pods of it take 500m of CPU more
CLAIMS = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
DEVICE = "example.com/device"


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


Rule = Callable[["Maker", Object, list[Object]], None]  # the pending pod, the running ones


def make_case(seed: int, number: int, rules: Mapping[str, Rule], *, compares_taints: bool = False) -> Case:
    """`number`: names of two cases with different numbers never meet. `compares_taints`: tolerations have Gt and Lt."""
    return Maker(random.Random(seed), number, compares_taints).make(rules)


class Maker:
    def __init__(self, rng: random.Random, number: int, compares_taints: bool) -> None:
        self.rng = rng
        self.case = Case(number)
        self.compares_taints = compares_taints
        keys = ("zone", "host", "app", "cores", "version")
        self.zone, self.host, self.app, self.cores, self.version = (f"c{number}.example.com/{key}" for key in keys)
        self.driver = f"disks{number}.example.com"

    def one_in(self, count: int) -> bool:
        return self.rng.randrange(count) == 0

    def name(self, text: str) -> str:
        return f"{text}-{self.case.number}"

    def add(self, method: str, path: str, body: Object | None = None) -> None:
        self.case.steps.append(Step(method, path, body))

    def make(self, rules: Mapping[str, Rule]) -> Case:
        rng = self.rng
        for index in range(rng.randint(1, 3)):
            self._add_node(index)
        # Rules that no node can meet tell little: they are in few cases.
        names = sorted(rules if self.one_in(6) else (name for name in rules if not name.startswith("hopeless")))
        self.case.rules = rng.sample(names, rng.choice([1, 1, 2, 3]))
        pod = self._new_pod("pending")
        running = [self._new_pod(f"running{index}") for index in range(rng.randint(0, 3))]
        for other in running:
            other["spec"]["nodeName"] = rng.choice(self.case.nodes)
        for rule in self.case.rules:
            rules[rule](self, pod, running)
        for other in running:
            self._add_running(other)
        self.case.pod = pod
        return self.case

    def _add_node(self, index: int) -> None:
        rng, name = self.rng, self.name(f"node{index}")
        amounts = {"cpu": rng.choice(["2", "3", "4", "8"]), "memory": rng.choice(["3Gi", "8Gi"])}
        amounts |= {"ephemeral-storage": rng.choice(["2Gi", "4Gi"]), "hugepages-2Mi": rng.choice(["0", "4Mi", "8Mi"])}
        amounts[DEVICE] = rng.choice(["1", "2", "4"])
        if not self.one_in(15):
            amounts["pods"] = rng.choice(["1", "2", "3", "110", "110", "110"])
        labels = {"case": str(self.case.number), self.host: name, "kubernetes.io/hostname": name}
        if not self.one_in(5):
            labels[self.zone] = rng.choice("ab")
            group = "failure-domain.beta.kubernetes.io" if self.one_in(3) else "topology.kubernetes.io"
            labels[f"{group}/zone"] = labels[self.zone]
        if not self.one_in(4):
            labels[self.cores] = rng.choice(["4", "5", "6", "1_0", "05", "many"])
        status = {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}],
        }
        if self.one_in(3):
            status["declaredFeatures"] = ["UserNamespacesHostNetworkSupport"]
        node = {
            "metadata": {"name": name, "labels": labels},
            "spec": {"unschedulable": self.one_in(15)},
            "status": status,
        }
        self.add("POST", "/api/v1/nodes", node)
        taints = []
        for key in ("team", "owner"):
            if self.one_in(6):
                effect = rng.choice(["NoSchedule", "NoExecute", "PreferNoSchedule"])
                value = rng.choice(["5", "7", "10", "07", "blue", ""])
                taints.append({"key": self.name(key), "value": value, "effect": effect})
        # The server adds a taint to every new node, until its controller finds the node ready. No controller runs here.
        self.add("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": taints}})
        self.case.nodes.append(name)

    def _new_pod(self, name: str) -> Object:
        rng = self.rng
        requests = rng.choice([{}, {"cpu": "500m"}, {"cpu": "1"}, {"cpu": "2"}, {"cpu": "1", "memory": "1Gi"}])
        spec: Object = {
            "containers": [{"name": "main", "image": "training:1", "resources": {"requests": dict(requests)}}],
            "nodeSelector": {"case": str(self.case.number)},
            "terminationGracePeriodSeconds": 3600,
            "automountServiceAccountToken": False,
        }
        labels = {self.app: rng.choice("xy")} if not self.one_in(4) else {}
        if self.one_in(2):
            labels[self.version] = rng.choice("12")
        return {"metadata": {"name": self.name(name), "labels": labels}, "spec": spec}

    def _add_running(self, pod: Object) -> None:
        name, folder = pod["metadata"]["name"], PODS
        if not pod["spec"].get("volumes") and self.one_in(4):  # claims are in the first namespace
            folder = PODS.replace(NAMESPACE, OTHER_NAMESPACE)
        status = pod.pop("status", {"phase": "Running"})
        if self.one_in(8):
            status = {"phase": self.rng.choice(["Succeeded", "Failed"])}
        self.add("POST", folder, pod)
        self.add("PATCH", f"{folder}/{name}/status", {"status": status})
        if status["phase"] == "Running" and self.one_in(5):
            self.add("DELETE", f"{folder}/{name}")
