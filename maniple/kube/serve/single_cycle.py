"""Reads a cluster once: for one cycle of `serve`, for `--dry-run`, or for `maniple plan --live`."""

import time
from typing import NamedTuple

from maniple.api.decode.notes import Notes
from maniple.cluster.in_memory_cluster import Outcome, Round
from maniple.cluster.strip_unread_fields import stranger
from maniple.kube.serve.server import Server, Settings
from maniple.kube.transport.client import Client
from maniple.kube.transport.login import log_in
from maniple.kube.transport.resource_kinds import missing_crds
from maniple.model.building.implied_pods import limited_implied_pods
from maniple.model.building.input_objects import Objects, describe
from maniple.model.pods_we_schedule import Ours
from maniple.scheduler import Policy, schedule


class OneCycle(NamedTuple):
    outcome: Outcome
    missing: str  # what to tell about CRDs of ours that the cluster does not have; empty: it has them


async def one_cycle(
    kubeconfig: str | None, context: str | None, settings: Settings, *, dry_run: bool
) -> OneCycle | None:
    """None if another replica leads."""
    async with Client(await log_in(kubeconfig, context)) as client:
        server = Server(client, settings)
        start = time.perf_counter()
        if not dry_run:
            cycle = await server.run_once()
            return None if cycle is None else OneCycle(Outcome([Round.of(*cycle)]), missing_crds(server.missing))
        await server.read_once()
        snapshot = await server.cache.snapshot(time.time())
        read = time.perf_counter()
        plan = schedule(snapshot, settings.policy)
        outcome = Outcome([Round.of(snapshot, plan)], read - start, [time.perf_counter() - read])
        return OneCycle(outcome, missing_crds(server.missing))


class Reading(NamedTuple):
    objects: Objects
    notes: list[str]
    namespace: str  # of the kubeconfig's context, for names without one


async def read_objects(kubeconfig: str | None, context: str | None, ours: Ours, policy: Policy | None) -> Reading:
    """The objects of a cluster that contradict nothing, and a note on each that does.

    A pod on a node that is set aside still holds its resources.
    """
    login = await log_in(kubeconfig, context)
    async with Client(login) as client:
        server = Server(client, Settings(ours=ours, policy=policy, lease=None))
        await server.read_once()
    await server.cache.snapshot(time.time())
    rejected = {resource.describe(key): why for (resource, key), why in server.loop.rejected().items()}
    notes = Notes()
    missing = missing_crds(server.missing)
    if missing:
        notes.add("missing", missing)
    for name, why in rejected.items():
        notes.set_aside(name, name.partition(" ")[0], list(map(str, why)))
    objects = server.mirror.objects()
    held = [stranger(pod) for pod in objects.pods if pod.spec.node_name and describe(pod) in rejected]
    for items in objects.by_kind().values():
        items[:] = [item for item in items if describe(item) not in rejected]
    objects.elastic_jobs[:] = [job for job in objects.elastic_jobs if ours.runs(job)]
    objects.pods += held
    replicas = limited_implied_pods(objects.elastic_jobs, objects.pods, scheduler_name=ours.scheduler_name)
    objects.implied = [pod for pod in replicas if describe(pod) not in rejected]  # the name is taken
    return Reading(objects, notes.lines(), login.namespace)
