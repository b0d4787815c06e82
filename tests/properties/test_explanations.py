"""Every waiting gang gets its place in line, what was tried and what would help; complete and true."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from properties.apply_cure import alone, cured, without_room
from properties.cluster_facts import gang_of
from properties.elastic_clusters import claimed_worlds, elastic_worlds, growing_worlds
from properties.explanation_verdicts import untrue
from properties.plan_adapter import plan
from properties.random_clusters import contended_worlds, limited_worlds, simple_worlds, worlds
from properties.raw_objects import Object, rows, text
from properties.test_promises import KUBE_BATCH, promised
from properties.topology_clusters import close_worlds, full_close_worlds

DEFAULT_ACTIONS = ["allocate", "shrink", "reclaim", "preempt", "backfill", "grow"]
KUBE_BATCH_ACTIONS = ["reclaim", "allocate", "backfill", "preempt"]

many = settings(promised, max_examples=100)
some = settings(promised, max_examples=80)


@many
@given(st.one_of(elastic_worlds(), claimed_worlds(), growing_worlds(), worlds(), limited_worlds()))
def test_explanations_are_complete_and_true(objects: list[Object]) -> None:
    assert untrue(objects, plan(objects, rounds=3), DEFAULT_ACTIONS) == []


@many
@given(st.one_of(close_worlds(), full_close_worlds(), contended_worlds()))
def test_explanations_of_domains_and_models_are_true(objects: list[Object]) -> None:
    assert untrue(objects, plan(objects, rounds=2), DEFAULT_ACTIONS) == []


@many
@given(st.one_of(contended_worlds(), elastic_worlds(), limited_worlds()))
def test_explanations_are_true_with_the_policy_of_kube_batch(objects: list[Object]) -> None:
    assert untrue(objects, plan(objects, KUBE_BATCH, rounds=3), KUBE_BATCH_ACTIONS) == []


@some
@given(
    st.one_of(simple_worlds(), limited_worlds(), contended_worlds(), elastic_worlds(limits_one_in=2), claimed_worlds())
)
def test_a_gang_starts_after_the_change_that_would_start_it(objects: list[Object]) -> None:
    assert_cures_help(objects)


@some
@given(st.one_of(close_worlds(), full_close_worlds()))
def test_a_gang_starts_after_the_change_that_would_start_it_with_topologies(objects: list[Object]) -> None:
    assert_cures_help(objects)


def assert_cures_help(objects: list[Object]) -> None:
    """Nothing else waits: the order of gangs is not judged here. Nor is surplus of a gang that starts now: after the
    change it may start elsewhere.
    """
    (first,) = rows(plan(objects), "rounds")
    for group in [text(entry, "group") for entry in rows(first, "waiting")][:4]:
        world = alone(objects, group)
        reason, would, before = told(world, group)
        is_judged = runs(world, group) if reason == "SurplusWaiting" else reason not in ("", "Promised")
        changed = cured(world, group, would) if is_judged else None
        if changed is not None:
            now, left, after = told(changed, group)
            starts = now in ("", "Promised") or (now == "SurplusWaiting" and reason != now) or after > before
            assert starts, f"{group} would start if {would}; and then if {left}"


@some
@given(st.one_of(simple_worlds(), limited_worlds(), elastic_worlds(limits_one_in=2)))
def test_room_that_a_gang_would_take_from_others_is_no_condition(objects: list[Object]) -> None:
    """Of a sentence that names room last, the rest alone does not start the gang."""
    (first,) = rows(plan(objects), "rounds")
    for group in [text(entry, "group") for entry in rows(first, "waiting")][:4]:
        world = alone(objects, group)
        reason, would, _ = told(world, group)
        rest = without_room(would)
        changed = cured(world, group, rest) if rest not in ("", would) and reason != "SurplusWaiting" else None
        if changed is not None:
            assert told(changed, group)[0] not in ("", "Promised"), (
                f"{group} would start if {rest}, and not only if {would}"
            )


def runs(objects: list[Object], group: str) -> bool:
    pods = [item for item in objects if item["kind"] == "Pod" and gang_of(item) == group]
    return any(text(pod, "spec", "nodeName") and not text(pod, "metadata", "deletionTimestamp") for pod in pods)


def told(objects: list[Object], group: str) -> tuple[str, str, int]:
    """Why the gang waits (empty: it does not), what would start it, and how many pods are bound."""
    (done,) = rows(plan(objects), "rounds")
    waiting = [entry for entry in rows(done, "waiting") if text(entry, "group") == group]
    bound = len(rows(done, "binds"))
    return (text(waiting[0], "reason"), text(waiting[0], "wouldStartIf"), bound) if waiting else ("", "", bound)
