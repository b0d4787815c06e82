"""Rules in which kube-scheduler surprises, each as the smallest cluster: does the pod `new` find a node, and which?

tests/e2e/test_kube_scheduler_agrees.py finds such cases; these need no cluster.
"""

import json
from typing import Any

import pytest

from maniple.api.decode.decode import decode
from maniple.model.building.from_scratch import build_snapshot
from maniple.model.building.input_objects import sort_objects
from maniple.scheduler import schedule

Json = dict[str, Any]
LATE = {"volumeBindingMode": "WaitForFirstConsumer"}


def node(name: str, status: Json | None = None, labels: Json | None = None) -> Json:
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "9"}
    meta = {"name": name, "labels": {"name": name, **(labels or {})}}
    return {"kind": "Node", "metadata": meta, "status": {"allocatable": allocatable, **(status or {})}}


def pod(
    name: str, on: str = "", cpu: str = "1", status: Json | None = None, labels: Json | None = None, **spec: Any
) -> Json:
    container = {"name": "main", "image": "training:1", "resources": {"requests": {"cpu": cpu}}}
    container |= spec.pop("container", {})
    whole = {"schedulerName": "maniple", "containers": [container], **({"nodeName": on} if on else {}), **spec}
    state = {"phase": "Running" if on else "Pending", **(status or {})}
    return {"kind": "Pod", "metadata": {"name": name, "labels": labels or {}}, "spec": whole, "status": state}


def storage_class(provisioner: str, **more: Any) -> Json:
    meta = {"name": "late"}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": meta,
        "provisioner": provisioner,
        **more,
    }


def claim(name: str, size: str = "1Gi", node: str = "", **spec: Any) -> Json:
    meta = {"name": name, "annotations": {"volume.kubernetes.io/selected-node": node} if node else {}}
    whole = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, "storageClassName": "late"}
    return {"kind": "PersistentVolumeClaim", "metadata": meta, "spec": whole | spec}


def volume(name: str, size: str = "1Gi", on: str = "", labels: Json | None = None, **spec: Any) -> Json:
    whole = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}, "storageClassName": "late", **spec}
    if on:
        term = {"matchExpressions": [{"key": "name", "operator": "In", "values": [on]}]}
        whole["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    return {"kind": "PersistentVolume", "metadata": {"name": name, "labels": labels or {}}, "spec": whole}


def using(*claims: str) -> list[Json]:
    return [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]


def affinity(kind: str, *selectors: Json) -> Json:
    terms = [{"labelSelector": {"matchLabels": selector}, "topologyKey": "zone"} for selector in selectors]
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def spread(selector: Json) -> list[Json]:
    row = {"maxSkew": 1, "topologyKey": "name", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    return [row]


def port(address: str) -> Json:
    return {"ports": [{"containerPort": 80, "hostPort": 80, "hostIP": address}]}


def rbd(*monitors: str) -> list[Json]:
    return [{"name": "disk", "rbd": {"monitors": list(monitors), "image": "data"}}]


NO_PROVISIONER = storage_class("kubernetes.io/no-provisioner", **LATE)
INFEASIBLE = {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]}
EBS = {"name": "disk", "awsElasticBlockStore": {"volumeID": "vol-1"}}
CSI_NODE = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "CSINode",
    "metadata": {"name": "a"},
    "spec": {"drivers": [{"name": "ebs.csi.aws.com", "nodeID": "a", "allocatable": {"count": 0}}]},
}
USER_NAMESPACE: Json = {"hostNetwork": True, "hostUsers": False}
OLD_ZONE, ZONE = "failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"

