"""What `maniple suspend` and `maniple resume` share: they set one field of several jobs."""

from typing import TYPE_CHECKING

import click

from maniple.cli.support.job_options import Connection, read_jobs, refuse_finished, run_with_client

if TYPE_CHECKING:
    from maniple.kube.user.client import UserClient


def set_suspend(names: tuple[str, ...], suspend: bool, connection: Connection) -> None:
    """All jobs are read before one is changed."""
    verb = "suspended" if suspend else "resumed"

    async def change(client: "UserClient") -> None:
        from maniple.kube.user.client import job_label

        jobs = await read_jobs(names, client)
        refuse_finished(jobs.values(), verb)
        for key, job in jobs.items():
            if job.spec.suspend == suspend:
                click.echo(f"{job_label(key)} {'is already suspended' if suspend else 'is not suspended'}")
                continue
            await client.merge(key, {"spec": {"suspend": suspend}})
            click.echo(f"{job_label(key)} {verb}")

    run_with_client(connection, change)
