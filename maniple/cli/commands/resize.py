"""`maniple resize`: pins the size of a job, or changes its bounds."""

from typing import TYPE_CHECKING, Any

import click

from maniple.api import types
from maniple.api.errors import InputError, nearest
from maniple.cli.support.job_options import complete_jobs, job_key, run_visit, visit_options
from maniple.views.jobs import ENDED

if TYPE_CHECKING:
    from maniple.kube.user.client import Visit

_MOST = 100_000


class _Replicas(click.IntRange):
    """A number of replicas, and in the words of this command what is none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            whole = int(value)
        except ValueError:
            self.fail(f"expected a number of replicas, such as 6, found {value!r}", param, ctx)
        return super().convert(whole, param, ctx)


_REPLICAS = _Replicas(0, _MOST)


@click.command(
    epilog="""\b
Examples:
  maniple resize bert --pin 6
  maniple resize bert --unpin
  maniple resize bert --min 2 --max 16
  maniple resize horovod --role worker --max 4

All count replicas. A pinned job has exactly so many until --unpin; else the scheduler
decides between min and max. The job checkpoints and goes on at the new size.
Exit codes: 0 changed, 2 wrong input, no such job, or refused.
"""
)
@click.argument("job", metavar="JOB", shell_complete=complete_jobs)
@click.option("--pin", type=_REPLICAS, metavar="N", help="Exactly so many replicas.")
@click.option("--unpin", is_flag=True, help="Between min and max again.")
@click.option("--min", "least", type=_REPLICAS, metavar="N", help="The least.")
@click.option("--max", "most", type=_REPLICAS, metavar="N", help="The most.")
@click.option("--role", metavar="NAME", help="Of this role; needed where a job has several.")
@visit_options
def command(
    job: str,
    pin: int | None,
    unpin: bool,
    least: int | None,
    most: int | None,
    role: str | None,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
) -> None:
    """Pin the size of a running job, or change its least and most."""
    if pin is None and not unpin and least is None and most is None:
        raise click.UsageError("Say what to change: --pin N, --unpin, --min N or --max N.")
    if pin is not None and unpin:
        raise click.UsageError("--pin and --unpin contradict each other: give one of the two.")
    wanted: dict[str, int | None] = {"min": least, "max": most, "pin": pin}
    wanted = {name: value for name, value in wanted.items() if value is not None}
    if unpin:
        wanted["pin"] = None

    async def resize(visit: "Visit") -> str:
        key = job_key(job, visit)
        found = await visit.job(key)
        at = _role(found, role)
        before, name = found.spec.roles[at], "/".join(key)
        check(found, before, wanted)
        changed = await visit.change(key, operations(at, before, wanted))
        after = changed.spec.roles[at]
        return f"ElasticJob {name} {_said(before)} → {_said(after)}" if after != before else f"{name}: is so already"

    click.echo(run_visit(kubeconfig, context, namespace, resize))


def operations(at: int, before: types.ElasticRole, wanted: dict[str, int | None]) -> list[dict[str, Any]]:
    """The patch: it holds only while the role is what was read."""
    path = f"/spec/roles/{at}"
    made: list[dict[str, Any]] = [{"op": "test", "path": f"{path}/name", "value": before.name}]
    for name, value in wanted.items():
        if value is not None:
            made.append({"op": "add", "path": f"{path}/{name}", "value": value})
        elif getattr(before, name) is not None:
            made.append({"op": "remove", "path": f"{path}/{name}"})
    return made


def _role(job: types.ElasticJob, role: str | None) -> int:
    names = [one.name for one in job.spec.roles]
    if role is None and len(names) > 1:
        listed = ", ".join(names)
        raise InputError([f"ElasticJob {job.metadata.name}: has several roles; expected --role with one of {listed}"])
    if role is not None and role not in names:
        raise InputError([f"ElasticJob {job.metadata.name}: --role: unknown role {role!r}{nearest(role, names)}"])
    return names.index(role) if role is not None else 0


def check(job: types.ElasticJob, before: types.ElasticRole, wanted: dict[str, int | None]) -> None:
    """What the API server would refuse, in the words of the options."""
    name = job.metadata.name
    if job.status.phase in ENDED:
        raise InputError([f"ElasticJob {name}: is over ({job.status.phase}) and cannot be resized"])
    none = [option for option in ("pin", "max", "min") if wanted.get(option) == 0]
    if none and not any(role.min for role in job.spec.roles if role.name != before.name):
        others = "no other role has" if len(job.spec.roles) > 1 else "it has no other role with"
        raise InputError(
            [
                f"ElasticJob {name}: --{none[0]}: expected at least 1, because {others} a min of 1 or more, found 0; "
                f"`maniple suspend {name}` stops the job"
            ]
        )
    low, high = wanted.get("min") or 0 if "min" in wanted else before.min, wanted.get("max", before.max) or 0
    pin = wanted.get("pin", before.pin)
    if low > high:
        option, other = ("--min", f"--max {low}") if "min" in wanted else ("--max", f"--min {high}")
        raise InputError(
            [f"ElasticJob {name}: {option}: least {low} and most {high} contradict each other; add {other}"]
        )
    if pin is not None and not low <= pin <= high:
        bound, value = ("above its{} most", high) if pin > high else ("below its{} least", low)
        change = f"--{'max' if pin > high else 'min'} {pin}"
        if "pin" in wanted:
            raise InputError(
                [f"ElasticJob {name}: --pin: {pin} is {bound.format('')}, {value}; add {change} to allow it"]
            )
        raise InputError(
            [f"ElasticJob {name}: is pinned at {pin}, {bound.format(' new')}, {value}; add --unpin or --pin"]
        )


def _said(role: types.ElasticRole) -> str:
    """`worker 4:8`, `worker 4:8 pinned at 6`"""
    return f"{role.name} {role.min}:{role.max}" + ("" if role.pin is None else f" pinned at {role.pin}")
