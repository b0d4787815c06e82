"""How large an elastic job is, and how fast at which size."""

import json
from typing import Any

import msgspec
import pytest
from cluster.planning import plan_objects

from maniple.api import types
from maniple.api.decode.decode import decode
from maniple.api.errors import InputError
from maniple.model.building.input_objects import Objects, sort_objects
from maniple.model.elastic import Elastic, current_sizes, read_elastic

GPU = "nvidia.com/gpu"


def elastic(curve: dict[int, float]) -> Elastic:
    points = tuple((float(replicas), speed) for replicas, speed in curve.items())
    return Elastic(roles={}, lead="", curve=points, cooldown_until=0.0, cooldown_s=0.0, grow_after=0.0, restart_s=0.0)


@pytest.mark.parametrize(
    ("curve", "replicas", "speed"),
    [
        ({}, 5, 5.0),
        ({1: 1.0, 4: 3.1, 8: 4.0}, 4, 3.1),
        ({1: 1.0, 4: 3.1, 8: 4.0}, 6, 3.55),
        ({1: 1.0, 4: 3.1, 8: 4.0}, 9, 4.0),
        ({4: 3.0}, 2, 1.5),
        ({2: 2.0, 4: 1.0}, 3, 1.5),
    ],
)
def test_the_curve_is_straight_between_its_points_and_flat_behind_them(
    curve: dict[int, float], replicas: int, speed: float
) -> None:
    assert elastic(curve).speed(replicas) == pytest.approx(speed)


def job(**status: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "training:1", "resources": {"limits": {GPU: 1}}}
    return {
        "apiVersion": "maniple.dev/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": "j", "namespace": "default"},
        "spec": {"roles": [{"name": "worker", "min": 2, "max": 6, "template": {"spec": {"containers": [container]}}}]},
        "status": status,
    }


def replica(index: int, host: str = "", phase: str = "") -> dict[str, Any]:
    labels = {"maniple.dev/job": "j", "maniple.dev/role": "worker", "maniple.dev/index": str(index)}
    container = {"name": "main", "image": "training:1", "resources": {"limits": {GPU: 1}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"j-worker-{index}", "namespace": "default", "labels": labels},
        "spec": {"schedulerName": "maniple", "containers": [container], **({"nodeName": host} if host else {})},
        "status": {"phase": phase or ("Running" if host else "Pending")},
    }


def read(*objects: dict[str, Any]) -> Objects:
    text = "\n---\n".join(map(json.dumps, objects))
    return sort_objects(decode([("objects", text.encode())]), scheduler_name="maniple")


def size(objects: Objects) -> int:
    return current_sizes(objects.elastic_jobs[0], objects.pods)["worker"]


def test_the_size_is_what_was_decided_else_what_is_there_else_the_minimum() -> None:
    assert size(read(job(target=[{"role": "worker", "replicas": 5}]), replica(0, "n1"))) == 5
    assert size(read(job(), replica(0, "n1"), replica(1), replica(2, "n1"))) == 3
    assert size(read(job())) == 2


def test_the_size_is_never_less_than_the_minimum() -> None:
    assert size(read(job(), replica(0, "n1"), replica(1, "n1", "Failed"))) == 2
    assert size(read(job(), replica(0, "n1"))) == 2
    assert size(read(job(target=[{"role": "worker", "replicas": 1}]), replica(0, "n1"))) == 2


def test_replicas_that_a_job_is_to_have_and_has_not_are_implied() -> None:
    def implied(*objects: dict[str, Any]) -> list[str]:
        return [pod.metadata.name for pod in read(*objects).implied]

    decided = job(target=[{"role": "worker", "replicas": 4}])
    assert implied(decided, replica(0, "n1"), replica(2)) == ["j-worker-1", "j-worker-3"]
    assert implied(job()) == ["j-worker-0", "j-worker-1"]
    assert implied(job(), replica(0, "n1")) == ["j-worker-1"]
    assert implied(job(), replica(1, "n1")) == ["j-worker-0"]
    assert implied(job(), replica(0, "n1"), replica(4, "n1")) == []
    assert implied(job(), replica(0, "n1"), replica(1, "n1", "Failed")) == [], "its name is taken"
    assert implied(job(target=[{"role": "worker", "replicas": 1}])) == ["j-worker-0", "j-worker-1"]
    assert implied(job(target=[{"role": "worker", "replicas": 4}], phase="Failed")) == []


def test_a_replica_that_the_job_has_become_too_small_for_is_not_planned() -> None:
    shrunk = job(target=[{"role": "worker", "replicas": 2}], lastResizeTime="2026-01-01T00:00:00Z")
    pods = [replica(0, "n1"), replica(1, "n1"), replica(2)]
    n1 = {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "8", "memory": "32Gi", GPU: 8, "pods": "110"}}}
    plan = plan_objects([{"apiVersion": "v1", "kind": "Node", **n1}, shrunk, *pods])
    assert plan["rounds"][0]["binds"] == []
    assert plan["rounds"][0]["waiting"] == []


def labelled(pod: dict[str, Any], **changed: str | None) -> dict[str, Any]:
    """The pod with some of its labels (role, index) changed or, if None, taken away."""
    labels = pod["metadata"]["labels"] | {f"maniple.dev/{name}": value for name, value in changed.items()}
    return {
        **pod,
        "metadata": {**pod["metadata"], "labels": {key: value for key, value in labels.items() if value is not None}},
    }


