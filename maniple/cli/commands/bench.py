"""`maniple bench`: published benchmarks on their data."""

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from maniple.cli.support.cluster_input import read_policy
from maniple.cli.support.table import echo_json, render
from maniple.cli.support.terminal import say, say_progress
from maniple.scheduler import Policy, default_policy
from maniple.sim.baselines import BASELINES
from maniple.sim.openb_benchmark import (
    ARRIVED_PERCENT,
    Node,
    Pod,
    arrivals,
    capacity_milli,
    play,
    read_nodes,
    read_pods,
)
from maniple.sim.scheduler_placer import SchedulerPlacer

_MOST_SEEDS = 10_000
OURS = "maniple"
BUILT_IN = "built-in"


def _seeds(ctx: click.Context, param: click.Parameter, value: str) -> list[int]:
    seeds: list[int] = []
    for part in value.split(","):
        first, dash, last = part.strip().partition("-")
        if not (first.isdecimal() and first.isascii()) or (dash and not (last.isdecimal() and last.isascii())):
            raise click.BadParameter(
                f"{value!r} is not a list of seeds; expected one such as 42-51 or 1,5,7", ctx, param
            )
        start, stop = int(first), int(last) if dash else int(first)
        if not start <= stop < start + _MOST_SEEDS:
            raise click.BadParameter(f"{part!r}: expected the lower seed first, and at most {_MOST_SEEDS}", ctx, param)
        seeds.extend(range(start, stop + 1))
    return list(dict.fromkeys(seeds))


@dataclass(frozen=True, slots=True)
class Result:
    """One placer, and for ours one policy, on one list of pods."""

    pods: str
    placer: str
    policy: str | None  # None: the placer has none
    seeds: list[int]
    unallocated_percent: dict[int, list[float]]  # by percent arrived, one for each seed
    seconds: list[float]

    def median(self, arrived: int) -> float:
        return statistics.median(self.unallocated_percent[arrived])

    def to_json(self) -> dict[str, object]:
        return {
            "pods": self.pods,
            "placer": self.placer,
            "policy": self.policy,
            "seeds": self.seeds,
            "medianUnallocatedPercent": {str(mark): round(self.median(mark), 4) for mark in ARRIVED_PERCENT},
            "unallocatedPercent": {
                str(mark): [round(value, 4) for value in values] for mark, values in self.unallocated_percent.items()
            },
            "secondsPerSeed": round(statistics.mean(self.seconds), 3),
        }


@click.group(
    "bench",
    epilog="""\b
Examples:
  maniple bench openb --nodes openb_node_list_gpu_node.csv --pods openb_pod_list_default.csv
  maniple bench openb --help
""",
)
def command() -> None:
    """Run published benchmarks on their data, to see what a policy is worth."""


