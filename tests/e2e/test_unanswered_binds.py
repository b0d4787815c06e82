"""A binding without an answer counts neither as done nor as failed: the server is asked what happened."""

import asyncio
from typing import Any

import pytest

from e2e.serve_process import Bench
from maniple.api.decode.server_objects import read_live
from maniple.cluster.cache import Cache
from maniple.cluster.shared_cache import SharedCache
from maniple.kube.serve.binds import Binder
from maniple.kube.serve.metrics import Metrics
from maniple.kube.transport.client import ApiError, Client, NotLeadingError, UnansweredError
from maniple.kube.transport.login import log_in
from maniple.kube.transport.mirror import Mirror
from maniple.kube.transport.resource_kinds import PODS
from maniple.model.pods_we_schedule import Ours
from maniple.scheduler.framework.plan import Bind


class LossyClient(Client):
    """A client of the real server; the test decides for each bind whether it arrives, and which answer returns."""

    tries: list[tuple[bool, Exception]]

    async def write(self, *given: Any, **more: Any) -> bytes:
        if not self.tries:
            return await super().write(*given, **more)
        arrives, heard = self.tries.pop(0)
        if arrives:
            await super().write(*given, **more)
        raise heard


SILENCE = UnansweredError("cut")
JUST_STARTED = ApiError(403, "Forbidden", "not yet able to tell who may do what")
STORE_AWAY = ApiError(500, "InternalError", "etcdserver: request timed out")
NO_LEADER = NotLeadingError("the lease is over")


@pytest.mark.parametrize(
    ("tries", "is_bound"),
    [
        ([(True, SILENCE)], True),  # done, and the next try gets a conflict
        ([(True, SILENCE), (False, JUST_STARTED)], True),
        ([(True, STORE_AWAY), (False, JUST_STARTED)], True),
        ([(True, SILENCE), (False, NO_LEADER)], True),
        ([(False, SILENCE)], True),  # not done, until the next try
        ([(False, SILENCE), (False, JUST_STARTED)], False),
        ([(False, SILENCE), (False, NO_LEADER)], False),
        ([(False, JUST_STARTED)], False),
    ],
)
def test_an_unanswered_bind_is_looked_up_on_the_server(
    bench: Bench, tries: list[tuple[bool, Exception]], is_bound: bool
) -> None:
    node = bench.slow_node()
    bench.pods("lone", 1)
    bind = Bind(f"{bench.namespace}/lone-0", node, ("gpu-3",))

    async def bound() -> tuple[list[str], bool]:
        login = await log_in(str(bench.cluster.kubeconfig()))
        async with LossyClient(login) as client:
            client.tries = list(tries)
            cache = Cache(Ours(scheduler_name=bench.scheduler))
            mirror = Mirror(SharedCache(cache))
            path = PODS.path(bench.namespace, "lone-0")
            mirror.put(PODS, read_live(await client.get(path), PODS.struct))
            binder = Binder(client, mirror, Metrics())
            failed = await binder.bind_all(binder.assume([bind]))
            assert client.tries == []
            known = cache.pod(bind.pod)
            assert known is not None
            return failed, bind.pod in cache.assumed() or known.spec.node_name == node

    failed, counts_as_bound = asyncio.run(bound())
    assert bench.bound() == ({"lone-0": node} if is_bound else {})
    # The Cache agrees with the server: GPUs that are taken are not free.
    assert counts_as_bound == is_bound
    assert bool(failed) == (not is_bound)
