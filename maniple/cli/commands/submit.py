"""`maniple submit`: creates the objects of files, or one job from options."""

import dataclasses
from typing import TYPE_CHECKING

import click
import msgspec

from maniple.api import types
from maniple.api.decode.decode import decode
from maniple.api.decode.documents import split
from maniple.api.errors import InputError, shown
from maniple.api.keys import join_key
from maniple.cli.support.cluster_options import options_as, seconds_option
from maniple.cli.support.job_from_options import JobOptions, make_job
from maniple.cli.support.job_options import Connection, job_options, run_with_client
from maniple.cli.support.read_files import read_sources
from maniple.cli.support.reserved_fields import reserved_field_errors
from maniple.cli.support.terminal import say
from maniple.cli.support.yaml_text import to_yaml
from maniple.kube.user.submission import Submission

if TYPE_CHECKING:
    from maniple.kube.user.client import UserClient

_FRAMEWORKS = ("torch", "torchrun", "horovod", "none")


class _Submit(click.Command):
    """Everything after `--` is the job's own command, whatever it looks like."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["command"] = ()
        if "--" in args:
            index = args.index("--")
            ctx.meta["command"] = tuple(args[index + 1 :])
            args = args[:index]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


@click.command(
    cls=_Submit,
    epilog="""\b
Examples:
  maniple submit job.yaml --follow
  maniple submit --name bert --gpus 4:8 --image training:1 -- python train.py
  maniple submit --name gpt --gpus 16:64 --gpus-per-replica 8 --queue research
      --mount pvc/data:/data:ro --env EPOCHS=3 --image training:1 -- python train.py
  maniple submit --name bert --gpus 4 --image training:1 --dry-run -- python train.py

