"""The description of one job, without a cluster."""

from __future__ import annotations

import json
from datetime import timedelta

import msgspec
import pytest

from maniple.kube.user.client import Event
from maniple.kube.user.replica_pod import read_replica_pod
from maniple.views.job_detail import SizeView, describe_job, sizes_over_time
from views.objects import NOW, elastic_job


@pytest.mark.parametrize("word", ["replica", "replicas"])
def test_sizes_are_read_from_the_controllers_events(word: str) -> None:
    about = Event.Regarding("ElasticJob", "bert", "u")
    event = Event(note=f"1 {word} in generation 7", event_time="2026-01-01T10:00:00Z", regarding=about)
    assert sizes_over_time([event]) == (SizeView("2026-01-01T10:00:00Z", 1, 7),)


def pod(index: int, **status: object) -> msgspec.Raw:
    meta = {"name": f"bert-worker-{index}", "namespace": "ml", "annotations": {"maniple.dev/gpus": "0,1"}}
    labels = {"maniple.dev/job": "bert", "maniple.dev/role": "worker", "maniple.dev/index": str(index)}
    spec = {"nodeName": "n1", "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]}
    return msgspec.Raw(json.dumps({"metadata": {**meta, "labels": labels}, "spec": spec, "status": status}).encode())


def test_replicas_are_ordered_by_index_with_their_gpus_and_problems() -> None:
    waiting = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    raws = [pod(10, phase="Pending", containerStatuses=[waiting]), pod(2, phase="Running")]
    replicas = [replica for raw in raws if (replica := read_replica_pod(raw)) is not None]
    detail = describe_job(elastic_job(phase="Running"), replicas, []).detail
    assert [(replica.pod, replica.state, replica.gpus, replica.message) for replica in detail.replicas] == [
        ("bert-worker-2", "Running", ["0", "1"], ""),
        ("bert-worker-10", "ImagePullBackOff", ["0", "1"], "no such image"),
    ]
    assert (detail.running, detail.gpus) == (1, 4.0)


def test_a_member_has_as_many_ranks_as_slots() -> None:
    members = [
        {"pod": f"bert-worker-{index}", "uid": "u", "role": "worker", "index": index, "slots": 4} for index in range(2)
    ]
    description = describe_job(elastic_job(generation={"number": 1, "members": members}), [], [])
    assert [(rank.first, rank.last, rank.pod) for rank in description.ranks] == [
        (0, 3, "bert-worker-0"),
        (4, 7, "bert-worker-1"),
    ]


def test_a_description_can_be_written_as_json() -> None:
    event = Event(reason="Resized", event_time="2026-01-01T10:00:00Z", regarding=Event.Regarding("ElasticJob", "bert"))
    replica = read_replica_pod(pod(0, phase="Running"))
    assert replica is not None
    job = elastic_job(phase="Running", startTime=(NOW - timedelta(hours=1)).isoformat())
    written = json.loads(msgspec.json.encode(describe_job(job, [replica], [event])))
    assert written["status"]["startTime"] == "2026-01-01T09:00:00Z"
    assert list(written["detail"])[:4] == ["namespace", "name", "queue", "phase"]
    keys = ["conditions", "failures", "generation", "speeds", "replicas", "sizes", "events"]
    assert list(written["detail"])[-7:] == keys
    assert written["detail"]["events"][0] == {
        "time": "2026-01-01T10:00:00Z",
        "type": "",
        "reason": "Resized",
        "count": 1,
        "about": "bert",
        "note": "",
    }
