"""`maniple plan`: what would be decided for a cluster, given as files or running."""

import gc
import sys
import time
from collections.abc import Callable

import click
import yaml

from maniple.cli.support.cluster_input import input_options, read_cluster, read_running_cluster
from maniple.cli.support.cluster_options import kubeconfig_options
from maniple.cli.support.plan_table import describe
from maniple.cli.support.table import echo_json
from maniple.cluster.in_memory_cluster import Outcome, run_rounds


@click.command(
    epilog="""\b
Examples:
  maniple plan -f examples/01-small-behind-large.yaml
  maniple plan -f nodes.yaml -f jobs/ --policy examples/policies/kube-batch.yaml -o json
  maniple plan -f cluster.yaml --rounds 5
  maniple plan -f examples/07-elastic.yaml --now 2026-01-01T10:00:00Z --step 300 --rounds 7
  kubectl get nodes,pods -A -o json | maniple plan -f - --all
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
@click.option(
    "--step",
    "step_s",
    type=click.FloatRange(0, 10**9),
    metavar="SECONDS",
    help="Time between rounds: objects arrive at their creationTimestamp, and pods end after their "
    "activeDeadlineSeconds.",
)
@click.option("--live", is_flag=True, help="Plan the cluster that kubectl talks to, instead of files.")
@kubeconfig_options
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True)
def command(
    files: tuple[str, ...],
    more_files: tuple[str, ...],
    policy: str | None,
    rounds: int,
    step_s: float | None,
    live: bool,
    kubeconfig: str | None,
    context: str | None,
    output: str,
    scheduler_name: str,
    every_pod: bool,
    now: str | None,
) -> None:
    """Plan a cluster given as YAML or JSON: what starts where, what waits and why."""
    start = time.perf_counter()
    # A dump has a million small objects without cycles: garbage collection would double the time.
    gc.disable()
    if live:
        if files or more_files:
            raise click.UsageError("--live reads a cluster: name no files with it.")
        cluster, chosen, _ = read_running_cluster(kubeconfig, context, policy, scheduler_name, every_pod, now, step_s)
    else:
        cluster, chosen = read_cluster((*files, *more_files), policy, scheduler_name, every_pod, now, step_s)
    read_s = time.perf_counter() - start
    outcome = run_rounds(cluster, chosen, rounds, _progress(rounds))
    outcome.load_s += read_s
    show(outcome, output, with_times=step_s is not None)


def show(outcome: Outcome, output: str, *, with_times: bool = False) -> None:
    if output == "table":
        click.echo(describe(outcome, with_times=with_times))
    elif output == "json":
        echo_json(outcome.to_json())
    else:
        click.echo(yaml.safe_dump(outcome.to_json(), sort_keys=False, allow_unicode=True), nl=False)


def _progress(rounds: int) -> Callable[[int], None] | None:
    if rounds < 2 or not sys.stderr.isatty():
        return None
    return lambda done: click.echo(f"\rround {done} of {rounds}", nl=done == rounds, err=True)
