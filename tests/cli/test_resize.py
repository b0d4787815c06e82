"""`maniple resize`: its checks and its patch, without a cluster."""

from __future__ import annotations

import msgspec
import pytest
from views.objects import elastic_job

from maniple.api import types
from maniple.api.errors import InputError
from maniple.cli.commands.resize import check, operations


def test_a_resize_applies_only_to_the_role_that_was_read() -> None:
    (role,) = elastic_job().spec.roles
    assert operations(0, role, {"min": 2, "pin": 6}) == [
        {"op": "test", "path": "/spec/roles/0/name", "value": "worker"},
        {"op": "add", "path": "/spec/roles/0/min", "value": 2},
        {"op": "add", "path": "/spec/roles/0/pin", "value": 6},
    ]
    assert operations(0, role, {"pin": None}) == [{"op": "test", "path": "/spec/roles/0/name", "value": "worker"}]
    pinned = msgspec.structs.replace(role, pin=6)
    assert operations(1, pinned, {"pin": None})[1:] == [{"op": "remove", "path": "/spec/roles/1/pin"}]


def roles(*mins: int) -> types.ElasticJob:
    """A job with roles of these minimums, the first of which is resized."""
    job = elastic_job()
    changed = tuple(
        msgspec.structs.replace(job.spec.roles[0], name=f"role-{index}", min=minimum)
        for index, minimum in enumerate(mins)
    )
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, roles=changed))


@pytest.mark.parametrize("option", ["pin", "max", "min"])
@pytest.mark.parametrize("mins", [(4,), (4, 0)])
def test_a_size_of_zero_is_refused_and_suspend_suggested(option: str, mins: tuple[int, ...]) -> None:
    job = roles(*mins)
    with pytest.raises(InputError) as refusal:
        check(job, job.spec.roles[0], {option: 0})
    assert f"bert: --{option}: expected at least 1, because" in str(refusal.value)
    assert "`maniple suspend bert` stops the job" in str(refusal.value)
    assert "--min 0" not in str(refusal.value)


def test_a_role_may_have_size_zero_if_another_has_a_minimum() -> None:
    job = roles(4, 1)
    check(job, job.spec.roles[0], {"min": 0, "pin": 0})
    with pytest.raises(InputError, match="--pin: 0 is below its minimum, 4; add --min 0 to allow it"):
        check(job, job.spec.roles[0], {"pin": 0})


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"pin": 9}, "--pin: 9 is above its maximum, 8; add --max 9 to allow it"),
        ({"pin": 3}, "--pin: 3 is below its minimum, 4; add --min 3 to allow it"),
    ],
)
def test_a_pin_out_of_bounds_names_the_option_to_add(wanted: dict[str, int | None], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check(elastic_job(), elastic_job().spec.roles[0], wanted)
