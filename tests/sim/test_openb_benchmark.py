"""The placement game keeps its rules, the baselines are near what was published, and our score beats them."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from maniple.api.errors import InputError
from maniple.cli.main import group
from maniple.model.gpu.fragmentation import Millis, Mix, PodRequests, choose_devices, fragmentation, learn, share_prices
from maniple.model.resources import FloatArray, IntArray
from maniple.sim.baselines import BASELINES, ScoredPlacer
from maniple.sim.openb_benchmark import (
    ARRIVED_PERCENT,
    Node,
    Placer,
    Pod,
    arrivals,
    capacity_milli,
    play,
    read_nodes,
    read_pods,
)
from maniple.sim.scheduler_placer import SchedulerPlacer

DATA = Path(os.environ.get("MANIPLE_DATA", Path(__file__).resolve().parents[3] / "shared" / "data")) / "openb"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"no data at {DATA}; set MANIPLE_DATA")
ANY: frozenset[str] = frozenset()

PLACERS: dict[str, Callable[[Sequence[Node], Sequence[Pod], int], Placer]] = {
    "maniple": lambda nodes, pods, _: SchedulerPlacer(nodes, pods),
    **BASELINES,
}


def cluster() -> list[Node]:
    """Two kinds of node: many GPUs with little CPU each, and few with much."""
    many = [Node(f"a{index:02}", 96_000, 393_216, 8, "G2") for index in range(12)]
    return many + [Node(f"t{index:02}", 104_000, 524_288, 2, "T4") for index in range(10)]


def workload(seed: int = 1, number: int = 400, large: int = 1) -> list[Pod]:
    """Shares that fill a device only in the right company, whole GPUs, large pods and pods without a GPU."""
    kinds = [
        (Pod("", 3_000, 6_000, 1, 810, ANY), 12),
        (Pod("", 4_000, 16_000, 1, 160, ANY), 12),
        (Pod("", 9_000, 30_000, 1, 470, ANY), 16),
        (Pod("", 8_000, 30_000, 1, 650, ANY), 10),
        (Pod("", 4_000, 16_000, 1, 320, ANY), 12),
        (Pod("", 11_000, 48_000, 1, 1000, ANY), 30),
        (Pod("", 20_000, 64_000, 1, 1000, frozenset({"T4"})), 3),
        (Pod("", 80_000, 300_000, 8, 1000, ANY), large),
        (Pod("", 16_000, 50_000, 0, 0, ANY), 8),
    ]
    random = np.random.default_rng(seed)
    weights = np.array([weight for _, weight in kinds])
    return [kinds[index][0] for index in random.choice(len(kinds), number, p=weights / weights.sum())]


class Referee:
    """Follows a placer and checks each step against the rules with plain loops."""

    def __init__(self, placer: ScoredPlacer, pods: Sequence[Pod]) -> None:
        self.placer, self.pods = placer, pods

    def place(self, pod: int) -> bool:
        fleet, asks = self.placer.fleet, self.pods[pod]
        before = [now.astype(np.int64) for now in (fleet.cpu, fleet.memory, fleet.gpu)]
        fits = any(
            fleet.cpu[n] >= asks.cpu_milli
            and fleet.memory[n] >= asks.memory_mib
            and (not asks.models or fleet.models[fleet.model[n]] in asks.models)
            and sum(free >= asks.gpu_milli for free in fleet.gpu[n].tolist() if free) >= asks.gpus
            for n in range(len(fleet.cpu))
        )
        placed = self.placer.place(pod)
        assert placed == fits
        after = [now.astype(np.int64) for now in (fleet.cpu, fleet.memory, fleet.gpu)]
        changes = [old - new for old, new in zip(before, after, strict=True)]
        assert changes[0].sum() == asks.cpu_milli * placed
        assert changes[1].sum() == asks.memory_mib * placed
        assert sorted(changes[2][changes[2] > 0].tolist()) == [asks.gpu_milli] * asks.gpus * placed
        assert np.count_nonzero(changes[0]) <= 1
        assert np.count_nonzero(changes[2].sum(axis=1)) <= 1
        assert fleet.gpu.min() >= 0
        return placed


@pytest.mark.parametrize("name", list(BASELINES))
def test_a_pod_that_fits_is_placed_on_one_node_and_never_on_more_than_is_free(name: str) -> None:
    nodes, pods = cluster(), workload(number=300)
    placer = BASELINES[name](nodes, pods, 7)
    assert isinstance(placer, ScoredPlacer)
    play(Referee(placer, pods), pods, arrivals(pods, capacity_milli(nodes), 7), capacity_milli(nodes))


@pytest.mark.parametrize("name", list(PLACERS))
def test_the_same_seed_is_the_same_game(name: str) -> None:
    nodes, pods = cluster(), workload()
    capacity = capacity_milli(nodes)
    first, second = (play(PLACERS[name](nodes, pods, 3), pods, arrivals(pods, capacity, 3), capacity) for _ in "ab")
    assert first == second


def test_all_pods_arrive_once_and_then_any_until_130_percent() -> None:
    pods, capacity = workload(number=100), 100_000
    order = arrivals(pods, capacity, 5)
    assert sorted(order[:100]) == list(range(100))
    demand = [pods[index].demand_milli for index in order]
    assert sum(demand) >= 1.3 * capacity > sum(demand[:-1])
    assert order != arrivals(pods, capacity, 6)


def test_what_is_dropped_counts_as_arrived() -> None:
    class Never:
        def place(self, pod: int) -> bool:  # noqa: ARG002
            return False

    pods, capacity = workload(number=100), 20_000
    outcome = play(Never(), pods, arrivals(pods, capacity, 5), capacity)
    assert outcome.unallocated_percent == dict.fromkeys(ARRIVED_PERCENT, 100.0)
    assert outcome.placed == 0


def test_our_score_wastes_less_than_the_baselines_on_a_made_up_cluster() -> None:
    # Without pods that take a whole node: on so few nodes a single one of them dropped is more than all the rest.
    nodes, pods = cluster(), workload(large=0)
    capacity = capacity_milli(nodes)

    def loss(name: str) -> float:
        games = [play(PLACERS[name](nodes, pods, s), pods, arrivals(pods, capacity, s), capacity) for s in range(5)]
        return float(np.mean([game.unallocated_percent[100] for game in games]))

    assert loss("maniple") < min(loss("fgd"), loss("best-fit"), loss("random"))


# --- the score


def test_a_remainder_is_worth_what_can_be_cut_from_it() -> None:
    worth = share_prices({810: 100, 470: 80, 650: 25, 320: 40, 160: 10})
    assert worth[1000] == 1
    assert worth[190] == pytest.approx(0)  # there are more such remainders than 160s
    assert worth[530] == pytest.approx(0.5)  # one of the two 470s of a device
    assert worth[350] == pytest.approx(1 / 3)  # one of the three 320s of a device
    assert (np.diff(worth) >= -1e-9).all()


@pytest.mark.parametrize("sizes", [{}, {999: 3}, {1: 5}, {500: 1}, {333: 7, 334: 7}, {s: s for s in range(1, 1000, 7)}])
def test_prices_are_sound_for_any_sizes(sizes: dict[int, int]) -> None:
    worth = share_prices(sizes)
    assert worth.shape == (1001,)
    assert worth[1000] == 1
    assert np.isfinite(worth).all()
    assert ((worth >= 0) & (worth <= 1)).all()


def test_a_share_goes_where_its_loss_costs_least() -> None:
    mix = learn({PodRequests(1, 1, 1, 470): 80, PodRequests(1, 1, 1, 650): 25, PodRequests(1, 1, 1, 320): 40})
    gpu = np.array([[1000, 530, 350, 0], [1000, 530, 0, 0], [300, 0, 0, 0]], dtype=np.int32)
    assert choose_devices(mix, gpu, 1, 320).argmax(axis=1).tolist()[:2] == [2, 0]  # not what a 470 needs
    assert choose_devices(mix, gpu, 1, 470).argmax(axis=1).tolist()[:2] == [1, 1]
    assert choose_devices(mix, gpu, 2, 470).tolist() == [
        [True, True, False, False],
        [True, True, False, False],
        [False] * 4,
    ]


def increase(
    mix: Mix, kind: PodRequests, cpu: FloatArray, memory: FloatArray, gpu: Millis, model: IntArray | None = None
) -> FloatArray:
    """What a pod of `kind` costs on each of the nodes: the potential after it less the potential before it."""
    after = gpu
    if kind.gpus:
        after = gpu - choose_devices(mix, gpu, kind.gpus, kind.milli) * np.int32(kind.milli)
    taken = fragmentation(mix, cpu - kind.cpu, memory - kind.memory, after, model)
    return taken - fragmentation(mix, cpu, memory, gpu, model)


def test_pods_without_gpu_and_pods_that_need_much_cpu_go_where_cpu_is_plentiful() -> None:
    mix = learn({PodRequests(14, 1, 1, 1000): 50, PodRequests(3, 1, 1, 810): 20})
    cpu, memory = np.array([96.0, 104.0]), np.array([1000.0, 1000.0])
    gpu = np.array([[1000] * 8, [1000] * 2 + [0] * 6], dtype=np.int32)
    for kind, better in (
        (PodRequests(30, 1, 0, 0), 1),
        (PodRequests(24, 1, 1, 1000), 1),
        (PodRequests(3, 1, 1, 810), 0),
    ):
        cost = increase(mix, kind, cpu, memory, gpu)
        assert cost.argmin() == better
        assert cost[0] != cost[1]


def test_a_model_that_few_may_use_is_taken_first_by_those_who_may() -> None:
    mix = learn({PodRequests(1, 1, 1, 1000, (True, False)): 9, PodRequests(1, 1, 1, 1000): 1}, models=2)
    cpu = memory = np.array([10.0, 10.0])
    gpu = np.full((2, 1), 1000, dtype=np.int32)
    for other in (1, -1, -2):  # another model, none known, several
        assert increase(mix, PodRequests(1, 1, 1, 1000), cpu, memory, gpu, np.array([0, other])).argmin() == 1


def test_an_empty_mix_and_a_full_node_have_a_potential() -> None:
    gpu = np.array([[0, 0], [1000, 400]], dtype=np.int32)
    ones = np.ones(2)
    assert fragmentation(learn({}), ones, ones, gpu).tolist() == [0, 4000]
    assert fragmentation(learn({PodRequests(0, 0, 1, 500): 1}), ones, ones, gpu)[0] == 0


# --- files and command


def test_what_is_wrong_with_a_file_is_told_with_its_line_and_column(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes.csv"
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\nn1,64000,1,2,T4\nn2,many,1,-1,T4\n")
    with pytest.raises(InputError) as error:
        read_nodes(nodes)
    assert error.value.messages == [
        f"{nodes}, line 3, column cpu_milli: expected a whole number from 0 to {2**40}, found 'many'",
        f"{nodes}, line 3, column gpu: expected a whole number from 0 to 1024, found '-1'",
    ]
    nodes.write_text("sn,cpu_mili,memory_mib,gpu,model\n")
    with pytest.raises(InputError, match="line 1: no column 'cpu_milli'; did you mean 'cpu_mili'"):
        read_nodes(nodes)
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\nn1,1,1,1,T4\nn1,1,1,1,T4\n")
    with pytest.raises(InputError, match="more than one node is named 'n1'"):
        read_nodes(nodes)
    pods = tmp_path / "pods.csv"
    pods.write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\np1,1,1,1,0\n")
    with pytest.raises(InputError, match="line 2, column gpu_milli: expected a whole number from 1 to 1000, found '0'"):
        read_pods(pods)
    with pytest.raises(InputError, match="cannot be read"):
        read_pods(tmp_path / "none.csv")


def test_nodes_without_gpu_take_no_part_and_models_are_read(tmp_path: Path) -> None:
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\nb,1,1,1,T4\nc,1,1,0,\na,1,1,2,P100\n")
    pods.write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos\np,1,2,1,500,T4|P100,LS\nq,1,2,0,0,,\n")
    assert [node.name for node in read_nodes(nodes)] == ["a", "b"]
    assert [pod.models for pod in read_pods(pods)] == [{"T4", "P100"}, ANY]


def test_the_command_prints_medians(tmp_path: Path) -> None:
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    nodes.write_text(
        "sn,cpu_milli,memory_mib,gpu,model\n"
        + "".join(f"{n.name},{n.cpu_milli},{n.memory_mib},{n.gpus},{n.model}\n" for n in cluster())
    )
    pods.write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n"
        + "".join(
            f"p{index},{p.cpu_milli},{p.memory_mib},{p.gpus},{p.gpu_milli}\n" for index, p in enumerate(workload())
        )
    )
    arguments = ["openb", "--nodes", str(nodes), "--pods", str(pods), "--seeds", "1-2,5"]
    done = CliRunner().invoke(group, ["bench", *arguments, "-o", "json"], catch_exceptions=False)
    results = json.loads(done.stdout)["results"]
    assert [result["placer"] for result in results] == ["maniple", "fgd", "best-fit", "random"]
    assert all(result["seeds"] == [1, 2, 5] for result in results)
    assert all(len(result["unallocatedPercent"]["100"]) == 3 for result in results)
    table = CliRunner().invoke(group, ["bench", *arguments, "--placer", "fgd"], catch_exceptions=False).stdout
    assert "AT 100 %" in table
    assert f"{results[1]['medianUnallocatedPercent']['100']:.2f}" in table
    wrong = CliRunner().invoke(group, ["bench", "openb", "--nodes", "x", "--pods", "y", "--seeds", "9-1"])
    assert wrong.exit_code == 2
    assert "expected the lower seed first" in wrong.stderr


def test_several_policies_have_a_row_each_with_their_names(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("actions: allocate\ntiers: [{plugins: [{name: nodeorder}]}]")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/mine.yaml").write_text("actions: allocate\ntiers: [{plugins: [{name: fragmentation}]}]")
    examples = Path(__file__).parents[2] / "examples/bench"
    arguments = ["openb", "--nodes", str(examples / "nodes.csv"), "--pods", str(examples / "pods.csv"), "--seeds", "1"]

    def run(*policies: str) -> list[tuple[str, str | None, float]]:
        options = [word for policy in policies for word in ("--policy", policy)]
        done = CliRunner().invoke(group, ["bench", *arguments, *options, "-o", "json"], catch_exceptions=False)
        return [
            (result["placer"], result["policy"], result["medianUnallocatedPercent"]["100"])
            for result in json.loads(done.stdout)["results"]
            if result["placer"] in ("maniple", "random")
        ]

    ours, other = str(tmp_path / "mine.yaml"), str(tmp_path / "other/mine.yaml")
    assert [row[:2] for row in run()] == [("maniple", "built-in"), ("random", None)]
    rows = run("built-in", ours, ours)
    assert [row[:2] for row in rows] == [("maniple", "built-in"), ("maniple", "mine.yaml"), ("random", None)]
    assert rows[0] == run()[0]
    assert [row[1] for row in run(ours, other)] == [ours, other, None]
    table = CliRunner().invoke(
        group, ["bench", *arguments, "--placer", "maniple", "--policy", ours], catch_exceptions=False
    )
    assert [line.split()[2] for line in table.stdout.splitlines()[1:]] == ["POLICY", "mine.yaml"]


def test_a_policy_for_another_placer_is_refused() -> None:
    wrong = CliRunner().invoke(
        group, ["bench", "openb", "--nodes", "x", "--pods", "y", "--placer", "fgd", "--policy", "built-in"]
    )
    assert wrong.exit_code == 2
    assert "--policy is for the placer maniple" in wrong.stderr


# --- the real data


@needs_data
@pytest.mark.parametrize(
    ("name", "least", "most"),
    [("best-fit", 6.2, 8.0), ("fgd", 4.2, 5.5), ("random", 12.0, 15.0), ("maniple", 3, 4.2)],
)
def test_one_game_on_the_real_cluster_is_near_the_published_figure(name: str, least: float, most: float) -> None:
    """Published medians on this list: best-fit 7.09, FGD 4.77, random 13.75 percent."""
    nodes, pods = read_nodes(DATA / "nodes.csv"), read_pods(DATA / "pods_default.csv")
    capacity = capacity_milli(nodes)
    assert (len(nodes), capacity) == (1213, 6_212_000)
    order = arrivals(pods, capacity, 42)
    demand = np.cumsum([pods[index].demand_milli for index in order])
    until = int(np.searchsorted(demand, capacity)) + 1
    outcome = play(PLACERS[name](nodes, pods, 42), pods, order[:until], capacity)
    assert least < outcome.unallocated_percent[100] < most


@needs_data
def test_all_lists_can_be_read() -> None:
    models = {node.model for node in read_nodes(DATA / "nodes.csv")}
    for path in sorted(DATA.glob("pods_*.csv")):
        wanted = Counter(model for pod in read_pods(path) for model in pod.models)
        assert set(wanted) <= models, path
