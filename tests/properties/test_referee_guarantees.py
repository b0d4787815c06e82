"""The referee's verdicts between queues: for each a plan that breaks the promise beside one that keeps it."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings

from properties.cluster_facts import read_facts
from properties.deserved_shares import Dues, Tree, find_dues
from properties.elastic_job_facts import written_moment
from properties.gpu_facts import GPU
from properties.guarantee_clusters import guarantee_worlds
from properties.guarantee_parts import Guarantees
from properties.guarantee_verdicts import lost_guarantees, unfair_claims
from properties.missed_claims import kept_waiting, needlessly_lost
from properties.raw_objects import Object
from properties.referee import violations
from properties.replay_rounds import read_state
from properties.test_referee import bind, group, node, nominate, plan_of, pod, queue, round_of, wait
from properties.test_referee_evictions import replica, take
from properties.turn_verdicts import overtaken

START_S = 1_767_225_600  # 2026-01-01
CLOCK = pod("clock", 0, on="n1", scheduler="default-scheduler")
CLOCK["status"] = {"phase": "Running", "startTime": written_moment(START_S + 3600)}
RESTS = plan_of(round_of())


def gang(name: str, in_queue: str, pods: int = 1, gpus: int = 1, **more: object) -> list[Object]:
    """`more`: least, start (it runs, on `on`); the rest goes into the group's spec."""
    start, on, least = more.pop("start", None), str(more.pop("on", "n1")), more.pop("least", pods)
    assert isinstance(least, int)
    made = [group(name, least, queue=in_queue, **more)]
    for index in range(pods):
        one = pod(f"{name}-{index}", gpus, on=on if start is not None else "", group=name)
        if isinstance(start, int):
            one["status"] = {"phase": "Running", "startTime": written_moment(START_S + start)}
        made.append(one)
    return made


def gpus(count: int) -> Object:
    return {GPU: count}


def takes(claimant: str, *victims: str, reason: str = "Reclaimed", pods: int = 1, on: str = "n1") -> Object:
    promises = [nominate(f"{claimant}-{index}", on) for index in range(pods)]
    return round_of(evictions=[take(name, claimant, reason) for name in victims], nominations=promises)


def dues(objects: list[Object]) -> Dues:
    facts = read_facts(objects)
    return find_dues(facts, read_state(facts, objects), Tree(objects))


# Dues.


def test_dues_are_whole_where_a_resource_is() -> None:
    """4 GPUs for three queues: the first by name gets the one that is left, or the one of higher priority."""
    asked = [node("n1", gpus=4), *gang("x", "a", 4), *gang("y", "b", 4), *gang("z", "c", 4)]

    def shared(**c: object) -> list[Fraction]:
        found = dues([queue("a"), queue("b"), queue("c", **c), *asked]).deserved
        return [found[name][GPU] for name in "abc"]

    assert shared() == [2, 1, 1]
    assert shared(priority=1) == [1, 1, 2]
    assert shared(weight=3) == [1, 1, 2], "of 4/5, 4/5 and 12/5 the first two lose more"
    half = pod("half", 1)
    half["metadata"]["annotations"] = {"maniple.dev/gpu-fraction": "0.5"}  # type: ignore[index]
    found = dues([queue("a"), queue("b"), queue("c"), *asked, half]).deserved
    assert found["a"][GPU] > 1 > found["default"][GPU], "a GPU that can be shared is no unit"


def test_a_parent_is_guaranteed_what_its_children_are_as_far_as_they_ask() -> None:
    objects = [node("n1", gpus=8), queue("d", limit=gpus(5)), queue("e", guaranteed=gpus(6))]
    objects += [queue("d0", parent="d", guaranteed=gpus(3)), queue("d1", parent="d", guaranteed=gpus(3))]
    objects += [queue("e0", parent="e", guaranteed=gpus(1)), *gang("x", "d0", 4), *gang("z", "e0", 4)]

    def guaranteed(objects: list[Object]) -> list[Fraction]:
        found = dues(objects).guaranteed
        return [found[name][GPU] for name in ("d", "d0", "d1", "e", "e0")]

    assert guaranteed(objects) == [3, 3, 0, 4, 1]
    assert guaranteed([*objects, *gang("y", "d1", 2)]) == [5, 3, 2, 4, 1]