CASES: dict[str, tuple[list[Json], str]] = {
    # -- other pods
    "two pods together do not meet two affinity terms": (
        [
            node("a", labels={"zone": "z"}),
            pod("x", "a", labels={"x": "1"}),
            pod("y", "a", labels={"y": "1"}),
            pod("new", affinity=affinity("podAffinity", {"x": "1"}, {"y": "1"})),
        ],
        "",
    ),
    "one pod meets two affinity terms": (
        [
            node("a", labels={"zone": "z"}),
            pod("x", "a", labels={"x": "1", "y": "1"}),
            pod("new", affinity=affinity("podAffinity", {"x": "1"}, {"y": "1"})),
        ],
        "a",
    ),
    "company on a node without the label is none, so the pod is the first of its kind": (
        [
            node("a", labels={"zone": "z"}),
            node("b"),
            pod("x", "b", labels={"x": "1"}),
            pod("new", labels={"x": "1"}, affinity=affinity("podAffinity", {"x": "1"})),
        ],
        "a",
    ),
    "an empty selector counts no pods for the spread": (
        [
            node("a"),
            node("b", {"allocatable": {"cpu": "0", "pods": "9"}}),
            *(pod(f"p{i}", "a") for i in range(2)),
            pod("new", topologySpreadConstraints=spread({})),
        ],
        "a",
    ),
    "a pod that names its node by a field is spread over that node only": (
        [
            node("a"),
            node("b"),
            pod("p", "a", labels={"x": "1"}),
            pod(
                "new",
                labels={"x": "1"},
                topologySpreadConstraints=spread({"matchLabels": {"x": "1"}}),
                affinity={
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}
                            ]
                        }
                    }
                },
            ),
        ],
        "a",
    ),
    # -- what a node has
    "0.0.0.0 clashes with every address": (
        [node("a"), pod("p", "a", container=port("10.0.0.1")), pod("new", container=port("0.0.0.0"))],
        "",
    ),
    ":: is an address like any other": (
        [node("a"), pod("p", "a", container=port("10.0.0.1")), pod("new", container=port("::"))],
        "a",
    ),
    "images with one monitor in common are the same": (
        [node("a"), pod("p", "a", volumes=rbd("m1", "m2")), pod("new", volumes=rbd("m3", "m2"))],
        "",
    ),
    "images with other monitors are others": (
        [node("a"), pod("p", "a", volumes=rbd("m1")), pod("new", volumes=rbd("m3"))],
        "a",
    ),
    "a feature that the node declares": (
        [node("a", {"declaredFeatures": ["UserNamespacesHostNetworkSupport"]}), pod("new", **USER_NAMESPACE)],
        "a",
    ),
    "a feature that the node does not declare": ([node("a"), pod("new", **USER_NAMESPACE)], ""),
    "a resize that is refused takes only what the pod has, and that is nothing": (
        [node("a"), pod("p", "a", "4", INFEASIBLE), pod("new")],
        "a",
    ),
    "a disk of a former plugin counts for the driver that serves it": (
        [node("a"), CSI_NODE, pod("new", volumes=[EBS])],
        "",
    ),
    # -- claims
    "two claims need two volumes": (
        [node("a"), NO_PROVISIONER, volume("v1"), claim("c1"), claim("c2"), pod("new", volumes=using("c1", "c2"))],
        "",
    ),
    "the smaller claim takes the smaller volume": (
        [
            node("a"),
            NO_PROVISIONER,
            volume("v1", "1Gi"),
            volume("v2", "2Gi"),
            claim("c1", "2Gi"),
            claim("c2", "1Gi"),
            pod("new", volumes=using("c1", "c2")),
        ],
        "a",
    ),
    "a claim goes where its volume is being made": (
        [
            node("a"),
            node("b"),
            storage_class("disks.example.com", **LATE),
            claim("c1", node="b"),
            pod("new", volumes=using("c1")),
        ],
        "b",
    ),
    "the claim's own volume must be large enough": (
        [
            node("a"),
            NO_PROVISIONER,
            claim("c1", "2Gi"),
            pod("new", volumes=using("c1")),
            volume("v1", "1Gi", claimRef={"namespace": "default", "name": "c1"}),
        ],
        "",
    ),
    "the claim's own volume counts before a smaller one": (
        [
            node("a"),
            node("b"),
            NO_PROVISIONER,
            claim("c1"),
            pod("new", volumes=using("c1")),
            volume("v0", on="a"),
            volume("v1", "9Gi", on="b", claimRef={"namespace": "default", "name": "c1"}),
        ],
        "b",
    ),
    "a volume that another pod's claim is about to take is not free": (
        [
            node("a"),
            NO_PROVISIONER,
            volume("v1"),
            claim("c1"),
            claim("c2"),
            pod("p", "a", volumes=using("c1")),
            pod("new", volumes=using("c2")),
        ],
        "",
    ),
    "fields of a volume's node affinity are ignored": (
        [
            node("a"),
            claim("c1", volumeName="v1"),
            pod("new", volumes=using("c1")),
            volume(
                "v1",
                nodeAffinity={
                    "required": {
                        "nodeSelectorTerms": [
                            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}
                        ]
                    }
                },
            ),
        ],
        "a",
    ),
    "an old zone label of a volume matches a new one of the node": (
        [
            node("a", labels={ZONE: "z"}),
            claim("c1", volumeName="v1"),
            volume("v1", labels={OLD_ZONE: "y__z"}),
            pod("new", volumes=using("c1")),
        ],
        "a",
    ),
    "a new zone label of a volume does not match an old one of the node": (
        [
            node("a", labels={OLD_ZONE: "z"}),
            claim("c1", volumeName="v1"),
            volume("v1", labels={ZONE: "z"}),
            pod("new", volumes=using("c1")),
        ],
        "",
    ),
}


@pytest.mark.parametrize(("objects", "expected"), CASES.values(), ids=CASES.keys())
def test_as_kube_scheduler(objects: list[Json], expected: str) -> None:
    items = [{"apiVersion": "v1", **item} for item in objects]
    decoded = decode([("case", json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode())])
    plan = schedule(build_snapshot(sort_objects(decoded, scheduler_name="maniple")))
    assert {bind.pod: bind.node for bind in plan.binds} == ({"default/new": expected} if expected else {})
