"""`maniple serve` on a real API server: whole gangs, GPUs known after a restart, one leader, no write done twice."""

import json
import signal
from datetime import UTC, datetime

import pytest

from e2e.serve_process import OURS, Bench, Json
from tools.cluster import ApiError

WHOLE = "Scheduled"


def test_a_gang_is_bound_whole_or_not_at_all(bench: Bench) -> None:
    bench.nodes(2, gpus=4)
    pods = bench.gang("train", 3, gpus=4)
    server = bench.serve()
    bench.wait(
        "a reason",
        lambda: bench.condition_of(bench.get_group("train"), WHOLE)["reason"] == "InsufficientResources",
    )
    assert bench.condition_of(bench.get_group("train"), WHOLE)["status"] == "False"
    bench.wait("its pods to say so", lambda: bool(bench.condition_of(bench.get_pod(pods[2]), "PodScheduled")))
    waiting = bench.condition_of(bench.get_pod(pods[2]), "PodScheduled")
    assert waiting["reason"] == "Unschedulable"
    assert waiting["message"].startswith("InsufficientResources: ")
    assert bench.bound() == {}
    bench.nodes(1, gpus=4)
    bench.wait_bound(pods)
    assert all(sorted(gpus) == ["0", "1", "2", "3"] for gpus in bench.gpus_by_node().values())
    bench.wait("the gang to say so", lambda: bench.get_group("train")["status"].get("phase") == "Running")
    bench.wait("its pods to run", lambda: bench.get_group("train")["status"].get("running") == 3)
    assert bench.condition_of(bench.get_group("train"), WHOLE)["status"] == "True"
    bench.wait("three binds to be counted", lambda: server.counts(3, "maniple_binds_total", outcome="bound"))
    assert server.metric("maniple_gpus", state="idle") >= 0
    bench.wait("an event", lambda: bool(bench.events("Scheduled")))
    assert server.stop() == 0


def test_gpus_are_known_after_a_crash(bench: Bench) -> None:
    (node,) = bench.nodes(1)
    server = bench.serve("--identity=same")
    for name in ("first", "second"):
        bench.wait_bound(bench.pods(name, 1, gpus=3))
        server.kill()
        bench.forget(server)
        server = bench.serve("--identity=same")
    bench.wait_bound(bench.pods("third", 2, gpus=1))
    assert sorted(bench.gpus_by_node()[node]) == [str(number) for number in range(8)]


def test_after_a_kill_serve_continues_where_it_was(bench: Bench) -> None:
    nodes = bench.nodes(4)
    names = [bench.gang(f"gang{number}", 4, gpus=1) for number in range(8)]
    everybody = {pod for gang in names for pod in gang}
    server = bench.serve("--identity=same", wait=False)
    bench.wait("some pods to be bound", lambda: bool(bench.bound()))
    server.kill()
    bench.forget(server)
    bench.serve("--identity=same", "--gang-timeout=5")
    bench.wait_bound(everybody)
    given = bench.gpus_by_node()
    assert {node: len(given[node]) for node in nodes} == dict.fromkeys(nodes, 8)
    assert all(len(set(gpus)) == len(gpus) for gpus in given.values())


def test_one_of_two_replicas_writes_and_the_other_takes_over(bench: Bench) -> None:
    bench.nodes(1)
    first = bench.serve()
    bench.wait("the first to lead", first.is_leading)
    second = bench.serve()
    bench.wait_bound(bench.pods("a", 1))
    assert not second.is_leading()
    assert second.metric("maniple_binds_total") == 0
    assert second.metric("maniple_status_writes_total") == 0

    # The time is read from the lease: how long the bind takes then depends on the machine.
    first.kill()
    renewed = moment(lease(bench)["renewTime"])
    bench.forget(first)
    bench.wait_bound(bench.pods("b", 1))
    assert (moment(lease(bench)["acquireTime"]) - renewed).total_seconds() <= 15

    third = bench.serve()
    assert not third.is_leading()
    assert second.stop() == 0
    stopped = datetime.now(UTC)
    bench.forget(second)
    bench.wait_bound(bench.pods("c", 1))
    assert (moment(lease(bench)["acquireTime"]) - stopped).total_seconds() <= 6  # it was given back
    assert third.is_leading()


