"""The referee's verdicts on starts beyond a guarantee: plans that break the promise beside plans that keep it."""

from __future__ import annotations

import pytest

from properties.gpu_facts import GPU
from properties.guaranteed_starts import beyond_guarantees
from properties.raw_objects import Object
from properties.test_referee import bind, group, node, nominate, plan_of, pod, queue, round_of


def firm(name: str, count: int, **spec: object) -> list[Object]:
    """A gang that may not be preempted; `running`: so many of its pods run; `least`: its minimum, else all."""
    running, least = spec.pop("running", 0), spec.pop("least", count)
    assert isinstance(running, int)
    assert isinstance(least, int)
    on = ["n1" if index < running else "" for index in range(count)]
    pods = [pod(f"{name}-{index}", on=where, group=name) for index, where in enumerate(on)]
    return [group(name, least, preemptable=False, **spec), *pods]


def starts(name: str, *indices: int) -> list[Object]:
    return [bind(f"{name}-{index}", "n1") for index in indices]


def test_a_start_beyond_the_guarantee_is_caught() -> None:
    objects = [node("n1", gpus=8), queue("a", guaranteed={GPU: 3}), *firm("f", 2, queue="a"), *firm("g", 2, queue="a")]

    def beyond(*rounds: Object) -> list[str]:
        return beyond_guarantees(objects, plan_of(*rounds))

    too_much = f"starts, and gangs that may not be preempted hold 4 {GPU} in queue a, which guarantees 3"
    assert not beyond(round_of(binds=starts("f", 0, 1)))
    both = round_of(binds=starts("f", 0, 1) + starts("g", 0, 1))
    assert beyond(both) == [f"round 1: default/f {too_much}", f"round 1: default/g {too_much}"]
    later = round_of(binds=starts("g", 0, 1))
    assert beyond(round_of(binds=starts("f", 0, 1)), later) == [f"round 2: default/g {too_much}"]
    promised = round_of(binds=starts("f", 0, 1), nominations=[nominate("g-0", "n1"), nominate("g-1", "n1")])
    assert len(beyond(promised)) == 2, "a promise is a start"


@pytest.mark.parametrize(
    ("queues", "is_fine"),
    [
        ({"a": {}}, False),
        ({"a": {"guaranteed": {GPU: 1}}}, False),
        ({"a": {"guaranteed": {GPU: 2}}}, True),
        ({"a": {"guaranteed": {GPU: 2, "cpu": "100m"}}}, False),
        ({"a": {"guaranteed": {GPU: 0, "cpu": "200m"}}}, False),
        ({"a": {"guaranteed": {"cpu": "200m"}}}, False),
        ({"a": {"guaranteed": {"amd.com/gpu": 9}}}, False),
        ({"a": {"parent": "top"}, "top": {"guaranteed": {GPU: 2}}}, False),
        ({"a": {"parent": "top", "guaranteed": {GPU: 2}}, "top": {}}, True),
        ({"a": {"parent": "top", "guaranteed": {GPU: 2}}, "top": {"guaranteed": {GPU: 1}}}, True),
        ({"a": {"parent": "top", "guaranteed": {GPU: 2}}, "top": {"guaranteed": {"cpu": "100m"}}}, False),
    ],
)
def test_every_resource_that_a_guarantee_names_counts_up_the_tree(queues: dict[str, Object], is_fine: bool) -> None:
    objects = [node("n1", gpus=8), *(queue(name, **spec) for name, spec in queues.items()), *firm("f", 2, queue="a")]
    assert bool(beyond_guarantees(objects, plan_of(round_of(binds=starts("f", 0, 1))))) is not is_fine


def test_what_the_guarantee_does_not_hold_back_is_no_breach() -> None:
    small = [node("n1", gpus=8), queue("a", guaranteed={GPU: 1})]
    runs = [*small, *firm("f", 3, queue="a", running=2)]
    assert not beyond_guarantees(runs, plan_of(round_of(binds=starts("f", 2)))), "a pod of a running gang"
    wide = [*small, *firm("f", 3, queue="a", least=1)]
    assert not beyond_guarantees(wide, plan_of(round_of(binds=starts("f", 0, 1, 2)))), "surplus"
    nothing = [*small, group("f", 1, preemptable=False, queue="a"), pod("f-0", 0, group="f")]
    assert not beyond_guarantees(nothing, plan_of(round_of(binds=starts("f", 0)))), "asks for nothing"
    others = [*small, group("f", 2, queue="a"), pod("f-0", group="f"), pod("f-1", group="f")]
    assert not beyond_guarantees(others, plan_of(round_of(binds=starts("f", 0, 1)))), "may be preempted"
