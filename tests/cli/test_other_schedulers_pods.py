"""Nobody waits without a reason: pods of another scheduler, gangs that are not in the input, gangs without pods."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cli.run_maniple import run_here

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1"},
    "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}},
}


def pod(name: str, scheduler: str = "", group: str = "", **status: Any) -> dict[str, Any]:
    annotations = {"scheduling.k8s.io/group-name": group} if group else {}
    spec = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ml", "annotations": annotations},
        "spec": spec | ({"schedulerName": scheduler} if scheduler else {}),
        "status": status,
    }


def group(name: str, least: int, **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "ml"},
        "spec": {"minMember": least},
        **more,
    }


def maniple(*words: str, objects: list[Any]) -> tuple[str, list[str]]:
    """What it prints, and its lines on standard error."""
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": [NODE, *objects]})
    done = run_here(words[0], "-f", "-", *words[1:], stdin=listed)
    return done.stdout, done.stderr.splitlines()


VOLCANO = "2 pending pods belong to scheduler volcano: `--all` or `--scheduler-name volcano`"
KUBE = "1 pending pod belongs to scheduler default-scheduler: `--all` or `--scheduler-name default-scheduler`"


def test_pending_pods_of_other_schedulers_are_named_with_the_options_that_plan_them() -> None:
    pods = [pod("a", "volcano"), pod("b", "volcano"), pod("c"), pod("done", "volcano", phase="Succeeded")]
    printed, notes = maniple("plan", objects=pods)
    assert printed.startswith("Nothing to do: 3 pending pods belong to other schedulers; `--all` plans them.\n")
    assert notes == [f"note: {VOLCANO}", f"note: {KUBE}"]
    printed, notes = maniple("plan", "--scheduler-name", "volcano", objects=pods)
    assert "ml/a" in printed
    assert notes == [f"note: {KUBE}"]
    printed, notes = maniple("plan", "--scheduler-name", "default-scheduler", objects=pods)
    assert "ml/c" in printed
    assert notes == [f"note: {VOLCANO}"]
    assert maniple("plan", "--all", objects=pods)[1] == []


def test_many_schedulers_are_counted_and_odd_names_cannot_reach_the_terminal() -> None:
    pods = [pod(f"p{number}", f"s{number}") for number in range(7)] + [pod("odd", "\x1b[2J x")]
    notes = maniple("plan", objects=pods)[1]
    assert notes[-1] == "note: 3 pending pods belong to 3 more schedulers: `--all`"
    assert len(notes) == 6
    assert "\x1b" not in "".join(maniple("plan", objects=[pod("odd", "\x1b[2J x")])[1])


def test_a_group_that_is_not_in_the_input_may_exist_all_the_same() -> None:
    printed, _ = maniple("plan", "--all", "-o", "json", objects=[pod("a", "volcano", "gang")])
    waiting = json.loads(printed)["rounds"][0]["waiting"]
    assert waiting[0]["reason"] == "GroupNotFound"
    assert waiting[0]["message"].endswith("no such PodGroup in their namespace, or it is not in the input")


def test_a_group_without_pods_waits_for_them_and_says_so() -> None:
    printed, _ = maniple("plan", "-o", "json", objects=[group("gang", 4)])
    waiting = json.loads(printed)["rounds"][0]["waiting"]
    assert [(entry["group"], entry["reason"]) for entry in waiting] == [("ml/gang", "NotEnoughPods")]
    assert "it needs 4 pods to start, and none waits" in waiting[0]["message"]
    printed, _ = maniple("explain", "ml/gang", objects=[group("gang", 4)])
    assert "Waits (NotEnoughPods)" in printed


def test_a_group_without_pods_says_so_under_a_policy_without_gangs(tmp_path: Any) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("actions: allocate\ntiers:\n- plugins:\n  - name: priority\n")
    printed, _ = maniple("plan", "-o", "json", "--policy", str(policy), objects=[group("gang", 4)])
    waiting = json.loads(printed)["rounds"][0]["waiting"]
    assert "none of its pods exists; it needs 4 pods to start" in waiting[0]["message"]


@pytest.mark.parametrize("phase", ["Completed", "Finished", "Failed"])
def test_a_group_that_is_over_waits_for_nothing(phase: str) -> None:
    assert maniple("plan", objects=[group("gang", 4, status={"phase": phase})])[0].startswith("Nothing to do.")


def test_explain_says_why_a_gang_or_pod_of_another_scheduler_is_not_planned() -> None:
    objects = [group("gang", 2), pod("a", "volcano", "gang"), pod("b", "volcano", "gang"), pod("alone", "volcano")]
    printed, _ = maniple("explain", "ml/gang", objects=objects)
    assert "Waits (OtherScheduler)" in printed
    assert "2 pods of it wait for a node, of scheduler volcano" in printed
    how = "belongs to scheduler volcano: `--all` or `--scheduler-name volcano`"
    assert (
        maniple("explain", "ml/alone", objects=objects)[1][-1] == f"error: ml/alone: the pod waits for a node and {how}"
    )
    running = pod("runs", "volcano")
    running["spec"]["nodeName"] = "n1"
    errors = maniple("explain", "Pod/ml/runs", objects=[running])[1]
    assert errors == [f"error: Pod/ml/runs: the pod runs on node n1 and {how}"]
    errors = maniple("explain", "ml/gang", objects=objects[1:])[1]
    assert errors[-1].startswith("error: ml/gang: its pods belong to scheduler volcano")
    errors = maniple("explain", "ml/done", objects=[pod("done", "maniple", phase="Succeeded")])[1]
    assert errors == ["error: ml/done: the pod has succeeded, and waits for nothing"]


def marked(name: str, key: str, value: str = "x") -> dict[str, Any]:
    given = pod(name)
    given["metadata"]["annotations"] = {key: value}
    return given


def test_gangs_queues_and_shares_that_only_other_schedulers_know_are_noted() -> None:
    pods = [marked("a", "pod-group-name"), marked("b", "pod-group-name"), marked("c", "gpu-fraction", "0.5")]
    pods += [marked("d", "yunikorn.apache.org/task-group-name"), marked("e", "kueue.x-k8s.io/queue-name")]
    assert maniple("plan", "--all", objects=pods)[1] == [
        "note: 2 pending pods with pod-group-name: gangs of KAI are not read, so each is planned alone",
        "note: 1 pending pod with gpu-fraction, which is not read: maniple.dev/gpu-fraction asks for a share of a GPU",
        "note: 1 pending pod with yunikorn.apache.org/task-group-name: gangs of YuniKorn are not read, "
        "so each is planned alone",
        "note: 1 pending pod with kueue.x-k8s.io/queue-name: queues of Kueue are not read; "
        "maniple.dev/queue names one of ours",
    ]
    assert not any("pod-group-name" in note for note in maniple("plan", objects=pods)[1])  # they are not planned


def test_a_kind_of_another_group_is_named_with_its_group() -> None:
    theirs = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "q"}, "spec": {}}
    cron = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"}, "spec": {}}
    notes = maniple("plan", objects=[theirs, cron, pod("a", "maniple")])[1]
    assert notes == ["note: skipped, because scheduling does not read them: 1 CronJob, 1 Queue (scheduling.run.ai/v2)"]


def owned(name: str, kind: str, owner: str, gang: str = "", **labels: str) -> dict[str, Any]:
    given = pod(name, "maniple", gang)
    reference = {"apiVersion": "v1", "kind": kind, "name": owner, "uid": "u", "controller": True}
    given["metadata"] |= {"ownerReferences": [reference], "labels": labels}
    return given


def test_a_workload_is_explained_by_its_own_name() -> None:
    gang = [group("bert-1234", 2), *(owned(f"bert-worker-{i}", "Job", "bert", "bert-1234") for i in range(2))]
    assert maniple("explain", "ml/bert", objects=gang)[0].startswith("ml/bert-1234\n")
    web = owned("web-h-x", "ReplicaSet", "web-h", **{"pod-template-hash": "h"})
    assert maniple("explain", "ml/web", objects=[web])[0].startswith("ml/web-h-x\n")
    two = [web, owned("web-h-y", "ReplicaSet", "web-h", **{"pod-template-hash": "h"})]
    assert maniple("explain", "ml/web", objects=two)[1] == [
        "error: ml/web: its pods are planned one by one; write the name of one: ml/web-h-x and ml/web-h-y"
    ]


def test_a_job_in_another_namespace_is_suggested() -> None:
    (error,) = maniple("explain", "train", objects=[pod("train", "maniple"), pod("other", "maniple")])[1]
    assert error.endswith("did you mean 'ml/train'?")


def of_cluster(item: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """As an API server has written it."""
    return {**item, "metadata": {**item["metadata"], "uid": item["metadata"]["name"]}, "spec": {**item["spec"], **spec}}


def test_a_gang_of_a_cluster_whose_group_is_wrong_waits_for_that_reason() -> None:
    objects = [of_cluster(group("gang", 1), queue="missing"), of_cluster(pod("a", "maniple", "gang"))]
    (waiting,) = json.loads(maniple("plan", "-o", "json", objects=objects)[0])["rounds"][0]["waiting"]
    assert waiting["reason"] == "GroupNotFound"
    assert waiting["message"] == "its PodGroup is set aside: spec.queue: unknown queue 'missing'; known: default"
    assert waiting["wouldStartIf"] == "that were corrected"


def test_a_dump_without_priority_classes_is_planned_by_the_priority_of_pods() -> None:
    low = of_cluster(pod("a", "maniple", "low"), priorityClassName="low", priority=1)
    high = of_cluster(pod("b", "maniple", "high"), priorityClassName="high", priority=5)
    for each in (low, high):
        each["spec"]["containers"] = [{"name": "main", "resources": {"requests": {"cpu": "8"}}}]
    groups = [of_cluster(group(name, 1), priorityClassName=name) for name in ("low", "high")]
    printed, notes = maniple("plan", "-o", "json", objects=[low, high, *groups])
    assert [bind["pod"] for bind in json.loads(printed)["rounds"][0]["binds"]] == ["ml/b"]
    hint = "the priority of pods counts; `kubectl get priorityclasses` adds them"
    assert notes == [f"note: the input has no PriorityClasses: {hint}"]
    classes = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "low"}, "value": 1}
    notes = maniple("plan", objects=[low, high, *groups, classes])[1]
    assert notes == [
        "note: PodGroup ml/high: set aside: spec.priorityClassName: unknown PriorityClass 'high'; "
        "known: low, system-cluster-critical, system-node-critical"
    ]


def test_a_class_that_a_person_names_must_be_in_the_input() -> None:
    written = group("gang", 1)
    written["spec"]["priorityClassName"] = "high"
    (error,) = maniple("plan", objects=[written])[1]
    assert error.endswith("unknown PriorityClass 'high'; there are no PriorityClasses in the input")