@command.command(
    short_help="Place pods one by one until no more fit.",
    epilog="""\b
Examples:
  maniple bench openb --nodes openb_node_list_gpu_node.csv --pods openb_pod_list_default.csv
  maniple bench openb --nodes nodes.csv --pods pods.csv --placer maniple --policy built-in --policy mine.yaml

The files are those of cluster-trace-gpu-v2023/csv in https://github.com/alibaba/clusterdata.
Shows the share of all GPUs that is not allocated when pods that request 80, 100 and 130 %
of them have arrived: the median over the seeds.
Exit codes: 0 done, 2 wrong input.
""",
)
@click.option("--nodes", "nodes_file", required=True, metavar="FILE", type=click.Path(), help="Nodes as CSV.")
@click.option(
    "--pods",
    "pods_files",
    required=True,
    multiple=True,
    metavar="FILE",
    type=click.Path(),
    help="Pods as CSV; may be given more than once.",
)
@click.option(
    "--seeds", callback=_seeds, default="42-51", show_default=True, help="Random orders of arrival: 42-51 or 1,5,7."
)
@click.option(
    "--placer",
    "placers",
    multiple=True,
    type=click.Choice([OURS, *BASELINES]),
    default=[OURS, *BASELINES],
    help=f"What places the pods: {OURS}, or a published baseline; may be given more than once.  [default: all]",
)
@click.option(
    "--policy",
    "policy_files",
    multiple=True,
    metavar="FILE",
    type=click.Path(),
    help=f"Policy of {OURS}, or the word {BUILT_IN}; may be given more than once.  [default: {BUILT_IN}]",
)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def openb(
    nodes_file: str,
    pods_files: tuple[str, ...],
    seeds: list[int],
    placers: tuple[str, ...],
    policy_files: tuple[str, ...],
    output: str,
) -> None:
    """Place the pods of a list one by one until no more fit (Alibaba's open GPU cluster, FGD)."""
    if policy_files and OURS not in placers:
        raise click.UsageError(f"--policy is for the placer {OURS}: add --placer {OURS}.")
    policies = _policies(policy_files)
    nodes = read_nodes(nodes_file)
    lists = {name: read_pods(name) for name in pods_files}  # read before the first run, so that an error comes at once
    players: list[tuple[str, str | None]] = []
    for placer in dict.fromkeys(placers):
        players += [(placer, policy) for policy in policies] if placer == OURS else [(placer, None)]
    results = [
        _run_seeds(nodes, pods, Path(name).name, placer, policy, seeds, policies)
        for name, pods in lists.items()
        for placer, policy in players
    ]
    if output == "json":
        document = {"results": [result.to_json() for result in results]}
        echo_json(document)
    else:
        say(_describe(results))


def _policies(files: tuple[str, ...]) -> dict[str, Policy]:
    """By the names that the table shows: those of the files, as short as they can be told apart."""
    files = tuple(dict.fromkeys(files)) or (BUILT_IN,)
    short = [Path(file).name for file in files]
    return {
        name if short.count(name) == 1 else file: default_policy() if file == BUILT_IN else _given(file)
        for file, name in zip(files, short, strict=True)
    }


def _given(file: str) -> Policy:
    policy = read_policy(file)
    assert policy is not None  # a file is named
    return policy


def _run_seeds(
    nodes: list[Node],
    pods: list[Pod],
    name: str,
    placer: str,
    policy: str | None,
    seeds: list[int],
    policies: dict[str, Policy],
) -> Result:
    capacity = capacity_milli(nodes)
    result = Result(name, placer, policy, seeds, {mark: [] for mark in ARRIVED_PERCENT}, [])
    player = placer if policy is None else f"{placer} with {policy}"
    for number, seed in enumerate(seeds, start=1):
        start = time.perf_counter()
        progress = _progress(f"{name}, {player}, seed {seed} ({number} of {len(seeds)})")
        chosen = (
            BASELINES[placer](nodes, pods, seed) if policy is None else SchedulerPlacer(nodes, pods, policies[policy])
        )
        outcome = play(chosen, pods, arrivals(pods, capacity, seed), capacity, progress)
        result.seconds.append(time.perf_counter() - start)
        for mark, value in outcome.unallocated_percent.items():
            result.unallocated_percent[mark].append(value)
    if sys.stderr.isatty():
        say_progress("")
    return result


def _progress(title: str) -> Callable[[int, int], None] | None:
    if not sys.stderr.isatty():
        return None
    return lambda done, of: say_progress(f"{title}: {100 * done // of} %")


def _describe(results: list[Result]) -> str:
    rows = [
        [
            result.pods,
            result.placer,
            result.policy or "-",
            str(len(result.seeds)),
            *(f"{result.median(mark):.2f}" for mark in ARRIVED_PERCENT),
            f"{statistics.mean(result.seconds):.1f}",
        ]
        for result in results
    ]
    header = ["PODS", "PLACER", "POLICY", "SEEDS", *(f"AT {mark} %" for mark in ARRIVED_PERCENT), "S/SEED"]
    return "GPUs not allocated, in percent: the median over the seeds\n" + render(header, rows)