def lease(bench: Bench) -> Json:
    found: Json = bench.get("/apis/coordination.k8s.io/v1/namespaces/{}/leases/maniple")["spec"]
    return found


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_a_replica_that_cannot_renew_its_lease_stops_writing_and_keeps_running(bench: Bench) -> None:
    """A replica that was paused while another took over does not write its old decisions."""
    bench.nodes(1)
    first = bench.serve()
    bench.wait("the first to lead", first.is_leading)
    first.signal(signal.SIGSTOP)
    second = bench.serve()
    bench.wait("the second to lead", second.is_leading)
    first.signal(signal.SIGCONT)
    bench.wait("the first to know", lambda: not first.is_leading())
    bench.wait_bound(bench.pods("a", 2))
    bench.wait("two binds to be counted", lambda: second.counts(2, "maniple_binds_total", outcome="bound"))
    assert first.metric("maniple_binds_total", outcome="bound") == 0


def test_a_dry_run_shows_the_plan_and_changes_nothing(bench: Bench) -> None:
    bench.nodes(1)
    pods = bench.gang("train", 2, gpus=2)
    before = bench.get_pod(pods[0])["metadata"]["resourceVersion"]
    done = bench.run("serve", *bench.arguments("--dry-run", "-o", "json"))
    assert done.returncode == 0, done.stderr
    binds = json.loads(done.stdout)["rounds"][0]["binds"]
    assert {bind["pod"] for bind in binds} == {f"{bench.namespace}/{pod}" for pod in pods}
    live = bench.run("plan", "--live", *bench.arguments()[:2], "--rounds=2", "-o", "json")
    assert live.returncode == 0, live.stderr
    assert json.loads(live.stdout)["rounds"][0]["binds"] == binds
    assert bench.bound() == {}
    assert bench.get_pod(pods[0])["metadata"]["resourceVersion"] == before
    with pytest.raises(ApiError, match="404"):
        bench.get("/apis/coordination.k8s.io/v1/namespaces/{}/leases/maniple")


def test_once_runs_one_cycle(bench: Bench) -> None:
    bench.nodes(1)
    pods = bench.gang("train", 2, gpus=2)
    done = bench.run("serve", *bench.arguments("--once"))
    assert done.returncode == 0, done.stderr
    assert bench.bound().keys() == set(pods)
    server = bench.serve()
    bench.wait("it to lead", server.is_leading)
    assert bench.run("serve", *bench.arguments("--once")).returncode == 3  # another replica leads


def test_pods_of_other_schedulers_are_counted_and_left_alone(bench: Bench) -> None:
    (node,) = bench.nodes(1)
    theirs = bench.pods("theirs", 2, gpus=3, schedulerName="somebody-else")
    binding = {"metadata": {"name": theirs[0]}, "target": {"kind": "Node", "name": node}}
    bench.client.post(f"/api/v1/namespaces/{bench.namespace}/pods/{theirs[0]}/binding", binding)
    bench.serve()
    bench.wait_bound(bench.pods("fits", 1, gpus=5))
    (late,) = bench.pods("late", 1, gpus=1)
    bench.wait("a reason", lambda: "Insufficient" in bench.condition_of(bench.get_pod(late), "PodScheduled")["message"])
    assert bench.bound(theirs).keys() == {theirs[0]}
    bench.delete_pods(theirs[:1])
    bench.wait_bound([late])


def test_the_status_of_a_queue_shows_what_it_holds(bench: Bench) -> None:
    bench.nodes(1)
    queue = bench.namespace
    bench.client.post(
        f"{OURS}/queues", {"apiVersion": "maniple.dev/v1alpha1", "kind": "Queue", "metadata": {"name": queue}}
    )
    bench.serve()
    pods = bench.gang("train", 2, gpus=2, queue=queue)
    bench.wait_bound(pods)

    def status() -> dict[str, object]:
        found: dict[str, object] = bench.get(f"{OURS}/queues/{queue}").get("status", {})
        return found

    bench.wait("the queue to say so", lambda: status().get("allocated") == {"nvidia.com/gpu": "4"})
    bench.wait("it to count its jobs", lambda: status().get("runningJobs") == 1)
    bench.delete_pods(pods)
    bench.wait("the queue to say so", lambda: status().get("allocated") == {})
    bench.client.delete(f"{OURS}/queues/{queue}")
