"""The promises of moving: a place for whoever is moved, a gang that starts by it, a budget, and an end."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import yaml
from hypothesis import given, settings

from properties.apply_cure import alone
from properties.cluster_facts import gang_of
from properties.missed_moves import Tiny, can_start, could_empty, tiny_clusters
from properties.needless_victims import could_have_stayed
from properties.plan_adapter import plan, plan_until_settled
from properties.raw_objects import Object, key_of, rows, text
from properties.referee import judge, violations
from properties.scattered_worlds import contended_moves, idle_worlds, scattered_worlds
from properties.test_promises import moves, promised

_DEFAULT = (Path(__file__).parents[2] / "maniple" / "scheduler" / "default_policy.yaml").read_text()
ALL = "allocate, shrink, reclaim, preempt, consolidate, backfill, release, grow"
FEW = "allocate, consolidate, backfill"
MOVES_FIRST = "allocate, shrink, consolidate, reclaim, preempt, backfill, release, grow"


IDLE = {"consolidate.idle": "true", "idle.interval": "0"}


def policy(actions: str, idle: dict[str, str] | None = None, **arguments: int) -> str:
    """The built-in policy with these actions; moving always pays."""
    written = yaml.safe_load(_DEFAULT)
    written["actions"] = actions
    given_ = {name: str(value) for name, value in ({"horizon": 1000000} | arguments).items()} | (idle or {})
    written["tiers"][-1]["plugins"].append({"name": "consolidation", "arguments": given_})
    return yaml.safe_dump(written)


def moved_gangs(objects: list[Object], planned: Object) -> list[set[str]]:
    """The gangs that are moved in each round."""
    gangs = {key_of(item): gang_of(item) for item in objects if text(item, "kind") == "Pod"}
    named = [[text(move, "pod") for move in rows(played, "moves")] for played in rows(planned, "rounds")]
    return [{gangs.get(pod, pod.rsplit("-", 2)[0]) for pod in pods} for pods in named]


many = settings(promised, max_examples=150)
some = settings(promised, max_examples=60)


@many
@given(scattered_worlds())
def test_moves_keep_every_promise(objects: list[Object]) -> None:
    assert violations(objects, plan(objects, policy(FEW), rounds=4)) == []


@some
@given(scattered_worlds(rules_one_in=3, limits_one_in=3))
def test_moves_keep_every_promise_where_pods_have_rules_and_queues_have_limits(objects: list[Object]) -> None:
    assert violations(objects, plan(objects, policy(FEW), rounds=4)) == []


@some
@given(scattered_worlds(limits_one_in=3))
def test_moves_keep_every_promise_beside_all_other_actions(objects: list[Object]) -> None:
    assert violations(objects, plan(objects, policy(ALL), rounds=5)) == []


@some
@given(scattered_worlds())
def test_places_are_kept_while_pods_take_long_to_leave(objects: list[Object]) -> None:
    """Until then nobody is there in their place, and their places and those of the gang are nobody else's."""
    for grace in (2, 3):
        found = judge(objects, plan_until_settled(objects, policy(FEW), 16, False, grace), grace)
        assert [breach.sentence for breach in found] == []


@some
@given(scattered_worlds())
def test_nobody_is_moved_who_could_have_stayed(objects: list[Object]) -> None:
    assert could_have_stayed(objects, plan(objects, policy(FEW), rounds=2)) == []


@some
@given(scattered_worlds())
def test_a_settled_cluster_in_which_jobs_move_stays_settled(objects: list[Object]) -> None:
    """Even if jobs never cool down: a move starts a gang, and none stops by it."""
    moved = moves(plan(objects, policy(ALL, cooldown=0), rounds=16))
    rests = next((index for index, has_moved in enumerate(moved) if index and not has_moved), len(moved))
    assert rests <= 11, moved
    assert not any(moved[rests:]), moved


@many
@given(contended_moves())
def test_who_evicts_a_moved_pod_gets_its_room_and_then_nothing_moves(objects: list[Object]) -> None:
    """What comes in its place does not start in the place that was kept for the move."""
    for grace in (1, 3):
        planned = plan_until_settled(objects, policy(MOVES_FIRST), 25 * grace, False, grace)
        assert [breach.sentence for breach in judge(objects, planned, grace)] == []
        assert not moves(planned)[-1], moves(planned)


@some
@given(scattered_worlds())
def test_no_more_jobs_are_moved_in_an_hour_than_the_policy_says(objects: list[Object]) -> None:
    found = moved_gangs(objects, plan(objects, policy(FEW, movesPerHour=2, cooldown=0), rounds=8))
    assert sum(map(len, found)) <= 2


@some
@given(scattered_worlds())
def test_a_job_that_was_moved_cools_down(objects: list[Object]) -> None:
    found = [gang for gangs in moved_gangs(objects, plan(objects, policy(FEW), rounds=8)) for gang in gangs]
    assert len(found) == len(set(found))


@settings(promised, max_examples=300)
@given(tiny_clusters())
def test_a_gang_waits_only_if_no_moves_of_single_pods_would_let_it_start(tiny: Tiny) -> None:
    """In tiny clusters, where every set of pods is tried with every place."""
    assert starts_by_moves(tiny) == can_start(tiny, len(tiny.jobs))


