"""`maniple explain`: the story of one job, in text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.run_maniple import EXAMPLES, run_here

RACK = EXAMPLES / "topology/rack.yaml"
NVLINK = EXAMPLES / "topology/nvlink.yaml"
CROWDED = EXAMPLES / "explain.yaml"
BACKS_OFF = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "4", pods: 110}}
---
apiVersion: v1
kind: Pod
metadata:
  name: p
  annotations:
    maniple.dev/bind-failures: "2"
    maniple.dev/last-bind-failure: "2026-01-01T00:00:00Z"
spec:
  schedulerName: maniple
  containers: [{name: main, resources: {requests: {cpu: "1"}}}]
"""
FIELDS = [
    *("job", "kind", "state", "queue", "position", "line", "priority", "preemptable", "minMember", "running"),
    *("gated", "roles"),
    *("coolsDownSeconds", "required", "preferred", "ringGBs", "pods", "reservation", "backsOffSeconds", "waiting"),
    "incomplete",
]


def story(*arguments: str | Path, stdin: str | bytes = b"") -> dict[str, Any]:
    done = run_here("explain", *arguments, "-o", "json", stdin=stdin)
    assert (done.returncode, done.stderr) == (0, "")
    made: dict[str, Any] = json.loads(done.stdout)
    return made


def test_the_ring_of_the_chosen_gpus_is_told() -> None:
    made = story("-f", NVLINK, "default/pair")
    assert (made["state"], made["kind"], made["ringGBs"]) == ("Starts", "Pod", 100.0)
    assert [(pod["node"], pod["gpus"], pod["ringGBs"]) for pod in made["pods"]] == [("n1", ["2", "3"], 100.0)]
    text = run_here("explain", "-f", NVLINK, "pair").stdout
    assert "Ring:      100 GB/s" in text
    assert "2,3   100 GB/s" in text


def test_a_gang_in_a_rack_and_one_that_waits_for_one() -> None:
    first, second = story("-f", RACK, "first"), story("-f", RACK, "second")
    assert {pod["domain"] for pod in first["pods"]} == {"b1/r1"}
    assert first["waiting"] is None
    assert (second["state"], second["waiting"]["reason"]) == ("Waits", "NoDomainFits")
    assert "Waits (NoDomainFits)" in run_here("explain", "-f", RACK, "second").stdout


def test_who_waits_is_told_everything() -> None:
    """Its place in line, what comes nearest and who holds it, what was tried, and what would help."""
    made = story("-f", CROWDED, "--now", "2026-01-01T10:04:00Z", "train")
    assert list(made) == FIELDS
    assert (made["state"], made["position"], made["line"], made["running"]) == ("Waits", 1, 1, 0)
    assert (made["reservation"], made["backsOffSeconds"], made["roles"]) == (None, None, [])
    why = made["waiting"]
    assert why["nearest"] == {
        "place": "rack r1",
        "pods": 8,
        "fits": 6,
        "resource": "nvidia.com/gpu",
        "needs": "8",
        "free": "6",
        "lacks": "2",
        "isScattered": False,
        "refusals": [],
        "heldBy": [
            {
                "job": "default/tune",
                "pods": 2,
                "amount": "2",
                "what": "surplus",
                "guard": "cooling down",
                "until": 40.0,
            }
        ],
        "others": 0,
    }
    assert [entry["action"] for entry in why["tried"]] == ["allocate", "shrink", "reclaim", "preempt"]
    text = run_here("explain", "-f", CROWDED, "--now", "2026-01-01T10:04:00Z", "train").stdout
    assert "Line:      1 of 1" in text
    assert (
        "Nearest:   needs 8 nvidia.com/gpu in one rack; rack r1 has 6 free and lacks 2; "
        "held by default/tune (2, surplus, cooling down for 40 s)\n" in text
    )
    assert "Starts if: 2 nvidia.com/gpu on node n1 came free in rack r1 (held by " in text
    for entry in why["tried"]:
        assert f"\n  {entry['action']:8}  {entry['why'].split()[0]}" in text
    assert run_here("explain", "-f", CROWDED, "--now", "2026-01-01T10:04:00Z", "train", "-o", "text").stdout == text


def test_a_job_that_runs_is_told_its_sizes() -> None:
    made = story("-f", CROWDED, "--now", "2026-01-01T10:04:00Z", "tune")
    assert made["state"] == "Runs"
    assert made["roles"] == [{"role": "worker", "size": 3, "min": 1, "max": 4, "step": 1, "running": 3, "resize": None}]
    assert (made["coolsDownSeconds"], made["waiting"]) == (40, None)
    text = run_here("explain", "-f", CROWDED, "--now", "2026-01-01T10:04:00Z", "tune").stdout
    assert "Size:      worker 3, from 1 to 4, 3 running\n" in text
    assert "Cool-down: 40 s more\n" in text


