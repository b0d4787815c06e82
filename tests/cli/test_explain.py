"""`maniple explain`: the story of one job, in text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .running import EXAMPLES, run

RACK = EXAMPLES / "topology/rack.yaml"
NVLINK = EXAMPLES / "topology/nvlink.yaml"


def story(*arguments: str | Path, stdin: str | bytes = b"") -> dict[str, Any]:
    done = run("explain", *arguments, "-o", "json", stdin=stdin)
    assert (done.returncode, done.stderr) == (0, "")
    made: dict[str, Any] = json.loads(done.stdout)
    return made


def test_the_ring_of_the_chosen_gpus_is_told() -> None:
    made = story("-f", NVLINK, "default/pair")
    assert (made["state"], made["kind"], made["ringGBs"]) == ("Starts", "Pod", 100.0)
    assert [(pod["node"], pod["gpus"], pod["ringGBs"]) for pod in made["pods"]] == [("n1", ["2", "3"], 100.0)]
    text = run("explain", "-f", NVLINK, "pair").stdout
    assert "Ring:     100 GB/s" in text
    assert "2,3   100 GB/s" in text


def test_a_gang_in_a_rack_and_one_that_waits_for_one() -> None:
    first, second = story("-f", RACK, "first"), story("-f", RACK, "second")
    assert {pod["domain"] for pod in first["pods"]} == {"b1/r1"}
    assert first["waiting"] is None
    assert (second["state"], second["waiting"]["reason"]) == ("Waits", "NoDomainFits")
    assert "Waits (NoDomainFits)" in run("explain", "-f", RACK, "second").stdout


def test_a_pod_of_a_gang_stands_for_its_gang() -> None:
    assert story("-f", RACK, "default/first-worker-1") == story("-f", RACK, "default/first")


def test_running_and_leaving_pods_are_told() -> None:
    preempt = EXAMPLES / "actions/preempt.yaml"
    policy = ("--policy", EXAMPLES / "policies/kube-batch.yaml")
    planned = json.loads(run("plan", "-f", preempt, *policy, "-o", "json").stdout)["rounds"][0]
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
        (["-f", "nosuch.yaml", "pair"], "nosuch.yaml: cannot be read"),
        (["pair"], "Missing option '-f'"),
        (["-f", NVLINK], "Missing argument 'JOB'"),
    ],
)
def test_what_is_wrong_is_said_and_the_exit_code_is_2(arguments: list[str | Path], says: str) -> None:
    done = run("explain", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
