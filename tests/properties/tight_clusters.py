"""Tiny clusters in which one gang waits and everybody else may be evicted for it, with rules between all of them."""

from __future__ import annotations

from hypothesis import strategies as st

from properties.object_writer import HOSTNAME, ZONE
from properties.raw_objects import Object

CPUS = "cpu"


@st.composite
def tight_worlds(draw: st.DrawFn) -> list[Object]:
    """One to three nodes with up to five running pods, and a gang of one or two pods with a higher priority."""
    objects: list[Object] = [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
        }
        for name, value in (("low", 1), ("middle", 50), ("high", 1000))
    ]
    nodes = [f"n{number}" for number in range(draw(st.integers(1, 3)))]
    for name in nodes:
        labels = {HOSTNAME: name, ZONE: draw(st.sampled_from(("a", "a", "b")))}
        objects.append(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": labels},
                "status": {"allocatable": {CPUS: str(draw(st.integers(1, 3))), "pods": "10"}},
            }
        )
    left = {str(item["metadata"]["name"]): int(item["status"]["allocatable"][CPUS]) for item in objects[3:]}  # type: ignore[index]
    for number in range(draw(st.integers(1, 5))):
        free = [name for name in nodes if left[name]]
        if not free:
            break
        node = draw(st.sampled_from(free))
        left[node] -= 1
        running = pod(draw, f"v{number}", draw(st.sampled_from(("low", "low", "middle"))), has_affinity=False)
        spec = running["spec"]
        assert isinstance(spec, dict)
        spec["nodeName"] = node
        objects.append(running | {"status": {"phase": "Running"}})
    size = draw(st.integers(1, 2))
    group: Object = {"minMember": size, "priorityClassName": "high"}
    objects.append({"apiVersion": "maniple.dev/v1alpha1", "kind": "PodGroup", "metadata": {"name": "g"}, "spec": group})
    first = pod(draw, "g-0", "high", has_affinity=True)
    for number in range(size):
        meta = first["metadata"]
        assert isinstance(meta, dict)
        labels = {**meta["labels"], "maniple.dev/pod-group": "g"}
        objects.append({**first, "metadata": {"name": f"g-{number}", "labels": labels}})
    return objects


def pod(draw: st.DrawFn, name: str, priority: str, *, has_affinity: bool) -> Object:
    """A pod of one CPU, with some rules about others."""
    container: Object = {"name": "main", "image": "training:1", "resources": {"requests": {CPUS: "1"}}}
    if draw(st.integers(0, 2)) == 0:
        container["ports"] = [{"containerPort": 80, "hostPort": 80}]
    kinds = ["podAffinity"] if has_affinity and draw(st.integers(0, 3)) else []
    kinds += ["podAntiAffinity"] if draw(st.integers(0, 3)) == 0 else []
    affinity: Object = {
        kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term(draw) for _ in range(draw(st.integers(1, 2)))]}
        for kind in kinds
    }
    labels = {"app": draw(st.sampled_from(("w", "x", "y")))}
    spec: Object = {
        "schedulerName": "maniple",
        "priorityClassName": priority,
        "affinity": affinity,
        "containers": [container],
    }
    if has_affinity and draw(st.integers(0, 2)) == 0:
        spread = {**term(draw), "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
        spec["topologySpreadConstraints"] = [spread]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


def term(draw: st.DrawFn) -> Object:
    app = draw(st.sampled_from(("w", "x", "y")))
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": draw(st.sampled_from((HOSTNAME, ZONE)))}
