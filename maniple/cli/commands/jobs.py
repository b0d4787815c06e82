"""`maniple jobs`: the jobs of a cluster as a table."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click
import msgspec

from maniple.cli.support.job_options import check_queues, run_visit, visit_options
from maniple.cli.support.table import render
from maniple.views.jobs import JobView, age, number, views

if TYPE_CHECKING:
    from maniple.kube.user.client import Visit

PHASES = ("Pending", "Starting", "Running", "Growing", "Shrinking", "Restarting", "Suspended", "Succeeded", "Failed")


@click.command(
    epilog="""\b
Examples:
  maniple jobs
  maniple jobs -A --phase Running --phase Growing
  maniple jobs -q research -o wide
  maniple jobs -o json

SIZE is how many replicas run, TARGET how many the scheduler has decided upon, RANGE the
least and the most. GPUS is what the job holds now, PROGRESS how far its workers reported
that it is. `kubectl get elasticjobs` works too.
Exit codes: 0 shown, 2 wrong input or no cluster.
"""
)
@visit_options
@click.option("-A", "--all-namespaces", is_flag=True, help="The jobs of all namespaces.")
@click.option("-q", "--queue", "queues", multiple=True, metavar="NAME", help="Only jobs of this queue; repeatable.")
@click.option(
    "--phase",
    "phases",
    multiple=True,
    type=click.Choice(PHASES, case_sensitive=False),
    help="Only jobs in this phase; repeatable.",
)
@click.option("-o", "--output", type=click.Choice(["table", "wide", "json"]), default="table", show_default=True)
def command(
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    all_namespaces: bool,
    queues: tuple[str, ...],
    phases: tuple[str, ...],
    output: str,
) -> None:
    """List jobs: their phase, size now and to be, GPUs, how far they are, and why they wait."""

    async def read(visit: "Visit") -> list[JobView]:
        within = None if all_namespaces else visit.namespace
        made = views(await visit.jobs(within), await visit.replicas(within))
        if queues:
            from maniple.kube.user.client import QUEUES

            check_queues(queues, await visit.names(QUEUES.list_path), (job.queue for job in made))
        return made

    found = [
        job
        for job in run_visit(kubeconfig, context, namespace, read)
        if (not queues or job.queue in queues) and (not phases or job.phase in phases)
    ]
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=1).decode())
    elif found:
        click.echo(table(found, with_namespace=all_namespaces, wide=output == "wide", now=datetime.now(UTC)))
    else:
        click.echo("no jobs found" + ("" if all_namespaces else "; -A looks in all namespaces"), err=True)


def table(jobs: Sequence[JobView], *, with_namespace: bool, wide: bool, now: datetime) -> str:
    header = ["NAME", "QUEUE", "PHASE", "SIZE", "TARGET", "RANGE", "GPUS", "PROGRESS", "RESTARTS", "AGE"]
    header += ["FRAMEWORK", "RESIZES", "WHY"] if wide else ["REASON"]
    rows = []
    for job in jobs:
        row = [
            f"{job.namespace}/{job.name}" if with_namespace else job.name,
            job.queue,
            job.phase or "-",
            str(job.running),
            str(job.target),
            job.range,
            number(job.gpus),
            str(job.progress or "-"),
            str(job.restarts),
            age(job.created, now),
        ]
        said = ": ".join(filter(None, (job.reason, job.message)))
        rows.append(row + ([job.framework, str(job.resizes), said] if wide else [job.reason]))
    return render(header, rows, indent="")
