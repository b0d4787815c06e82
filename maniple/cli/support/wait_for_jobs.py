"""Waiting for jobs: a line for each thing that changes, and an exit code for how they ended."""

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

import click

from maniple.api import types
from maniple.api.errors import InputError, printable
from maniple.cli.support.job_options import tell_of_trouble
from maniple.model.elastic import current_sizes
from maniple.views.jobs import ENDED, counted, why

if TYPE_CHECKING:
    from maniple.kube.user.client import Key, Visit

SUCCEEDED, FAILED, TIMED_OUT = 0, 1, 3


async def wait_for_jobs(visit: "Visit", jobs: "list[Key]", *, with_logs: bool, timeout_s: float | None) -> int:
    """Progress goes to standard error, logs to standard output."""
    tell_of_trouble(visit)
    printing = [asyncio.create_task(_print_log(visit, key, len(jobs) > 1)) for key in jobs] if with_logs else []
    try:
        async with asyncio.timeout(timeout_s):
            ends = await asyncio.gather(*(_wait(visit, key) for key in jobs))
            await asyncio.gather(*printing)
    except TimeoutError:
        click.echo(f"error: not over after {timeout_s:g} s; the jobs go on", err=True)
        return TIMED_OUT
    finally:
        for task in printing:
            task.cancel()
    return max(ends, default=SUCCEEDED)


async def _wait(visit: "Visit", key: "Key") -> int:
    from maniple.kube.user.client import JOBS, read_job

    name, said = "/".join(key), ""
    query = {"fieldSelector": f"metadata.name={key[1]}"}
    async with aclosing(visit.follow(JOBS, key[0], read_job, query)) as changes:
        async for found in changes:
            job = found.get(key)
            if job is None:
                click.echo(f"{name}: deleted", err=True)
                return FAILED
            line = progress(job)
            if line != said:
                said = line
                click.echo(f"{name}: {printable(line)}", err=True)
            if job.status.phase in ENDED:
                return SUCCEEDED if job.status.phase == "Succeeded" else FAILED
    return FAILED


def progress(job: types.ElasticJob) -> str:
    """`Running with 4 of 8 replicas`, `Pending: InsufficientResources: needs …`"""
    phase = job.status.phase or "Submitted"
    reason, message = why(job)
    running = job.status.replicas.running
    target = sum(current_sizes(job, []).values())
    if not job.status.target:  # then it is to have those that it has
        target = max(target, running)
    size = f" with {running} of {counted(target, 'replica')}" if running and phase not in ENDED else ""
    return ": ".join(filter(None, (f"{phase}{size}", reason if reason not in ("NotSeen", phase) else "", message)))


async def _print_log(visit: "Visit", key: "Key", with_name: bool) -> None:
    from maniple.kube.user.job_logs import Choice, follow_logs
    from maniple.kube.user.replica_view import Replica

    first = ((await visit.job(key)).spec.lead, 0)

    def take(replica: Replica, line: str) -> None:
        click.echo(f"[{replica.name}] {line}" if with_name else line)

    choice = Choice(lambda replica: (replica.role, replica.index) == first)
    try:
        await follow_logs(visit, key, choice, take)
    except InputError as error:  # how the job ends counts, and not its log
        click.echo(f"note: {error}", err=True)
