"""Simulated nodes: KWOK's configuration, its rights, and the Node objects it manages."""

from pathlib import Path
from typing import Any

import yaml

from tools.cluster.build import stages_path
from tools.cluster.cluster_layout import ClusterError, Layout

ANNOTATION = {"kwok.x-k8s.io/node": "fake"}
GPU = "nvidia.com/gpu"
# Enough to keep a thousand nodes' leases fresh.
OPTIONS = {"nodePlayStageParallelism": 32, "podPlayStageParallelism": 32, "nodeLeaseParallelism": 16}

ROLE = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "kwok-controller"},
    "rules": [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
        {
            "apiGroups": [""],
            "resources": ["pods"],
            "verbs": ["get", "list", "watch", "update", "patch", "delete"],
        },
        {"apiGroups": [""], "resources": ["nodes/status", "pods/status"], "verbs": ["update", "patch"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "update", "patch"]},
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "verbs": ["get", "list", "watch", "create", "update", "patch"],
        },
    ],
}
ROLE_BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "kwok-controller"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kwok-controller"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "kwok-controller"}],
}


def write_config(layout: Layout) -> Path:
    """KWOK's options and stages in one file; without stages it ends at once."""
    options = {"apiVersion": "config.kwok.x-k8s.io/v1alpha1", "kind": "KwokConfiguration", "options": OPTIONS}
    path = layout.folder / "kwok.yaml"
    path.write_text(yaml.safe_dump(options) + "---\n" + stages_path().read_text())
    return path


def node(name: str, gpus: int = 8, labels: dict[str, str] | None = None) -> dict[str, Any]:
    """A simulated GPU server; callers may change the returned object."""
    amounts = {"cpu": "128", "memory": "1024Gi", "ephemeral-storage": "1024Gi", "pods": "110"}
    if gpus:
        amounts[GPU] = str(gpus)
    default_labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "type": "kwok",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": dict(ANNOTATION), "labels": default_labels | (labels or {})},
        "status": {"capacity": amounts, "allocatable": dict(amounts)},
    }


def nodes(count: int, gpus: int, template: str) -> list[dict[str, Any]]:
    """`node-0` and so on, or `count` copies of a template: YAML of a Node in which `{index}` is the copy's number."""
    if not template:
        return [node(f"node-{index}", gpus) for index in range(count)]
    items = [yaml.safe_load(template.replace("{index}", str(index))) for index in range(count)]
    for each in items:
        if not isinstance(each, dict) or each.get("kind") != "Node":
            raise ClusterError("node template: write one object of kind Node, with {index} in its name")
        metadata = each.setdefault("metadata", {})
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **ANNOTATION}
    if len({each["metadata"].get("name") for each in items}) < count:
        raise ClusterError("node template: metadata.name is the same for every node; write {index} into it")
    return items


def is_ready(node_object: dict[str, Any]) -> bool:
    """Ready, and without the taint that the API server puts on every new node."""
    taints = node_object["spec"].get("taints", [])
    if any(each["key"] == "node.kubernetes.io/not-ready" for each in taints):
        return False
    conditions = node_object.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
