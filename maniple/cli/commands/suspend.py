"""`maniple suspend`: releases everything that a job holds, until it is resumed."""

import click

from maniple.cli.support.job_options import Connection, complete_jobs, job_options
from maniple.cli.support.suspend_resume import set_suspend


@click.command(
    epilog="""\b
Examples:
  maniple suspend bert
  maniple suspend -n research bert resnet

A job that has finished cannot be suspended: then no job is changed.
Exit codes: 0 done, 2 wrong input or no such job.
"""
)
@click.argument("names", metavar="JOB...", nargs=-1, required=True, shell_complete=complete_jobs)
@job_options
def command(names: tuple[str, ...], connection: Connection) -> None:
    """Suspend jobs: each checkpoints and releases its GPUs; `maniple resume` continues it."""
    set_suspend(names, True, connection)
