"""Gangs that stay below their minimum give back what they hold: whole, in time, and never while their pods fit."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from properties.plan_adapter import plan
from properties.raw_objects import Object
from properties.referee import violations
from properties.stale_clusters import several_stale_worlds, stale_worlds
from properties.stale_verdicts import kept_in_vain, released_although_others_leave, released_although_whole
from properties.test_promises import moves

promised = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@promised
@given(stale_worlds())
def test_no_promise_is_broken_where_gangs_have_lost_pods(objects: list[Object]) -> None:
    assert violations(objects, plan(objects, rounds=3)) == []


@promised
@given(stale_worlds())
def test_a_gang_that_stays_below_its_minimum_gives_back_what_it_holds(objects: list[Object]) -> None:
    assert kept_in_vain(objects, plan(objects, rounds=2)) == []


@promised
@given(stale_worlds())
def test_a_gang_whose_missing_pods_fit_is_not_released(objects: list[Object]) -> None:
    assert released_although_whole(objects, plan(objects, rounds=3)) == []


@promised
@given(several_stale_worlds() | stale_worlds())
def test_a_gang_whose_missing_pods_fit_when_other_stale_gangs_have_left_is_not_released(objects: list[Object]) -> None:
    made = plan(objects, rounds=4)
    assert released_although_others_leave(objects, made) == []
    assert kept_in_vain(objects, made) == []
    assert violations(objects, made) == []


@settings(promised, max_examples=20)
@given(several_stale_worlds() | stale_worlds())
def test_gangs_that_have_lost_pods_settle(objects: list[Object]) -> None:
    moved = moves(plan(objects, rounds=len(objects) + 2))
    assert not moved[-1], moved
