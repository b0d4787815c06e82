"""Clusters are isolated, survive the loss of components, and leave nothing behind, however they end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from e2e import clusters_of_this_run
from tools.cluster import ApiError, Cluster, ClusterError, Spec, wait_until
from tools.cluster.cluster_layout import Layout
from tools.cluster.kwok import node

CONFIG_MAP = "/api/v1/namespaces/default/configmaps"


def processes_of(layout: Layout) -> list[str]:
    """Command lines of all processes of a cluster."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"{layout.folder}/" in command or f"{layout.folder} " in command:
            found.append(command)
    return found


def left_of(cluster: Cluster) -> list[str]:
    """Everything that a cluster could leave behind: processes, mounts, control groups, its folder."""
    mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines() if cluster.name in line]
    # Control groups of other clusters come and go meanwhile, which `walk` does not mind.
    groups = [
        f"{folder}/{name}"
        for folder, names, _ in os.walk("/sys/fs/cgroup")
        for name in names
        if name.startswith(f"maniple-{cluster.name}-")
    ]
    folder = [str(cluster.layout.folder)] if cluster.layout.folder.exists() else []
    return processes_of(cluster.layout) + mounts + groups + folder


def runner_pid(cluster: Cluster) -> int:
    """The process that runs the cluster: the parent of its components, or with a real node of the namespaces."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:  # a process that ends while we look
            continue
        if (
            b"tools.cluster.cluster_process" in words
            and bytes(cluster.layout.folder) in words
            and words[0] != b"unshare"
        ):
            return int(path.parent.name)
    raise AssertionError(f"no runner of {cluster.name}")


def command(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tools.cluster", *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout + done.stderr


def test_two_clusters_are_isolated_and_leave_nothing_behind(
    new_cluster: clusters_of_this_run.NewCluster,
) -> None:
    clusters_of_this_run.need(Spec(name="second"))
    name = f"second-{os.getpid()}"
    starting = [sys.executable, "-m", "tools.cluster", "up", "--name", name, "--nodes", "2"]
    with subprocess.Popen(starting, stderr=subprocess.PIPE, text=True) as owner:
        first = new_cluster(nodes=1)
        assert owner.stderr
        assert any("Ctrl-C ends it" in line for line in owner.stderr)
        second = Cluster.attach(name)
        assert [len(each.kubectl("get", "nodes", "--output=name").splitlines()) for each in (first, second)] == [1, 2]
        with pytest.raises(ClusterError, match="certificate signed by unknown authority"):
            first.kubectl("get", "nodes", f"--server={second.server}")
        listed = command("status")
        assert first.server in listed
        assert second.server in listed

        # Without --detach a cluster ends with the command, even if the command is killed.
        owner.kill()
        wait_until("the cluster to end", lambda: left_of(second) == [])
    assert all(first.status().values())
    first.down()
    assert left_of(first) == []


def test_data_survives_the_loss_of_a_component_and_nothing_outlives_the_runner(
    new_cluster: clusters_of_this_run.NewCluster,
) -> None:
    cluster = new_cluster()
    with pytest.raises(ClusterError, match="is up already"):
        Cluster.up(cluster.spec)
    with pytest.raises(ClusterError, match="no component 'etc' here; there are etcd, kube-apiserver"):
        cluster.kill("etc")
    for component in ("etcd", "kube-apiserver", "kube-controller-manager"):
        before = cluster.status()[component]
        with cluster.client() as client:
            client.post(CONFIG_MAP, {"metadata": {"name": f"before-{component}"}})
        cluster.kill(component)
        assert cluster.status()[component] is None
        cluster.start(component)
        cluster.wait_until_ready()
        assert cluster.status()[component] not in {None, before}
        with cluster.client() as client:
            assert client.get(f"{CONFIG_MAP}/before-{component}")
    cluster.create_nodes([node("late")])
    assert all(cluster.status().values())

    # Components die with the runner; the folder is removed by the next command, whichever it is.
    os.kill(runner_pid(cluster), signal.SIGKILL)
    wait_until("all processes to end", lambda: processes_of(cluster.layout) == [])
    command("status")  # or a command of another test, earlier
    assert left_of(cluster) == []


def test_a_component_that_does_not_start_is_named_with_its_output(
    new_cluster: clusters_of_this_run.NewCluster,
) -> None:
    with pytest.raises(ClusterError, match=r"kube-apiserver ended: .*NoSuchGate"):
        new_cluster(feature_gates="NoSuchGate=true")


def test_a_real_node_leaves_nothing_behind_when_stopped_or_killed(
    new_cluster: clusters_of_this_run.NewCluster,
) -> None:
    cluster = new_cluster(real_node=True)
    assert left_of(cluster)
    cluster.down()
    assert left_of(cluster) == []

    cluster = new_cluster(real_node=True)
    os.kill(runner_pid(cluster), signal.SIGKILL)
    wait_until("all processes to end", lambda: processes_of(cluster.layout) == [])

    def is_removed_by_the_next_command() -> bool:
        command("down", "--name", "some-other")
        return left_of(cluster) == []

    # A killed process holds its lock until it has ended, a moment after its command line is gone.
    wait_until("the next command to remove what is left", is_removed_by_the_next_command)


def test_a_node_may_only_change_itself(real_node: Cluster) -> None:
    with real_node.client(f"system:node:{real_node.spec.real_node_name}", ["system:nodes"]) as client:
        assert client.get(f"/api/v1/nodes/{real_node.spec.real_node_name}")
        with pytest.raises(ApiError, match="403 Forbidden"):
            client.delete("/api/v1/nodes/another")
