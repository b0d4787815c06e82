"""The referee on gangs that stay below their minimum: for each promise a plan that breaks it, and one that keeps it."""

from __future__ import annotations

import pytest

from properties.gpu_facts import GPU
from properties.raw_objects import Object
from properties.referee import judge
from properties.replay_rounds import Promise
from properties.stale_verdicts import kept_in_vain, released_although_others_leave, released_although_whole
from properties.test_referee import bind, group, node, nominate, plan_of, pod, round_of


def stale(least: int, since: str = "2026-01-01T00:00:00Z", **spec: object) -> Object:
    made = group("g", least, **spec)
    return made | {"metadata": {**made["metadata"], "annotations": {"maniple.dev/incomplete-since": since}}}  # type: ignore[dict-item]


CLOCK: Object = {"kind": "Namespace", "metadata": {"name": "clock", "creationTimestamp": "2026-01-01T00:10:01Z"}}


def given_up(*names: str, beneficiary: str = "g") -> list[Object]:
    return [{"pod": f"default/{name}", "reason": "Stale", "for": f"default/{beneficiary}"} for name in names]


SHORT = [CLOCK, node("n1"), pod("a", on="n1", group="g", ids="0"), pod("b", on="n1", group="g", ids="1")]


def test_a_gang_below_its_minimum_may_be_given_up_whole() -> None:
    objects = [*SHORT, stale(3, preemptable=False, minRuntimeSeconds=9000)]
    assert judge(objects, plan_of(round_of(evictions=given_up("a", "b")))) == []
    assert kept_in_vain(objects, plan_of(round_of(evictions=given_up("a", "b")))) == []


@pytest.mark.parametrize(
    ("gang", "victims"),
    [
        (stale(3), given_up("a")),  # half of it
        (stale(2), given_up("a", "b")),  # it is whole
        (stale(3, since="2026-01-01T00:00:01Z"), given_up("a", "b")),  # too early, by a second
        (stale(3, staleSeconds=0), given_up("a", "b")),
        (group("g", 3), given_up("a", "b")),  # nobody has said since when
        (stale(3), given_up("a", "b", beneficiary="other")),
    ],
)
def test_a_gang_that_is_given_up_wrongly_is_caught(gang: Object, victims: list[Object]) -> None:
    found = judge([*SHORT, gang], plan_of(round_of(evictions=victims)))
    assert Promise.VICTIMS in {breach.promise for breach in found}


@pytest.mark.parametrize("move", [bind("c", "n1", "2"), nominate("c", "n1")])
def test_a_gang_that_is_given_up_while_its_pods_are_placed_is_caught(move: Object) -> None:
    played = round_of(evictions=given_up("a", "b"), **{"binds" if "gpus" in move else "nominations": [move]})
    found = judge([*SHORT, stale(3), pod("c", group="g")], plan_of(played))
    assert Promise.VICTIMS in {breach.promise for breach in found}


def test_a_gang_that_keeps_what_it_holds_in_vain_is_caught() -> None:
    assert kept_in_vain([*SHORT, stale(3)], plan_of(round_of()))
    assert not kept_in_vain([*SHORT, stale(3, since="2026-01-01T00:00:01Z")], plan_of(round_of()))
    assert not kept_in_vain([*SHORT, stale(2)], plan_of(round_of()))
    budget: Object = {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}},
    }
    assert not kept_in_vain([*SHORT, stale(3), budget], plan_of(round_of()))
    other = [*SHORT, stale(3), pod("c", group="g"), pod("x")]
    assert kept_in_vain(other, plan_of(round_of()))
    assert not kept_in_vain(other, plan_of(round_of(nominations=[nominate("x", "n1")])))  # it may have come first


def test_the_time_of_a_gang_that_was_moved_has_not_passed_while_places_are_kept_for_it() -> None:
    for at, has_passed in (("2026-01-01T00:05:00Z", True), ("2026-01-01T00:05:01Z", False)):
        gang = stale(3)
        places = f'[{{"node":"n1","pods":1,"requests":{{"{GPU}":"1"}}}}]'
        noted = {"maniple.dev/moved": f'{{"at":"{at}","size":3,"places":{places}}}'}
        gang["metadata"]["annotations"] |= noted  # type: ignore[index]
        given = judge([*SHORT, gang], plan_of(round_of(evictions=given_up("a", "b"))))
        assert (Promise.VICTIMS in {breach.promise for breach in given}) == (not has_passed)
        assert bool(kept_in_vain([*SHORT, gang], plan_of(round_of()))) == has_passed


def test_a_gang_that_is_released_although_its_missing_pod_fits_is_caught() -> None:
    objects = [*SHORT, stale(3), pod("c", group="g")]
    (found,) = released_although_whole(objects, plan_of(round_of(evictions=given_up("a", "b"))))
    assert "default/g is released although its missing pods fitted" in found
    full = [*objects, pod("x", gpus=2, on="n1", ids="2,3")]
    assert released_although_whole(full, plan_of(round_of(evictions=given_up("a", "b")))) == []


def test_a_gang_that_is_released_although_its_missing_pod_fits_when_another_has_left_is_caught() -> None:
    h = group("h", 2)
    h["metadata"]["annotations"] = {"maniple.dev/incomplete-since": "2026-01-01T00:00:00Z"}  # type: ignore[index]
    two = [CLOCK, node("n1", gpus=1), node("n2", gpus=1), stale(2), h]
    two += [pod("a", on="n1", group="g", ids="0"), pod("b", group="g")]
    two += [pod("x", on="n2", group="h", ids="0"), pod("y", group="h")]
    both = [*given_up("a"), *given_up("x", beneficiary="h")]
    found = released_although_others_leave(two, plan_of(round_of(evictions=both)))
    assert [sentence.split()[2] for sentence in found] == ["default/g", "default/h"]
    one = round_of(evictions=given_up("x", beneficiary="h"), nominations=[nominate("b", "n2")])
    assert released_although_others_leave(two, plan_of(one)) == []
    # Whoever takes the room of the one that leaves keeps the other from being whole.
    taken = round_of(evictions=both, nominations=[nominate("new", "n1"), nominate("new-2", "n2")])
    assert released_although_others_leave([*two, pod("new"), pod("new-2")], plan_of(taken)) == []
