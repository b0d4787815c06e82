"""PodGroups of kube-batch, Volcano and scheduler-plugins: read when their CRDs appear, with status in their terms."""

from collections.abc import Iterator

import pytest

from e2e import clusters_of_this_run
from e2e.serve_process import Bench, Json, install_crds
from tools.cluster import Cluster, Spec

# Group, version, how a pod names its group, the phase of a gang that runs.
SYSTEMS = {
    "volcano": ("scheduling.volcano.sh", "v1beta1", "annotation:scheduling.k8s.io/group-name", "Running"),
    "kube-batch": ("scheduling.incubator.k8s.io", "v1alpha1", "annotation:scheduling.k8s.io/group-name", "Running"),
    "scheduler-plugins": ("scheduling.x-k8s.io", "v1alpha1", "label:scheduling.x-k8s.io/pod-group", "Running"),
}


@pytest.fixture(scope="module")
def alone() -> Iterator[Bench]:
    """A cluster without the CRDs of other systems."""
    spec = Spec(name=clusters_of_this_run.own_name(), owner_pid=clusters_of_this_run.run_pid())
    clusters_of_this_run.need(spec)
    cluster = Cluster.up(spec)
    install_crds(cluster)
    cluster.create_namespace("test")
    made = Bench(cluster, "test")
    try:
        made.nodes(2)
        made.serve()
        yield made
        made.close()
    finally:
        cluster.down()


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_gang_of_another_system_starts_and_gets_a_status(alone: Bench, system: str) -> None:
    group, version, naming, running_phase = SYSTEMS[system]
    _install(alone, group, version, "PodGroup")
    folder = f"/apis/{group}/{version}/namespaces/test/podgroups"
    body = {"apiVersion": f"{group}/{version}", "kind": "PodGroup", "metadata": {"name": system}}
    alone.wait("its CRD", lambda: alone.client.exists(folder))
    alone.client.post(folder, body | {"spec": {"minMember": 3}})

    def status() -> Json:
        found: Json = alone.get(f"{folder}/{system}").get("status", {})
        return found

    if system != "scheduler-plugins":  # whose controllers create pods only then
        alone.wait("word that pods may be created", lambda: status().get("phase") == "Inqueue")
    where, _, key = naming.partition(":")
    labels = {key: system} if where == "label" else {}
    metadata = {"annotations": {key: system}} if where == "annotation" else {}
    # One at a time: with two of three pods none is bound.
    pods = []
    for index in range(3):
        name = f"{system}-{index}"
        alone.client.post("/api/v1/namespaces/test/pods", alone.pod(name, 2, labels, metadata=dict(metadata)))
        pods.append(name)
        if index == 1:
            alone.wait("word", lambda: alone.condition_of(alone.get_pod(pods[0]), "PodScheduled")["status"] == "False")
            assert alone.bound(pods) == {}
    alone.wait_bound(pods)
    alone.wait("its status", lambda: status().get("phase") == running_phase and status().get("running") == 3)
    if system != "scheduler-plugins":
        assert status()["conditions"][-1]["type"] == "Scheduled"
    else:
        assert status()["scheduled"] == 3
    alone.delete_pods(pods)


def test_unread_fields_of_a_queue_are_reported(alone: Bench) -> None:
    group, version, *_ = SYSTEMS["volcano"]
    _install(alone, group, version, "Queue")
    folder = f"/apis/{group}/{version}/queues"
    alone.wait("its CRD", lambda: alone.client.exists(folder))
    body = {"apiVersion": f"{group}/{version}", "kind": "Queue", "metadata": {"name": "research"}}
    alone.client.post(folder, body | {"spec": {"weight": 2, "dequeueStrategy": "fifo"}})

    def notes() -> list[str]:
        found = alone.get("/apis/events.k8s.io/v1/namespaces/default/events")["items"]
        return [event["note"] for event in found if event["reason"] == "NotRead"]

    alone.wait("a word", lambda: notes() == ["spec.dequeueStrategy has no counterpart here and is not read"])


def _install(bench: Bench, group: str, version: str, kind: str) -> None:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    served = {"name": version, "served": True, "storage": True, "schema": schema, "subresources": {"status": {}}}
    one = kind.lower()
    names = {"kind": kind, "listKind": f"{kind}List", "plural": f"{one}s", "singular": one}
    scope = "Namespaced" if kind == "PodGroup" else "Cluster"
    item = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{one}s.{group}"},
        "spec": {"group": group, "scope": scope, "names": names, "versions": [served]},
    }
    if group.endswith("k8s.io"):
        item["metadata"] |= {"annotations": {"api-approved.kubernetes.io": "unapproved, a test"}}  # type: ignore[operator]
    bench.client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", item)