@settings(promised, max_examples=300)
@given(tiny_clusters(are_alike=False))
def test_that_holds_where_nodes_differ_and_pods_stay_or_may_not_go_anywhere(tiny: Tiny) -> None:
    assert starts_by_moves(tiny) == can_start(tiny, len(tiny.jobs))


def starts_by_moves(tiny: Tiny) -> bool:
    first = rows(plan(tiny.objects, policy(FEW, movesPerHour=100)), "rounds")[0]
    return bool(rows(first, "binds")) or bool(rows(first, "moves"))


# While nothing waits.


@many
@given(idle_worlds())
def test_tidying_keeps_every_promise_and_always_makes_more_order(objects: list[Object]) -> None:
    assert violations(objects, plan(objects, policy(FEW, IDLE), rounds=5)) == []


@some
@given(idle_worlds(rules_one_in=3, limits_one_in=3))
def test_tidying_keeps_every_promise_beside_all_other_actions(objects: list[Object]) -> None:
    assert violations(objects, plan(objects, policy(ALL, IDLE), rounds=5)) == []


@some
@given(idle_worlds())
def test_places_of_tidied_jobs_are_kept_while_pods_take_long_to_leave(objects: list[Object]) -> None:
    for grace in (2, 3):
        found = judge(objects, plan_until_settled(objects, policy(FEW, IDLE), 16, False, grace), grace)
        assert [breach.sentence for breach in found] == []


@some
@given(idle_worlds())
def test_tidying_comes_to_rest(objects: list[Object]) -> None:
    """Even if jobs never cool down and there is no interval."""
    moved = moves(plan(objects, policy(ALL, IDLE, cooldown=0, movesPerHour=1000), rounds=40))
    assert not any(moved[-4:]), moved
    rests = next(index for index in range(len(moved)) if index and not any(moved[index : index + 2]))
    assert not any(moved[rests:]), moved


@some
@given(idle_worlds())
def test_tidying_keeps_to_the_moves_of_an_hour_to_the_cool_down_and_to_its_interval(objects: list[Object]) -> None:
    found = moved_gangs(objects, plan(objects, policy(FEW, IDLE, movesPerHour=2, cooldown=0), rounds=8))
    assert sum(map(len, found)) <= 2
    found = moved_gangs(objects, plan(objects, policy(FEW, IDLE), rounds=8))
    assert sum(map(len, found)) == len(set().union(*found))
    found = moved_gangs(objects, plan(objects, policy(FEW, IDLE | {"idle.interval": "60"}), rounds=8))
    assert sum(map(bool, found)) <= 1


@some
@given(idle_worlds())
def test_nobody_is_tidied_unless_the_policy_says_so(objects: list[Object]) -> None:
    assert not any(moved_gangs(objects, plan(objects, policy(FEW), rounds=4)))


@settings(promised, max_examples=300)
@given(tiny_clusters())
def test_a_node_is_emptied_if_that_is_possible(tiny: Tiny) -> None:
    """In tiny clusters of single pods, where every place of every pod is tried."""
    (first,) = rows(plan(tiny.running, policy(FEW, IDLE, movesPerHour=100)), "rounds")
    assert bool(rows(first, "moves")) == could_empty(tiny)


# Moves that nobody makes.

_MOVES = re.compile(r", or (?P<moves>\d+ pods? of \S+ moved from .*) \((?P<obstacles>[^()]*)\)$")
_UNWILLING = re.compile(r"(?P<names>\S+/\S+(?:(?:, | and )\S+/\S+)*) (?:does|do) not say movable: true")


@settings(promised, max_examples=150)
@given(scattered_worlds())
def test_a_gang_starts_after_the_moves_that_would_start_it(objects: list[Object]) -> None:
    """When the jobs in the way may be moved, and the policy moves them."""
    nobody = "allocate, shrink, reclaim, preempt, backfill"
    (first,) = rows(plan(objects, policy(nobody)), "rounds")
    for group in [text(entry, "group") for entry in rows(first, "waiting")]:
        world = alone(objects, group)
        would = told(world, policy(nobody), group)
        named = _MOVES.search(would)
        if named is None or "priority" in named["obstacles"]:
            continue
        assert "the policy's actions do not include consolidate" in named["obstacles"]
        willing = copy.deepcopy(world)
        unwilling = _UNWILLING.search(named["obstacles"])
        names = re.split(", | and ", unwilling["names"]) if unwilling else []
        for item in willing:
            if item["kind"] in ("PodGroup", "ElasticJob") and key_of(item) in names:
                spec = item["spec"]
                assert isinstance(spec, dict)
                spec["movable"] = True
        (after,) = rows(plan(willing, policy(nobody.replace("backfill", "consolidate, backfill"))), "rounds")
        gangs = {text(entry, "for") for entry in rows(after, "moves")}
        assert gangs == {group}, f"{group} would start if {would}"


def told(objects: list[Object], policy_: str, group: str) -> str:
    """What would start the gang."""
    (done,) = rows(plan(objects, policy_), "rounds")
    return next((text(entry, "wouldStartIf") for entry in rows(done, "waiting") if text(entry, "group") == group), "")
