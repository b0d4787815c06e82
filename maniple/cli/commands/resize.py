"""`maniple resize`: pins the size of a job, or changes its minimum and maximum."""

from typing import TYPE_CHECKING, Any

import click

from maniple.api import types
from maniple.api.errors import InputError
from maniple.api.keys import job_label, key_of
from maniple.cli.support.job_options import (
    Connection,
    find_role,
    job_argument,
    job_key,
    job_options,
    refuse_finished,
    run_with_client,
)
from maniple.cli.support.terminal import say

if TYPE_CHECKING:
    from maniple.kube.user.client import UserClient


class _Replicas(click.IntRange):
    """A number of replicas, with an error of its own."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            count = int(value)
        except ValueError:
            self.fail(f"expected a number of replicas, such as 6, found {value!r}", param, ctx)
        return super().convert(count, param, ctx)


_REPLICAS = _Replicas(0, 100_000)


@click.command(
    epilog="""\b
Examples:
  maniple resize bert --pin 6
  maniple resize bert --unpin
  maniple resize bert --min 2 --max 16
  maniple resize horovod --role worker --max 4

All numbers are replicas. A pinned job has exactly that many until --unpin; otherwise the
scheduler decides between min and max. The job checkpoints and continues at the new size.
Exit codes: 0 changed, 2 wrong input, no such job, or refused.
"""
)
@job_argument
@click.option("--pin", type=_REPLICAS, metavar="N", help="Exactly this many replicas.")
@click.option("--unpin", is_flag=True, help="Let the scheduler decide between min and max again.")
@click.option("--min", "min_", type=_REPLICAS, metavar="N", help="The minimum.")
@click.option("--max", "max_", type=_REPLICAS, metavar="N", help="The maximum.")
@click.option("--role", metavar="NAME", help="The role to change; required if the job has several.")
@job_options
def command(
    name: str,
    pin: int | None,
    unpin: bool,
    min_: int | None,
    max_: int | None,
    role: str | None,
    connection: Connection,
) -> None:
    """Pin the size of a running job, or change its minimum and maximum."""
    if pin is None and not unpin and min_ is None and max_ is None:
        raise click.UsageError("Say what to change: --pin N, --unpin, --min N or --max N.")
    if pin is not None and unpin:
        raise click.UsageError("--pin and --unpin contradict each other: give one of the two.")
    wanted: dict[str, int | None] = {"min": min_, "max": max_, "pin": pin}
    wanted = {field: value for field, value in wanted.items() if value is not None}
    if unpin:
        wanted["pin"] = None

    async def resize(client: "UserClient") -> str:
        key = job_key(name, client)
        job = await client.job(key)
        index = _role_index(job, role)
        before = job.spec.roles[index]
        check(job, before, wanted)
        changed = await client.change(key, operations(index, before, wanted))
        after = changed.spec.roles[index]
        change = f"{_bounds(before)} → {_bounds(after)}" if after != before else f"is already {_bounds(before)}"
        return f"{job_label(key)} {change}"

    say(run_with_client(connection, resize))


def operations(index: int, before: types.ElasticRole, wanted: dict[str, int | None]) -> list[dict[str, Any]]:
    """The JSON patch. It is refused if another role is at this index by now."""
    path = f"/spec/roles/{index}"
    patch: list[dict[str, Any]] = [{"op": "test", "path": f"{path}/name", "value": before.name}]
    for name, value in wanted.items():
        if value is not None:
            patch.append({"op": "add", "path": f"{path}/{name}", "value": value})
        elif getattr(before, name) is not None:
            patch.append({"op": "remove", "path": f"{path}/{name}"})
    return patch


def _role_index(job: types.ElasticJob, role: str | None) -> int:
    if role is not None:
        return find_role(job, role)
    names = [known.name for known in job.spec.roles]
    if len(names) > 1:
        label = job_label(key_of(job.metadata))
        raise InputError([f"{label}: has several roles; expected --role with one of {', '.join(names)}"])
    return 0


def check(job: types.ElasticJob, before: types.ElasticRole, wanted: dict[str, int | None]) -> None:
    """Raises what the API server would refuse, in terms of the options."""
    label = job_label(key_of(job.metadata))
    refuse_finished([job], "resized")
    zeros = [option for option in ("pin", "max", "min") if wanted.get(option) == 0]
    if zeros and not any(role.min for role in job.spec.roles if role.name != before.name):
        others = "no other role has" if len(job.spec.roles) > 1 else "it has no other role with"
        raise InputError(
            [
                f"{label}: --{zeros[0]}: expected at least 1, because {others} a min of 1 or more, found 0; "
                f"`maniple suspend {job.metadata.name}` stops the job"
            ]
        )
    low, high = wanted.get("min") or 0 if "min" in wanted else before.min, wanted.get("max", before.max) or 0
    pin = wanted.get("pin", before.pin)
    if low > high:
        option, other = ("--min", f"--max {low}") if "min" in wanted else ("--max", f"--min {high}")
        raise InputError([f"{label}: {option}: minimum {low} and maximum {high} contradict each other; add {other}"])
    if pin is not None and not low <= pin <= high:
        where, bound, value = ("above", "maximum", high) if pin > high else ("below", "minimum", low)
        if "pin" in wanted:
            option = "--max" if pin > high else "--min"
            raise InputError([f"{label}: --pin: {pin} is {where} its {bound}, {value}; add {option} {pin} to allow it"])
        raise InputError([f"{label}: is pinned at {pin}, {where} its new {bound}, {value}; add --unpin or --pin"])


def _bounds(role: types.ElasticRole) -> str:
    """`worker 4:8`, `worker 4:8 pinned at 6`"""
    return f"{role.name} {role.min}:{role.max}" + ("" if role.pin is None else f" pinned at {role.pin}")
