"""A simulated node has no kubelet: who asks for a log there is told, and not to try again."""

import asyncio
import json
import time

import msgspec
import pytest

from kube.transport.scripted_server import FORBIDDEN, Request, Says, list_of, scripted
from maniple.api.errors import InputError
from maniple.kube.user.client import UserClient
from maniple.kube.user.job_logs import Choice, _Log, read_logs
from maniple.kube.user.replica_pod import read_replica_pod

LABELS = {"maniple.dev/job": "bert", "maniple.dev/role": "worker", "maniple.dev/index": "0"}
POD = {
    "metadata": {"name": "bert-worker-0", "namespace": "ml", "uid": "u", "resourceVersion": "2", "labels": LABELS},
    "spec": {"nodeName": "node-0", "containers": [{"name": "main"}]},
    "status": {"phase": "Running", "containerStatuses": [{"name": "main", "state": {"running": {}}}]},
}
UNREACHABLE = Says(500, {"kind": "Status", "code": 500, "message": "dial tcp 10.0.0.1:10250: connection refused"})
SIMULATED = Says(200, {"metadata": {"name": "node-0", "annotations": {"kwok.x-k8s.io/node": "fake"}}})
REAL = Says(200, {"metadata": {"name": "node-0"}})


def asked(node: Says, *, follow: bool = False) -> str:
    def answer(request: Request) -> Says:
        if request.path.endswith("/log"):
            return UNREACHABLE
        if request.path == "/api/v1/nodes/node-0":
            return node
        return list_of(POD) if request.path.endswith("/pods") else Says(200, POD)

    async def run() -> None:
        async with scripted(answer) as (_, client):
            user = UserClient(client, "ml")
            if not follow:
                await read_logs(user, ("ml", "bert"), Choice(lambda _: True), lambda *_: None)
            else:
                replica = read_replica_pod(msgspec.Raw(json.dumps(POD).encode()))
                assert replica is not None
                await _Log(user, replica, Choice(lambda _: True), lambda *_: None).follow()

    with pytest.raises(InputError) as raised:
        asyncio.run(run())
    return "\n".join(raised.value.messages)


@pytest.mark.parametrize("follow", [False, True])
def test_it_is_said_and_nobody_is_told_to_try_again(follow: bool) -> None:
    started = time.monotonic()
    assert asked(SIMULATED, follow=follow) == (
        "Pod ml/bert-worker-0: has no log: its node node-0 is simulated, and runs nothing"
    )
    assert time.monotonic() - started < 30  # --follow does not wait for a kubelet


@pytest.mark.parametrize("node", [REAL, FORBIDDEN])
def test_of_other_nodes_the_servers_reason_is_given(node: Says) -> None:
    assert "connection refused" in asked(node)
    assert "simulated" not in asked(node)
