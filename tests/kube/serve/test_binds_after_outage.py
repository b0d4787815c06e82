"""A server that has just started does not know anybody's rights: a bind that it refuses is sent again."""

import asyncio
import json

import pytest

from kube.transport.scripted_server import FORBIDDEN, Request, Says, scripted
from maniple.api.decode.server_objects import read_live
from maniple.cluster.cache import Cache
from maniple.cluster.shared_cache import SharedCache
from maniple.kube.serve.binds import Binder
from maniple.kube.serve.metrics import Metrics
from maniple.kube.transport.mirror import Mirror
from maniple.kube.transport.resource_kinds import PODS
from maniple.model.pods_we_schedule import Ours
from maniple.scheduler.framework.plan import Bind

POD = {
    "metadata": {"name": "a", "namespace": "ns", "uid": "a", "resourceVersion": "2"},
    "spec": {"schedulerName": "maniple", "containers": [{"name": "c"}]},
}


@pytest.mark.parametrize("was_away", [True, False])
def test_a_refused_bind_is_sent_again_after_an_outage_and_only_then(was_away: bool) -> None:
    says = [FORBIDDEN, Says(201, {})]

    def answer(request: Request) -> Says:  # noqa: ARG001
        return says.pop(0)

    async def run() -> None:
        async with scripted(answer) as (server, client):
            mirror = Mirror(SharedCache(Cache(Ours())))
            mirror.put(PODS, read_live(json.dumps(POD).encode(), PODS.struct))
            if was_away:
                client.outage.note_silence()
            binder = Binder(client, mirror, Metrics())
            failures = await binder.bind_all(binder.assume([Bind("ns/a", "n1")]))
            assert failures == ([] if was_away else ["no rights"])
            assert len(server.requests) == (2 if was_away else 1)

    asyncio.run(run())
