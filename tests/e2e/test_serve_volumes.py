"""Claims that wait for their pod's node get a volume before the pod is bound, on a real API server.

The controller manager binds volumes to claims as it does everywhere. A provisioner is played by the test.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from e2e.serve_process import Bench, Json
from tools.cluster import ApiError

CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
VOLUMES = "/api/v1/persistentvolumes"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
MERGE = "application/merge-patch+json"


class Disks:
    """A storage class of the test, its claims and volumes."""

    def __init__(self, bench: Bench) -> None:
        self._bench, self._volumes = bench, list[str]()
        self.name = f"disks-{bench.namespace}"

    def open(self, provisioner: str) -> None:
        late = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
        self._bench.client.post(CLASSES, {"metadata": {"name": self.name}, **late})

    def close(self) -> None:
        for path in (f"{CLASSES}/{self.name}", *(f"{VOLUMES}/{name}" for name in self._volumes)):
            with suppress(ApiError):
                self._bench.client.delete(path)

    def _path(self, name: str = "") -> str:
        folder = f"/api/v1/namespaces/{self._bench.namespace}/persistentvolumeclaims"
        return f"{folder}/{name}" if name else folder

    def claim(self, name: str, mode: str = "ReadWriteOnce") -> Json:
        """A claim, and the volume of a pod with it."""
        spec = {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": self.name}
        self._bench.client.post(self._path(), {"metadata": {"name": name}, "spec": spec})
        return {"name": name, "persistentVolumeClaim": {"claimName": name}}

    def get(self, name: str) -> Json:
        claim: Json = self._bench.client.get(self._path(name))
        return claim

    def is_bound(self, name: str) -> bool:
        return bool(self.get(name)["status"]["phase"] == "Bound")

    def node_of(self, name: str) -> str | None:
        """The node for which the claim's volume is to be made."""
        node: str | None = self.get(name)["metadata"].get("annotations", {}).get(SELECTED_NODE)
        return node

    def wait_selected(self, *names: str) -> None:
        self._bench.wait("the claims' node", lambda: all(self.node_of(name) for name in names))

    def make(self, name: str, node: str, claim: str = "", mode: str = "ReadWriteOnce") -> None:
        """A volume that is reached from one node, for a claim if one is given."""
        name = f"{name}-{self._bench.namespace}"
        self._volumes.append(name)
        expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        spec: dict[str, Any] = {
            "capacity": {"storage": "1Gi"},
            "accessModes": [mode],
            "storageClassName": self.name,
            "persistentVolumeReclaimPolicy": "Retain",
            "csi": {"driver": "disks.example.com", "volumeHandle": name},
        }
        if mode == "ReadWriteOnce":
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
        if claim:
            meta = self.get(claim)["metadata"]
            spec["claimRef"] = {key: meta[key] for key in ("namespace", "name", "uid")}
        self._bench.client.post(VOLUMES, {"metadata": {"name": name}, "spec": spec})

    def give_up(self, claim: str) -> None:
        """What a provisioner does that cannot make the volume for the node."""
        body = {"metadata": {"annotations": {SELECTED_NODE: None}}}
        self._bench.client.request("PATCH", self._path(claim), body, MERGE)


@pytest.fixture
def disks(bench: Bench) -> Iterator[Disks]:
    made = Disks(bench)
    yield made
    made.close()


def test_a_new_volume_is_made_before_the_pod_is_bound(bench: Bench, disks: Disks) -> None:
    disks.open("disks.example.com/made-here")
    bench.nodes(2)
    bench.serve()
    (waiting,) = bench.pods("waiting", 1, volumes=[disks.claim("data")])
    disks.wait_selected("data")
    others = bench.pods("other", 3)
    bench.wait_bound(others)  # nobody else waits for the volume
    assert bench.bound([waiting]) == {}
    node = disks.node_of("data")
    assert node is not None
    disks.make("made", node, "data")
    bench.wait_bound([waiting])
    assert bench.bound([waiting]) == {waiting: node}
    assert disks.is_bound("data")


def test_pods_of_a_gang_get_free_volumes_each_on_its_node(bench: Bench, disks: Disks) -> None:
    """All four pods fit on one node, but each node has one volume of the four."""
    disks.open("kubernetes.io/no-provisioner")
    nodes = bench.nodes(4)
    for index, node in enumerate(nodes):
        disks.make(f"local{index}", node)
    bench.wait(
        "the volumes to be available",
        lambda: all(
            bench.get(f"{VOLUMES}/local{index}-{bench.namespace}")["status"]["phase"] == "Available"
            for index in range(len(nodes))
        ),
    )
    bench.serve()
    bench.group("gang", 4)
    label = {"maniple.dev/pod-group": "gang"}
    members = [
        bench.pods(f"member{index}", 1, 1, label, volumes=[disks.claim(f"data{index}")])[0] for index in range(4)
    ]
    bench.wait_bound(members)
    assert sorted(bench.bound(members).values()) == sorted(nodes)
    assert all(disks.is_bound(f"data{index}") for index in range(4))


def test_a_gang_without_all_its_volumes_does_not_start_in_part(bench: Bench, disks: Disks) -> None:
    disks.open("disks.example.com/made-here")
    bench.nodes(2)
    bench.serve()
    bench.group("gang", 2)
    label = {"maniple.dev/pod-group": "gang"}
    members = [bench.pods(f"m{index}", 1, 1, label, volumes=[disks.claim(f"d{index}")])[0] for index in range(2)]
    disks.wait_selected("d0", "d1")
    disks.make("made0", str(disks.node_of("d0")), "d0")
    bench.wait("its first claim to be bound", lambda: disks.is_bound("d0"))
    assert bench.bound(members) == {}
    disks.give_up("d1")
    bench.wait("the failure", lambda: len(bench.events("BindFailed")) == 1)
    assert "no volume could be made" in bench.events("BindFailed")[0]["note"]
    assert bench.bound(members) == {}
    disks.wait_selected("d1")  # after a pause it is tried again
    disks.make("made1", str(disks.node_of("d1")), "d1")
    bench.wait_bound(members)


def test_a_new_leader_goes_on_with_claims_that_are_being_bound(bench: Bench, disks: Disks) -> None:
    """The pods of a gang share a claim. The volume is made while nobody leads."""
    disks.open("disks.example.com/made-here")
    bench.nodes(2, gpus=1)
    first = bench.serve()
    volume = disks.claim("shared", "ReadWriteMany")
    bench.group("gang", 2)
    members = bench.pods("member", 2, 1, {"maniple.dev/pod-group": "gang"}, volumes=[volume])
    disks.wait_selected("shared")
    assert first.stop() == 0
    bench.forget(first)
    disks.make("made", "", "shared", "ReadWriteMany")
    bench.wait("the claim to be bound", lambda: disks.is_bound("shared"))
    assert bench.bound(members) == {}
    bench.serve()
    bench.wait_bound(members)