def test_a_job_that_gives_way_is_told_to_whom_and_how_large_it_will_be() -> None:
    made = story("-f", CROWDED, "--now", "2026-01-01T10:04:40Z", "tune")
    assert (made["state"], made["roles"][0]["resize"], made["coolsDownSeconds"]) == ("Leaves", 1, None)
    leaving = [pod for pod in made["pods"] if pod["state"] == "Leaves"]
    assert [(pod["reason"], pod["for"]) for pod in leaving] == [("Shrunk", "default/train")] * 2
    text = run_here("explain", "-f", CROWDED, "--now", "2026-01-01T10:04:40Z", "tune").stdout
    assert "3 running; becomes 1\n" in text
    assert "Shrunk for default/train" in text


def test_a_reservation_is_told_with_its_nodes_and_when() -> None:
    reserved = EXAMPLES / "plugins/reservation.yaml"
    now = ("--now", "2026-01-01T10:10:00Z")
    made = story("-f", reserved, *now, "large")
    assert made["state"] == "Reserved"
    assert made["reservation"] == {"nodes": {"n1": 1, "n2": 1}, "expected": "2026-01-01T11:00:00Z", "inSeconds": 3000.0}
    text = run_here("explain", "-f", reserved, *now, "large").stdout
    assert "Reserved:  n1, n2: expected at 2026-01-01T11:00:00Z, in 3000 s\n" in text
    (guest,) = story("-f", reserved, *now, "notebook")["pods"]
    assert guest["backfill"] == "default/large"
    assert "makes way for default/large" in run_here("explain", "-f", reserved, *now, "notebook").stdout
    tried = {entry["action"]: entry["why"] for entry in story("-f", reserved, *now, "server")["waiting"]["tried"]}
    assert "it could delay default/large" in tried["backfill"]


def test_a_gang_that_backs_off_is_told_for_how_long() -> None:
    made = story("-f", "-", "--now", "2026-01-01T00:00:05Z", "p", stdin=BACKS_OFF)
    assert (made["backsOffSeconds"], made["waiting"]["reason"], made["position"]) == (15, "BackingOff", None)
    done = run_here("explain", "-f", "-", "--now", "2026-01-01T00:00:05Z", "p", stdin=BACKS_OFF)
    assert "Back-off:  15 s more\n" in done.stdout


def test_a_pod_of_a_gang_stands_for_its_gang() -> None:
    assert story("-f", RACK, "default/first-worker-1") == story("-f", RACK, "default/first")


def test_running_and_leaving_pods_are_told() -> None:
    preempt = EXAMPLES / "actions/preempt.yaml"
    policy = ("--policy", EXAMPLES / "policies/kube-batch.yaml")
    planned = json.loads(run_here("plan", "-f", preempt, *policy, "-o", "json").stdout)["rounds"][0]
    names = {entry["pod"] for entry in planned["evictions"]}
    assert names
    for name in names:
        made = story("-f", preempt, *policy, name)
        assert made["state"] == "Leaves"
        assert {pod["state"] for pod in made["pods"] if pod["pod"] == name} == {"Leaves"}
        assert all(pod["node"] for pod in made["pods"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-f", NVLINK, "pear"], "error: default/pear: no such job"),
        (["-f", NVLINK, "pear"], "did you mean 'default/pair'?"),
        (["-f", EXAMPLES / "01-small-behind-large.yaml", "A"], "did you mean 'default/a'?"),
        (["-f", NVLINK, "PodGroup/default/PAIR"], "did you mean 'default/pair'?"),
        (
            ["-f", NVLINK, "-n", "other", "default/pair"],
            "error: default/pair: namespace: expected 'other', as --namespace says, found 'default'",
        ),
        (
            ["-f", NVLINK, "-n", "other", "PodGroup/default/pair"],
            "error: PodGroup/default/pair: namespace: expected 'other', as --namespace says, found 'default'",
        ),
        (["-f", "nosuch.yaml", "pair"], "nosuch.yaml: cannot be read"),
        (["pair"], "missing option '-f'"),
        (["-f", NVLINK], "missing argument 'JOB'"),
    ],
)
def test_what_is_wrong_is_said_and_the_exit_code_is_2(arguments: list[str | Path], says: str) -> None:
    done = run_here("explain", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr


NODE = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "1", pods: 110}}
---
"""
CONTAINERS = 'containers: [{name: main, resources: {requests: {cpu: "1"}}}]'


def test_gangs_of_the_same_name_are_told_apart_by_their_kind() -> None:
    text = f"""{NODE}