# What is inside a guarantee.


def inside(queue_: str, *objects: Object) -> set[tuple[str, int]]:
    """Parts, by gang and number."""
    everything = [node("n1", gpus=16), CLOCK, *objects]
    facts = read_facts(everything)
    state, tree = read_state(facts, everything), Tree(everything)
    (found,) = Guarantees(facts, state, tree, find_dues(facts, state, tree)).in_each_order(queue_)
    return {(part.gang.removeprefix("default/"), part.nth) for part in found}


def test_the_oldest_are_inside_a_guarantee_and_minimums_before_surplus() -> None:
    a = queue("a", guaranteed=gpus(3))
    old, young = gang("old", "a", 3, least=1, start=1), gang("young", "a", start=2)
    assert inside("a", a, *old, *young) == {("old", 0), ("young", 0), ("old", 1)}
    firm = gang("young", "a", start=2, preemptable=False)
    assert inside("a", queue("a", guaranteed=gpus(1)), *old, *firm) == {("young", 0)}
    assert inside("a", queue("a", guaranteed={"cpu": 1}), *old, *young) == {("old", n) for n in range(3)} | {
        ("young", 0)
    }
    assert inside("b", a, queue("b"), *old) == set()


def test_what_does_not_fit_a_guarantee_is_outside_and_smaller_parts_behind_it_are_not() -> None:
    a = queue("a", guaranteed=gpus(3))
    large, small = gang("large", "a", 4, start=1), gang("small", "a", 2, start=2)
    assert inside("a", a, *large, *small) == {("small", 0)}
    wide = gang("wide", "a", 5, least=4, start=1)
    assert inside("a", a, *wide, *small) == {("small", 0)}, "no surplus above a part that may go"


def test_steps_of_an_elastic_job_are_inside_from_the_minimum_up() -> None:
    template = {"spec": pod("x")["spec"]}
    role = {"name": "worker", "min": 1, "max": 5, "step": 2, "template": template}
    job: Object = {"kind": "ElasticJob", "metadata": {"name": "j", "namespace": "default"}}
    job |= {"spec": {"queue": "a", "roles": [role]}}
    job |= {"status": {"target": [{"role": "worker", "replicas": 5}]}}
    running = [job, *[replica("j", index) for index in range(5)]]
    assert inside("a", queue("a", guaranteed=gpus(4)), *running) == {("j", 0), ("j", 1)}


def test_what_is_inside_a_childs_guarantee_is_inside_its_parents_first() -> None:
    tree = [queue("d"), queue("d0", parent="d", guaranteed=gpus(1)), queue("d1", parent="d")]
    old, young = gang("old", "d1", start=1), gang("young", "d0", start=2)
    assert inside("d", *tree, *old, *young) == {("young", 0)}
    tree[0] = queue("d", guaranteed=gpus(2))
    assert inside("d", *tree, *old, *young) == {("young", 0), ("old", 0)}


# A queue never loses its guarantee.

OWED = [node("n1", gpus=2), CLOCK, queue("a", guaranteed=gpus(1)), queue("b")]
OWED += [*gang("old", "a", start=1), *gang("young", "a", start=2), *gang("new", "b")]


def test_holding_less_inside_a_guarantee_is_caught() -> None:
    assert lost_guarantees(OWED, plan_of(takes("new", "old-0", "young-0")))
    assert lost_guarantees(OWED, plan_of(takes("new", "old-0", "young-0", reason="Shrunk")))
    assert not lost_guarantees(OWED, plan_of(takes("new", "young-0")))
    assert not lost_guarantees(OWED, plan_of(takes("new", "old-0"))), "the younger takes its place"
    assert not lost_guarantees(OWED, plan_of(takes("new", "old-0", "young-0", reason="Displaced"))), "on sufferance"


