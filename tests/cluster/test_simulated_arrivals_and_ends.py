"""Time that passes between rounds of a plan."""

import json
from typing import Any

from maniple.api.decode.decode import decode
from maniple.cluster.in_memory_cluster import MemoryCluster, run_rounds
from maniple.model.building.input_objects import sort_objects

GPU = "nvidia.com/gpu"
Object = dict[str, Any]


def moment(second: int) -> str:
    return f"2026-01-01T00:{second // 60:02d}:{second % 60:02d}Z"


START_S = 1767225600.0  # moment(0)


def node(name: str, gpus: int, at: int = 0) -> Object:
    meta = {"name": name, "creationTimestamp": moment(at)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": meta,
        "status": {"allocatable": {"cpu": "8", GPU: gpus, "pods": "110"}},
    }


def pod(name: str, at: int, deadline_s: int | None = None, labels: Object | None = None) -> Object:
    spec: Object = {"schedulerName": "maniple", "containers": [{"name": "main", "resources": {"limits": {GPU: 1}}}]}
    if deadline_s:
        spec["activeDeadlineSeconds"] = deadline_s
    meta = {"name": name, "creationTimestamp": moment(at), "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def job(name: str, at: int, deadline_s: int) -> Object:
    template = {"spec": {"containers": [{"name": "main", "resources": {"limits": {GPU: 1}}}]}}
    roles = [{"name": "worker", "min": 1, "max": 1, "template": template}]
    return {
        "apiVersion": "maniple.dev/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": name, "creationTimestamp": moment(at)},
        "spec": {"roles": roles, "activeDeadlineSeconds": deadline_s},
    }


def bound(objects: list[Object], rounds: int, step_s: float | None = 10.0) -> list[list[str]]:
    """Who starts in each round; the first is at second 0."""
    decoded = decode([("objects", "\n---\n".join(map(json.dumps, objects)).encode())])
    cluster = MemoryCluster(sort_objects(decoded, scheduler_name="maniple"), now=START_S, step_s=step_s)
    made = run_rounds(cluster, None, rounds)
    return [[bind.pod.removeprefix("default/") for bind in round_.plan.binds] for round_ in made.rounds]


def test_pods_arrive_when_they_are_created() -> None:
    assert bound([node("n1", 4), pod("now", 0), pod("later", 15)], rounds=4) == [["now"], [], ["later"], []]


def test_a_gang_arrives_whole() -> None:
    group = {
        "apiVersion": "maniple.dev/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "creationTimestamp": moment(20)},
        "spec": {"minMember": 2},
    }
    labels = {"maniple.dev/pod-group": "g"}
    objects = [node("n1", 4), group, pod("g-0", 0, labels=labels), pod("g-1", 10, labels=labels)]
    assert bound(objects, rounds=3) == [[], [], ["g-0", "g-1"]]


def test_nodes_and_jobs_arrive_too() -> None:
    assert bound([node("n1", 1, at=10), pod("a", 0)], rounds=2) == [[], ["a"]]
    assert bound([node("n1", 1), job("j", 10, deadline_s=1000)], rounds=2) == [[], ["j-worker-0"]]


def test_a_pod_past_its_deadline_gives_its_room_back() -> None:
    objects = [node("n1", 1), pod("a", 0, deadline_s=15), pod("b", 1)]
    assert bound(objects, rounds=4) == [["a"], [], ["b"], []]


def test_a_job_past_its_deadline_is_over() -> None:
    objects = [node("n1", 1), job("j", 0, deadline_s=15), pod("b", 1)]
    assert bound(objects, rounds=4) == [["j-worker-0"], [], ["b"], []]


def test_without_a_step_nobody_waits_for_its_time() -> None:
    assert bound([node("n1", 4), pod("now", 0), pod("later", 15)], rounds=1, step_s=None) == [["later", "now"]]
