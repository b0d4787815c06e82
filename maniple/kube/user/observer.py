"""The cluster as a user watches it: jobs, their replicas, queues, and GPUs, as they are at each moment.

What the user may not read is left out: without the right to read all nodes and pods, there are no node GPUs.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import msgspec

from maniple.api import kubernetes, types
from maniple.api.decode.server_objects import read_live
from maniple.api.keys import Key
from maniple.kube.transport.client import ApiError
from maniple.kube.transport.resource_kinds import JOBS, NODES, PODS, QUEUES
from maniple.kube.user.client import UserClient, jobs_refused, read_job, refused, replica_query
from maniple.kube.user.replica_pod import ObservedPod, read_observed_pod
from maniple.model.pod_requests import amounts

_MAY_NOT = (403, 404)


class Observer:
    """`run` keeps it up to date; `begun` is set once it is complete, and `changed` after each change."""

    def __init__(self, client: UserClient, namespace: str | None) -> None:
        self._client = client
        self._namespace = namespace
        self.jobs: dict[Key, types.ElasticJob] = {}
        self.queues: dict[Key, types.Queue] = {}
        self.pods: dict[Key, ObservedPod] = {}
        self._nodes: dict[Key, float] = {}  # the GPUs of each
        self._sees_all_pods = True
        self._sees_queues = True
        self._awaited = {"jobs", "queues", "nodes", "pods"}
        self._has_jobs = asyncio.Event()
        self.begun = asyncio.Event()
        self.changed = asyncio.Event()

    @property
    def queue_names(self) -> list[str] | None:
        """None if the user may not list queues."""
        return [queue.metadata.name for queue in self.queues.values()] if self._sees_queues else None

    @property
    def node_gpus(self) -> dict[str, float]:
        """The GPUs of each node; empty unless the user may read all nodes and pods."""
        return {name: gpus for (_, name), gpus in self._nodes.items()} if self._sees_all_pods else {}

    async def run(self) -> None:
        """Jobs first: a user who may not read them gets that error, whatever else is refused."""

        async def after_jobs(watch: Callable[[], Awaitable[None]]) -> None:
            await self._has_jobs.wait()
            await watch()

        others = (self._watch_queues, self._watch_nodes, self._watch_pods)
        await asyncio.gather(self._watch_jobs(), *map(after_jobs, others))

    def _heard(self, what: str) -> None:
        self._awaited.discard(what)
        if not self._awaited:
            self.begun.set()
            self.changed.set()

    async def _watch_jobs(self) -> None:
        try:
            async with aclosing(self._client.follow(JOBS, self._namespace, read_job)) as changes:
                async for self.jobs in changes:
                    self._heard("jobs")
                    self._has_jobs.set()
        except ApiError as error:
            raise jobs_refused(error) from None

    async def _watch_queues(self) -> None:
        try:
            async with aclosing(self._client.follow(QUEUES, None, _read_queue)) as changes:
                async for self.queues in changes:
                    self._heard("queues")
        except ApiError as error:
            self._sees_queues = False
            self._do_without("queues", error)

    async def _watch_nodes(self) -> None:
        try:
            async with aclosing(self._client.follow(NODES, None, _read_node)) as changes:
                async for self._nodes in changes:
                    self._heard("nodes")
        except ApiError as error:
            self._do_without("nodes", error)

    async def _watch_pods(self) -> None:
        """All pods of the cluster, or if the user may not list them, the replicas of the namespace."""
        try:
            async with aclosing(self._client.follow(PODS, None, read_observed_pod)) as changes:
                async for self.pods in changes:
                    self._heard("pods")
        except ApiError as error:
            if error.status != 403 or self._namespace is None:
                raise refused(error, "Pods") from None
            self._sees_all_pods = False
        try:
            replicas = self._client.follow(PODS, self._namespace, read_observed_pod, replica_query())
            async with aclosing(replicas) as changes:
                async for self.pods in changes:
                    self._heard("pods")
        except ApiError as error:
            raise refused(error, "Pods") from None

    def _do_without(self, what: str, error: ApiError) -> None:
        if error.status not in _MAY_NOT:
            raise error
        self._heard(what)


def _read_queue(raw: msgspec.Raw) -> types.Queue | None:
    queue = read_live(raw, types.Queue).item
    return queue if isinstance(queue, types.Queue) else None


def _read_node(raw: msgspec.Raw) -> float | None:
    node = read_live(raw, kubernetes.Node).item
    if not isinstance(node, kubernetes.Node):
        return None
    gpus = amounts({name: amount for name, amount in node.status.allocatable.items() if name in types.GPU_RESOURCES})
    return sum(gpus.values()) / 1000