def test_what_takes_the_place_of_a_part_inside_is_as_large_and_no_surplus_for_a_minimum() -> None:
    tree = [node("n1", gpus=5), CLOCK, queue("a", guaranteed=gpus(3)), queue("b")]
    held = [*gang("one", "a", start=1), *gang("three", "a", 3, start=2), *gang("new", "b")]
    assert not lost_guarantees([*tree, *held], plan_of(takes("new", "one-0"))), "then all of three is inside"
    assert lost_guarantees([*tree, *held], plan_of(takes("new", "one-0", "three-0", "three-1", "three-2")))
    tree[2] = queue("a", guaranteed=gpus(2))
    assert lost_guarantees([*tree, *held], plan_of(takes("new", "one-0"))), "three does not fit the guarantee"
    more = [*gang("one", "a", start=2), *gang("wide", "a", 2, least=1, start=1), *gang("new", "b")]
    assert lost_guarantees([*tree, *more], plan_of(takes("new", "one-0"))), "surplus takes the place of a minimum"
    assert not lost_guarantees([*tree, *more], plan_of(takes("new", "wide-1")))


def test_what_leaves_for_its_own_queue_is_not_lost_to_another() -> None:
    more = [*OWED, *gang("mine", "a")]
    both = [take("young-0", "new", "Reclaimed"), take("old-0", "mine", "Preempted")]
    promised = [nominate("new-0", "n1"), nominate("mine-0", "n1")]
    assert not lost_guarantees(more, plan_of(round_of(evictions=both, nominations=promised)))


def test_what_moves_within_a_queue_is_no_lost_guarantee() -> None:
    own = [*OWED[:-2], *gang("new", "a")]
    assert not lost_guarantees(own, plan_of(takes("new", "old-0", reason="Preempted")))


def test_the_kindest_order_counts_where_jobs_started_together() -> None:
    tree = [*OWED[:2], queue("a", guaranteed=gpus(2)), queue("b")]
    small, large = gang("small", "a", start=1), gang("large", "a", 2, start=1)
    together = [*tree, *small, *large, *gang("new", "b")]
    assert not lost_guarantees(together, plan_of(takes("new", "large-0", "large-1"))), "small may have been inside"
    ordered = [*tree, *gang("small", "a", start=2), *large, *gang("new", "b")]
    assert lost_guarantees(ordered, plan_of(takes("new", "large-0", "large-1")))


def test_pods_of_a_group_stand_in_for_each_other() -> None:
    wide = [node("n1", gpus=2), CLOCK, queue("a", guaranteed=gpus(1)), queue("b")]
    wide += [*gang("wide", "a", 2, least=1, start=1), *gang("new", "b")]
    assert not lost_guarantees(wide, plan_of(takes("new", "wide-0")))
    assert lost_guarantees(wide, plan_of(takes("new", "wide-0", "wide-1")))


def test_a_guarantee_protects_from_those_who_meet_it_above_its_queue() -> None:
    tree = [queue("d", guaranteed=gpus(1)), queue("d0", parent="d"), queue("d1", parent="d"), queue("e")]
    lent = [node("n1", gpus=2), CLOCK, *tree, *gang("lent", "d0", start=1)]
    sibling, stranger = [*lent, *gang("new", "d1")], [*lent, *gang("new", "e")]
    assert not lost_guarantees(sibling, plan_of(takes("new", "lent-0")))
    assert lost_guarantees(stranger, plan_of(takes("new", "lent-0")))


