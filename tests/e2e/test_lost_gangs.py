"""Pods that do not leave, and gangs that lose pods. What takes minutes is seen by a scheduler whose clock is ahead."""

from collections.abc import Iterator
from typing import Any

import pytest

from e2e.serve_process import GPU, Bench
from e2e.test_serve_evictions_and_sizes import important

__all__ = ["important"]
SINCE = "maniple.dev/incomplete-since"


def test_the_room_of_a_stuck_pod_is_promised_to_nobody(bench: Bench, important: str) -> None:
    """Nobody ends pods on a node without a kubelet. Whoever was promised the room looks elsewhere."""
    slow = bench.slow_node()
    (stuck,) = bench.pods("low", 1, gpus=8)
    server = bench.serve()
    bench.wait_bound([stuck])
    (high,) = bench.pods("high", 1, gpus=8, priorityClassName=important)
    bench.wait("the promise", lambda: bench.get_pod(high)["status"].get("nominatedNodeName") == slow)
    (other,) = bench.nodes(1)
    (second,) = bench.pods("second", 1, gpus=8, nodeName=other)
    bench.wait("it to run", lambda: bench.get_pod(second)["status"].get("phase") == "Running")
    assert bench.bound([high]) == {}
    server.stop()
    bench.forget(server)

    bench.serve(ahead_s=90.0)
    bench.wait_bound([high])
    assert bench.bound() == {stuck: slow, high: other}
    bench.wait("the event", lambda: len(bench.events("Stuck")) == 1)
    shown = bench.cluster.kubectl("get", "events", "-n", bench.namespace, "--field-selector", "reason=Stuck")
    assert f"pod {bench.namespace}/{stuck}, stuck on node {slow} since " in shown


def test_a_gang_that_stays_below_its_minimum_is_evicted_whole_unless_its_replacement_fits(bench: Bench) -> None:
    """The scheduler that evicts it is not the one that saw it fall."""
    bench.nodes(1, gpus=4)
    gangs = {name: bench.gang(name, 2) for name in ("lost", "mended")}
    server = bench.serve()
    bench.wait_bound([*gangs["lost"], *gangs["mended"]])
    for name in gangs:
        bench.wait("it to run", lambda name=name: bench.get_group(name)["status"]["phase"] == "Running")  # type: ignore[misc]

    def since(name: str) -> str | None:
        found: str | None = bench.get_group(name)["metadata"].get("annotations", {}).get(SINCE)
        return found

    folder = f"/api/v1/namespaces/{bench.namespace}/pods"
    for name in gangs:
        bench.client.patch(f"{folder}/{name}-1/status", {"status": {"phase": "Failed"}})
        bench.wait("the loss to be noted", lambda name=name: since(name) is not None)  # type: ignore[misc]
    bench.wait("the status to say so", lambda: bench.get_group("lost")["status"]["phase"] == "Unknown")
    assert bench.events("Evicted") == []
    server.stop()
    bench.forget(server)
    bench.client.post(folder, bench.pod("mended-2", labels={"maniple.dev/pod-group": "mended"}))

    server = bench.serve(ahead_s=700.0)
    bench.wait_bound(["mended-0", "mended-2"])
    bench.wait("the other to be evicted", lambda: not bench.bound(["lost-0"]))
    bench.wait("the event", lambda: [event["regarding"]["name"] for event in bench.events("Evicted")] == ["lost-0"])
    (event,) = bench.events("Evicted")
    assert event["note"].startswith("Stale: its gang ")
    bench.wait("the notes to go", lambda: since("lost") is since("mended") is None)
    bench.wait("the status", lambda: bench.condition_of(bench.get_group("lost"), "Scheduled")["status"] == "False")
    bench.wait("the count", lambda: server.counts(1, "maniple_evictions_total", reason="Stale", outcome="evicted"))


@pytest.fixture
def queue(bench: Bench) -> Iterator[str]:
    """A queue of the test's own that is guaranteed 2 GPUs and protects what it runs."""
    name = f"q-{bench.namespace}"
    spec: dict[str, Any] = {"guaranteed": {GPU: 2}, "minRuntimeSeconds": 3600}
    bench.create({"apiVersion": "maniple.dev/v1alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec})
    yield name
    bench.client.delete(f"/apis/maniple.dev/v1alpha1/queues/{name}")


def test_work_that_may_not_be_preempted_starts_within_the_guarantee_and_running_work_has_its_minimum_runtime(
    bench: Bench, important: str, queue: str
) -> None:
    bench.nodes(1, gpus=4)
    bench.serve()
    firm = bench.gang("firm", 2, queue=queue, preemptable=False)
    bench.wait_bound(firm)
    bench.gang("beyond", 2, queue=queue, preemptable=False)

    def reason(name: str) -> str:
        found: str = bench.condition_of(bench.get_group(name), "Scheduled")["reason"]
        return found

    bench.wait("a reason", lambda: reason("beyond") == "BeyondGuarantee")
    low = bench.gang("low", 2, queue=queue)
    bench.wait_bound(low)
    high = bench.gang("high", 2, queue=queue, priorityClassName=important)
    bench.wait("a reason", lambda: reason("high") == "InsufficientResources")
    assert bench.bound().keys() == {*firm, *low}
    bench.client.patch(f"/apis/maniple.dev/v1alpha1/queues/{queue}", {"spec": {"minRuntimeSeconds": 0}})
    bench.wait_bound(high)
    bench.wait("the others to be gone", lambda: bench.bound().keys() == {*firm, *high})
    assert reason("beyond") == "BeyondGuarantee"
