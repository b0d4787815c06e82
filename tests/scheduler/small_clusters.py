"""Clusters of a few objects, and what a policy makes of them."""

from __future__ import annotations

import json
from typing import Any

from cluster.planning import plan_objects

Object = dict[str, Any]


def node(name: str, labels: Object | None = None, spec: Object | None = None, **status: Any) -> Object:
    """4 CPU and 4 Gi, unless `allocatable` says otherwise, and room for 110 pods."""
    allocatable = {"pods": "110", **status.pop("allocatable", {"cpu": "4", "memory": "4Gi"})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": spec or {},
        "status": {"allocatable": allocatable, **status},
    }


def pod(name: str, cpu: str = "1", labels: Object | None = None, metadata: Object | None = None, **spec: Any) -> Object:
    """A pending pod of so much CPU; `nodeName` makes it a running one."""
    requests = {"cpu": cpu, "memory": f"{cpu}Gi"} if cpu else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}, **(metadata or {})},
        "spec": {
            "schedulerName": "maniple",
            "containers": [{"name": "main", "resources": {"requests": requests}}],
            **spec,
        },
        "status": {"phase": "Running" if "nodeName" in spec else "Pending"},
    }


def group(name: str, least: int, **spec: Any) -> Object:
    return {
        "apiVersion": "maniple.dev/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": least, **spec},
    }


def queue(name: str, **spec: Any) -> Object:
    return {"apiVersion": "maniple.dev/v1alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def member(of: str) -> Object:
    """The labels of a pod of that group."""
    return {"maniple.dev/pod-group": of}


def plan(objects: list[Object], policy: Object | str) -> Object:
    """The first round."""
    text = policy if isinstance(policy, str) else json.dumps(policy)
    planned: Object = plan_objects(objects, policy=text)["rounds"][0]
    return planned


def binds(objects: list[Object], policy: Object | str) -> dict[str, str]:
    """Pod to node, without the namespace."""
    return {bind["pod"].removeprefix("default/"): bind["node"] for bind in plan(objects, policy)["binds"]}
