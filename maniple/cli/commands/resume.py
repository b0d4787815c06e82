"""`maniple resume`: lets suspended jobs go on."""

import click

from maniple.cli.support.job_options import complete_jobs, visit_options
from maniple.cli.support.suspend_resume import switch


@click.command(
    epilog="""\b
Examples:
  maniple resume bert
  maniple resume -n research bert resnet

A job that is over cannot be resumed: then nothing is changed.
Exit codes: 0 done, 2 wrong input or no such job.
"""
)
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True, shell_complete=complete_jobs)
@visit_options
def command(jobs: tuple[str, ...], kubeconfig: str | None, context: str | None, namespace: str | None) -> None:
    """Resume suspended jobs: each waits for room again, and goes on from its checkpoint."""
    switch(jobs, False, kubeconfig, context, namespace)
