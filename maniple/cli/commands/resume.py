"""`maniple resume`: resumes suspended jobs."""

import click

from maniple.cli.support.job_options import Connection, complete_jobs, job_options
from maniple.cli.support.suspend_resume import set_suspend


@click.command(
    epilog="""\b
Examples:
  maniple resume bert
  maniple resume -n research bert resnet

A job that has finished cannot be resumed: then no job is changed.
Exit codes: 0 done, 2 wrong input or no such job.
"""
)
@click.argument("names", metavar="JOB...", nargs=-1, required=True, shell_complete=complete_jobs)
@job_options
def command(names: tuple[str, ...], connection: Connection) -> None:
    """Resume suspended jobs: each waits for resources again, and continues from its checkpoint."""
    set_suspend(names, False, connection)
