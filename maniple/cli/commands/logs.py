"""`maniple logs`: the logs of a job's replicas."""

import re
from typing import TYPE_CHECKING

import click

from maniple.api import types
from maniple.api.keys import name_of
from maniple.api.phases import FINISHED
from maniple.cli.support.job_options import (
    Connection,
    find_role,
    job_argument,
    job_key,
    job_options,
    report_trouble,
    run_with_client,
)
from maniple.cli.support.terminal import say_error, say_log

if TYPE_CHECKING:
    from maniple.kube.user.client import UserClient
    from maniple.kube.user.replica_pod import ReplicaPod

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _seconds(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """`90`, `90s`, `10m`, `2h`, `1d`"""
    if value is None:
        return None
    match = re.fullmatch(r"(\d{1,9})([smhd]?)", value, re.ASCII)
    if match is None or not int(match[1]):
        raise click.BadParameter(f"expected a time such as 30s, 10m, 2h or 1d, found {value!r}", ctx, param)
    return int(match[1]) * _UNITS[match[2] or "s"]


@click.command(
    epilog="""\b
Examples:
  maniple logs bert
  maniple logs bert --follow --tail 20
  maniple logs bert --all --since 10m
  maniple logs bert --role worker --index 3

Without --all, --role or --index: the first replica of the first role with a min above 0.
If there may be several replicas, each line begins with its replica. --follow includes
replicas that start later, until the job has finished.
Exit codes: 0 printed, 1 nothing has started yet, 2 wrong input or no such job.
"""
)
@job_argument
@click.option("--role", metavar="NAME", help="All replicas of this role.")
@click.option("--index", type=click.IntRange(0), help="The replica with this number.")
@click.option("--all", "every", is_flag=True, help="All replicas.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has finished.")
@click.option("--tail", type=click.IntRange(0), metavar="LINES", help="Only the last lines of each replica.")
@click.option("--since", callback=_seconds, metavar="TIME", help="Only lines newer than 30s, 10m, 2h, 1d.")
@click.option(
    "-c", "--container", default="", metavar="NAME", help="Container of pods with several; without it the first."
)
@job_options
def command(
    name: str,
    role: str | None,
    index: int | None,
    every: bool,
    follow: bool,
    tail: int | None,
    since: int | None,
    container: str,
    connection: Connection,
) -> None:
    """Print the logs of a job's replicas."""
    if every and (role is not None or index is not None):
        raise click.UsageError("--all and --role or --index contradict each other.")
    with_name = every or (role is not None and index is None)

    def on_line(replica: "ReplicaPod", line: str) -> None:
        say_log(f"[{replica.role}-{replica.index}] {line}" if with_name else line)

    async def read(client: "UserClient") -> str:
        from maniple.kube.user.job_logs import Choice, follow_logs, read_logs

        key = job_key(name, client)
        job = await client.job(key)
        chosen_role = _chosen_role(job, role)
        chosen_index = 0 if not every and role is None and index is None else index

        def is_chosen(replica: "ReplicaPod") -> bool:
            return every or (replica.role == chosen_role and chosen_index in (None, replica.index))

        choice: Choice = Choice(is_chosen, tail, since, container)
        if follow:
            report_trouble(client)
            await follow_logs(client, key, choice, on_line)
            return ""
        replicas = await read_logs(client, key, choice, on_line)
        return "" if any(replica.has_started for replica in replicas) else _why_none(job, replicas)

    problem = run_with_client(connection, read)
    if problem:
        say_error(problem)
        raise SystemExit(1)


def _chosen_role(job: types.ElasticJob, role: str | None) -> str:
    return job.spec.lead if role is None else job.spec.roles[find_role(job, role)].name


def _why_none(job: types.ElasticJob, replicas: "list[ReplicaPod]") -> str:
    """Why there is no log."""
    name = name_of(job.metadata)
    if replicas:
        replica = replicas[0]
        message = f": {replica.message}" if replica.message else ""
        return f"Pod {name_of(replica.pod.metadata)}: has not started: {replica.state}{message}; --follow waits for it"
    if job.status.phase in FINISHED:
        return f"ElasticJob {name}: has finished, and no such replica exists any more: see cleanPodPolicy"
    return f"ElasticJob {name}: no such replica exists now; `maniple describe {name}` lists them, --follow waits"
