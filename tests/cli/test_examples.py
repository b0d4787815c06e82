"""The results of the examples, as `maniple plan` prints them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from cli.run_maniple import EXAMPLES, Plan, example, plan, plan_of, run, run_here, untimed

NAMES = ["01", "02", "03", "04", "05a", "05b", "06"]


def started(outcome: Plan) -> dict[str, str]:
    """Pod to node, without the namespace."""
    return {bind["pod"].removeprefix("default/"): bind["node"] for bind in outcome["rounds"][0]["binds"]}


def waiting(outcome: Plan) -> list[tuple[str, str]]:
    return [(entry["group"].removeprefix("default/"), entry["reason"]) for entry in outcome["rounds"][0]["waiting"]]


def test_01_two_gpus_are_free_a_wants_4_and_holds_nothing_b_wants_2_and_starts() -> None:
    outcome = example("01")
    assert set(started(outcome)) == {"b-0", "b-1"}
    assert [bind["gpus"] for bind in outcome["rounds"][0]["binds"]] == [["0"], ["1"]]
    assert waiting(outcome) == [("a", "InsufficientResources")]
    assert outcome["rounds"][0]["nominations"] == []
    (queue,) = outcome["queues"]
    assert queue["allocated"]["nvidia.com/gpu"] == "2"


def test_02_five_gpus_are_free_a_wants_8_b_wants_4_and_starts() -> None:
    outcome = example("02")
    assert set(started(outcome)) == {"b-0", "b-1", "b-2", "b-3"}
    assert waiting(outcome) == [("a", "InsufficientResources")]


def test_03_a_gang_of_10_with_room_for_9_does_not_start() -> None:
    outcome = example("03")
    assert started(outcome) == {}
    assert waiting(outcome) == [("ten", "InsufficientResources")]
    (entry,) = outcome["rounds"][0]["waiting"]
    assert entry["needs"] == {"pods": "10", "cpu": "10", "memory": "10Gi", "nvidia.com/gpu": "10"}
    assert "room for 9" in entry["message"]
    assert "were added" in entry["wouldStartIf"] or "came free" in entry["wouldStartIf"]


def test_04_of_two_gangs_of_10_with_room_for_10_exactly_one_starts_whole() -> None:
    outcome = example("04")
    assert set(started(outcome)) == {f"first-{number}" for number in range(10)}
    assert waiting(outcome) == [("second", "InsufficientResources")]
    taken = {(bind["node"], gpu) for bind in outcome["rounds"][0]["binds"] for gpu in bind["gpus"]}
    assert taken == {*(("n1", str(gpu)) for gpu in range(4)), *(("n2", str(gpu)) for gpu in range(6))}


def test_05_a_pod_goes_where_most_is_left_and_least_is_unbalanced() -> None:
    assert started(example("05a")) == {"three-gi": "server01"}
    assert started(example("05b")) == {"memory-heavy": "server01", "cpu-heavy": "server02"}


def test_06_queues_of_weight_1_and_3_get_a_quarter_and_three_quarters() -> None:
    outcome = example("06")
    gpus = {queue["name"]: queue["allocated"].get("nvidia.com/gpu", "0") for queue in outcome["queues"]}
    assert gpus == {"default": "0", "research": "10", "production": "30"}
    by_queue = [name.split("-")[0] for name in started(outcome)]
    assert (by_queue.count("research"), by_queue.count("production")) == (10, 30)


def test_07_an_elastic_job_shrinks_for_a_gang_and_grows_again_when_it_has_ended() -> None:
    path = EXAMPLES / "07-elastic.yaml"
    rounds = plan("-f", path, "--now", "2026-01-01T10:00:00Z", "--step", "300", "--rounds", "7")["rounds"]
    bound = [sorted(bind["pod"].removeprefix("default/") for bind in round_["binds"]) for round_ in rounds]
    first, more = ([f"bert-worker-{index}" for index in part] for part in (range(4), range(4, 8)))
    assert bound == [first, more, [], [f"gang-{index}" for index in range(4)], [], [], more]
    sizes = [[(resize["from"], resize["to"]) for resize in round_["resizes"]] for round_ in rounds]
    assert sizes == [[(4, 8)], [], [(8, 4)], [], [], [(4, 8)], []]
    assert [resize["leaves"] for resize in rounds[2]["resizes"]] == [
        [{"pod": f"default/{pod}", "for": "default/gang"} for pod in more]
    ]
    assert rounds[2]["evictions"] == []


CLOSE = sorted((EXAMPLES / "topology").glob("*.yaml"))


def gpus(outcome: Plan) -> dict[str, dict[str, object]]:
    """What each pod gets on its node: ids, share and ring."""
    return {
        bind["pod"].removeprefix("default/"): {key: bind[key] for key in ("gpus", "gpuShare", "ringGBs") if key in bind}
        for bind in outcome["rounds"][0]["binds"]
    }


def test_topology_a_required_rack_holds_the_gang_or_it_waits() -> None:
    outcome = plan("-f", EXAMPLES / "topology/rack.yaml")
    assert started(outcome) == {"first-worker-0": "n1", "first-worker-1": "n2"}
    assert waiting(outcome) == [("second", "NoDomainFits")]
    assert "b1/r2, has room for 1" in outcome["rounds"][0]["waiting"][0]["message"]


def test_topology_without_a_preferred_rack_a_block_holds_the_gang_else_it_goes_anywhere() -> None:
    nodes = started(plan("-f", EXAMPLES / "topology/preferred.yaml"))
    by_gang: dict[str, set[str]] = {}
    for pod, node in nodes.items():
        by_gang.setdefault(pod.split("-")[0], set()).add(node)
    assert by_gang == {"first": {"n1", "n2"}, "second": {"n4", "n5"}, "third": {"n3", "n6"}}


def test_topology_shares_fill_a_gpu_before_another_is_opened() -> None:
    shares = gpus(plan("-f", EXAMPLES / "topology/shares.yaml"))
    assert shares["notebook-1"] == shares["notebook-2"] == {"gpus": ["0"], "gpuShare": 0.25}
    assert shares["server"] == {"gpus": ["0"], "gpuShare": 0.5}
    assert shares["training"] == {"gpus": ["1"]}
    assert shares["two-halves"] == {"gpus": ["2", "3"], "gpuShare": 0.5, "ringGBs": 9.5}


def test_topology_a_gang_gets_the_fastest_model_that_is_free() -> None:
    outcome = plan("-f", EXAMPLES / "topology/models.yaml")
    nodes = started(outcome)
    assert {node for pod, node in nodes.items() if pod.startswith("first")} == {"n1"}
    assert {node for pod, node in nodes.items() if pod.startswith("second")} == {"n2", "n3"}
    assert waiting(outcome) == [("newest", "NoNodeFits"), ("third", "NoModelFits")]


def test_topology_a_pair_stays_whole_for_the_pod_that_wants_one() -> None:
    assert gpus(plan("-f", EXAMPLES / "topology/nvlink.yaml")) == {
        "one": {"gpus": ["0"]},
        "pair": {"gpus": ["2", "3"], "ringGBs": 100.0},
        "another": {"gpus": ["1"]},
    }


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in CLOSE])
def test_topology_a_settled_cluster_stays_settled(path: Path) -> None:
    """Shares and devices are read back from what the first round wrote."""
    first, *later = plan("-f", path, "--rounds", "4")["rounds"]
    assert first["binds"]
    assert all((round_["binds"], round_["evictions"], round_["nominations"]) == ([], [], []) for round_ in later)
    assert [entry["group"] for entry in later[-1]["waiting"]] == [entry["group"] for entry in first["waiting"]]


@pytest.mark.parametrize("name", NAMES)
def test_a_settled_cluster_stays_settled(name: str) -> None:
    (path,) = EXAMPLES.glob(f"{name}*.yaml")
    first, *later = plan("-f", path, "--rounds", "5")["rounds"]
    assert first == example(name)["rounds"][0]
    assert all((round_["binds"], round_["evictions"], round_["nominations"]) == ([], [], []) for round_ in later)
    assert [entry["group"] for entry in later[-1]["waiting"]] == [entry["group"] for entry in first["waiting"]]


@pytest.mark.parametrize("name", ["02", "04", "05b", "06"])
def test_the_plan_depends_neither_on_the_order_of_the_documents_nor_on_hashes(name: str) -> None:
    (path,) = EXAMPLES.glob(f"{name}*.yaml")
    documents = [value for value in yaml.safe_load_all(path.read_bytes()) if value]
    backwards = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents[::-1]})
    again = plan_of(run("plan", "-f", "-", "-o", "json", stdin=backwards, env={"PYTHONHASHSEED": "7"}))
    assert untimed(again) == untimed(example(name))


def test_every_example_is_shown_as_a_table() -> None:
    for name, words in (("01", ["Starts", "default/b", "n1 ×2 (gpu 0-1)", "Waits", "default/a"]), ("03", ["Waits"])):
        (path,) = EXAMPLES.glob(f"{name}*.yaml")
        done = run_here("plan", "-f", path)
        assert (done.returncode, done.stderr) == (0, "")
        for word in [*words, "Queues"]:
            assert word in done.stdout
    assert "Starts" not in done.stdout
