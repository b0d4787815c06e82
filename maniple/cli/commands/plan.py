"""`maniple plan`: what would be decided for a cluster, given as files or running."""

import gc
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import click

from maniple.cli.support.cluster_input import ClusterInput, input_options
from maniple.cli.support.cluster_options import seconds_option
from maniple.cli.support.plan_table import describe
from maniple.cli.support.table import echo_json
from maniple.cli.support.terminal import say, say_progress
from maniple.cli.support.yaml_text import plain_yaml
from maniple.cluster.in_memory_cluster import Outcome, run_rounds


@click.command(
    epilog="""\b
Examples:
  maniple plan -f examples/01-small-behind-large.yaml
  maniple plan -f nodes.yaml -f jobs/ --policy examples/policies/kube-batch.yaml -o json
  maniple plan -f cluster.yaml --rounds 5
  maniple plan -f examples/07-elastic.yaml --now 2026-01-01T10:00:00Z --step 300 --rounds 7
  kubectl get nodes,pods,podgroups,queues -A -o json | maniple plan -f - --all
  maniple plan --live --rounds 3

Pods with a node hold their resources; pending pods with schedulerName maniple are planned.
Exit codes: 0 planned, 2 wrong input.
"""
)
@input_options
@click.argument("more_files", nargs=-1, metavar="[FILE]...", type=click.Path(allow_dash=True))
@click.option(
    "--rounds",
    type=click.IntRange(1, 100_000),
    default=1,
    show_default=True,
    help="Plan this many times, and apply each plan in memory.",
)
@seconds_option(
    "--step",
    "step_s",
    "Time between rounds: objects arrive at their creationTimestamp, and pods end after their activeDeadlineSeconds.",
    least=0,
    most=10**9,
)
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True)
def command(source: ClusterInput, more_files: tuple[str, ...], rounds: int, step_s: float | None, output: str) -> None:
    """Plan a cluster given as YAML or JSON: what starts where, what waits and why."""
    start = time.perf_counter()
    # A dump has a million small objects without cycles: garbage collection would double the time.
    gc.disable()
    cluster, policy, _ = replace(source, files=(*source.files, *more_files)).read(step_s)
    read_s = time.perf_counter() - start
    elsewhere = sum(cluster.pending_elsewhere().values())
    outcome = run_rounds(cluster, policy, rounds, _progress(rounds))
    outcome.load_s += read_s
    show(outcome, output, with_times=step_s is not None, elsewhere=elsewhere)


def show(outcome: Outcome, output: str, *, with_times: bool = False, elsewhere: int = 0) -> None:
    """`elsewhere`: how many pods wait for other schedulers."""
    if output == "table":
        say(describe(outcome, with_times=with_times, elsewhere=elsewhere))
    elif output == "json":
        echo_json(outcome.to_json())
    else:
        say(plain_yaml(outcome.to_json()), nl=False)


def _progress(rounds: int) -> Callable[[int], None] | None:
    if rounds < 2 or not sys.stderr.isatty():
        return None
    return lambda done: say_progress(f"round {done} of {rounds}", nl=done == rounds)
