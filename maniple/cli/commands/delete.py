"""`maniple delete`: ends jobs and removes them."""

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

import click
import msgspec

from maniple.api.meta import OwnerReference
from maniple.cli.support.job_options import complete_jobs, job_key, run_visit, tell_of_trouble, visit_options

if TYPE_CHECKING:
    from maniple.kube.user.client import Key, Visit

DELETED, TIMED_OUT = 0, 3


@click.command(
    epilog="""\b
Examples:
  maniple delete bert
  maniple delete -n research bert resnet --wait --timeout 60

As with kubectl, nothing is asked: the job and its pods go. If one of the names is wrong,
nothing is deleted.
Who may not list pods waits for the job alone, and is told so.
Exit codes: 0 deleted, 2 wrong input or no such job, 3 deleted, but pods are still there
after --timeout.
"""
)
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True, shell_complete=complete_jobs)
@click.option("--wait", is_flag=True, help="Return when the job and all of its pods are gone.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0.1),
    metavar="SECONDS",
    help="With --wait: wait no longer than this.",
)
@visit_options
@click.pass_context
def command(
    ctx: click.Context,
    jobs: tuple[str, ...],
    wait: bool,
    timeout_s: float | None,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
) -> None:
    """Delete jobs and their pods."""
    if timeout_s is not None and not wait:
        raise click.UsageError("--timeout says how long to wait: give --wait with it.")

    async def delete(visit: "Visit") -> int:
        keys = list(dict.fromkeys(job_key(job, visit) for job in jobs))
        uids = {key: (await visit.job(key)).metadata.uid for key in keys}
        for key in keys:
            await visit.delete(key, foreground=wait)
            if not wait:
                click.echo(f"ElasticJob {'/'.join(key)} deleted")
        if not wait:
            return DELETED
        tell_of_trouble(visit)
        try:
            async with asyncio.timeout(timeout_s):
                for key in keys:
                    await _until_gone(visit, key, uids[key])
                    click.echo(f"ElasticJob {'/'.join(key)} deleted")
        except TimeoutError:
            click.echo(f"error: not gone after {timeout_s:g} s; they will be when their pods have ended", err=True)
            return TIMED_OUT
        return DELETED

    ctx.exit(run_visit(kubeconfig, context, namespace, delete))


class _Owned(msgspec.Struct, frozen=True):
    """Of a pod only who owns it: one that cannot be read otherwise is waited for too."""

    class Metadata(msgspec.Struct, frozen=True, rename="camel"):
        owner_references: tuple[OwnerReference, ...] = ()

    metadata: Metadata = Metadata()


async def _until_gone(visit: "Visit", key: "Key", uid: str) -> None:
    """First the job, then its pods: they outlive it, and while it is there it may get new ones."""
    from maniple.kube.transport.client import ApiError
    from maniple.kube.user.client import JOBS, PODS, read_job, replica_query

    async with aclosing(visit.follow(JOBS, key[0], read_job, {"fieldSelector": f"metadata.name={key[1]}"})) as changes:
        async for jobs in changes:
            if key not in jobs or jobs[key].metadata.uid != uid:  # another may have its name already
                break

    def read_owned(raw: msgspec.Raw) -> bool | None:
        owners = msgspec.json.decode(raw, type=_Owned).metadata.owner_references
        return True if any(owner.uid == uid for owner in owners) else None

    try:
        async with aclosing(visit.follow(PODS, key[0], read_owned, replica_query(key[1]))) as pods:
            async for owned in pods:
                if not owned:
                    return
    except ApiError as error:
        if error.status != 403:
            raise
        click.echo(
            f"note: ElasticJob {'/'.join(key)}: is gone, its pods may still be ending: "
            f"you may not list and watch the pods of namespace {key[0]}",
            err=True,
        )
