"""What `maniple suspend` and `maniple resume` share: one field of several jobs, set."""

from typing import TYPE_CHECKING

import click

from maniple.api.errors import InputError
from maniple.cli.support.job_options import job_key, run_visit
from maniple.views.jobs import ENDED

if TYPE_CHECKING:
    from maniple.kube.user.client import Visit


def switch(
    jobs: tuple[str, ...], suspend: bool, kubeconfig: str | None, context: str | None, namespace: str | None
) -> None:
    """All jobs are looked at before one is changed."""
    verb = "suspended" if suspend else "resumed"

    async def change(visit: "Visit") -> None:
        keys = list(dict.fromkeys(job_key(job, visit) for job in jobs))
        found = {key: await visit.job(key) for key in keys}
        over = [key for key, job in found.items() if job.status.phase in ENDED]
        if over:
            raise InputError(
                f"ElasticJob {'/'.join(key)}: is over ({found[key].status.phase}) and cannot be {verb}" for key in over
            )
        for key, job in found.items():
            if job.spec.suspend == suspend:
                click.echo(f"ElasticJob {'/'.join(key)} {'is suspended already' if suspend else 'is not suspended'}")
                continue
            await visit.merge(key, {"spec": {"suspend": suspend}})
            click.echo(f"ElasticJob {'/'.join(key)} {verb}")

    run_visit(kubeconfig, context, namespace, change)