apiVersion: maniple.dev/v1alpha1
kind: ElasticJob
metadata: {{name: x}}
spec: {{roles: [{{name: w, min: 1, max: 1, template: {{spec: {{{CONTAINERS}}}}}}}]}}
---
apiVersion: maniple.dev/v1alpha1
kind: PodGroup
metadata: {{name: x, creationTimestamp: "2026-01-01T00:00:00Z"}}
---
apiVersion: v1
kind: Pod
metadata: {{name: x-0, labels: {{maniple.dev/pod-group: x}}}}
spec: {{schedulerName: maniple, {CONTAINERS}}}
"""
    done = run_here("explain", "-f", "-", "x", stdin=text)
    assert done.returncode == 2
    assert "default/x: several gangs have that name; write ElasticJob/default/x or PodGroup/default/x" in done.stderr
    job = story("-f", "-", "ElasticJob/default/x", stdin=text)
    assert (job["kind"], job["state"], job["waiting"]) == ("ElasticJob", "Starts", None)
    group = story("-f", "-", "PodGroup/default/x", stdin=text)
    assert (group["kind"], group["state"], group["waiting"]["kind"]) == ("PodGroup", "Waits", "PodGroup")
    assert story("-f", "-", "podgroup/default/x", stdin=text) == group


def test_a_gated_pod_is_shown() -> None:
    text = f"""{NODE}
apiVersion: v1
kind: Pod
metadata: {{name: p}}
spec: {{schedulerName: maniple, schedulingGates: [{{name: wait}}], {CONTAINERS}}}
"""
    made = story("-f", "-", "p", stdin=text)
    assert (made["gated"], [(pod["pod"], pod["state"]) for pod in made["pods"]]) == (1, [("default/p", "Waits")])
    shown = run_here("explain", "-f", "-", "p", stdin=text).stdout
    assert "Gated:     1 pod held by scheduling gates\n" in shown
    assert "Why:       it is held by scheduling gates\n" in shown


def test_a_job_that_is_larger_than_its_max_is_told_so() -> None:
    pods = "".join(
        f"""
---
apiVersion: v1
kind: Pod
metadata:
  name: x-w-{index}
  labels: {{maniple.dev/job: x, maniple.dev/role: w, maniple.dev/index: "{index}"}}
spec: {{schedulerName: maniple, nodeName: n1, containers: [{{name: main}}]}}
status: {{phase: Running}}"""
        for index in range(3)
    )
    text = f"""{NODE}
apiVersion: maniple.dev/v1alpha1
kind: ElasticJob
metadata: {{name: x}}
spec: {{roles: [{{name: w, min: 1, max: 2, template: {{spec: {{containers: [{{name: main}}]}}}}}}]}}{pods}
"""
    shown = run_here("explain", "-f", "-", "x", stdin=text).stdout
    assert "Size:      w 3, from 1 to 2, 3 running; larger than its max: it keeps what it has until" in shown


@pytest.mark.parametrize(
    ("suspend", "phase", "state"),
    [("false", "Succeeded", "Succeeded"), ("false", "Failed", "Failed"), ("true", "Running", "Suspended")],
)
def test_a_job_that_nothing_is_decided_for_does_not_wait(suspend: str, phase: str, state: str) -> None:
    text = f"""
apiVersion: maniple.dev/v1alpha1
kind: ElasticJob
metadata: {{name: bert, namespace: research}}
spec:
  suspend: {suspend}
  roles:
  - {{name: worker, min: 1, max: 2, template: {{spec: {{containers: [{{name: main}}]}}}}}}
status: {{phase: {phase}}}
"""
    made = story("-f", "-", "-n", "research", "bert", stdin=text)
    assert (made["job"], made["state"]) == ("research/bert", state)


def test_surplus_of_a_suspended_job_that_must_be_in_one_domain_is_explained() -> None:
    """Nothing is missing for it to start, in no domain."""
    labels = "maniple.dev/job: x, maniple.dev/role: w"
    node = NODE.replace("{name: n1}", "{name: n1, labels: {example.com/rack: r1}}")
    text = f"""{node}
apiVersion: maniple.dev/v1alpha1
kind: Topology
metadata: {{name: cluster}}
spec: {{levels: [{{name: rack, nodeLabel: example.com/rack}}]}}
---
apiVersion: maniple.dev/v1alpha1
kind: ElasticJob
metadata: {{name: x}}
spec:
  suspend: true
  topology: {{required: rack}}
  roles: [{{name: w, min: 1, max: 2, template: {{spec: {{{CONTAINERS}}}}}}}]
---
apiVersion: v1
kind: Pod
metadata: {{name: x-w-0, labels: {{{labels}, maniple.dev/index: "0"}}}}
spec: {{schedulerName: maniple, nodeName: n1, {CONTAINERS}}}
status: {{phase: Running}}
---
apiVersion: v1
kind: Pod
metadata: {{name: x-w-1, labels: {{{labels}, maniple.dev/index: "1"}}}}
spec: {{schedulerName: maniple, {CONTAINERS}}}
"""
    why = story("-f", "-", "x", stdin=text)["waiting"]
    assert (why["reason"], why["wouldStartIf"]) == ("Suspended", "spec.suspend were false")


def test_a_live_cluster_and_files_are_not_mixed() -> None:
    done = run_here("explain", "-f", RACK, "--live", "first")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--live reads a cluster: name no files with it" in done.stderr


def test_a_pod_that_is_being_deleted_leaves() -> None:
    text = f"""{NODE}
