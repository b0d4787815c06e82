"""The examples that must hold, as `maniple plan` prints them."""

from __future__ import annotations

import json

import pytest
import yaml

from .running import EXAMPLES, Plan, example, plan, run, untimed

NAMES = ["01", "02", "03", "04", "05a", "05b", "06"]


def started(made: Plan) -> dict[str, str]:
    """Pod to node, without the namespace."""
    return {bind["pod"].removeprefix("default/"): bind["node"] for bind in made["rounds"][0]["binds"]}


def waiting(made: Plan) -> list[tuple[str, str]]:
    return [(entry["group"].removeprefix("default/"), entry["reason"]) for entry in made["rounds"][0]["waiting"]]


def test_01_two_gpus_are_free_a_wants_4_and_holds_nothing_b_wants_2_and_starts() -> None:
    made = example("01")
    assert set(started(made)) == {"b-0", "b-1"}
    assert [bind["gpus"] for bind in made["rounds"][0]["binds"]] == [["0"], ["1"]]
    assert waiting(made) == [("a", "InsufficientResources")]
    assert made["rounds"][0]["nominations"] == []
    (queue,) = made["queues"]
    assert queue["allocated"]["nvidia.com/gpu"] == "2"


def test_02_five_gpus_are_free_a_wants_8_b_wants_4_and_starts() -> None:
    made = example("02")
    assert set(started(made)) == {"b-0", "b-1", "b-2", "b-3"}
    assert waiting(made) == [("a", "InsufficientResources")]


def test_03_a_gang_of_10_with_room_for_9_does_not_start() -> None:
    made = example("03")
    assert started(made) == {}
    assert waiting(made) == [("ten", "InsufficientResources")]
    (entry,) = made["rounds"][0]["waiting"]
    assert entry["needs"] == {"pods": "10", "cpu": "10", "memory": "10Gi", "nvidia.com/gpu": "10"}
    assert "room for 9" in entry["message"]
    assert "1 more" in entry["wouldStartIf"]


def test_04_of_two_gangs_of_10_with_room_for_10_exactly_one_starts_whole() -> None:
    made = example("04")
    assert set(started(made)) == {f"first-{number}" for number in range(10)}
    assert waiting(made) == [("second", "InsufficientResources")]
    taken = {(bind["node"], gpu) for bind in made["rounds"][0]["binds"] for gpu in bind["gpus"]}
    assert taken == {*(("n1", str(gpu)) for gpu in range(4)), *(("n2", str(gpu)) for gpu in range(6))}


def test_05_a_pod_goes_where_most_is_left_and_least_is_unbalanced() -> None:
    assert started(example("05a")) == {"three-gi": "server01"}
    assert started(example("05b")) == {"memory-heavy": "server01", "cpu-heavy": "server02"}


def test_06_queues_of_weight_1_and_3_get_a_quarter_and_three_quarters() -> None:
    made = example("06")
    gpus = {queue["name"]: queue["allocated"].get("nvidia.com/gpu", "0") for queue in made["queues"]}
    assert gpus == {"default": "0", "research": "10", "production": "30"}
    by_queue = [name.split("-")[0] for name in started(made)]
    assert (by_queue.count("research"), by_queue.count("production")) == (10, 30)


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
    again = plan("-f", "-", stdin=backwards, env={"PYTHONHASHSEED": "7"})
    assert untimed(again) == untimed(example(name))


def test_every_example_is_shown_as_a_table() -> None:
    for name, words in (("01", ["Starts", "default/b", "n1 ×2 (gpu 0-1)", "Waits", "default/a"]), ("03", ["Waits"])):
        (path,) = EXAMPLES.glob(f"{name}*.yaml")
        done = run("plan", "-f", path)
        assert (done.returncode, done.stderr) == (0, "")
        for word in [*words, "Queues"]:
            assert word in done.stdout
    assert "Starts" not in done.stdout
