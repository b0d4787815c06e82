"""`maniple jobs`: the jobs of a cluster as a table."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from maniple.api.keys import join_key
from maniple.api.phases import FINISHED
from maniple.cli.support.job_options import Connection, check_queues, list_options, run_with_client
from maniple.cli.support.table import echo_json, render
from maniple.cli.support.terminal import say
from maniple.views.ages_and_amounts import age, number
from maniple.views.jobs import JobView, job_views

if TYPE_CHECKING:
    from maniple.kube.user.client import UserClient

PHASES = ("Pending", "Starting", "Running", "Growing", "Shrinking", "Restarting", "Suspended", *FINISHED)


@click.command(
    epilog="""\b
Examples:
  maniple jobs
  maniple jobs -A --phase Running --phase Growing
  maniple jobs -q research -o wide
  maniple jobs -o json

SIZE is the number of running replicas, TARGET the number that the scheduler has decided
on, RANGE the minimum and the maximum. GPUS are the GPUs that the job holds now, PROGRESS
is what its workers last reported. `kubectl get elasticjobs` works too.
Exit codes: 0 shown, 2 wrong input or no cluster.
"""
)
@list_options
@click.option(
    "--phase",
    "phases",
    multiple=True,
    type=click.Choice(PHASES, case_sensitive=False),
    help="Only jobs in this phase; repeatable.",
)
@click.option("-o", "--output", type=click.Choice(["table", "wide", "json"]), default="table", show_default=True)
def command(
    connection: Connection, all_namespaces: bool, queues: tuple[str, ...], phases: tuple[str, ...], output: str
) -> None:
    """List jobs: their phase, size and target, GPUs, progress, and why they wait."""

    async def read(client: "UserClient") -> list[JobView]:
        namespace = None if all_namespaces else client.namespace
        views = job_views(*await client.jobs_and_replicas(namespace))
        if queues:
            from maniple.kube.transport.resource_kinds import QUEUES

            check_queues(queues, await client.names(QUEUES.list_path), (job.queue for job in views))
        return views

    jobs = [
        job
        for job in run_with_client(connection, read)
        if (not queues or job.queue in queues) and (not phases or job.phase in phases)
    ]
    if output == "json":
        echo_json(jobs)
    elif jobs:
        say(_table(jobs, with_namespace=all_namespaces, wide=output == "wide", now=datetime.now(UTC)))
    else:
        say("no jobs found" + ("" if all_namespaces else "; -A looks in all namespaces"), err=True)


def _table(jobs: Sequence[JobView], *, with_namespace: bool, wide: bool, now: datetime) -> str:
    header = ["NAME", "QUEUE", "PHASE", "SIZE", "TARGET", "RANGE", "GPUS", "PROGRESS", "RESTARTS", "AGE"]
    header += ["FRAMEWORK", "RESIZES", "WHY"] if wide else ["REASON"]
    rows = []
    for job in jobs:
        row = [
            join_key(job.key) if with_namespace else job.name,
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
        why = ": ".join(filter(None, (job.reason, job.message)))
        rows.append(row + ([job.framework, str(job.resizes), why] if wide else [job.reason]))
    return render(header, rows, indent="")
