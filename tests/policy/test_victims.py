"""Victims go in units that make sense: whole devices come free, and gangs go whole."""

from pathlib import Path
from typing import Any

from maniple.cluster.memory import plan_objects

GPU = "nvidia.com/gpu"
KUBE_BATCH = Path(__file__).resolve().parents[2].joinpath("examples/policies/kube-batch.yaml").read_text()
WHOLE = KUBE_BATCH.replace("- name: gang", '- name: gang\n    arguments: {evict.whole: "true"}')
Object = dict[str, Any]


def node(gpus: int) -> Object:
    allocatable = {"cpu": 32, "memory": "64Gi", "pods": 110, GPU: gpus}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": allocatable}}


def pod(name: str, *, on: str = "", priority: int = 0, group: str = "", **annotations: str) -> Object:
    spec = {
        "schedulerName": "maniple",
        "priority": priority,
        "containers": [{"name": "main", "resources": {"limits": {GPU: 1}}}],
        **({"nodeName": on} if on else {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"maniple.dev/pod-group": group} if group else {},
            "annotations": {f"maniple.dev/{key.replace('_', '-')}": value for key, value in annotations.items()},
        },
        "spec": spec,
        "status": {"phase": "Running" if on else "Pending"},
    }


def gang(name: str, pods: int) -> Object:
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "maniple.dev/v1alpha1", "kind": "PodGroup", "metadata": meta, "spec": {"minMember": pods}}


def evicted(objects: list[Object], policy: str) -> list[str]:
    done: Any = plan_objects(objects, policy)
    return [eviction["pod"].removeprefix("default/") for eviction in done["rounds"][0]["evictions"]]


def test_shares_that_add_up_to_a_gpu_on_two_devices_are_not_one() -> None:
    shares = [pod(f"s{at}", on="n1", gpu_fraction="0.5", gpus=str(at % 2)) for at in range(4)]
    assert evicted([node(2), *shares, pod("urgent", priority=9)], KUBE_BATCH) in (["s0", "s2"], ["s1", "s3"])


def test_a_gang_goes_down_to_its_minimum_or_whole() -> None:
    """Two GPUs are wanted; of three pods only one is surplus."""
    held = [gang("g", 2), *(pod(f"g-{at}", on="n1", group="g") for at in range(3))]
    urgent = [gang("u", 2), *(pod(f"u-{at}", priority=9, group="u") for at in range(2))]
    assert evicted([node(3), *held, *urgent], KUBE_BATCH) == []
    assert evicted([node(3), *held, *urgent], WHOLE) == ["g-0", "g-1", "g-2"]
    assert evicted([node(4), *held, *urgent], WHOLE) == ["g-2"]
