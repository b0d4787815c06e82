"""What a person watches: the GPUs of the cluster, whatever becomes of nodes."""

import json

import msgspec

from maniple.kube.transport.client import Client
from maniple.kube.transport.login import Login
from maniple.kube.user.client import Visit
from maniple.kube.user.observer import Picture, _read_node, _read_pod

GPU = "nvidia.com/gpu"


def raw(item: object) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(item).encode())


def test_pods_of_a_node_that_was_deleted_use_none_of_the_gpus_that_are_left() -> None:
    picture = Picture(Visit(Client(Login(None, None)), "ml"), None)
    for node in ("there", "gone"):
        gpus = _read_node(raw({"metadata": {"name": node}, "status": {"allocatable": {GPU: "8"}}}))
        assert gpus is not None
        picture._nodes["", node] = gpus
        container = {"name": "main", "resources": {"limits": {GPU: "6"}}}
        pod = _read_pod(raw({"metadata": {"name": node}, "spec": {"nodeName": node, "containers": [container]}}))
        assert pod is not None
        picture._pods["ml", node] = pod
    before = picture.gpus
    del picture._nodes["", "gone"]
    assert (before, picture.gpus) == ((12, 16), (6, 8))
