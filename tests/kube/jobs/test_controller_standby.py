"""A replica that does not lead hears of every job for weeks, and keeps nothing but how they are."""

import asyncio
import json

from maniple.api.decode.server_objects import read_live
from maniple.cluster.cache import Cache
from maniple.cluster.shared_cache import SharedCache
from maniple.kube.jobs.agent_server import Report
from maniple.kube.jobs.controller import JobController
from maniple.kube.jobs.manifests import PodSettings
from maniple.kube.serve.kube_events import Events
from maniple.kube.serve.metrics import Metrics
from maniple.kube.transport.client import Client
from maniple.kube.transport.login import Login
from maniple.kube.transport.mirror import Mirror
from maniple.kube.transport.resource_kinds import JOBS, PODS
from maniple.model.pods_we_schedule import Ours


def job(version: int) -> bytes:
    role = {"name": "worker", "min": 1, "max": 2, "template": {"spec": {"containers": [{"name": "main"}]}}}
    meta = {"name": "bert", "namespace": "ml", "uid": "job-1", "resourceVersion": str(version)}
    whole = {"apiVersion": "maniple.dev/v1alpha1", "kind": "ElasticJob", "metadata": meta, "spec": {"roles": [role]}}
    return json.dumps({**whole, "status": {"phase": "Running", "progress": {"step": version}}}).encode()


def pod(version: int) -> bytes:
    owner = {"apiVersion": "maniple.dev/v1alpha1", "kind": "ElasticJob", "name": "bert", "uid": "job-1"}
    labels = {"maniple.dev/job": "bert", "maniple.dev/role": "worker", "maniple.dev/index": "0"}
    meta = {"name": "bert-worker-0", "namespace": "ml", "uid": "p", "resourceVersion": str(version), "labels": labels}
    spec = {"containers": [{"name": "main"}], "schedulerName": "maniple"}
    whole = {"apiVersion": "v1", "kind": "Pod", "metadata": {**meta, "ownerReferences": [owner | {"controller": True}]}}
    return json.dumps({**whole, "spec": spec}).encode()


def test_a_standby_does_not_grow_with_what_it_hears() -> None:
    async def test() -> None:
        mirror = Mirror(SharedCache(Cache(Ours())))
        async with Client(Login(None, None)) as client:
            jobs = JobController(client, mirror, Events(client, Metrics(), "maniple"), PodSettings("maniple"))
            for version in range(1, 200, 2):
                mirror.put(JOBS, read_live(job(version), JOBS.struct))
                mirror.put(PODS, read_live(pod(version + 1), PODS.struct))
                jobs.on_report("ml/bert", Report("bert-worker-0", 0, version))
        (managed,) = jobs._jobs.values()
        assert managed.inbox == []

    asyncio.run(test())
