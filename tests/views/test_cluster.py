"""The live view: GPUs, queues and jobs, without a cluster."""

from __future__ import annotations

import json

import msgspec

from maniple.api import types
from maniple.kube.user.replica_pod import ObservedPod, read_observed_pod
from maniple.views.cluster import cluster_view
from maniple.views.nodes import GpuUse, NodeView, gpu_use, node_views
from maniple.views.queues import queue_views
from views.objects import elastic_job

GPU = "nvidia.com/gpu"


def queue(name: str, **status: object) -> types.Queue:
    return msgspec.convert({"metadata": {"name": name}, "status": status}, types.Queue)


def pod(node: str, gpus: int, phase: str = "Running") -> ObservedPod:
    container = {"name": "main", "resources": {"limits": {GPU: str(gpus)}}}
    spec = {"nodeName": node, "containers": [container]}
    whole = {"metadata": {"name": "p", "namespace": "ml"}, "spec": spec, "status": {"phase": phase}}
    observed = read_observed_pod(msgspec.Raw(json.dumps(whole).encode()))
    assert observed is not None
    return observed


def named(name: str, queue: str = "default", phase: str = "Running") -> types.ElasticJob:
    job = elastic_job(phase=phase)
    meta = msgspec.structs.replace(job.metadata, name=name)
    return msgspec.structs.replace(job, metadata=meta, spec=msgspec.structs.replace(job.spec, queue=queue))


def test_gpus_are_used_by_bound_pods_that_have_not_finished() -> None:
    pods = [pod("n1", 6), pod("n1", 1, "Pending"), pod("n1", 4, "Succeeded"), pod("", 8)]
    views = node_views({"n2": 8.0, "n1": 8.0}, pods)
    assert views == (NodeView("n1", 8.0, 7.0), NodeView("n2", 8.0, 0.0))
    assert gpu_use(views) == GpuUse(7.0, 16.0)
    assert gpu_use(views).idle == 9.0


def test_pods_of_a_deleted_node_use_no_gpus() -> None:
    pods = [pod("there", 6), pod("gone", 6)]
    assert gpu_use(node_views({"there": 8.0, "gone": 8.0}, pods)) == GpuUse(12.0, 16.0)
    assert gpu_use(node_views({"there": 8.0}, pods)) == GpuUse(6.0, 8.0)


def test_queues_are_sorted_and_count_all_kinds_of_gpus() -> None:
    allocated = {GPU: "8", "amd.com/gpu": 4, "cpu": "2"}
    first, second = queue_views([queue("research", allocated=allocated, runningJobs=2, pendingJobs=1), queue("batch")])
    assert (first.name, first.allocated_gpus, first.deserved_gpus) == ("batch", "0", "0")
    assert (second.name, second.allocated_gpus, second.running_jobs, second.pending_jobs) == ("research", "8+4", 2, 1)


def test_finished_jobs_come_last() -> None:
    view = cluster_view([named("a", phase="Succeeded"), named("c"), named("b")], [], {}, [])
    assert [job.name for job in view.jobs] == ["b", "c", "a"]


def test_only_chosen_queues_and_their_jobs_are_shown() -> None:
    jobs = [named("a", queue="research"), named("b")]
    view = cluster_view(jobs, [queue("research"), queue("default")], {}, [], ["research"])
    assert ([entry.name for entry in view.queues], [job.name for job in view.jobs]) == (["research"], ["a"])


def test_a_view_can_be_written_as_json() -> None:
    view = cluster_view([named("a")], [queue("default", runningJobs=1)], {"n1": 8.0}, [pod("n1", 2)])
    written = json.loads(msgspec.json.encode(view))
    assert written["nodes"] == [{"name": "n1", "gpus": 8.0, "usedGpus": 2.0}]
    assert written["queues"][0]["runningJobs"] == 1
    assert written["jobs"][0]["name"] == "a"
