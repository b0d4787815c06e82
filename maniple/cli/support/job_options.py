"""What commands about jobs share: their options, how a job is named, and how they run."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import click

from maniple.api import types
from maniple.api.errors import InputError, nearest
from maniple.api.keys import Key, job_label, key_of
from maniple.api.phases import FINISHED
from maniple.api.terminal_text import printable
from maniple.api.validate.kubernetes import is_name
from maniple.cli.support.cluster_options import KUBECONFIG_OPTIONS, options_as, run_async
from maniple.cli.support.terminal import say

if TYPE_CHECKING:
    from maniple.kube.user.client import UserClient

T = TypeVar("T")

_COMPLETION_S = 3.0
INTERRUPTED = 130


@dataclass(frozen=True)
class Connection:
    """Which cluster, and which namespace of it."""

    kubeconfig: str | None
    context: str | None
    namespace: str | None


_CONNECTION_OPTIONS = (
    click.option(
        "-n", "--namespace", metavar="NAME", help="Namespace to look in; without it that of the kubeconfig's context."
    ),
    *KUBECONFIG_OPTIONS,
)
job_options = options_as("connection", Connection, *_CONNECTION_OPTIONS)
list_options = options_as(
    "connection",
    Connection,
    *_CONNECTION_OPTIONS,
    click.option("-A", "--all-namespaces", is_flag=True, help="The jobs of all namespaces."),
    click.option("-q", "--queue", "queues", multiple=True, metavar="NAME", help="Only jobs of this queue; repeatable."),
)


def run_with_client(connection: Connection, work: "Callable[[UserClient], Awaitable[T]]") -> T:
    """Ctrl-C ends it without a message."""
    from maniple.kube.user.client import connect

    async def whole() -> T:
        async with connect(connection.kubeconfig, connection.context, connection.namespace) as client:
            return await work(client)

    try:
        result: T = run_async(whole)
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    return result


def report_trouble(client: "UserClient") -> None:
    """From now on prints a line when the API server stops answering, and one when it answers again."""

    def report() -> None:
        trouble = client.trouble
        message = f"does not answer, trying again: {printable(trouble)}" if trouble else "answers again"
        say(f"note: the API server {message}", err=True)

    client.on_trouble = report


def job_key(name: str, client: "UserClient") -> Key:
    """Of `bert`, in the client's namespace, or of `research/bert`."""
    namespace, slash, own = name.rpartition("/")
    if not is_name(own) or (slash and not is_name(namespace)):
        raise InputError([f"expected the name of a job, such as bert or research/bert, found {name!r}"])
    return namespace or client.namespace, own


async def read_jobs(names: Iterable[str], client: "UserClient") -> dict[Key, types.ElasticJob]:
    """Each job once. InputError before anything is changed, if one is missing."""
    keys = dict.fromkeys(job_key(name, client) for name in names)
    return {key: await client.job(key) for key in keys}


def refuse_finished(jobs: Iterable[types.ElasticJob], verb: str) -> None:
    finished = [job for job in jobs if job.status.phase in FINISHED]
    if finished:
        raise InputError(
            f"{job_label(key_of(job.metadata))}: has finished ({job.status.phase}) and cannot be {verb}"
            for job in finished
        )


def find_role(job: types.ElasticJob, role: str) -> int:
    """Its index in the job's roles; InputError if there is none of this name."""
    names = [known.name for known in job.spec.roles]
    if role not in names:
        label = job_label(key_of(job.metadata))
        raise InputError([f"{label}: --role: unknown role {role!r}{nearest(role, names)}"])
    return names.index(role)


def check_queues(wanted: Iterable[str], known: Iterable[str] | None, used: Iterable[str]) -> None:
    """InputError for a queue that neither exists nor is named by a job; known None: the user may not list queues."""
    if known is None:
        return
    existing = {*known, types.DEFAULT_QUEUE}
    unknown = [name for name in wanted if name not in existing | set(used)]
    if unknown:
        raise InputError(f"--queue: there is no queue {name!r}{nearest(name, existing)}" for name in unknown)


def complete_jobs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The cluster's jobs, for a shell that completes a name."""
    del param
    where = [ctx.params.get(option) for option in ("kubeconfig", "context", "namespace")]

    async def job_names() -> list[str]:
        from maniple.kube.user.client import connect

        async with asyncio.timeout(_COMPLETION_S), connect(*where) as client:
            return sorted(job.metadata.name for job in await client.jobs(client.namespace))

    try:
        names = asyncio.run(job_names())
    except Exception:  # no extra, no cluster, no rights, no time: the shell must not show errors
        return []
    return [name for name in names if name.startswith(incomplete)]


job_argument = click.argument("name", metavar="JOB", shell_complete=complete_jobs)
jobs_argument = click.argument("names", metavar="JOB...", nargs=-1, required=True, shell_complete=complete_jobs)
