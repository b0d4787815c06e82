"""`maniple logs`: what the replicas of a job print."""

import re
from typing import TYPE_CHECKING

import click

from maniple.api import types
from maniple.api.errors import InputError, nearest
from maniple.cli.support.job_options import complete_jobs, job_key, run_visit, tell_of_trouble, visit_options
from maniple.views.jobs import ENDED

if TYPE_CHECKING:
    from maniple.kube.user.client import Visit
    from maniple.kube.user.replica_view import Replica

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

Without --all, --role or --index: the first replica of the first role that has a min above
0. Where there may be several, each line begins with its replica. --follow goes on with
replicas that come later, until the job is over.
Exit codes: 0 printed, 1 nothing has started yet, 2 wrong input or no such job.
"""
)
@click.argument("job", metavar="JOB", shell_complete=complete_jobs)
@click.option("--role", metavar="NAME", help="All replicas of this role.")
@click.option("--index", type=click.IntRange(0), help="The replica with this number.")
@click.option("--all", "every", is_flag=True, help="All replicas.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job is over.")
@click.option("--tail", type=click.IntRange(0), metavar="LINES", help="Only the last lines of each replica.")
@click.option("--since", callback=_seconds, metavar="TIME", help="Only what is younger than 30s, 10m, 2h, 1d.")
@click.option(
    "-c", "--container", default="", metavar="NAME", help="Container, where pods have several; without it the first."
)
@visit_options
def command(
    job: str,
    role: str | None,
    index: int | None,
    every: bool,
    follow: bool,
    tail: int | None,
    since: int | None,
    container: str,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
) -> None:
    """Print the logs of a job's replicas."""
    if every and (role is not None or index is not None):
        raise click.UsageError("--all are all replicas: name no --role or --index with it.")
    with_name = every or (role is not None and index is None)

    def take(replica: "Replica", line: str) -> None:
        click.echo(f"[{replica.role}-{replica.index}] {line}" if with_name else line)

    async def read(visit: "Visit") -> str:
        from maniple.kube.user.job_logs import Choice, follow_logs, read_logs

        key = job_key(job, visit)
        written = await visit.job(key)
        chosen_role = _role(written, role)
        number = 0 if not every and role is None and index is None else index

        def is_chosen(replica: "Replica") -> bool:
            return every or (replica.role == chosen_role and number in (None, replica.index))

        choice: Choice = Choice(is_chosen, tail, since, container)
        if follow:
            tell_of_trouble(visit)
            await follow_logs(visit, key, choice, take)
            return ""
        found = await read_logs(visit, key, choice, take)
        if any(replica.has_started for replica in found):
            return ""
        return _nothing("/".join(key), found, is_over=written.status.phase in ENDED)

    said = run_visit(kubeconfig, context, namespace, read)
    if said:
        click.echo(f"error: {said}", err=True)
        raise SystemExit(1)


def _role(job: types.ElasticJob, role: str | None) -> str:
    names = [one.name for one in job.spec.roles]
    if role is not None and role not in names:
        raise InputError([f"ElasticJob {job.metadata.name}: --role: unknown role {role!r}{nearest(role, names)}"])
    return role or job.spec.lead


def _nothing(job: str, found: "list[Replica]", *, is_over: bool) -> str:
    if not found and is_over:
        return f"ElasticJob {job}: is over, and no such replica is there any more: see cleanPodPolicy"
    if not found:
        return f"ElasticJob {job}: no such replica is there now; `maniple describe {job}` lists them, --follow waits"
    one = found[0]
    why = f": {one.why}" if one.why else ""
    return f"Pod {one.pod.metadata.namespace}/{one.name}: has not started: {one.state}{why}; --follow waits for it"
