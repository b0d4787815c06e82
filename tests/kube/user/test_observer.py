"""What a user watches, and what of it the user may not read."""

import json

import msgspec

from maniple.kube.transport.client import Client
from maniple.kube.transport.login import Login
from maniple.kube.user.client import UserClient
from maniple.kube.user.observer import Observer, _read_node


def test_the_gpus_of_nodes_are_known_only_with_the_right_to_read_all_pods() -> None:
    observer = Observer(UserClient(Client(Login(None, None)), "ml"), None)
    node = {"metadata": {"name": "n1"}, "status": {"allocatable": {"nvidia.com/gpu": "8", "cpu": "4", "pods": "110"}}}
    gpus = _read_node(msgspec.Raw(json.dumps(node).encode()))
    assert gpus is not None
    observer._nodes["", "n1"] = gpus
    assert observer.node_gpus == {"n1": 8.0}
    observer._sees_all_pods = False
    assert observer.node_gpus == {}