apiVersion: v1
kind: Pod
metadata: {{name: p, deletionTimestamp: "2026-01-01T00:00:00Z"}}
spec: {{schedulerName: maniple, nodeName: n1, {CONTAINERS}}}
status: {{phase: Running}}
"""
    made = story("-f", "-", "p", stdin=text)
    assert (made["state"], made["waiting"]) == ("Leaves", None)


def test_a_pod_on_a_node_that_has_lost_its_gpus_is_explained() -> None:
    """The driver of `lost` has failed: it has no GPUs now, and `half` has two of four left."""
    objects: list[dict[str, Any]] = []
    limits = {"nvidia.com/gpu": 4}
    for name, gpus in (("lost", 0), ("half", 2), ("whole", 4)):
        allocatable = {"cpu": 8, "pods": 9} | ({"nvidia.com/gpu": gpus} if gpus else {})
        spec = {
            "schedulerName": "maniple",
            "nodeName": name,
            "containers": [{"name": "c", "resources": {"limits": limits}}],
        }
        objects += [
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": allocatable}},
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"on-{name}"}, "spec": spec},
        ]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    gpus_of = {
        name: story("-f", "-", f"on-{name}", stdin=text)["pods"][0]["gpus"] for name in ("lost", "half", "whole")
    }
    assert gpus_of == {"lost": [], "half": ["0", "1"], "whole": ["0", "1", "2", "3"]}


SINCE = ', annotations: {maniple.dev/incomplete-since: "2026-01-01T09:10:00Z"}'
GANG = f"""apiVersion: maniple.dev/v1alpha1
kind: PodGroup
metadata: {{name: a{SINCE}}}
spec: {{minMember: 2, staleSeconds: 36000}}
---
apiVersion: v1
kind: Pod
metadata: {{name: a-0, labels: {{maniple.dev/pod-group: a}}}}
spec: {{schedulerName: maniple, nodeName: n1, containers: [{{name: main, resources: {{requests: {{cpu: "1"}}}}}}]}}
status: {{phase: Running}}
"""
RUNS_SINCE = "it runs with 1 of at least 2 pods since 2026-01-01T09:10:00Z"
KEEPS = "it keeps what it holds"


@pytest.mark.parametrize(
    ("gang", "policy", "words"),
    [
        (GANG, "", f"{RUNS_SINCE}; release evicts it after 2026-01-01T19:10:00Z, unless it is whole by then"),
        (GANG, "kube-batch", f"{RUNS_SINCE}; {KEEPS}, because the policy's actions do not include release"),
        (GANG.replace("36000", "0"), "", f"{RUNS_SINCE}; {KEEPS}, because its staleSeconds are 0"),
        (
            GANG.replace(SINCE, ""),
            "",
            f"it runs with 1 of at least 2 pods; {KEEPS} here, because no annotation maniple.dev/incomplete-since says "
            "since when",
        ),
    ],
)
def test_a_gang_below_its_minimum_of_which_no_pod_waits_is_told_of(gang: str, policy: str, words: str) -> None:
    """A plan in which nothing is decided says it in a note."""
    text, now = f"{NODE}\n{gang}", ("--now", "2026-01-01T10:00:00Z")
    options = (*now, *(("--policy", EXAMPLES / f"policies/{policy}.yaml") if policy else ()))
    done = run_here("plan", "-f", "-", *options, stdin=text)
    assert done.stderr == f"note: PodGroup default/a: {words}\n"
    assert done.stdout.startswith("Nothing to do.")
    done = run_here("explain", "-f", "-", "a", *options, "-o", "json", stdin=text)
    assert json.loads(done.stdout)["incomplete"] == words
    done = run_here("explain", "-f", "-", "a", *options, stdin=text)
    assert f"Missing:   {words}" in done.stdout


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_nothing_of_that_is_said_if_the_missing_pod_is_there(phase: str) -> None:
    node = ", nodeName: n1" * (phase == "Running")
    other = f"""---
apiVersion: v1
kind: Pod
metadata: {{name: a-1, labels: {{maniple.dev/pod-group: a}}}}
spec: {{schedulerName: maniple{node}, {CONTAINERS}}}
status: {{phase: {phase}}}
"""
    assert story("-f", "-", "a", "--now", "2026-01-01T10:00:00Z", stdin=f"{NODE}\n{GANG}{other}")["incomplete"] is None
