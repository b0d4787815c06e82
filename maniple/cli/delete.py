"""`maniple delete`: ends jobs and removes them."""

from contextlib import aclosing
from typing import TYPE_CHECKING

import click

from maniple.cli.people import complete_jobs, job_key, run_visit, visit_options

if TYPE_CHECKING:
    from maniple.cluster.kube.visit import Key, Visit


@click.command(
    epilog="""\b
Examples:
  maniple delete bert
  maniple delete -n research bert resnet --wait

As with kubectl, nothing is asked: the job and its pods go. If one of the names is wrong,
nothing is deleted.
Exit codes: 0 deleted, 2 wrong input or no such job.
"""
)
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True, shell_complete=complete_jobs)
@click.option("--wait", is_flag=True, help="Return when the job and all of its pods are gone.")
@visit_options
def command(
    jobs: tuple[str, ...], wait: bool, kubeconfig: str | None, context: str | None, namespace: str | None
) -> None:
    """Delete jobs and their pods."""

    async def delete(visit: "Visit") -> None:
        keys = list(dict.fromkeys(job_key(job, visit) for job in jobs))
        for key in keys:
            await visit.job(key)
        for key in keys:
            await visit.delete(key, foreground=wait)
            if not wait:
                click.echo(f"ElasticJob {'/'.join(key)} deleted")
        for key in keys if wait else ():
            await _until_gone(visit, key)
            click.echo(f"ElasticJob {'/'.join(key)} deleted")

    run_visit(kubeconfig, context, namespace, delete)


async def _until_gone(visit: "Visit", key: "Key") -> None:
    """Deleted in the foreground, a job is there until its pods are gone."""
    from maniple.cluster.kube.visit import JOBS, read_job

    async with aclosing(visit.follow(JOBS, key[0], read_job, {"fieldSelector": f"metadata.name={key[1]}"})) as changes:
        async for jobs in changes:
            if key not in jobs:
                return
