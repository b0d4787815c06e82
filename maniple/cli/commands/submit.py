"""`maniple submit`: makes jobs from a file, or one from options."""

from typing import TYPE_CHECKING, Any

import click
import msgspec

from maniple.api import types
from maniple.api.decode.decode import decode
from maniple.api.decode.documents import split
from maniple.api.errors import InputError
from maniple.cli.support.job_from_options import Wish, make_job
from maniple.cli.support.job_options import run_visit, visit_options
from maniple.cli.support.read_files import read_sources
from maniple.cli.support.reserved_fields import taken_in
from maniple.cli.support.yaml_text import to_yaml

if TYPE_CHECKING:
    from maniple.kube.user.client import Key, Visit
    from maniple.kube.user.submit import Parcel

_OF_A_JOB = (
    *("gpus", "replicas", "gpus_per_replica", "gpu_resource", "image", "queue", "priority", "framework"),
    *("cpu", "memory", "env", "mounts"),
)
_FRAMEWORKS = ("torch", "torchrun", "horovod", "none")


class _Submit(click.Command):
    """What stands behind `--` is the job's own command, whatever it looks like."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["command"] = ()
        if "--" in args:
            at = args.index("--")
            ctx.meta["command"] = tuple(args[at + 1 :])
            args = args[:at]
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

FILE holds objects of any kind as YAML or JSON; '-' is standard input. All are checked
before any is made: if one is wrong, none is.
A COMMAND of framework torch is started by Maniple's agent, anew at each size.
Exit codes: 0 made, and with --wait succeeded; 1 failed or deleted; 2 wrong input or
refused; 3 not over within --timeout; 130 interrupted: the job goes on.
""",
)
@click.argument("files", nargs=-1, metavar="[FILE]...", type=click.Path(allow_dash=True))
@click.option("--name", metavar="NAME", help="Make a job of this name from the options below, and not from a file.")
@click.option("--gpus", metavar="MIN[:MAX]", help="GPUs of the whole job: 8, or from 4 to 8 as 4:8.")
@click.option("--replicas", metavar="MIN[:MAX]", help="The same, counted in replicas.  [default: 1]")
@click.option(
    "--gpus-per-replica", type=click.IntRange(0, 1024), default=1, show_default=True, help="GPUs of each replica."
)
@click.option("--image", metavar="IMAGE", help="Container image.")
@click.option("-q", "--queue", default="", metavar="NAME", help="The queue that pays.  [default: default]")
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
    help="Mount pvc/NAME, configmap/NAME, secret/NAME, memory, or a folder of the node; repeatable.",
)
@click.option(
    "--gpu-resource",
    type=click.Choice(types.GPU_RESOURCES),
    default=types.GPU_RESOURCES[0],
    show_default=True,
    help="What GPUs are called in the cluster.",
)
@click.option("--dry-run", is_flag=True, help="Check here, print the objects as YAML, and talk to no cluster.")
@click.option("--wait", is_flag=True, help="Wait until the jobs are over, and say how they fare.")
@click.option("--follow", is_flag=True, help="The same, and print the log of the first replica.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(0.1), metavar="SECONDS", help="Of --wait or --follow.")
@visit_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    files: tuple[str, ...],
    name: str | None,
    dry_run: bool,
    wait: bool,
    follow: bool,
    timeout_s: float | None,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    **options: Any,
) -> None:
    """Submit jobs: those of a file, or one made from options."""
    words: tuple[str, ...] = ctx.meta["command"]
    if dry_run and (wait or follow):
        raise click.UsageError("--dry-run makes nothing that could be waited for: leave --wait and --follow out.")
    if timeout_s is not None and not (wait or follow):
        raise click.UsageError("--timeout says how long to wait: give --wait or --follow with it.")
    if name is None:
        _refuse_options(ctx, words)
        parcels = _from_files(files)
    else:
        parcels = [_from_options(name, files, words, namespace, options)]
    if dry_run:
        click.echo("---\n".join(to_yaml(parcel.body) for parcel in parcels), nl=False)
        return
    _check_namespaces(parcels, namespace)
    code = run_visit(
        kubeconfig, context, namespace, lambda visit: _submit(visit, parcels, wait or follow, follow, timeout_s)
    )
    ctx.exit(code)


