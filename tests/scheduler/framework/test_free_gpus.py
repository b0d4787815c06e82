"""GPUs are counted one by one where sums do not say what a pod can have now."""

from __future__ import annotations

from typing import Any

from scheduler.small_clusters import Object, group, member, node, plan, pod


def gpu_pod(name: str, **spec: Any) -> Object:
    pod_object = pod(name, "0", **spec)
    pod_object["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    return pod_object


def running(name: str, gpu: int, labels: Object | None = None) -> Object:
    annotations = {"annotations": {"maniple.dev/gpus": str(gpu)}}
    return gpu_pod(name, labels=labels, metadata=annotations, nodeName="n1", priority=-10)


def test_a_gpu_that_is_promised_and_one_that_is_leaving_are_not_one_that_is_free() -> None:
    """`first` is promised the free GPU and that of `single`, `second` one of the two that `pair` leaves."""
    objects = [
        node("n1", allocatable={"cpu": "4", "memory": "4Gi", "nvidia.com/gpu": "4", "pods": "20"}),
        running("single", 1),
        group("pair", 2),
        running("pair-0", 2, member("pair")),
        running("pair-1", 3, member("pair")),
        group("first", 2),
        *(gpu_pod(f"first-{index}", labels=member("first"), priority=20) for index in range(2)),
        gpu_pod("second", priority=10),
        gpu_pod("third", priority=-20),
    ]
    planned = plan(objects, POLICY)
    assert {nomination["pod"] for nomination in planned["nominations"]} >= {"default/first-0", "default/second"}
    assert planned["binds"] == []


POLICY: Object = {
    "actions": "allocate, preempt, backfill",
    "tiers": [
        {
            "plugins": [
                {"name": "gang", "arguments": {"evict.whole": "true"}},
                {"name": "priority"},
                {"name": "predicates"},
                {"name": "nodeorder"},
            ]
        }
    ],
}