def test_what_does_not_fit_the_departments_guarantee_is_still_inside_the_queues_own() -> None:
    """d's guarantee names the CPU of d1, and the CPU beside d0's GPU uses it up."""
    tree = [
        queue("d"),
        queue("d0", parent="d", guaranteed=gpus(1)),
        queue("d1", parent="d", guaranteed={"cpu": "100m"}),
    ]
    held = [*gang("first", "d0", start=1), *gang("second", "d1", gpus=0, start=2)]
    held[-1]["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "100m"}  # type: ignore[index]
    objects = [node("n1"), CLOCK, *tree, queue("e"), *held, *gang("new", "e")]
    assert inside("d", *tree, *held) == {("first", 0)}
    assert lost_guarantees(objects, plan_of(takes("new", "second-0")))


# A queue below its guarantee does not wait where victims exist.


def waiting(*changes: Object, **held: object) -> list[Object]:
    """`old` of queue b holds 2 GPUs, and `new` of queue a, which is guaranteed 1, waits. Later objects win."""
    made = [node("n1", gpus=2), CLOCK, queue("a", guaranteed=gpus(1)), queue("b")]
    made += [*gang("old", "b", 2, 1, start=1, **held), *gang("new", "a"), *changes]
    by_name = {(str(item["kind"]), str(item["metadata"]["name"])): item for item in made}  # type: ignore[index]
    return list(by_name.values())


def test_a_guarantee_that_is_not_met_is_caught() -> None:
    assert kept_waiting(waiting(), RESTS)
    assert kept_waiting(waiting(least=1), RESTS), "one pod of surplus is enough"
    busy = plan_of(round_of(binds=[bind("new-0", "n1", "0")]))
    assert not kept_waiting(waiting(), busy), "only a cluster at rest is judged"


@pytest.mark.parametrize(
    ("changes", "held"),
    [
        ([queue("a", guaranteed={"memory": 1})], {}),
        ([queue("b", reclaimable=False)], {}),
        ([queue("b", guaranteed=gpus(2))], {}),
        ([queue("a", guaranteed=gpus(1)), *gang("mine", "a", start=2), node("n1", gpus=3)], {}),
        ([*gang("new", "a", gpus=2)], {}),
        ([], {"preemptable": False}),
        ([], {"minRuntimeSeconds": 86400}),
        ([queue("a", guaranteed=gpus(1), limit=gpus(0))], {}),
    ],
    ids=["none", "not reclaimable", "guaranteed", "has it", "above it", "firm", "too young", "limit"],
)
def test_whoever_has_an_excuse_may_let_a_guarantee_wait(changes: list[Object], held: dict[str, object]) -> None:
    assert not kept_waiting(waiting(*changes, **held), RESTS)


def test_room_in_fragments_is_no_excuse() -> None:
    nodes = [node("n1", gpus=3), node("n2", gpus=3), CLOCK]
    queues = [queue("a", guaranteed=gpus(2)), queue("b", guaranteed=gpus(2))]
    held = [*gang("b1", "b", gpus=2, start=1), *gang("b2", "b", gpus=2, start=2, on="n2")]
    assert kept_waiting([*nodes, *queues, *held, *gang("new", "a", gpus=2)], RESTS)
    fits = [*nodes, node("n3", gpus=1), *queues, *held]
    assert not kept_waiting([*fits, *gang("new", "a", gpus=4)], RESTS), "no node has as many"


def test_the_older_of_two_jobs_may_go_where_the_younger_takes_its_place() -> None:
    nodes = [node("n1", gpus=2), node("n2", gpus=1), CLOCK]
    queues = [queue("a", guaranteed=gpus(2)), queue("b", guaranteed=gpus(1))]
    held = [*gang("older", "b", start=1), *gang("younger", "b", start=2, on="n2"), *gang("new", "a", gpus=2)]
    (sentence,) = kept_waiting([*nodes, *queues, *held], RESTS)
    assert "older-0 could go" in sentence
    queues[1] = queue("b", guaranteed=gpus(2))
    assert not kept_waiting([*nodes, *queues, *held], RESTS), "both are inside"


def test_its_own_queue_and_others_may_give_together() -> None:
    both = [node("n1", gpus=4), CLOCK, queue("a", guaranteed=gpus(4)), queue("b"), *gang("new", "a", gpus=3)]
    theirs = gang("theirs", "b", gpus=2, start=1)
    surplus, low = gang("mine", "a", 2, least=1, start=2), [*gang("mine", "a", start=2), *gang("low", "a", start=2)]
    assert "mine-1" in kept_waiting([*both, *theirs, *surplus], RESTS)[0]
    assert not kept_waiting([*both, *theirs, *low], RESTS), "it is of the same priority"
    low[-2]["spec"]["priorityClassName"] = "low"  # type: ignore[index]
    lower = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "low"}, "value": -5}
    assert "low-0" in kept_waiting([*both, lower, *theirs, *low], RESTS)[0]
    wide = [node("n1", gpus=2), node("n2", gpus=3), *both[1:], lower, *gang("theirs", "b", gpus=3, start=1, on="n2")]
    assert not kept_waiting([*wide, *low], RESTS), "the room of the lower priority is not needed"
    assert kept_waiting([*wide, *surplus], RESTS), "without its surplus it is within its guarantee"


