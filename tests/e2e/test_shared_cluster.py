"""The cluster that tests share is a real one: kubectl works, RBAC holds, simulated nodes run pods, data survives."""

import contextlib
import http.client
import json
import ssl
import uuid
from collections.abc import Iterator
from http import HTTPStatus

import pytest

from tools.cluster import ApiError, Cluster, wait_until
from tools.cluster.kwok import node
from tools.cluster.program_versions import KUBERNETES


@pytest.fixture
def node_name(cluster: Cluster) -> Iterator[str]:
    name = f"node-{uuid.uuid4().hex[:8]}"
    cluster.create_nodes([node(name, gpus=4)])
    yield name
    cluster.delete_nodes([name])


def create_pod(cluster: Cluster, namespace: str, image: str = "example", command: list[str] | None = None) -> str:
    """Creates a pod that no scheduler handles. Returns its path."""
    container = {"name": "main", "image": image, "imagePullPolicy": "Never"}
    spec = {
        "schedulerName": "nobody",
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "containers": [container | ({"command": command} if command else {})],
    }
    pods = f"/api/v1/namespaces/{namespace}/pods"
    with cluster.client() as client:
        client.post(pods, {"metadata": {"name": "pod"}, "spec": spec})
    return f"{pods}/pod"


def bind(cluster: Cluster, pod: str, node_name: str) -> None:
    target = {"apiVersion": "v1", "kind": "Node", "name": node_name}
    with cluster.client() as client:
        client.post(f"{pod}/binding", {"metadata": {"name": "pod"}, "target": target})


def wait_for_phase(cluster: Cluster, pod: str, phase: str) -> None:
    with cluster.client() as client:
        wait_until(f"{pod} to be {phase}", lambda: client.get(pod)["status"]["phase"] == phase)


def test_kubectl_sees_the_pinned_version_and_the_nodes(cluster: Cluster, node_name: str) -> None:
    versions = json.loads(cluster.kubectl("version", "--output=json"))
    assert versions["serverVersion"]["gitVersion"] == versions["clientVersion"]["gitVersion"] == KUBERNETES.version
    row = cluster.kubectl("get", "node", node_name, "--no-headers").split()
    assert row[:2] == [node_name, "Ready"]


def test_rbac_refuses_a_user_without_rights_and_allows_what_it_was_given(cluster: Cluster, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    with cluster.client("somebody") as client:
        with pytest.raises(ApiError, match="403 Forbidden"):
            client.get(path)
        cluster.kubectl(
            f"--namespace={namespace}", "create", "rolebinding", "view", "--clusterrole=view", "--user=somebody"
        )
        wait_until("the right to be seen", lambda: client.exists(path))
        with pytest.raises(ApiError, match="403 Forbidden"):
            client.get("/api/v1/nodes")


def test_the_api_server_refuses_unknown_users(cluster: Cluster) -> None:
    stranger = http.client.HTTPSConnection(
        "127.0.0.1",
        cluster.spec.ports["apiserver"],
        context=ssl.create_default_context(cafile=cluster.layout.certificates.certificate("cluster")),
    )
    with contextlib.closing(stranger):
        stranger.request("GET", "/api/v1/namespaces")
        assert stranger.getresponse().status == HTTPStatus.UNAUTHORIZED


def test_a_service_account_has_its_own_identity(cluster: Cluster, namespace: str) -> None:
    with cluster.client() as client:
        wait_until("the account", lambda: client.exists(f"/api/v1/namespaces/{namespace}/serviceaccounts/default"))
    path = cluster.service_account_kubeconfig(namespace, "default")
    said = json.loads(cluster.kubectl("auth", "whoami", "--output=json", f"--kubeconfig={path}"))
    assert said["status"]["userInfo"]["username"] == f"system:serviceaccount:{namespace}:default"


def test_a_pod_bound_by_hand_runs_on_a_simulated_node(cluster: Cluster, namespace: str, node_name: str) -> None:
    pod = create_pod(cluster, namespace)
    bind(cluster, pod, node_name)
    wait_for_phase(cluster, pod, "Running")
    with cluster.client() as client:
        client.delete(pod)
        wait_until("the pod to be gone", lambda: not client.exists(pod))


def test_on_a_real_node_a_pod_bound_by_hand_runs_a_real_container(real_node: Cluster, real_namespace: str) -> None:
    # It also reaches the API server where every program inside a cluster looks for it.
    ask = "echo GET / HTTP/1.0 | nc -w 5 $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT | grep -o 'HTTPS server'"
    look = f"echo I am $(hostname); {ask}"
    with real_node.client() as client:
        account = f"/api/v1/namespaces/{real_namespace}/serviceaccounts/default"
        wait_until("the account", lambda: client.exists(account))
    pod = create_pod(real_node, real_namespace, "maniple.dev/busybox:local", ["sh", "-c", look])
    bind(real_node, pod, real_node.spec.real_node_name)
    wait_for_phase(real_node, pod, "Succeeded")
    logs = real_node.kubectl(f"--namespace={real_namespace}", "logs", "pod")
    assert logs.splitlines() == ["I am pod", "HTTPS server"]
