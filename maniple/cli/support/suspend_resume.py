"""`maniple suspend` and `maniple resume`: they set one field of several jobs."""

from typing import TYPE_CHECKING

import click

from maniple.api.keys import job_label
from maniple.cli.support.job_options import (
    Connection,
    job_options,
    jobs_argument,
    read_jobs,
    refuse_finished,
    run_with_client,
)
from maniple.cli.support.terminal import say

if TYPE_CHECKING:
    from maniple.kube.user.client import UserClient

_EPILOG = """\b
Examples:
  maniple {verb} bert
  maniple {verb} -n research bert resnet

A job that has finished cannot be {done}: then no job is changed.
Exit codes: 0 done, 2 wrong input or no such job.
"""


def make_command(*, suspend: bool, summary: str) -> click.Command:
    verb, done = ("suspend", "suspended") if suspend else ("resume", "resumed")

    @click.command(verb, help=summary, epilog=_EPILOG.format(verb=verb, done=done))
    @jobs_argument
    @job_options
    def command(names: tuple[str, ...], connection: Connection) -> None:
        async def change(client: "UserClient") -> None:
            jobs = await read_jobs(names, client)
            refuse_finished(jobs.values(), done)
            for key, job in jobs.items():
                if job.spec.suspend == suspend:
                    say(f"{job_label(key)} {'is already suspended' if suspend else 'is not suspended'}")
                    continue
                await client.merge(key, {"spec": {"suspend": suspend}})
                say(f"{job_label(key)} {done}")

        run_with_client(connection, change)

    return command
