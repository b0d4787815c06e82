"""A pod that asks for no GPU is on a GPU node only if no other node has room for it, or it prefers that node."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from properties.plan_adapter import plan
from properties.raw_objects import Object, rows, text
from properties.test_promises import promised

CPUS, GIB = 16, 64


@st.composite
def clusters(draw: st.DrawFn) -> list[Object]:
    """Nodes with and without GPUs, in any order of names, partly full; CPU pods and GPU pods that wait."""
    objects: list[Object] = []
    for number in range(draw(st.integers(1, 6))):
        gpus = draw(st.sampled_from([0, 0, 4, 8]))
        allocatable = {"cpu": str(CPUS), "memory": f"{GIB}Gi", "pods": "50"} | (
            {"nvidia.com/gpu": gpus} if gpus else {}
        )
        name = f"n{number}"
        objects.append(
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": allocatable}}
        )
        for index in range(draw(st.integers(0, 3))):
            held = min(gpus // 4, draw(st.integers(0, 1)))
            objects.append(pod(f"{name}-{index}", draw(st.integers(0, 5)), draw(st.integers(0, 21)), held, name))
    objects += [
        pod(f"wait-{index}", draw(st.integers(0, CPUS)), draw(st.integers(0, GIB)), draw(st.sampled_from([0, 0, 1])))
        for index in range(draw(st.integers(1, 4)))
    ]
    return objects


def pod(name: str, cpus: int, gib: int, gpus: int, node: str = "") -> Object:
    resources = {"requests": {"cpu": str(cpus), "memory": f"{gib}Gi"}, "limits": {"nvidia.com/gpu": gpus}}
    if not gpus:
        del resources["limits"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "schedulerName": "maniple",
            "containers": [{"name": "main", "image": "work:1", "resources": resources}],
            **({"nodeName": node} if node else {}),
        },
        "status": {"phase": "Running" if node else "Pending"},
    }


@settings(promised, max_examples=100)
@given(clusters())
def test_a_pod_without_gpus_leaves_gpu_nodes_to_others(objects: list[Object]) -> None:
    (played,) = rows(plan(objects), "rounds")
    bound = {text(bind, "pod"): text(bind, "node") for bind in rows(played, "binds")}
    asked: dict[str, tuple[int, int, int]] = {}
    free: dict[str, list[int]] = {}
    for item in objects:
        name = text(item, "metadata", "name")
        if item["kind"] == "Node":
            free[name] = [CPUS, GIB]
            continue
        resources = item["spec"]["containers"][0]["resources"]  # type: ignore[index]
        cpus, gib = int(resources["requests"]["cpu"]), int(resources["requests"]["memory"].removesuffix("Gi"))
        asked[f"default/{name}"] = cpus, gib, resources.get("limits", {}).get("nvidia.com/gpu", 0)
        node = text(item, "spec", "nodeName") or bound.get(f"default/{name}", "")
        if node:
            free[node][0] -= cpus
            free[node][1] -= gib
    gpu_nodes = {
        text(item, "metadata", "name")
        for item in objects
        if item["kind"] == "Node" and "nvidia.com/gpu" in item["status"]["allocatable"]  # type: ignore[index]
    }
    for key, node in bound.items():
        cpus, gib, gpus = asked[key]
        if not gpus and node in gpu_nodes:
            # What is free at the end was free when its turn came.
            better = [name for name, (cpu, memory) in free.items() if cpu >= cpus and memory >= gib]
            assert not set(better) - gpu_nodes, f"{key} is on {node}, and {better} have room"
