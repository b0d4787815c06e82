"""Objects that contradict each other or themselves are planned, and a note says what counts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cli.run_maniple import run_here
from scheduler.small_clusters import Object, group, node, pod, queue

GPU = "nvidia.com/gpu"
JOB: Object = {
    "apiVersion": "maniple.dev/v1alpha1",
    "kind": "ElasticJob",
    "metadata": {"name": "e"},
    "spec": {"roles": [{"name": "w", "min": 1, "max": 1, "template": {"spec": {"containers": [{"name": "c"}]}}}]},
}
HIGH: Object = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "high"},
    "value": 7,
}
REPLICA = {"maniple.dev/job": "e", "maniple.dev/role": "w", "maniple.dev/index": "0"}


def with_topology(gpus: int | None, devices: int) -> Object:
    allocatable = {"cpu": 4, **({} if gpus is None else {GPU: gpus})}
    made = node("n0", allocatable=allocatable)
    topology = {"version": 1, "devices": [{"id": str(number)} for number in range(devices)]}
    made["metadata"]["annotations"] = {"maniple.dev/gpu-topology": json.dumps(topology)}
    return made


def annotated(made: Object, **annotations: str) -> Object:
    made["metadata"]["annotations"] = annotations
    return made


def notes(*objects: Object) -> list[str]:
    items = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    done = run_here("plan", "-f", "-", stdin=items)
    assert done.returncode == 0, done.stderr
    return [line.removeprefix("note: ") for line in done.stderr.splitlines()]


TOPOLOGY = "metadata.annotations[maniple.dev/gpu-topology]"
IN_H = {"scheduling.k8s.io/group-name": "h"}


@pytest.mark.parametrize(
    ("objects", "note"),
    [
        (
            [with_topology(8, 2)],
            f"Node n0: {TOPOLOGY}: names 2 GPUs, and status.allocatable[{GPU}] is 8: the rest are not used",
        ),
        (
            [with_topology(None, 2)],
            f"Node n0: {TOPOLOGY}: names 2 GPUs, and status.allocatable[{GPU}] has none: none is used",
        ),
        (
            [group("g", 1), annotated(pod("p", labels={"maniple.dev/pod-group": "g"}), **IN_H)],
            "Pod default/p: is in PodGroup 'g'; that it also names 'h' is not read",
        ),
        (
            [JOB, group("g", 1), pod("e-w-0", labels={**REPLICA, "maniple.dev/pod-group": "g"})],
            "Pod default/e-w-0: names ElasticJob 'e' and PodGroup 'g'; expected one of them",
        ),
        (
            [group("g", 1), pod("p", labels={"maniple.dev/pod-group": "g", "maniple.dev/index": "first"})],
            "Pod default/p: metadata.labels[maniple.dev/index]: expected a number such as '0', found 'first'; "
            "it is not read",
        ),
        (
            [HIGH, pod("p", priority=9, priorityClassName="high")],
            "Pod default/p: spec.priority: is 9, which counts; PriorityClass 'high' has 7",
        ),
        (
            [with_topology(2, 2), queue("q", weights={"nvidia.com/gpus": 1})],
            "Queue q: spec.weights[nvidia.com/gpus]: no node has this resource; did you mean 'nvidia.com/gpu'?",
        ),
        (
            [with_topology(2, 2), queue("q", limit={"nvidia.com/gpus": 1})],
            "Queue q: spec.limit[nvidia.com/gpus]: no node has this resource; did you mean 'nvidia.com/gpu'?",
        ),
        *(
            (
                [with_topology(2, 2), queue("q", **{field: {"gpu": 1}})],
                f"Queue q: spec.{field}[gpu]: no node has this resource; did you mean 'nvidia.com/gpu'?",
            )
            for field in ("guaranteed", "limit", "weights")
        ),
        (
            [
                with_topology(2, 2),
                queue("a", limit={GPU: 3}),
                *(queue(name, parent="a", guaranteed={GPU: 2}) for name in "bc"),
            ],
            f"Queue a: spec.limit[{GPU}]: is 3, but its children are guaranteed 4 together, which cannot be kept",
        ),
        (
            [with_topology(2, 2), queue("a", guaranteed={GPU: "2500m"})],
            f"Queue a: spec.guaranteed[{GPU}]: 2500m counts as 2: it is divided in whole units",
        ),
        (
            [with_topology(2, 2), queue("a", guaranteed={GPU: 400})],
            f"Queue a: spec.guaranteed[{GPU}]: is 400, but all nodes have 2 together, which is all that can be kept",
        ),
    ],
    ids=lambda value: "" if isinstance(value, list) else str(value)[:30],
)
def test_a_contradiction_is_a_note_that_says_what_counts(objects: list[Object], note: str) -> None:
    assert note in notes(node("n1"), *objects)


@pytest.mark.parametrize(
    "objects",
    [
        [with_topology(2, 2)],
        [with_topology(1, 2)],  # a device that is not healthy
        [
            group("g", 1),
            annotated(pod("p", labels={"maniple.dev/pod-group": "g"}), **{"scheduling.k8s.io/group-name": "g"}),
        ],
        [HIGH, pod("p", priority=7, priorityClassName="high")],
        [queue("q", limit={"example.com/fpga": 1})],  # of nodes that an autoscaler may add
        [queue("a", limit={"cpu": 2}), queue("b", parent="a", guaranteed={"cpu": 2})],
    ],
)
def test_what_agrees_has_no_note(objects: list[Object]) -> None:
    assert notes(node("n1"), *objects) == []


def test_a_thousand_contradictions_of_one_kind_are_one_line() -> None:
    pods: list[Any] = [pod(f"p{number}", priority=9, priorityClassName="high") for number in range(1000)]
    (note,) = notes(node("n1"), HIGH, *pods)
    assert note.endswith("(999 more like it)")
