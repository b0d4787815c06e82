"""Elastic jobs with a real kubelet: stuck starts, what replicas without an agent get, logs of replicas that come and
go."""

import json
import re

from e2e.serve_process import GPU, OURS, Bench, Json
from e2e.test_serve_real_kubelet import corner
from e2e.user_at_shell import People
from tools.cluster import wait_until

__all__ = ["corner"]

GENERATION = "/var/run/maniple/pod/generation"


def submit(corner: Bench, name: str, least: int, most: int, container: Json, **spec: object) -> None:
    """Submits a job of one role; the container has one GPU."""
    whole = {"name": "main", "imagePullPolicy": "Never", "resources": {"limits": {GPU: "1"}}} | container
    template = {"spec": {"schedulerName": corner.scheduler, "containers": [whole]}}
    body = {
        "apiVersion": "maniple.dev/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": name},
        "spec": {"roles": [{"name": "worker", "min": least, "max": most, "template": template}], **spec},
    }
    corner.client.post(f"{OURS}/namespaces/{corner.namespace}/elasticjobs", body)


def status(corner: Bench, name: str) -> Json:
    found: Json = corner.get(f"{OURS}/namespaces/{{}}/elasticjobs/{name}")["status"]
    return found


def test_a_stuck_start_fails_with_the_kubelets_reason_and_releases_its_gpus(corner: Bench) -> None:
    corner.serve()
    container = {"image": "maniple.dev/no-such-image:local"}
    # Long enough for a busy kubelet to report what is wrong.
    submit(corner, "stuck", 4, 4, container, startSeconds=20, backoffLimit=0, framework="none")
    corner.wait("the job to fail", lambda: status(corner, "stuck")["phase"] == "Failed")
    failed = corner.condition_of({"status": status(corner, "stuck")}, "Failed")
    assert "ErrImageNeverPull" in failed["message"]
    # All four GPUs are free again: another job gets them.
    submit(corner, "next", 4, 4, {"image": "maniple.dev/busybox:local", "command": ["true"]}, framework="none")
    corner.wait("the next job to succeed", lambda: status(corner, "next")["phase"] == "Succeeded")


def test_a_sweep_gets_its_indices_and_a_file_of_its_members(corner: Bench) -> None:
    corner.serve()
    told = f"until [ -s {GENERATION} ]; do sleep 0.1; done"
    script = f"{told}; echo $MANIPLE_REPLICA_INDEX/$MANIPLE_REPLICA_COUNT; cat {GENERATION}"
    container = {"image": "maniple.dev/busybox:local", "command": ["sh", "-c", script]}
    submit(corner, "sweep", 2, 2, container, framework="none")
    # The kubelet brings the file up to date about once a minute.
    corner.wait("the sweep to succeed", lambda: status(corner, "sweep")["phase"] == "Succeeded")
    for index in range(2):
        log = corner.cluster.kubectl(f"--namespace={corner.namespace}", "logs", f"sweep-worker-{index}")
        numbers, notice = log.strip().split("\n")
        assert numbers == f"{index}/2"
        assert [one["pod"] for one in json.loads(notice)["members"]] == ["sweep-worker-0", "sweep-worker-1"]


def test_horovods_discovery_script_waits_until_its_members_are_known(corner: Bench) -> None:
    corner.serve()
    container = {"image": "maniple.dev/busybox:local", "command": ["sh", "-c", "exec $MANIPLE_HOSTS"]}
    submit(corner, "ring", 2, 2, container, framework="horovod")
    corner.wait("the job to succeed", lambda: status(corner, "ring")["phase"] == "Succeeded")
    members = status(corner, "ring")["generation"]["members"]
    log = corner.cluster.kubectl(f"--namespace={corner.namespace}", "logs", "ring-worker-0")
    assert log.split() == [f"{one['address']}:1" for one in members]


def test_followed_logs_show_every_line_once_across_restarts(corner: Bench, people: People) -> None:
    """When a pod leaves, its container is removed at once, and another pod gets its name."""
    corner.serve()
    say = "echo $1 $(cat /proc/sys/kernel/random/uuid)"
    script = f"say() {{ {say}; }}; trap 'say bye; exit 0' TERM; say start; while :; do say on; sleep 0.1; done"
    container = {"image": "maniple.dev/busybox:local", "command": ["sh", "-c", script]}
    elastic = {"graceSeconds": 5, "cooldownSeconds": 0}
    submit(corner, "ring", 2, 2, container, framework="none", elastic=elastic)
    person = people(corner.cluster, corner.namespace)
    logs = person.begin("logs", "ring", "--all", "--follow")
    pods = ["ring-worker-0", "ring-worker-1"]
    for starts in (2, 4, 6):
        wait_until(f"{starts} starts", lambda starts=starts: sum("start" in line for line in logs.out) == starts)  # type: ignore[misc]
        corner.wait("the job to run", lambda: status(corner, "ring")["phase"] == "Running")
        if starts < 6:
            person.cluster.kubectl(f"--namespace={corner.namespace}", "delete", "pod", *pods, "--wait=false")
    person.do("delete", "ring", "--wait")
    assert logs.end() == 0
    assert [line for line in logs.out if not re.fullmatch(r"\[worker-[01]\] (start|on|bye) [0-9a-f-]{36}", line)] == []
    assert len(set(logs.out)) == len(logs.out)