def named(pod: dict[str, Any], name: str) -> dict[str, Any]:
    return {**pod, "metadata": {**pod["metadata"], "name": name}}


ROLE, INDEX = "metadata.labels[maniple.dev/role]", "metadata.labels[maniple.dev/index]"


@pytest.mark.parametrize(
    ("pod", "problem"),
    [
        (
            named(replica(0), "other"),
            f"{INDEX}: expected an index of its own among the role's replicas, found '0', which",
        ),
        (labelled(replica(1), index="5"), f"{INDEX}: expected '1', as the pod's name says, or another name, found '5'"),
        (labelled(replica(1), index="one"), f"{INDEX}: expected a whole number of 0 or more, such as '0', found 'one'"),
        (labelled(replica(1), index=None), f"{INDEX}: expected the pod's number among the replicas of its role"),
        (labelled(replica(1), role="wroker"), f"{ROLE}: expected a role of ElasticJob j, found 'wroker'; did you mean"),
        (labelled(replica(1), role=None), f"{ROLE}: expected a role of ElasticJob j, such as 'worker', found none"),
    ],
)
def test_a_pod_that_cannot_be_a_replica_of_its_job_is_an_error_that_names_pod_and_label(
    pod: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InputError) as caught:
        read(job(), replica(0, "n1"), pod)
    (message,) = caught.value.messages
    assert f"Pod default/{pod['metadata']['name']}: {problem}" in message


def test_a_replica_that_leaves_or_has_ended_is_no_double_of_the_one_in_its_place() -> None:
    leaving = named(replica(0, "n1"), "old")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert read(job(), leaving, replica(0), named(replica(0, "n1", "Failed"), "older"), replica(1)).implied == []


@pytest.mark.parametrize(
    ("labels", "gang"),
    [({"maniple.dev/pod-group": "team"}, "PodGroup team"), ({"maniple.dev/job": "nobody"}, "ElasticJob nobody")],
)
def test_binds_that_failed_are_told_of_the_gang_and_not_of_its_pods(labels: dict[str, str], gang: str) -> None:
    failed = {"maniple.dev/bind-failures": "3", "maniple.dev/last-bind-failure": "2026-01-01T00:00:00Z"}
    pod = replica(0)
    pod["metadata"] |= {"name": "p", "labels": labels, "annotations": failed}
    with pytest.raises(InputError, match=f"expected it on {gang}, whose pod this is"):
        read(pod)


def test_a_class_that_is_unknown_is_said_of_the_job_and_not_of_pods_that_nobody_wrote() -> None:
    wrong = job()
    wrong["spec"]["priorityClassName"] = "nope"
    wrong["spec"]["roles"][0]["template"]["spec"]["priorityClassName"] = "none"
    with pytest.raises(InputError) as caught:
        plan_objects([wrong])
    places = [message.partition(": unknown")[0] for message in caught.value.messages]
    assert places == [
        "objects, items[0]: ElasticJob default/j: spec.roles[0].template.spec.priorityClassName",
        "objects, items[0]: ElasticJob default/j: spec.priorityClassName",
    ]


@pytest.mark.parametrize(
    ("declared", "measured", "speeds"),
    [
        ({}, {}, {2: 2.0, 8: 8.0}),
        ({}, {2: 100.0}, {2: 2.0, 4: 4.0, 8: 8.0}),
        ({}, {2: 100.0, 4: 150.0}, {2: 2.0, 4: 3.0, 6: 4.0, 8: 5.0, 9: 5.0}),
        ({}, {2: 100.0, 4: 80.0}, {2: 2.0, 4: 1.6, 8: 1.6}),
        ({1: 1.0, 4: 3.0, 8: 5.0}, {4: 300.0}, {1: 1.0, 4: 3.0, 8: 5.0}),
        ({1: 1.0, 4: 3.0, 8: 5.0}, {4: 300.0, 8: 400.0}, {4: 3.0, 8: 4.0}),
    ],
)
def test_what_was_measured_wins_over_what_was_declared(
    declared: dict[int, float], measured: dict[int, float], speeds: dict[int, float]
) -> None:
    template = {"spec": {"containers": [{"name": "main"}]}}
    spec = {
        "roles": [{"name": "worker", "min": 1, "max": 8, "template": template}],
        "elastic": {"speedup": [{"replicas": size, "speedup": speed} for size, speed in declared.items()]},
    }
    status = {"speeds": [{"replicas": size, "throughput": speed} for size, speed in measured.items()]}
    job = msgspec.convert({"metadata": {"name": "j"}, "spec": spec, "status": status}, types.ElasticJob)
    elastic_job = read_elastic(job, {"worker": 1}, None)
    assert {size: elastic_job.speed(size) for size in speeds} == pytest.approx(speeds)


def test_a_pin_is_both_bounds() -> None:
    template = {"spec": {"containers": [{"name": "main"}]}}
    spec = {"roles": [{"name": "worker", "min": 1, "max": 8, "pin": 6, "template": template}]}
    job = msgspec.convert({"metadata": {"name": "j"}, "spec": spec}, types.ElasticJob)
    sizes = current_sizes(job, [])
    role = read_elastic(job, sizes, None).roles["worker"]
    assert (sizes["worker"], role.min, role.max) == (6, 6, 6)
