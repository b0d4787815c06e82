"""What a person watches: jobs, their replicas, queues, and the GPUs of the cluster, as they are at each moment.

What one may not read is left out: without the right to read all nodes and pods, it has no GPUs of the cluster.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass

import msgspec

from maniple.api import kubernetes, types
from maniple.api.decode.server_objects import read_live
from maniple.kube.transport.client import ApiError
from maniple.kube.user.client import (
    JOBS,
    NODES,
    PODS,
    QUEUES,
    Key,
    Visit,
    jobs_refused,
    read_job,
    refused,
    replica_query,
)
from maniple.kube.user.replica_view import Replica, gpus_of, read_replica
from maniple.model.resources import amounts

_MAY_NOT = (403, 404)


@dataclass(frozen=True)
class SeenPod:
    replica: Replica | None  # None: of no job of ours
    holds: float  # GPUs
    node: str


class Picture:
    """`run` keeps it up to date; `begun` is set once it is whole, and `changed` whenever it has changed."""

    def __init__(self, visit: Visit, namespace: str | None) -> None:
        self._visit = visit
        self._namespace = namespace
        self.jobs: dict[Key, types.ElasticJob] = {}
        self.queues: dict[Key, types.Queue] = {}
        self._pods: dict[Key, SeenPod] = {}
        self._nodes: dict[Key, float] = {}  # the GPUs of each
        self._sees_all_pods = True
        self._sees_queues = True
        self._awaited = {"jobs", "queues", "nodes", "pods"}
        self._has_jobs = asyncio.Event()
        self.begun = asyncio.Event()
        self.changed = asyncio.Event()

    @property
    def replicas(self) -> list[Replica]:
        return [seen.replica for seen in self._pods.values() if seen.replica is not None]

    @property
    def queue_names(self) -> list[str] | None:
        """None where one may not know."""
        return [queue.metadata.name for queue in self.queues.values()] if self._sees_queues else None

    @property
    def gpus(self) -> tuple[float, float] | None:
        """(used, all) of the cluster; None where one may not know."""
        if not self._sees_all_pods or not self._nodes:
            return None
        # A node that was deleted takes its GPUs along, and its pods may be there for a while longer.
        used = sum(seen.holds for seen in self._pods.values() if ("", seen.node) in self._nodes)
        return used, sum(self._nodes.values())

    async def run(self) -> None:
        """The jobs first: who may not see them is told so, whatever else may not be seen."""

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
            async with aclosing(self._visit.follow(JOBS, self._namespace, read_job)) as changes:
                async for self.jobs in changes:
                    self._heard("jobs")
                    self._has_jobs.set()
        except ApiError as error:
            raise jobs_refused(error) from None

    async def _watch_queues(self) -> None:
        try:
            async with aclosing(self._visit.follow(QUEUES, None, _read_queue)) as changes:
                async for self.queues in changes:
                    self._heard("queues")
        except ApiError as error:
            self._sees_queues = False
            self._do_without("queues", error)

    async def _watch_nodes(self) -> None:
        try:
            async with aclosing(self._visit.follow(NODES, None, _read_node)) as changes:
                async for self._nodes in changes:
                    self._heard("nodes")
        except ApiError as error:
            self._do_without("nodes", error)

    async def _watch_pods(self) -> None:
        """All of the cluster's, or those of the jobs in sight."""
        try:
            async with aclosing(self._visit.follow(PODS, None, _read_pod)) as changes:
                async for self._pods in changes:
                    self._heard("pods")
        except ApiError as error:
            if error.status != 403 or self._namespace is None:
                raise refused(error, "Pods") from None
            self._sees_all_pods = False
        try:
            async with aclosing(self._visit.follow(PODS, self._namespace, _read_pod, replica_query())) as changes:
                async for self._pods in changes:
                    self._heard("pods")
        except ApiError as error:
            raise refused(error, "Pods") from None

    def _do_without(self, what: str, error: ApiError) -> None:
        if error.status not in _MAY_NOT:
            raise error
        self._heard(what)


def _read_queue(raw: msgspec.Raw) -> types.Queue | None:
    item = read_live(raw, types.Queue).item
    return item if isinstance(item, types.Queue) else None


def _read_node(raw: msgspec.Raw) -> float | None:
    item = read_live(raw, kubernetes.Node).item
    if not isinstance(item, kubernetes.Node):
        return None
    there = amounts({name: value for name, value in item.status.allocatable.items() if name in types.GPU_RESOURCES})
    return sum(there.values()) / 1000


def _read_pod(raw: msgspec.Raw) -> SeenPod | None:
    item = read_live(raw, kubernetes.Pod).item
    if not isinstance(item, kubernetes.Pod):
        return None
    holds = gpus_of(item) if item.spec.node_name and item.status.phase not in ("Succeeded", "Failed") else 0.0
    return SeenPod(read_replica(raw), holds, item.spec.node_name)