async def _submit(visit: "Visit", parcels: "list[Parcel]", wait: bool, follow: bool, timeout_s: float | None) -> int:
    from maniple.cli.support.wait_for_jobs import wait_for_jobs
    from maniple.kube.user.submit import submit

    await submit(visit, parcels)
    jobs: list[Key] = []
    for parcel in parcels:
        namespace = parcel.namespace(visit.namespace)
        click.echo(f"{parcel.kind[1]} {namespace}/{parcel.name} submitted", err=wait)
        if parcel.is_job:
            jobs.append((namespace, parcel.name))
    return await wait_for_jobs(visit, jobs, with_logs=follow, timeout_s=timeout_s) if wait else 0


def _from_files(files: tuple[str, ...]) -> "list[Parcel]":
    from maniple.kube.user.submit import Parcel

    if not files:
        raise click.UsageError("Name a FILE, or make a job with --name, --gpus, --image and -- COMMAND.")
    sources = read_sources(files)
    decode(sources)  # says all that is wrong with what we know
    documents = [document for source, data in sources for document in split(data, source)]
    parcels = [Parcel(document.where, msgspec.json.decode(document.raw)) for document in documents]
    if not parcels:
        raise InputError([f"{', '.join(files)}: no objects; expected an ElasticJob"])
    unnamed = [parcel for parcel in parcels if not parcel.name]
    if unnamed:
        raise InputError(f"{parcel.where}: metadata.name: expected a name, found none" for parcel in unnamed)
    taken = [f"{one.where}: {said}" for one in parcels if one.is_job for said in taken_in(one.body)]
    if taken:
        raise InputError(taken)
    return parcels


def _from_options(
    name: str,
    files: tuple[str, ...],
    words: tuple[str, ...],
    namespace: str | None,
    options: dict[str, Any],
) -> "Parcel":
    from maniple.kube.user.submit import Parcel

    if files:
        raise click.UsageError(
            f"--name makes a job from options: name no file with it, and write its command behind --, "
            f"such as -- {' '.join(files)}."
        )
    image = options.pop("image")
    if not image:
        raise click.UsageError("Missing option '--image': the image that the job's containers run.")
    if not words:
        raise click.UsageError("Missing command: write it at the end, behind --, such as -- python train.py.")
    if options["gpus"] is not None and options["replicas"] is not None:
        raise click.UsageError("--gpus and --replicas say the same: give one of the two.")
    body = make_job(Wish(name=name, image=image, command=words, **options), namespace)
    decode([("options", msgspec.json.encode(body))])
    return Parcel("options", body)


def _refuse_options(ctx: click.Context, words: tuple[str, ...]) -> None:
    """An option that would be ignored is an error."""
    given = [
        option.opts[-1]
        for option in ctx.command.params
        if option.name in _OF_A_JOB and ctx.get_parameter_source(option.name) is click.core.ParameterSource.COMMANDLINE
    ]
    if given or words:
        what = ", ".join(given) or "a command"
        raise click.UsageError(
            f"Missing option '--name': {what} makes a job from options; with a FILE it has no place."
        )


def _check_namespaces(parcels: "list[Parcel]", namespace: str | None) -> None:
    """As kubectl has it: -n beside an object that names another namespace is a mistake."""
    if namespace is None:
        return
    other = [parcel for parcel in parcels if parcel.namespace(namespace) != namespace]
    if other:
        raise InputError(
            f"{parcel.label(namespace)}: metadata.namespace: expected {namespace!r}, as --namespace says, "
            f"found {parcel.namespace(namespace)!r}"
            for parcel in other
        )
