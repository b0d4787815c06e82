"""The cluster that `plan` and `explain` read, from files or from an API server: their options, and how it is read."""

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click

from maniple.api.decode.decode import decode
from maniple.api.errors import InputError, printable
from maniple.api.timestamps import LAST_YEAR, to_seconds
from maniple.cli.support.cluster_options import run_async
from maniple.cli.support.read_files import read_one, read_sources
from maniple.cluster.in_memory_cluster import MemoryCluster
from maniple.model.building.input_objects import sort_objects
from maniple.model.ownership import DEFAULT_SCHEDULER, Ours
from maniple.model.plugin_reads import Reads
from maniple.scheduler import Policy, load_policy

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "-f",
        "--file",
        "files",
        multiple=True,
        metavar="FILE",
        type=click.Path(allow_dash=True),
        help="File of Kubernetes objects, Lists or streams, YAML or JSON; a directory of them; '-' for standard input.",
    ),
    click.option("--policy", metavar="FILE", type=click.Path(), help="Policy file; without it the built-in policy."),
    click.option(
        "--scheduler-name",
        default=DEFAULT_SCHEDULER,
        show_default=True,
        help="Plan pods with this schedulerName.",
    ),
    click.option("--all", "every_pod", is_flag=True, help="Plan every pending pod, whatever its schedulerName."),
    click.option(
        "--now",
        metavar="TIME",
        help="The time of the decision, such as 2026-01-31T12:00:00Z; without it the newest time in the input.",
    ),
)


def input_options(command: F) -> F:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def read_cluster(
    files: tuple[str, ...],
    policy: str | None,
    scheduler_name: str,
    every_pod: bool,
    now: str | None,
    step_s: float | None = None,
) -> tuple[MemoryCluster, Policy | None]:
    """The cluster in the files, and the policy (None: the built-in one). Notes about the input go to standard error."""
    if not files:
        raise click.UsageError(
            "Missing option '-f' / '--file': name at least one file, '-' for standard input, "
            "or --live for the cluster that kubectl talks to."
        )
    chosen = None if policy is None else load_policy(read_one(policy), policy)
    time_s = _read_time(now)
    decoded = decode(read_sources(files))
    if not decoded.objects:
        raise InputError(
            ["the input has no objects that scheduling reads; expected nodes, pods and the like", *decoded.notes]
        )
    objects = sort_objects(decoded, scheduler_name=scheduler_name)
    for note in decoded.notes:
        click.echo(f"note: {printable(note)}", err=True)
    return MemoryCluster(objects, Ours(scheduler_name, every_pod), time_s, step_s, _reads(chosen)), chosen


def read_running_cluster(
    kubeconfig: str | None,
    context: str | None,
    policy: str | None,
    scheduler_name: str,
    every_pod: bool,
    now: str | None,
    step_s: float | None = None,
) -> tuple[MemoryCluster, Policy | None, str]:
    """The same of a running cluster, and the namespace of its context."""
    from maniple.kube.serve.single_cycle import read_objects

    chosen = None if policy is None else load_policy(read_one(policy), policy)
    time_s = _read_time(now)
    ours = Ours(scheduler_name, every_pod)
    reading = run_async(lambda: read_objects(kubeconfig, context, ours, chosen))
    for note in reading.notes:
        click.echo(f"note: {note}", err=True)
    time_s = time.time() if time_s is None else time_s
    cluster = MemoryCluster(reading.objects, ours, time_s, step_s, _reads(chosen))
    return cluster, chosen, reading.namespace


def _reads(policy: Policy | None) -> Reads | None:
    return None if policy is None else policy.reads


def _read_time(text: str | None) -> float | None:
    """Any ISO 8601 time, also a date; without a time zone it is UTC."""
    if text is None:
        return None
    try:
        timestamp = datetime.fromisoformat(text)
    except ValueError:
        raise InputError([f"--now: {text!r} is not a time; expected one such as 2026-01-31T12:00:00Z"]) from None
    if not 1970 < timestamp.year < LAST_YEAR:
        raise InputError([f"--now: expected a time between the years 1971 and {LAST_YEAR - 1}, found {text!r}"])
    return to_seconds(timestamp)
