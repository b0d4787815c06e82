"""In a live cluster nobody makes replicas up: until its controller has made a lost one again, a job is one short."""

import msgspec
import pytest

from maniple.api import kubernetes, types
from maniple.model.building.from_scratch import build_snapshot
from maniple.model.building.input_objects import Objects
from maniple.scheduler import schedule

ROLES = (("chief", 1, 2), ("worker", 2, 6))
TEMPLATE = {"spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}
NODE = {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "64", "pods": "110", "nvidia.com/gpu": "9"}}}


def resizes(there: dict[str, list[int]], target: dict[str, int], ended: tuple[tuple[str, int], ...] = ()) -> list[str]:
    """Roles that a job grows in, with the replicas `there` running on a node with room for more."""
    roles = [{"name": name, "min": least, "max": most, "template": TEMPLATE} for name, least, most in ROLES]
    status = {"target": [{"role": role, "replicas": size} for role, size in target.items()]}
    job = {"metadata": {"name": "j", "namespace": "ns"}, "spec": {"roles": roles}, "status": status}
    pods = [
        {
            "metadata": {
                "name": f"j-{role}-{index}",
                "namespace": "ns",
                "labels": {"maniple.dev/job": "j", "maniple.dev/role": role, "maniple.dev/index": str(index)},
            },
            "spec": {**TEMPLATE["spec"], "schedulerName": "maniple", "nodeName": "n1"},
            "status": {"phase": "Succeeded" if (role, index) in ended else "Running"},
        }
        for role, indices in there.items()
        for index in indices
    ]
    objects = Objects()
    objects.nodes.append(msgspec.convert(NODE, kubernetes.Node))
    objects.elastic_jobs.append(msgspec.convert(job, types.ElasticJob))
    objects.pods.extend(msgspec.convert(pods, list[kubernetes.Pod]))
    return sorted({resize.role for resize in schedule(build_snapshot(objects)).resizes})


def test_a_job_grows_when_all_of_it_is_there() -> None:
    assert resizes({"chief": [0], "worker": [0, 1, 2]}, {"chief": 1, "worker": 3}) == ["chief", "worker"]


@pytest.mark.parametrize(
    "there",
    [
        pytest.param({"chief": [0], "worker": [1, 2, 3]}, id="the first of a role"),
        pytest.param({"chief": [0], "worker": [0, 1, 2]}, id="the last of a role"),
        pytest.param({"chief": [1], "worker": [0, 1, 2, 3]}, id="the first of the job"),
        pytest.param({"chief": [0], "worker": [0, 1, 3, 4]}, id="one for which another is still on its way out"),
    ],
)
def test_a_job_grows_in_no_role_while_a_replica_is_missing(there: dict[str, list[int]]) -> None:
    assert resizes(there, {"chief": len(there["chief"]) + there["chief"][0], "worker": 4}) == []


def test_a_replica_that_has_ended_well_is_not_missing() -> None:
    there = {"chief": [0], "worker": [0, 1, 2]}
    assert "worker" in resizes(there, {"chief": 1, "worker": 3}, ended=(("worker", 0),))
