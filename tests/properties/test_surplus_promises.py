"""Surplus that takes surplus of lower priority, where the policy says so: who loses what to whom, and that it ends."""

from __future__ import annotations

from hypothesis import given, settings

from properties.elastic_clusters import elastic_worlds, ranked_worlds, rising_worlds
from properties.plan_adapter import plan, plan_until_settled
from properties.raw_objects import Object
from properties.referee import violations
from properties.surplus_verdicts import started_only_to_leave
from properties.test_promises import KUBE_BATCH, moves, promised

PREEMPTS = """
actions: "allocate, shrink, reclaim, preempt, backfill, release, grow"
tiers:
- plugins:
  - {name: gang, arguments: {evict.whole: "true"}}
  - {name: priority, arguments: {surplus.preempts: "true"}}
  - {name: conformance}
- plugins:
  - {name: drf}
  - {name: predicates}
  - {name: proportion, arguments: {borrow: "true"}}
  - {name: nodeorder}
  - {name: elastic}
  - {name: reservation, arguments: {patience: "300"}}
"""
some = settings(promised, max_examples=40)
MOST_ROUNDS = 30


@some
@given(elastic_worlds() | rising_worlds())
def test_surplus_takes_only_surplus_of_lower_priority_in_its_queue_and_never_in_vain(objects: list[Object]) -> None:
    assert violations(objects, plan(objects, PREEMPTS, rounds=5), surplus_preempts=True) == []


@some
@given(rising_worlds())
def test_surplus_takes_nothing_unless_the_policy_says_so(objects: list[Object]) -> None:
    assert violations(objects, plan(objects, rounds=3)) == []
    assert violations(objects, plan(objects, KUBE_BATCH, rounds=3)) == []


@some
@given(elastic_worlds() | rising_worlds())
def test_surplus_that_takes_surplus_comes_to_rest(objects: list[Object]) -> None:
    moved = moves(plan_until_settled(objects, PREEMPTS, MOST_ROUNDS, has_reasons=False))
    assert not moved[-1], moved


@some
@given(ranked_worlds())
def test_no_surplus_starts_only_to_leave_for_surplus_that_waited_already(objects: list[Object]) -> None:
    assert started_only_to_leave(objects, plan(objects, PREEMPTS, rounds=6)) == []
