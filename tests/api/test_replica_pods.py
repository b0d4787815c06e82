"""What the controller of elastic jobs reads in a pod."""

import json
from typing import Any

import pytest

from maniple.api import kubernetes
from maniple.api.decode.server_objects import read_live
from maniple.api.replica_pods import read_replica_facts

LABELS = {"maniple.dev/job": "j", "maniple.dev/role": "worker", "maniple.dev/index": "3"}


def read(**status: Any) -> Any:
    owner = {"kind": "ElasticJob", "name": "j", "uid": "job", "controller": True}
    note = {"maniple.dev/generation": '{"job":"ns/j","generation":12,"members":[]}'}
    meta = {"name": "j-worker-3", "uid": "u", "labels": LABELS, "annotations": note, "ownerReferences": [owner]}
    return read_replica_facts(json.dumps({"metadata": meta, "spec": {"nodeName": "n1"}, "status": status}).encode())


def test_job_role_index_and_generation_are_read() -> None:
    facts = read(phase="Running", podIP="10.0.0.1", conditions=[{"type": "Ready", "status": "False"}])
    assert (facts.job, facts.role, facts.index, facts.owner, facts.notified_generation) == (
        "j",
        "worker",
        "3",
        "job",
        12,
    )
    assert (facts.is_ready, facts.address, facts.node, facts.exit) == (False, "10.0.0.1", "n1", None)


@pytest.mark.parametrize(
    ("states", "trouble", "code", "reason"),
    [
        ([{"waiting": {"reason": "ContainerCreating"}}], "", None, ""),
        ([{"waiting": {"reason": "ImagePullBackOff", "message": "no"}}], "ImagePullBackOff: no", None, ""),
        ([{"running": {}}, {"waiting": {"reason": "ErrImageNeverPull"}}], "ErrImageNeverPull", None, ""),
        ([{"terminated": {"exitCode": 0, "reason": "Completed"}}], "", 0, ""),
        (
            [{"terminated": {"exitCode": 0}}, {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}],
            "",
            137,
            "OOMKilled",
        ),
        ([{"terminated": {"exitCode": 1, "reason": "Error"}}], "", 1, ""),
    ],
)
def test_start_problems_and_exit_codes_are_read(states: list[Any], trouble: str, code: int | None, reason: str) -> None:
    facts = read(phase="Pending", containerStatuses=[{"name": "c", "state": state} for state in states])
    assert (facts.trouble, facts.exit, facts.reason) == (trouble, code, reason)


def test_eviction_and_disruption_are_read() -> None:
    facts = read(phase="Failed", reason="Evicted", conditions=[{"type": "DisruptionTarget", "status": "True"}])
    assert (facts.reason, facts.is_disrupted) == ("Evicted", True)


@pytest.mark.parametrize("labels", [{}, LABELS | {"maniple.dev/index": "2"}, {"maniple.dev/job": "other"}])
def test_owner_and_name_win_over_labels(labels: dict[str, str]) -> None:
    owner = {"kind": "ElasticJob", "name": "j", "uid": "job", "controller": True}
    meta = {"name": "j-a-worker-3", "uid": "u", "labels": labels, "ownerReferences": [owner]}
    facts = read_live(json.dumps({"metadata": meta}).encode(), kubernetes.Pod).replica
    assert facts is not None
    assert (facts.job, facts.role, facts.index) == ("j", "a-worker", "3")


def test_without_an_owner_labels_count() -> None:
    meta = {"name": "other-worker-4", "labels": LABELS}
    facts = read_replica_facts(json.dumps({"metadata": meta}).encode())
    assert (facts.job, facts.role, facts.index, facts.owner) == ("j", "worker", "3", "")
