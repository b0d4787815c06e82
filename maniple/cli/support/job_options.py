"""What the commands for people have in common: where they look, how a job is named, and how a visit ends."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from maniple.api import types
from maniple.api.errors import InputError, nearest, printable
from maniple.api.validate.kubernetes import is_name
from maniple.cli.support.cluster_options import live_options, run_live

if TYPE_CHECKING:
    from maniple.kube.user.client import Key, Visit

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

_COMPLETION_S = 3.0
INTERRUPTED = 130

_NAMESPACE = click.option(
    "-n", "--namespace", metavar="NAME", help="Namespace to look in; without it that of the kubeconfig's context."
)


def visit_options(command: F) -> F:
    return _NAMESPACE(live_options(command))


def run_visit(
    kubeconfig: str | None, context: str | None, namespace: str | None, work: "Callable[[Visit], Awaitable[T]]"
) -> T:
    """Does `work` on a cluster; Ctrl-C ends it without a word."""
    from maniple.kube.user.client import visit

    async def whole() -> T:
        async with visit(kubeconfig, context, namespace) as visited:
            return await work(visited)

    try:
        done: T = run_live(whole)
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    return done


def tell_of_trouble(visited: "Visit") -> None:
    """From now on: a line when the API server does not answer any more, and one when it does again."""

    def tell() -> None:
        why = visited.trouble
        said = f"does not answer, trying again: {printable(why)}" if why else "answers again"
        click.echo(f"note: the API server {said}", err=True)

    visited.line_changed = tell


def job_key(text: str, visited: "Visit") -> "Key":
    """`bert` in the namespace that is looked in, or `research/bert`."""
    namespace, slash, name = text.rpartition("/")
    if not is_name(name) or (slash and not is_name(namespace)):
        raise InputError([f"expected the name of a job, such as bert or research/bert, found {text!r}"])
    return namespace or visited.namespace, name


def check_queues(wanted: Iterable[str], known: Iterable[str] | None, used: Iterable[str]) -> None:
    """InputError for a queue that is neither there nor named by a job; known None: one may not know which there are."""
    if known is None:
        return
    there = {*known, types.DEFAULT_QUEUE}
    unknown = [name for name in wanted if name not in there | set(used)]
    if unknown:
        raise InputError(f"--queue: there is no queue {name!r}{nearest(name, there)}" for name in unknown)


def complete_jobs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The cluster's jobs, for a shell that completes a name."""
    del param
    from maniple.kube.user.client import visit

    async def names_of(kubeconfig: str | None, context: str | None, namespace: str | None) -> list[str]:
        async with asyncio.timeout(_COMPLETION_S), visit(kubeconfig, context, namespace) as visited:
            return sorted(job.metadata.name for job in await visited.jobs(visited.namespace))

    given = ctx.params
    try:
        names = asyncio.run(names_of(given.get("kubeconfig"), given.get("context"), given.get("namespace")))
    except Exception:  # no cluster, no rights, no time: the shell gets no words
        return []
    return [name for name in names if name.startswith(incomplete)]