def test_what_its_own_department_lent_counts_as_given_back() -> None:
    tree = [queue("d", guaranteed=gpus(2)), queue("d0", parent="d", guaranteed=gpus(2)), queue("d1", parent="d")]
    held = [*gang("guest", "d1", start=1), *gang("other", "e", start=2)]
    objects = [node("n1", gpus=2), CLOCK, *tree, queue("e"), *held]
    assert kept_waiting([*objects, *gang("new", "d0", gpus=2)], RESTS)
    kept = [*objects[:-4], *gang("guest", "d1", start=1, preemptable=False), *gang("other", "e", start=2)]
    assert not kept_waiting([*kept, *gang("new", "d0", gpus=2)], RESTS)


# Claims are strictly fairer, or guaranteed.


def test_a_claim_that_makes_nothing_fairer_is_caught() -> None:
    """Each of a and b deserves 2 of 4 GPUs."""
    held = [node("n1", gpus=4), CLOCK, queue("a"), queue("b"), *gang("x", "b", 2, start=1), *gang("y", "b", 2, start=2)]
    assert not unfair_claims([*held, *gang("new", "a")], plan_of(takes("new", "x-0", "x-1")))
    assert not unfair_claims([*held, *gang("new", "a", 3)], plan_of(takes("new", "x-0", "x-1", "y-0", "y-1", pods=3)))[
        1:
    ]
    mine = gang("mine", "a", 2, start=3)
    full = [*held[:-3], *mine, *gang("new", "a")]
    assert unfair_claims(full, plan_of(takes("new", "x-0"))) == [
        "round 1: default/x-0 leave for default/new, and [1, 1] becomes [1/2, 1]"
    ]


def test_a_due_may_be_lost_to_a_poorer_queue() -> None:
    """a deserves 1 and holds nothing, b deserves 2 and holds a gang of 2, which cannot shrink."""
    held = [node("n1", gpus=3), CLOCK, queue("a"), queue("b", weight=2), *gang("x", "b", 2, start=1)]
    held += gang("y", "b", start=2, preemptable=False)
    assert not unfair_claims([*held, *gang("new", "a")], plan_of(takes("new", "x-0", "x-1")))
    assert unfair_claims([*held, *gang("new", "a")], plan_of(takes("new", "x-0", "x-1", "y-0"))), (
        "b is left with nothing"
    )


def test_a_guarantee_may_take_what_others_deserve() -> None:
    """b deserves 2 of 3 GPUs, and is left with nothing."""
    held = [node("n1", gpus=3), CLOCK, queue("b"), *gang("x", "b", 3, start=1), *gang("new", "a")]
    claim = plan_of(takes("new", "x-0", "x-1", "x-2"))
    assert not unfair_claims([*held, queue("a", guaranteed=gpus(1))], claim)
    assert unfair_claims([*held, queue("a")], claim)
    assert unfair_claims([*held, queue("a", guaranteed={"memory": 1})], claim), "it names nothing that is asked for"
    assert unfair_claims([*held, queue("a", guaranteed=gpus(1)), *gang("mine", "a", start=2)], claim), "it has them"


def test_what_is_not_reclaimable_is_not_taken_for_a_guarantee() -> None:
    held = [node("n1", gpus=1), CLOCK, queue("b", reclaimable=False), *gang("x", "b", start=1), *gang("new", "a")]
    assert unfair_claims([*held, queue("a", guaranteed=gpus(1))], plan_of(takes("new", "x-0")))


