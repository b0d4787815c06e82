"""`maniple delete`: deletes jobs and their pods."""

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

import click
import msgspec

from maniple.api.keys import Key, job_label
from maniple.api.meta import OwnerReference
from maniple.cli.support.cluster_options import seconds_option
from maniple.cli.support.job_options import (
    Connection,
    job_options,
    jobs_argument,
    read_jobs,
    report_trouble,
    run_with_client,
)
from maniple.cli.support.terminal import say

if TYPE_CHECKING:
    from maniple.kube.user.client import UserClient

TIMED_OUT = 3


@click.command(
    epilog="""\b
Examples:
  maniple delete bert
  maniple delete -n research bert resnet --wait --timeout 60

As with kubectl, there is no confirmation: the job and its pods are deleted. If one of the
names is wrong, nothing is deleted.
Without the right to list pods, --wait waits for the job only, and says so.
Exit codes: 0 deleted, 2 wrong input or no such job, 3 deleted, but pods remain after
--timeout.
"""
)
@jobs_argument
@click.option("--wait", is_flag=True, help="Return when the job and all of its pods are gone.")
@seconds_option("--timeout", "timeout_s", "With --wait: wait no longer than this.", least=0.1)
@job_options
@click.pass_context
def command(
    ctx: click.Context, names: tuple[str, ...], wait: bool, timeout_s: float | None, connection: Connection
) -> None:
    """Delete jobs and their pods."""
    if timeout_s is not None and not wait:
        raise click.UsageError("--timeout needs --wait.")

    async def delete(client: "UserClient") -> int:
        jobs = await read_jobs(names, client)
        for key in jobs:
            await client.delete(key, foreground=wait)
            if not wait:
                say(f"{job_label(key)} deleted")
        if not wait:
            return 0
        report_trouble(client)
        try:
            async with asyncio.timeout(timeout_s):
                for key, job in jobs.items():
                    await _until_gone(client, key, job.metadata.uid)
                    say(f"{job_label(key)} deleted")
        except TimeoutError:
            say(f"error: not gone after {timeout_s:g} s; they will be when their pods have ended", err=True)
            return TIMED_OUT
        return 0

    ctx.exit(run_with_client(connection, delete))


class _Owned(msgspec.Struct, frozen=True):
    """Only the owners of a pod: a pod that cannot be read otherwise counts too."""

    class Metadata(msgspec.Struct, frozen=True, rename="camel"):
        owner_references: tuple[OwnerReference, ...] = ()

    metadata: Metadata = Metadata()


async def _until_gone(client: "UserClient", key: Key, uid: str) -> None:
    """First the job, then its pods: they outlive it, and while it exists it may get new ones."""
    from maniple.kube.transport.client import ApiError
    from maniple.kube.transport.resource_kinds import PODS
    from maniple.kube.user.client import replica_query

    async with aclosing(client.follow_job(key)) as changes:
        async for job in changes:
            if job is None or job.metadata.uid != uid:  # a new job may have its name already
                break

    def read_owned(raw: msgspec.Raw) -> bool | None:
        owners = msgspec.json.decode(raw, type=_Owned).metadata.owner_references
        return True if any(owner.uid == uid for owner in owners) else None

    try:
        async with aclosing(client.follow(PODS, key[0], read_owned, replica_query(key[1]))) as pods:
            async for owned in pods:
                if not owned:
                    return
    except ApiError as error:
        if error.status != 403:
            raise
        say(
            f"note: {job_label(key)}: is gone, its pods may still be ending: "
            f"you may not list and watch the pods of namespace {key[0]}",
            err=True,
        )
