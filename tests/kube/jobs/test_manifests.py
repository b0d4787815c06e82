"""The objects that an elastic job has, as they are sent to the API server."""

import base64
from typing import Any

import msgspec
import pytest

from maniple.api import types
from maniple.api.labels import GENERATION_ANNOTATION
from maniple.elastic.job_spec import JobSpec, read_job_spec
from maniple.kube.jobs import manifests

TO = manifests.PodSettings("maniple", "https://maniple-agents.maniple-system.svc:443")


def job(name: str = "bert", **spec: Any) -> JobSpec:
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": 2}}}
    role = {"name": "worker", "min": 2, "max": 4, "template": {"spec": {"containers": [container]}}}
    body = {"metadata": {"name": name, "namespace": "ns", "uid": "12345678-9"}, "spec": {"roles": [role], **spec}}
    return read_job_spec(msgspec.convert(body, types.ElasticJob))


def made(of: JobSpec, template: dict[str, Any] | None = None, priority: str = "") -> dict[str, Any]:
    written = template or {"spec": {"containers": [{"name": "main", "image": "train"}]}}
    return manifests.pod(of, written, ("worker", 1), {"worker": 3}, priority, TO)


def environment(pod: dict[str, Any]) -> dict[str, Any]:
    return {one["name"]: one.get("value") for one in pod["spec"]["containers"][0]["env"]}


def test_a_pod_is_one_of_its_job_and_never_restarts_by_itself() -> None:
    pod = made(job(), priority="high")
    assert pod["metadata"]["name"] == "bert-worker-1"
    labels = {"maniple.dev/job": "bert", "maniple.dev/role": "worker", "maniple.dev/index": "1"}
    assert pod["metadata"]["labels"] == labels
    assert [one["uid"] for one in pod["metadata"]["ownerReferences"]] == ["12345678-9"]
    spec = pod["spec"]
    assert (spec["restartPolicy"], spec["schedulerName"], spec["priorityClassName"]) == ("Never", "maniple", "high")
    assert (spec["hostname"], spec["subdomain"], spec["terminationGracePeriodSeconds"]) == ("bert-worker-1", "bert", 35)


def test_a_notice_is_not_the_templates_to_write() -> None:
    written = {GENERATION_ANNOTATION: '{"generation": 99}', "note": "stays"}
    template = {"metadata": {"annotations": written}, "spec": {"containers": [{"name": "main"}]}}
    assert made(job(), template)["metadata"]["annotations"] == {"note": "stays"}


def test_a_node_in_the_template_is_where_the_pod_may_go_and_no_binding() -> None:
    pod = made(job(), {"spec": {"containers": [{"name": "main"}], "nodeName": "n1"}})
    field = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [field]}]}}
    assert ("nodeName" in pod["spec"], pod["spec"]["affinity"]["nodeAffinity"]) == (False, required)


def test_what_the_template_says_stays_where_it_is_the_users_to_say() -> None:
    container = {
        "name": "main",
        "lifecycle": {"preStop": {"sleep": {"seconds": 1}}},
        "env": [{"name": "MANIPLE_ROLE", "value": "mine"}, {"name": "A", "value": "b"}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    spec = {"containers": [container], "terminationGracePeriodSeconds": 300, "volumes": [{"name": "data"}]}
    meta = {"labels": {"app": "x", "maniple.dev/job": "other"}, "annotations": {"a": "b"}}
    pod = made(job(), {"metadata": meta, "spec": {**spec, "priorityClassName": "low"}}, "high")
    assert pod["metadata"]["labels"]["app"] == "x"
    assert pod["metadata"]["labels"]["maniple.dev/job"] == "bert"
    assert pod["spec"]["terminationGracePeriodSeconds"] == 300
    assert pod["spec"]["priorityClassName"] == "low"
    assert pod["spec"]["containers"][0]["lifecycle"] == container["lifecycle"]
    assert (environment(pod)["MANIPLE_ROLE"], environment(pod)["A"]) == ("worker", "b"), "the first is ours to say"
    assert [one["name"] for one in pod["spec"]["volumes"]] == ["data", "maniple-pod", "maniple-agent"]
    assert spec["volumes"] == [{"name": "data"}], "the template is not changed"


@pytest.mark.parametrize(
    ("framework", "wanted"),
    [
        ("torch", {}),
        (
            "torchrun",
            {
                "PET_NNODES": "2:4",
                "PET_NPROC_PER_NODE": "2",
                "PET_RDZV_ENDPOINT": "bert-worker-0.bert:29400",
                "PET_RDZV_CONF": "is_host=0",  # index 1
            },
        ),
        ("horovod", {"MANIPLE_HOSTS": "/var/run/maniple/hosts/discover_hosts.sh"}),
        ("none", {}),
    ],
)
def test_each_framework_gets_what_it_reads(framework: str, wanted: dict[str, str]) -> None:
    pod = made(job(framework=framework))
    always = {"MANIPLE_REPLICA_INDEX": "1", "MANIPLE_REPLICA_COUNT": "3", "MANIPLE_REPLICA_MIN": "2"}
    # Any script may report how far it is, and ask for notices.
    assert environment(pod).items() >= {**always, **wanted, "MANIPLE_URL": TO.agents_url}.items()
    assert {"maniple-pod", "maniple-agent"} <= {one["name"] for one in pod["spec"]["volumes"]}


def test_a_pin_is_no_maximum_to_whoever_may_outlive_it() -> None:
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    role = {"name": "worker", "min": 2, "max": 4, "pin": 3, "template": {"spec": {"containers": [container]}}}
    found = environment(made(job(framework="torchrun", roles=[role])))
    assert (found["PET_NNODES"], found["MANIPLE_REPLICA_MAX"]) == ("2:4", "4")


@pytest.mark.parametrize("name", ["3d", "a.b", "x" * 60])
def test_a_name_that_no_host_can_have_makes_no_host(name: str) -> None:
    pod = made(job(name))
    assert "hostname" not in pod["spec"]


def test_the_secret_is_the_jobs_own() -> None:
    secret = manifests.secret(job(), b"archive", "token", b"authority")
    assert secret["metadata"]["name"] == "bert-agent-12345678"
    assert {key: base64.b64decode(value) for key, value in secret["data"].items()} == {
        "token": b"token",
        "ca.crt": b"authority",
        "agent.pyz": b"archive",
    }


def test_horovod_is_told_hosts_and_slots() -> None:
    member = types.GenerationMember("bert-worker-0", "u", "worker", 0, "10.0.0.1", 2)
    assert manifests.hosts(job(), types.JobGeneration(1, (member,)))["data"]["hosts"] == "10.0.0.1:2\n"


def test_a_launcher_without_gpus_is_no_host_of_horovods() -> None:
    def role(name: str, limits: dict[str, int]) -> dict[str, Any]:
        container = {"name": "main", "resources": {"limits": limits}}
        return {"name": name, "min": 1, "max": 1, "template": {"spec": {"containers": [container]}}}

    members = (
        types.GenerationMember("bert-launcher-0", "u", "launcher", 0, "10.0.0.1", 1),
        types.GenerationMember("bert-worker-0", "v", "worker", 0, "10.0.0.2", 2),
    )
    generation = types.JobGeneration(1, members)
    with_gpus = job(roles=[role("launcher", {}), role("worker", {"nvidia.com/gpu": 2})])
    assert manifests.hosts(with_gpus, generation)["data"]["hosts"] == "10.0.0.2:2\n"
    without = job(roles=[role("launcher", {}), role("worker", {})])
    assert manifests.hosts(without, generation)["data"]["hosts"] == "10.0.0.1:1\n10.0.0.2:2\n"
