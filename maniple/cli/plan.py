"""`maniple plan`: what would be decided for a cluster given as files."""

import gc
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime

import click
import msgspec
import yaml

from maniple.api.decode import decode
from maniple.api.errors import InputError, printable
from maniple.api.validate_core import LAST_YEAR
from maniple.cli.files import read_one, read_sources
from maniple.cli.plan_table import describe
from maniple.cluster.memory import MemoryCluster, run_rounds
from maniple.model.build import DEFAULT_SCHEDULER, Ours
from maniple.model.objects import sort_objects
from maniple.scheduler import load_policy


@click.command(
    epilog="""\b
Examples:
  maniple plan -f examples/01-small-behind-large.yaml
  maniple plan -f nodes.yaml -f jobs/ --policy examples/policies/kube-batch.yaml -o json
  maniple plan -f cluster.yaml --rounds 5
  kubectl get nodes,pods -A -o json | maniple plan -f - --all

Pods with a node are there; pending pods whose schedulerName is maniple are planned.
Exit codes: 0 planned, 2 wrong input.
"""
)
@click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    metavar="FILE",
    type=click.Path(allow_dash=True),
    help="File of Kubernetes objects, Lists or streams, YAML or JSON; a folder of them; '-' for standard input.",
)
@click.argument("more_files", nargs=-1, metavar="[FILE]...", type=click.Path(allow_dash=True))
@click.option("--policy", metavar="FILE", type=click.Path(), help="Policy file; without it the built-in policy.")
@click.option(
    "--rounds",
    type=click.IntRange(1, 100_000),
    default=1,
    show_default=True,
    help="Apply the plan in memory and plan again, so many times.",
)
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True)
@click.option(
    "--scheduler-name",
    default=DEFAULT_SCHEDULER,
    show_default=True,
    help="Plan pods with this schedulerName.",
)
@click.option("--all", "every_pod", is_flag=True, help="Plan every pending pod, whatever its schedulerName.")
@click.option(
    "--now",
    metavar="TIME",
    help="The moment of the decision, such as 2026-01-31T12:00:00Z; without it the newest time in the input.",
)
def command(
    files: tuple[str, ...],
    more_files: tuple[str, ...],
    policy: str | None,
    rounds: int,
    output: str,
    scheduler_name: str,
    every_pod: bool,
    now: str | None,
) -> None:
    """Plan a cluster given as YAML or JSON: who goes where, who waits and why."""
    if not files and not more_files:
        raise click.UsageError("Missing option '-f' / '--file': name at least one file, or '-' for standard input.")
    start = time.perf_counter()
    # A dump has a million small objects and no cycles among them: collecting garbage meanwhile would double the time.
    gc.disable()
    chosen = None if policy is None else load_policy(read_one(policy), policy)
    moment = _moment(now)
    decoded = decode(read_sources((*files, *more_files)))
    if not decoded.objects:
        raise InputError(
            ["the input has no objects that scheduling reads; expected nodes, pods and the like", *decoded.notes]
        )
    objects = sort_objects(decoded, scheduler_name=scheduler_name)
    for note in decoded.notes:
        click.echo(f"note: {printable(note)}", err=True)
    ours = Ours(scheduler_name, every_pod)
    read_s = time.perf_counter() - start
    outcome = run_rounds(MemoryCluster(objects, ours, moment), chosen, rounds, _progress(rounds))
    outcome.load_s += read_s
    if output == "table":
        click.echo(describe(outcome))
    elif output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(outcome.to_json()), indent=1).decode())
    else:
        click.echo(yaml.safe_dump(outcome.to_json(), sort_keys=False, allow_unicode=True), nl=False)


def _moment(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InputError([f"--now: {text!r} is not a time; expected one such as 2026-01-31T12:00:00Z"]) from None
    if not 1970 < moment.year < LAST_YEAR:
        raise InputError([f"--now: expected a time between the years 1971 and {LAST_YEAR - 1}, found {text!r}"])
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _progress(rounds: int) -> Callable[[int], None] | None:
    if rounds < 2 or not sys.stderr.isatty():
        return None
    return lambda done: click.echo(f"\rround {done} of {rounds}", nl=done == rounds, err=True)
