"""Victims go in units that make sense: whole devices come free, and gangs go whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .clusters import Object, group, member, node, plan, pod

GPU = "nvidia.com/gpu"
KUBE_BATCH = Path(__file__).resolve().parents[2].joinpath("examples/policies/kube-batch.yaml").read_text()
WHOLE = KUBE_BATCH.replace("- name: gang", '- name: gang\n    arguments: {evict.whole: "true"}')


def gpus(count: int) -> Object:
    return node("n1", allocatable={"cpu": 32, "memory": "64Gi", GPU: count})


def one_gpu(name: str, *, of: str = "", annotations: Object | None = None, **spec: Any) -> Object:
    containers = [{"name": "main", "resources": {"limits": {GPU: 1}}}]
    labels = member(of) if of else {}
    return pod(name, labels=labels, metadata={"annotations": annotations or {}}, containers=containers, **spec)


def evicted(objects: list[Object], policy: str) -> list[str]:
    return [eviction["pod"].removeprefix("default/") for eviction in plan(objects, policy)["evictions"]]


def test_shares_that_add_up_to_a_gpu_on_two_devices_are_not_one() -> None:
    shares = [
        one_gpu(
            f"s{at}", annotations={"maniple.dev/gpu-fraction": "0.5", "maniple.dev/gpus": str(at % 2)}, nodeName="n1"
        )
        for at in range(4)
    ]
    assert evicted([gpus(2), *shares, one_gpu("urgent", priority=9)], KUBE_BATCH) in (["s0", "s2"], ["s1", "s3"])


def test_a_gang_goes_down_to_its_minimum_or_whole() -> None:
    """Two GPUs are wanted; of three pods only one is surplus."""
    held = [group("g", 2), *(one_gpu(f"g-{at}", of="g", nodeName="n1") for at in range(3))]
    urgent = [group("u", 2), *(one_gpu(f"u-{at}", of="u", priority=9) for at in range(2))]
    assert evicted([gpus(3), *held, *urgent], KUBE_BATCH) == []
    assert evicted([gpus(3), *held, *urgent], WHOLE) == ["g-0", "g-1", "g-2"]
    assert evicted([gpus(4), *held, *urgent], WHOLE) == ["g-2"]
