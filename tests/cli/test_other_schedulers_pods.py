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
    assert printed.startswith("Nothing to do.")
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
