"""Anybody can ask for thousands of resources that no node has: they cost no more than a hundred."""

from __future__ import annotations

from typing import Any

import pytest
from cluster.planning import plan_objects
from scheduler.small_clusters import Object, node, pod, queue

from maniple.api.errors import InputError
from maniple.model.resources import UNKNOWN, Axis, axis_names

GPU = "nvidia.com/gpu"


def asking(name: str, **limits: Any) -> Object:
    resources = {"limits": {key.replace("_", "/"): amount for key, amount in limits.items()}}
    return pod(name, containers=[{"name": "c", "image": "i", "resources": resources}])


def test_resources_that_only_pods_name_share_a_row_beyond_a_hundred() -> None:
    asked = [f"example.com/r{number:04}" for number in range(3000)]
    names = axis_names(["cpu", GPU, "zz/on-a-node"], [*asked, "cpu", "amd.com/gpu"])
    assert len(names) == 3 + 2 + 100 + 1
    assert names[-1] == UNKNOWN
    assert {"amd.com/gpu", "zz/on-a-node", "example.com/r0000"} < set(names)
    axis = Axis([GPU], asked)
    vector = axis.vector({"cpu": 1, asked[0]: 2000, asked[2000]: 3000, asked[2001]: 4000})
    assert axis.describe(vector) == {"cpu": "1m", "example.com/r0000": "2", UNKNOWN: "7"}


def test_a_hundred_of_them_have_a_row_each() -> None:
    asked = [f"example.com/r{number}" for number in range(100)]
    assert set(axis_names([], asked)) == {"cpu", "memory", "pods", *asked}


def test_pods_that_ask_for_them_wait_and_others_start() -> None:
    pods = [asking(f"p{number:03}", **{f"example.com_r{number:03}": 1}) for number in range(300)]
    right = asking("right", **{"nvidia.com_gpu": 1})
    plan = plan_objects([node("n0", allocatable={GPU: 2}), *pods, right])["rounds"][0]
    assert [bind["pod"] for bind in plan["binds"]] == ["default/right"]
    waiting = {entry["group"]: entry for entry in plan["waiting"]}
    assert len(waiting) == 300
    assert "1 example.com/r007" in waiting["default/p007"]["message"]
    assert waiting["default/p250"]["needs"] == {"pods": "1", UNKNOWN: "1"}
    assert f"with 1 {UNKNOWN}" in waiting["default/p250"]["wouldStartIf"]


def test_more_than_a_thousand_resources_of_nodes_and_queues_are_refused() -> None:
    wide = node("n0")
    wide["status"]["allocatable"] |= {f"example.com/r{number}": 1 for number in range(600)}
    limits = {f"example.com/s{number}": 1 for number in range(600)}
    plan_objects([wide, pod("p")])
    with pytest.raises(InputError, match=r"found 1203, most of them \(603\) in Node n0"):
        plan_objects([wide, queue("q", limit=limits), pod("p")])