def test_upper_levels_count_first() -> None:
    """d holds less than its due, and what it gets goes to its richer child; then d loses what its poorer child gets."""
    tree = [queue("d"), queue("e"), queue("d0", parent="d"), queue("d1", parent="d")]
    objects = [node("n1", gpus=6), CLOCK, *tree, *gang("other", "e", 4, least=1, start=1), *gang("has", "d0", start=2)]
    claim = plan_of(takes("new", "other-3"))
    assert not unfair_claims([*objects, *gang("new", "d0"), *gang("poor", "d1", 2)], claim)
    inner = [*objects[:2], *tree, *gang("has", "d0", 3, start=1), *gang("other", "e", 3, start=2)]
    whole = plan_of(takes("new", "has-0", "has-1", "has-2"))
    assert unfair_claims([*inner, *gang("new", "d1")], whole) == [
        "round 1: default/has-0, default/has-1, default/has-2 leave for default/new, "
        "and [1, 1] / [0, 1] becomes [1/3, 1] / [0, 1]"
    ]


def test_claims_of_one_round_are_judged_one_after_the_other() -> None:
    """Each of a, b and c deserves 2 of 6 GPUs. Two claims take one each; a third takes what c deserves."""
    held = [
        node("n1", gpus=6),
        CLOCK,
        *map(queue, "abc"),
        *gang("x", "c", 4, least=1, start=1),
        *gang("y", "b", 2, start=2),
    ]
    new = [*gang("n1", "a"), *gang("n2", "a"), *gang("n3", "a")]
    two = round_of(
        evictions=[take("x-3", "n1", "Reclaimed"), take("x-2", "n2", "Reclaimed")],
        nominations=[nominate("n1-0", "n1"), nominate("n2-0", "n1")],
    )
    assert not unfair_claims([*held, *new], plan_of(two))
    three = round_of(
        evictions=[*two["evictions"], take("x-1", "n3", "Reclaimed")],  # type: ignore[misc]
        nominations=[*two["nominations"], nominate("n3-0", "n1")],  # type: ignore[misc]
    )
    assert unfair_claims([*held, *new], plan_of(three))


# Strict claims come first.


def test_a_due_that_is_lost_in_vain_is_caught() -> None:
    """a, b and c deserve 2 of 6 GPUs each; b holds 2, in one gang, and c holds 4."""
    held = [node("n1", gpus=6), CLOCK, *map(queue, "abc"), *gang("x", "b", 2, start=1)]
    held += [*gang("y", "c", 2, start=2), *gang("z", "c", 2, start=3), *gang("new", "a", 2)]
    assert needlessly_lost(held, plan_of(takes("new", "x-0", "x-1", pods=2)))
    assert not needlessly_lost(held, plan_of(takes("new", "y-0", "y-1", pods=2)))

    def rest(priority: int) -> list[Object]:
        """y may not go, and z has this priority."""
        classes: Object = {"kind": "PriorityClass", "metadata": {"name": "other"}, "value": priority}
        made = [*gang("y", "c", 2, start=2, preemptable=False), *gang("z", "c", 2, start=3, priorityClassName="other")]
        return [*held[:-9], classes, *made, *gang("new", "a", 2)]

    assert needlessly_lost(rest(0), plan_of(takes("new", "x-0", "x-1", pods=2)))
    assert not needlessly_lost(rest(9), plan_of(takes("new", "x-0", "x-1", pods=2))), "z would preempt y next"
    firm = [*held[:-9], *gang("y", "c", 4, start=2, preemptable=False), *gang("new", "a", 2)]
    assert not needlessly_lost(firm, plan_of(takes("new", "x-0", "x-1", pods=2))), "nobody else may go"


# Turns.


