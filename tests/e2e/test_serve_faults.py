"""Watches are cut, API server and etcd are killed: nothing is lost, nothing is done twice."""

import signal
from collections.abc import Iterator

import pytest

from e2e import clusters_of_this_run
from e2e.serve_process import Bench, install_crds


@pytest.fixture
def alone(new_cluster: clusters_of_this_run.NewCluster) -> Iterator[Bench]:
    """A cluster that may be broken."""
    cluster = new_cluster()
    install_crds(cluster)
    cluster.create_namespace("test")
    made = Bench(cluster, "test")
    yield made
    made.close()


def test_a_watch_that_is_too_old_lists_again(alone: Bench) -> None:
    """While it is paused its watches end, and the restarted server no longer has the changes since then.

    Nothing else may make it list again before its watch is refused: no lease that expires during the pause, and no
    drift check that is due when it resumes.
    """
    alone.nodes(1)
    server = alone.serve("--no-leader-elect", "--drift-check=20")
    gone = alone.pods("gone", 1, gpus=8)
    alone.wait_bound(gone)
    lists = server.metric("maniple_lists_total", resource="pods")
    server.signal(signal.SIGSTOP)
    alone.restart("kube-apiserver")
    alone.delete_pods(gone)
    alone.wait("the pod to go", lambda: alone.all_pods() == [])
    there = alone.pods("there", 2, gpus=4)
    alone.restart("kube-apiserver")  # it remembers only changes after its start
    server.signal(signal.SIGCONT)
    alone.wait_bound(there)
    assert server.metric("maniple_watch_failures_total", resource="pods", why="too old") > 0
    assert server.metric("maniple_lists_total", resource="pods") > lists
    # Its mirror is right: a drift check finds nothing to repair.
    checks = server.metric("maniple_drift_checks_total")
    alone.wait("a check", lambda: server.metric("maniple_drift_checks_total") > checks)
    assert server.metric("maniple_drift_total") == 0


def test_api_server_and_etcd_may_be_killed_while_gangs_start(alone: Bench) -> None:
    nodes = alone.nodes(4)
    # A bind that a starting server refused is retried after 10 s: gangs need longer than that.
    server = alone.serve("--drift-check=5")
    everybody: set[str] = set()
    for number, component in enumerate(("kube-apiserver", "etcd", "kube-apiserver")):
        for size in (3, 5, 2):
            everybody.update(alone.gang(f"gang{number}-{size}", size))
        alone.restart(component)
    alone.wait_bound(everybody)
    given = alone.gpus_by_node()
    assert given.keys() <= set(nodes)
    assert sum(map(len, given.values())) == len(everybody)
    assert all(len(set(gpus)) == len(gpus) for gpus in given.values())
    assert server.stop() == 0
    alone.forget(server)
