"""On a real node: a kubelet starts the containers of a gang together, or none of them."""

from collections.abc import Iterator

import pytest

from e2e.clusters_of_this_run import alone_on
from e2e.serve_process import GPU, Bench, Json, install_crds
from tools.cluster import Cluster, wait_until

SLOTS = 4


@pytest.fixture
def corner(real_node: Cluster, real_namespace: str) -> Iterator[Bench]:
    """The real node reports four GPUs: its status is patched, which the kubelet keeps."""
    install_crds(real_node)
    with alone_on(real_node):
        made = Bench(real_node, real_namespace)
        patch = {"status": {"capacity": {GPU: str(SLOTS)}}}
        made.client.patch(f"/api/v1/nodes/{real_node.spec.real_node_name}/status", patch)
        node = f"/api/v1/nodes/{real_node.spec.real_node_name}"
        made.wait("the node to have GPUs", lambda: made.get(node)["status"]["allocatable"].get(GPU) == str(SLOTS))
        yield made
        made.close()


def test_a_gang_of_real_containers_starts_together_and_one_more_when_it_fits(corner: Bench) -> None:
    corner.serve()
    container = {
        "name": "main",
        "image": "maniple.dev/busybox:local",
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", "echo $HOSTNAME; sleep infinity"],
        "resources": {"limits": {GPU: "1"}},
    }
    spec: Json = {"containers": [container], "nodeSelector": {}, "terminationGracePeriodSeconds": 0}
    corner.group("three", 3)
    three = corner.pods("three", 3, labels={"maniple.dev/pod-group": "three"}, **spec)
    corner.wait("three containers to run", lambda: running(corner, three) == set(three))
    for name in three:
        wait_until(f"{name} to say so", lambda name=name: said(corner, name).strip() == name)  # type: ignore[misc]
    assert len(set(corner.gpus_by_node()[corner.cluster.spec.real_node_name])) == 3
    corner.group("two", 2)
    two = corner.pods("two", 2, labels={"maniple.dev/pod-group": "two"}, **spec)

    def is_told() -> bool:
        return "room" in corner.condition_of(corner.get_pod(two[0]), "PodScheduled")["message"]

    # One GPU is free and two are needed: no pod starts, and both get the reason.
    corner.wait("the second gang to be told why it waits", is_told)
    assert not corner.bound(two)
    corner.delete_pods(three[2:])
    corner.wait("the second gang to run", lambda: running(corner, two) == set(two))


def said(corner: Bench, name: str) -> str:
    return corner.cluster.kubectl(f"--namespace={corner.namespace}", "logs", name)


def running(corner: Bench, names: list[str]) -> set[str]:
    pods = [pod for pod in corner.all_pods() if pod["metadata"]["name"] in names]
    return {pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running"}
