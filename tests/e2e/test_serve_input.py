"""Wrong objects are refused by the API server's schema or reported on the object; the scheduler keeps working."""

import json
from typing import Any

import pytest

from e2e.serve_process import OURS, Bench, Json
from tools.cluster import ApiError


def queue(name: str, **spec: Any) -> Json:
    return {"apiVersion": "maniple.dev/v1alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def test_the_schema_refuses_wrong_objects(bench: Bench) -> None:
    with pytest.raises(ApiError, match="minMember"):
        bench.group("nobody", 0)
    with pytest.raises(ApiError, match="limit"):
        bench.client.post(f"{OURS}/queues", queue("huge", limit={"cpu": "1e400"}))
    with pytest.raises(ApiError, match="own parent"):
        bench.client.post(f"{OURS}/queues", queue("snake", parent="snake"))


def test_mistakes_beyond_the_schema_are_reported_on_the_object_and_stop_nothing_else(bench: Bench) -> None:
    bench.nodes(1)
    name = bench.namespace
    for which, parent in (("a", "b"), ("b", "a")):
        bench.client.post(f"{OURS}/queues", queue(f"{name}-{which}", parent=f"{name}-{parent}"))
    lost = bench.gang("lost", 2, queue="no-such-queue")
    bench.pods("odd", 1, metadata={"annotations": {"maniple.dev/gpu-fraction": "lots"}})
    server = bench.serve()
    bench.wait_bound(bench.gang("good", 2))

    bench.wait("the gang to say why", lambda: _condition(bench, "lost")["reason"] == "Invalid")
    assert "unknown queue 'no-such-queue'" in _condition(bench, "lost")["message"]

    def said() -> str:
        return str(bench.condition_of(bench.get(f"{OURS}/queues/{name}-a"), "Valid")["message"])

    bench.wait("the queue to say why", lambda: "loop" in said())
    bench.wait("the pod to say why", lambda: "lots" in _said_by_pod(bench, "odd-0"))
    assert bench.bound([*lost, "odd-0"]) == {}
    bench.wait("all four to be counted", lambda: server.metric("maniple_invalid_objects") >= 4)
    bench.wait("events", lambda: len(bench.events("Invalid")) >= 2)

    # Put right, it counts.
    bench.client.delete(f"{OURS}/queues/{name}-a")
    bench.client.delete(f"{OURS}/queues/{name}-b")
    patch = {"spec": {"queue": ""}}
    bench.client.patch(f"{OURS}/namespaces/{name}/podgroups/lost", patch)
    bench.wait_bound(lost)
    bench.wait("no complaint", lambda: _condition(bench, "lost")["status"] == "True")


def test_a_pod_names_its_queue_and_an_unknown_key_of_ours_is_an_event(bench: Bench) -> None:
    bench.nodes(1)
    name = f"{bench.namespace}-small"
    bench.client.post(f"{OURS}/queues", queue(name, limit={"nvidia.com/gpu": "1"}))
    bench.serve()
    key = "maniple.dev/queue"
    bench.client.patch(f"/api/v1/namespaces/{bench.namespace}", {"metadata": {"labels": {key: name}}})
    pods = {
        "first": bench.pod("first", labels={key: name}),
        "lost": bench.pod("lost", labels={key: "no-such-queue"}),
        "other": bench.pod("other", labels={key: "default", "maniple.dev/queu": "x"}),
    }
    bench.client.post(f"/api/v1/namespaces/{bench.namespace}/pods", pods["first"])
    bench.wait_bound(["first"])
    bench.client.post(f"/api/v1/namespaces/{bench.namespace}/pods", bench.pod("second"))
    bench.group("unnamed", 1)
    bench.wait("the group to say its queue", lambda: _queue_shown(bench, "unnamed") == name)
    for pod in ("lost", "other"):
        bench.client.post(f"/api/v1/namespaces/{bench.namespace}/pods", pods[pod])
    bench.wait_bound(["other"])
    bench.wait("the second to say why", lambda: f"queue '{name}' is limited" in _said_by_pod(bench, "second"))
    bench.wait("its event", lambda: [event["regarding"]["name"] for event in bench.events("QueueLimit")] == ["second"])
    bench.wait("the lost one to say why", lambda: "unknown queue 'no-such-queue'" in _said_by_pod(bench, "lost"))
    bench.wait("events", lambda: [event["regarding"]["name"] for event in bench.events("NotRead")] == ["other"])
    assert "did you mean 'maniple.dev/queue'?" in bench.events("NotRead")[0]["note"]
    bench.client.patch(f"/api/v1/namespaces/{bench.namespace}", {"metadata": {"labels": {key: None}}})
    bench.wait("the group to follow its namespace", lambda: _queue_shown(bench, "unnamed") == "default")
    bench.client.delete(f"{OURS}/queues/{name}")


def test_a_pod_that_claims_to_be_an_impossible_replica_is_reported(bench: Bench) -> None:
    bench.nodes(1)
    template = {"spec": {"schedulerName": bench.scheduler, "containers": [{"name": "main", "image": "pause"}]}}
    job = {"apiVersion": "maniple.dev/v1alpha1", "kind": "ElasticJob", "metadata": {"name": "train"}}
    role = {"name": "worker", "min": 2, "max": 2, "template": template}
    bench.client.post(f"{OURS}/namespaces/{bench.namespace}/elasticjobs", job | {"spec": {"roles": [role]}})
    for name, role_name, index in (("first", "worker", "0"), ("second", "worker", "0"), ("odd", "wroker", "1")):
        labels = {"maniple.dev/job": "train", "maniple.dev/role": role_name, "maniple.dev/index": index}
        bench.client.post(f"/api/v1/namespaces/{bench.namespace}/pods", bench.pod(name, labels=labels))
    bench.serve("--no-jobs")

    bench.wait("the second to say why", lambda: "which pod first has too" in _said_by_pod(bench, "second"))
    bench.wait("the other to say why", lambda: "did you mean 'worker'?" in _said_by_pod(bench, "odd"))
    bench.wait("events", lambda: {event["regarding"]["name"] for event in bench.events("Invalid")} == {"second", "odd"})
    bench.wait_bound(bench.pods("good", 1))
    assert bench.bound(["first", "second", "odd"]) == {}  # one replica is not two
    answer = bench.run("plan", "--live", *bench.arguments()[:2])
    assert f"note: Pod {bench.namespace}/second: set aside: metadata.labels[maniple.dev/index]" in answer.stderr
    assert answer.returncode == 0, answer.stderr

    # Put right, it counts.
    patch = {"metadata": {"labels": {"maniple.dev/index": "1"}}}
    bench.client.patch(f"/api/v1/namespaces/{bench.namespace}/pods/second", patch)
    bench.wait_bound(["first", "second"])
    assert bench.bound(["odd"]) == {}

    # A pod that is already on a node still holds its room.
    patch = {"metadata": {"labels": {"maniple.dev/index": "none"}}}
    bench.client.patch(f"/api/v1/namespaces/{bench.namespace}/pods/second", patch)
    bench.wait("an event", lambda: any("found 'none'" in event["note"] for event in bench.events("Invalid")))
    bench.pods("big", 1, gpus=6)
    bench.wait("the big one to say why", lambda: "InsufficientResources" in _said_by_pod(bench, "big-0"))
    answer = bench.run("plan", "--live", *bench.arguments()[:2], "-o", "json")
    planned = {bind["pod"] for bind in json.loads(answer.stdout)["rounds"][0]["binds"]}
    assert planned == {f"{bench.namespace}/train-worker-1"}  # the replica that is missing now


def test_a_megabyte_of_annotations_does_no_harm(bench: Bench) -> None:
    bench.nodes(1)
    server = bench.serve()
    big = {"example.com/notes": "x" * 250_000}
    bench.wait_bound(bench.pods("big", 3, metadata={"annotations": big}))
    bench.wait_bound(bench.pods("small", 1))
    assert server.metric("maniple_watch_failures_total", resource="pods") == 0


@pytest.mark.parametrize("amount", ["1e400", "999999999999999999999999999", "1e-400", "-1"])
def test_odd_quantities_of_a_pod_do_not_stop_the_next_pod(bench: Bench, amount: str) -> None:
    """Refused by the API server, or a pod that waits and says why; either way the next pod is bound."""
    bench.nodes(1)
    odd = bench.pod("odd", 0)
    odd["spec"]["containers"][0]["resources"] = {"requests": {"memory": amount}}
    bench.serve()
    code, answer = bench.client.raw("POST", f"/api/v1/namespaces/{bench.namespace}/pods", odd)
    if code == 201 and amount == "1e-400":
        bench.wait_bound(["odd"])
    elif code == 201:
        bench.wait("the odd pod to say why", lambda: bool(_said_by_pod(bench, "odd")))
    else:
        assert code in (400, 422), answer
    bench.wait_bound(bench.pods("good", 1))


def _queue_shown(bench: Bench, group: str) -> str:
    row = bench.cluster.kubectl("get", "mpg", group, "-n", bench.namespace, "--no-headers").split()
    return row[1] if row[2] == "Pending" else ""  # without a queue the second is the phase


def _condition(bench: Bench, group: str) -> Json:
    return bench.condition_of(bench.get_group(group), "Scheduled")


def _said_by_pod(bench: Bench, name: str) -> str:
    return str(bench.condition_of(bench.get_pod(name), "PodScheduled")["message"])