FILE holds objects of any kind as YAML or JSON; '-' is standard input. All objects are
checked first: if one is wrong, none is created.
With framework torch, Maniple's agent runs the COMMAND, and restarts it at each new size.
Exit codes: 0 created, and with --wait succeeded; 1 failed or deleted; 2 wrong input or
refused; 3 not finished within --timeout; 130 interrupted: the job goes on.
""",
)
@click.argument("files", nargs=-1, metavar="[FILE]...", type=click.Path(allow_dash=True))
@click.option("--name", metavar="NAME", help="Create a job of this name from the options below, not from a file.")
@click.option("--gpus", metavar="MIN[:MAX]", help="GPUs of the whole job: 8, or 4:8 for 4 to 8.")
@click.option("--replicas", metavar="MIN[:MAX]", help="The same as a number of replicas.  [default: 1]")
@click.option(
    "--gpus-per-replica", type=click.IntRange(0, 1024), default=1, show_default=True, help="GPUs of each replica."
)
@click.option("--image", metavar="IMAGE", help="Container image.")
@click.option("-q", "--queue", default="", metavar="NAME", help="The job's queue.  [default: default]")
@click.option("--priority", default="", metavar="NAME", help="PriorityClass.")
@click.option("--framework", type=click.Choice(_FRAMEWORKS), default="torch", show_default=True)
@click.option("--cpu", default="", metavar="AMOUNT", help="CPUs of each replica, such as 8.")
@click.option("--memory", default="", metavar="AMOUNT", help="Memory of each replica, such as 64Gi.")
@click.option("-e", "--env", multiple=True, metavar="NAME=VALUE", help="Environment variable; repeatable.")
@click.option(
    "--mount",
    "mounts",
    multiple=True,
    metavar="SOURCE:PATH[:ro]",
    help="Mount pvc/NAME, configmap/NAME, secret/NAME, memory, or a directory of the node; repeatable.",
)
@click.option(
    "--gpu-resource",
    type=click.Choice(types.GPU_RESOURCES),
    default=types.GPU_RESOURCES[0],
    show_default=True,
    help="The resource name of GPUs in the cluster.",
)
@click.option("--dry-run", is_flag=True, help="Check locally and print the objects as YAML, without a cluster.")
@click.option("--wait", is_flag=True, help="Wait until the jobs have finished, and print their changes.")
@click.option("--follow", is_flag=True, help="Like --wait, and print the log of the first replica.")
@seconds_option("--timeout", "timeout_s", "Limit of --wait or --follow.", least=0.1)
@job_options
@options_as("job", JobOptions)
@click.pass_context
def command(
    ctx: click.Context,
    files: tuple[str, ...],
    job: JobOptions,
    dry_run: bool,
    wait: bool,
    follow: bool,
    timeout_s: float | None,
    connection: Connection,
) -> None:
    """Submit jobs: the objects of files, or one job from options."""
    words: tuple[str, ...] = ctx.meta["command"]
    if dry_run and (wait or follow):
        raise click.UsageError("--dry-run creates nothing to wait for: leave out --wait and --follow.")
    if timeout_s is not None and not (wait or follow):
        raise click.UsageError("--timeout needs --wait or --follow.")
    if job.name is None:
        _refuse_options(ctx, words)
        submissions = _from_files(files)
    else:
        submissions = [_from_options(job, files, words, connection.namespace)]
    if dry_run:
        say("---\n".join(to_yaml(submission.body) for submission in submissions), nl=False)
        return
    _check_namespaces(submissions, connection.namespace)
    ctx.exit(
        run_with_client(connection, lambda client: _submit(client, submissions, wait or follow, follow, timeout_s))
    )


async def _submit(
    client: "UserClient", submissions: list[Submission], wait: bool, follow: bool, timeout_s: float | None
) -> int:
    from maniple.cli.support.wait_until_finished import wait_for_jobs
    from maniple.kube.user.submit import submit

    await submit(client, submissions)
    jobs = []
    for submission in submissions:
        key = submission.key(client.namespace)
        say(f"{submission.kind[1]} {join_key(key)} submitted", err=wait)
        if submission.is_job:
            jobs.append(key)
    return await wait_for_jobs(client, jobs, with_logs=follow, timeout_s=timeout_s) if wait else 0


def _from_files(files: tuple[str, ...]) -> list[Submission]:
    if not files:
        raise click.UsageError("Name a FILE, or create a job with --name, --gpus, --image and -- COMMAND.")
    sources = read_sources(files)
    decode(sources)  # raises everything that is wrong with the kinds that we know
    documents = [document for source, data in sources for document in split(data, source)]
    submissions = [Submission(document.where, msgspec.json.decode(document.raw)) for document in documents]
    if not submissions:
        raise InputError([f"{', '.join(files)}: no objects; expected an ElasticJob"])
    unnamed = [submission for submission in submissions if not submission.name]
    if unnamed:
        raise InputError(f"{submission.where}: metadata.name: expected a name, found none" for submission in unnamed)
    reserved = [
        f"{submission.where}: {problem}"
        for submission in submissions
        if submission.is_job
        for problem in reserved_field_errors(submission.body)
    ]
    if reserved:
        raise InputError(reserved)
    return submissions


def _from_options(job: JobOptions, files: tuple[str, ...], words: tuple[str, ...], namespace: str | None) -> Submission:
    if files:
        raise click.UsageError(
            f"--name creates a job from options: name no FILE with it, and write its command after --, "
            f"such as -- {' '.join(files)}."
        )
    if not job.image:
        raise click.UsageError("Missing option '--image': the image that the job's containers run.")
    if not words:
        raise click.UsageError("Missing command: write it at the end, after --, such as -- python train.py.")
    if job.gpus is not None and job.replicas is not None:
        raise click.UsageError("--gpus and --replicas are the same limit: give one of the two.")
    body = make_job(job, words, namespace)
    try:
        data = msgspec.json.encode(body)
    except UnicodeEncodeError as error:  # bytes of the command line that Python could not decode
        raise InputError([f"options: expected text in UTF-8, found {shown(error.object)}"]) from None
    decode([("options", data)])
    return Submission("options", body)


def _refuse_options(ctx: click.Context, words: tuple[str, ...]) -> None:
    """An option that would be ignored is an error."""
    names = [field.name for field in dataclasses.fields(JobOptions)]
    given = [
        option.opts[-1]
        for option in ctx.command.params
        if option.name in names and ctx.get_parameter_source(option.name) is click.core.ParameterSource.COMMANDLINE
    ]
    if given or words:
        what = ", ".join(given) or "a command"
        raise click.UsageError(f"Missing option '--name': {what} is for a job from options, not for a FILE.")


def _check_namespaces(submissions: list[Submission], namespace: str | None) -> None:
    """As in kubectl: -n with an object that names another namespace is an error."""
    if namespace is None:
        return
    others = [submission for submission in submissions if submission.key(namespace)[0] != namespace]
    if others:
        raise InputError(
            f"{submission.label(namespace)}: metadata.namespace: expected {namespace!r}, as --namespace says, "
            f"found {submission.key(namespace)[0]!r}"
            for submission in others
        )
