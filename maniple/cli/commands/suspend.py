"""`maniple suspend`: gives back all that a job holds, until it is resumed."""

import click

from maniple.cli.support.job_options import complete_jobs, visit_options
from maniple.cli.support.suspend_resume import switch


@click.command(
    epilog="""\b
Examples:
  maniple suspend bert
  maniple suspend -n research bert resnet

A job that is over cannot be suspended: then nothing is changed.
Exit codes: 0 done, 2 wrong input or no such job.
"""
)
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True, shell_complete=complete_jobs)
@visit_options
def command(jobs: tuple[str, ...], kubeconfig: str | None, context: str | None, namespace: str | None) -> None:
    """Suspend jobs: each checkpoints and gives back its GPUs; `maniple resume` lets it go on."""
    switch(jobs, True, kubeconfig, context, namespace)
