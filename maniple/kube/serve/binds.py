"""Binds the pods of a gang all at once, with their GPUs in the same write. A bind counts as done until it has failed.

If a bind is not answered, the server is asked for the outcome. Until it is known the pod counts as bound: a node
wrongly taken for free would be given away twice.
"""

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from maniple.api import kubernetes
from maniple.api.decode.server_objects import read_live
from maniple.api.gpu.assignment import format_assignment, read_assignment
from maniple.api.keys import split_name
from maniple.cluster.assumed_writes import bind_annotations
from maniple.kube.serve.metrics import Metrics
from maniple.kube.transport.client import ApiError, Client, NotLeadingError, UnansweredError
from maniple.kube.transport.mirror import Mirror
from maniple.kube.transport.resource_kinds import PODS
from maniple.scheduler.framework.plan import Bind

log = logging.getLogger("maniple.binds")

_MANY = 128  # more than the server takes at once
_RETRY_S = 10.0
_ANSWER_S = 10.0


class Binder:
    def __init__(self, client: Client, mirror: Mirror, metrics: Metrics) -> None:
        self._client = client
        self._mirror = mirror
        self._metrics = metrics
        self._under_way = 0
        self.is_calm = asyncio.Event()  # no more is under way than the server takes at once
        self.is_calm.set()

    def assume(self, binds: list[Bind]) -> list[Bind]:
        """The binds whose pods are still there. They count as bound, and as under way, from now on."""
        there = [bind for bind in binds if self._mirror.find(kubernetes.Pod, split_name(bind.pod)) is not None]
        for bind in there:
            self._mirror.cache.assume_bind(bind.pod, bind)
        self._count(len(there))
        return there

    def forget(self, binds: list[Bind], outcome: str) -> None:
        """The pods are not to be bound after all."""
        self._count(-len(binds))
        for bind in binds:
            self._metrics.binds.labels(outcome).inc()
            self._mirror.cache.forget(bind.pod)

    async def bind_all(self, binds: list[Bind]) -> list[str]:
        """Binds all that were assumed. Returns the errors of those that failed and whose pods still wait."""
        if len(binds) == 1:  # by far the most
            outcomes = [await self._bind(binds[0])]
        else:
            outcomes = await asyncio.gather(*map(self._bind, binds))
        return [error for outcome, error in outcomes if outcome == "failed"]

    @contextmanager
    def held_up(self, binds: list[Bind]) -> Iterator[None]:
        """Something else has to be done first. Meanwhile they are not under way: that may take minutes."""
        self._count(-len(binds))
        try:
            yield
        finally:
            self._count(len(binds))

    def _count(self, more: int) -> None:
        self._under_way += more
        if self._under_way > _MANY:
            self.is_calm.clear()
        else:
            self.is_calm.set()

    async def _bind(self, bind: Bind) -> tuple[str, str]:
        """The outcome, and the error if there is one."""
        started, message = time.monotonic(), ""
        try:
            outcome, message = await self._outcome(bind)
        except NotLeadingError:
            outcome = "not leading"
        except Exception as error:
            log.exception("bind", extra={"pod": bind.pod})
            outcome, message = "failed", f"{bind.pod}: {error}"
        finally:
            self._count(-1)
        self._metrics.binds.labels(outcome).inc()
        if outcome == "bound":
            self._metrics.bind_s.observe(time.monotonic() - started)
        else:
            self._mirror.cache.forget(bind.pod)
        return outcome, message

    async def _outcome(self, bind: Bind) -> tuple[str, str]:
        key = split_name(bind.pod)
        seen = self._mirror.find(kubernetes.Pod, key)
        if seen is None:
            return "gone", ""
        uid = seen.uid
        meta = {"name": key[1], "namespace": key[0], "uid": uid, "annotations": bind_annotations(bind)}
        target = {"apiVersion": "v1", "kind": "Node", "name": bind.node}
        body = msgspec.json.encode({"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target})
        path = PODS.path(*key, "binding")
        backoff = self._client.backoff(0.1, 2.0)
        until = time.monotonic() + _RETRY_S
        error: Exception
        may_be_done = False  # by an earlier attempt that was not answered
        while True:
            try:
                await self._client.write(self._client.binds, "POST", path, body, timeout_s=_ANSWER_S)
                return "bound", ""
            except NotLeadingError as refusal:
                if not may_be_done:
                    raise
                error = refusal
                break
            except ApiError as refusal:
                error = refusal
                may_be_done |= refusal.status >= 500  # for example, etcd did not answer the server
                if refusal.status == 404:
                    return "gone", ""
                if refusal.status == 409:
                    break
                may_pass = self._client.may_pass(refusal)
                if not may_pass and may_be_done:
                    break  # the earlier attempt may have succeeded
                if not may_pass:
                    log.warning("bind refused", extra={"pod": bind.pod, "node": bind.node, "error": str(refusal)})
                    return "failed", refusal.message or str(refusal)
            except UnansweredError as silence:
                error = silence
                may_be_done = True
            if time.monotonic() > until:
                break
            await backoff.wait(error)
        log.info("bind in doubt", extra={"pod": bind.pod, "node": bind.node, "error": str(error)})
        return await self._settle(bind, uid), f"{bind.pod}: {error}"

    async def _settle(self, bind: Bind, uid: str) -> str:
        """Asks the server until it answers, and puts the pod as it is into the mirror."""
        backoff = self._client.backoff()
        while True:
            try:
                answer = await self._client.get(PODS.path(*split_name(bind.pod)), timeout_s=_ANSWER_S)
                live = read_live(answer, PODS.struct)
            except ApiError as refusal:
                if refusal.status == 404:
                    return "gone"
                await backoff.wait(refusal)
            except UnansweredError as silence:
                await backoff.wait(silence)
            else:
                self._mirror.put(PODS, live)
                pod = live.item if live.head.uid == uid else None
                if not isinstance(pod, kubernetes.Pod) or pod.metadata.deletion_timestamp is not None:
                    return "gone"
                if not pod.spec.node_name:
                    return "failed"
                given = read_assignment(pod.metadata.annotations)
                is_ours = (pod.spec.node_name, given) == (bind.node, format_assignment(bind.gpus))
                return "bound" if is_ours else "bound by another"
