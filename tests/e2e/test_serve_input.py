"""Whatever people write: it is refused by the API server's schema, or told on the object; the scheduler goes on."""

from typing import Any

import pytest

from tools.cluster import ApiError

from .serving import OURS, Bench, Json


def queue(name: str, **spec: Any) -> Json:
    return {"apiVersion": "maniple.dev/v1alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def test_what_the_schema_knows_is_refused(bench: Bench) -> None:
    with pytest.raises(ApiError, match="minMember"):
        bench.group("nobody", 0)
    with pytest.raises(ApiError, match="limit"):
        bench.client.post(f"{OURS}/queues", queue("huge", limit={"cpu": "1e400"}))
    with pytest.raises(ApiError, match="own parent"):
        bench.client.post(f"{OURS}/queues", queue("snake", parent="snake"))


def test_what_it_cannot_know_is_told_on_the_object_and_stops_nobody(bench: Bench) -> None:
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
    assert server.metric("maniple_invalid_objects") >= 4
    bench.wait("events", lambda: len(bench.events("Invalid")) >= 2)

    # Put right, it counts.
    bench.client.delete(f"{OURS}/queues/{name}-a")
    bench.client.delete(f"{OURS}/queues/{name}-b")
    patch = {"spec": {"queue": ""}}
    bench.client.patch(f"{OURS}/namespaces/{name}/podgroups/lost", patch)
    bench.wait_bound(lost)
    bench.wait("no complaint", lambda: _condition(bench, "lost")["status"] == "True")


def test_a_megabyte_of_annotations_is_no_matter(bench: Bench) -> None:
    bench.nodes(1)
    server = bench.serve()
    big = {"example.com/notes": "x" * 250_000}
    bench.wait_bound(bench.pods("big", 3, metadata={"annotations": big}))
    bench.wait_bound(bench.pods("small", 1))
    assert server.metric("maniple_watch_failures_total", resource="pods") == 0


@pytest.mark.parametrize("amount", ["1e400", "999999999999999999999999999", "1e-400", "-1"])
def test_odd_quantities_of_pods(bench: Bench, amount: str) -> None:
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


def _condition(bench: Bench, group: str) -> Json:
    return bench.condition_of(bench.get_group(group), "Scheduled")


def _said_by_pod(bench: Bench, name: str) -> str:
    return str(bench.condition_of(bench.get_pod(name), "PodScheduled")["message"])