def test_room_that_goes_to_somebody_above_its_due_is_caught_where_others_need_it() -> None:
    """a and b deserve 2 of 4 GPUs each and hold 1 each."""
    held = [node("n1", gpus=4), CLOCK, queue("a"), queue("b"), *gang("ao", "a", start=1), *gang("bo", "b", start=2)]
    both = [*held, *gang("an", "a", gpus=2), *gang("bn", "b")]
    greedy = bind("an-0", "n1", "2", "3")
    evicting = round_of(
        binds=[greedy], evictions=[take("ao-0", "bn", "Reclaimed")], nominations=[nominate("bn-0", "n1")]
    )
    (sentence,) = overtaken(both, plan_of(evicting))
    assert "default/bn evicts default/ao-0, although default/an" in sentence
    assert overtaken(both, plan_of(round_of(binds=[greedy], waiting=[wait("bn", "b")])))
    assert not overtaken(both, plan_of(round_of(binds=[bind("bn-0", "n1", "2")], waiting=[wait("an", "a")])))
    larger = [*held, *gang("an", "a", gpus=2), *gang("bn", "b", gpus=2)]
    assert not overtaken(larger, plan_of(round_of(binds=[greedy]))), "it would go above its due as well"
    modest = [*held, *gang("an", "a"), *gang("am", "a"), *gang("bn", "b")]
    within = round_of(binds=[bind("an-0", "n1", "2")])
    assert not overtaken(modest, plan_of(within)), "who gets it stays within its due"
    over = [queue("a", guaranteed=gpus(3)), queue("b", guaranteed=gpus(3))]
    promised = [*held[:2], *over, *held[4:], *gang("an", "a", gpus=2), *gang("bn", "b")]
    assert not overtaken(promised, plan_of(round_of(binds=[greedy]))), "it stays within its guarantee, which is more"
    own = [*held, *gang("am", "a"), *gang("an", "b", gpus=2), *gang("bn", "b")]
    assert any("default/bn waits" in sentence for sentence in overtaken(own, plan_of(round_of(binds=[greedy]))))
    ahead = gang("bh", "b", gpus=4)
    ahead[0]["spec"]["priorityClassName"] = "high"  # type: ignore[index]
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 5}
    assert not overtaken([*both, high, *ahead], plan_of(round_of(binds=[greedy]))), "behind one of higher priority"


def test_a_claim_above_the_due_is_caught_while_a_gang_of_the_same_queue_is_within_the_guarantee() -> None:
    """a is guaranteed 1 of 4 GPUs and deserves 1, or 2 with a weight; b holds all of them."""

    def waiting(**of_a: object) -> list[Object]:
        held = [node("n1", gpus=4), CLOCK, queue("a", **of_a), queue("b"), *gang("bo", "b", 4, least=1, start=1)]
        return [*held, *gang("large", "a", gpus=2), *gang("small", "a")]

    greedy, modest = takes("large", "bo-2", "bo-3"), takes("small", "bo-3")
    promised = waiting(guaranteed=gpus(1), weight=0)
    (sentence,) = overtaken(promised, plan_of(greedy))
    assert "default/small waits within its guarantee, although default/large" in sentence
    assert not overtaken(promised, plan_of(modest))
    assert not overtaken(waiting(guaranteed=gpus(1)), plan_of(greedy)), "within the due"
    assert not overtaken(waiting(weight=0, guaranteed=gpus(2)), plan_of(greedy)), "within the guarantee"
    assert not overtaken(waiting(), plan_of(takes("large", "bo-1", "bo-2", "bo-3"))), "nobody has a guarantee"
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 5}
    promised[-4]["spec"]["priorityClassName"] = "high"  # type: ignore[index]
    assert not overtaken([*promised, high], plan_of(greedy)), "behind one of higher priority"


# The random clusters.


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(guarantee_worlds())
def test_clusters_with_guarantees_break_no_promise_by_themselves(objects: list[Object]) -> None:
    facts = read_facts(objects)
    state = read_state(facts, objects)
    for key in facts.gangs.keys() | facts.jobs.keys():
        placed = [state.pods[name].role for name in state.where if state.pods[name].gang == key]
        assert not placed or not facts.gang(key).missing(placed)
    told = [
        wait(key.removeprefix("default/"), facts.gang(key).queue)
        for key in sorted({state.pods[name].gang for name in state.pending})
    ]
    assert violations(objects, plan_of(round_of(waiting=told))) == []
