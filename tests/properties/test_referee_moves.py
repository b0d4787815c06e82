"""The referee's verdicts on moves: for each a plan that breaks it beside one that keeps it."""

from __future__ import annotations

import pytest

from properties.raw_objects import Object
from properties.referee import judge
from properties.replay_rounds import Promise
from properties.test_referee import bind, broken, group, node, nominate, plan_of, pod, round_of, wait
from properties.test_referee_evictions import take


def cluster(gpus: int = 2, movable: bool = True, **spec: object) -> list[Object]:
    """`x` runs on n1 beside a free GPU, `y` on n2, and `new` needs the two GPUs of a node."""
    return [
        *(node(name, gpus=2) for name in ("n1", "n2")),
        group("x", 1, movable=movable, **spec),
        pod("x-0", on="n1", group="x", ids="0"),
        pod("y", on="n2", ids="0"),
        pod("new", gpus),
    ]


def move(name: str = "x-0", old: str = "n1", new: str = "n2", gang: str = "new") -> Object:
    return {"pod": f"default/{name}", "from": old, "to": new, "for": f"default/{gang}"}


def moved(*moves: Object, evicted: str = "x-0", to: str = "n1") -> Object:
    return round_of(
        evictions=[take(evicted, "new", "Moved")] if evicted else [],
        moves=list(moves),
        nominations=[nominate("new", to)],
    )


FIRST = moved(move())
SECOND = round_of(binds=[bind("new", "n1", "0", "1"), bind("x-0", "n2", "1")])


def test_a_pod_may_move_to_a_place_that_it_gets_when_it_comes_back() -> None:
    assert not broken(cluster(), FIRST, SECOND)


def test_its_place_must_be_kept_for_it() -> None:
    waits = round_of(binds=[bind("new", "n1", "0", "1")], waiting=[wait("x")])
    assert broken(cluster(), FIRST, waits) == {Promise.MOVES}
    other = [*cluster(), node("n3", gpus=2)]
    elsewhere = round_of(binds=[bind("new", "n1", "0", "1"), bind("x-0", "n3", "1")])
    assert broken(other, FIRST, elsewhere) == {Promise.MOVES}


def test_its_place_is_kept_no_more_when_its_gang_loses_pods_to_others() -> None:
    """Surplus of `x` is moved, and while it leaves the other pod of `x` is preempted."""
    high: Object = {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 100}
    pair = [high, *cluster(), pod("x-1", on="n1", group="x", ids="1"), node("n3", gpus=1), node("n4", gpus=1)]
    moves_away = round_of(evictions=[take("x-1", "new", "Moved")], moves=[move("x-1", new="n3")])
    preempts = round_of(evictions=[take("x-0", "new", "Preempted")])
    elsewhere = round_of(binds=[bind("x-1", "n4", "0")])

    def is_kept(*rounds: Object) -> bool:
        return any(breach.promise == Promise.MOVES for breach in judge(pair, plan_of(*rounds), grace=2))

    assert is_kept(moves_away, round_of(), round_of(), elsewhere)
    assert not is_kept(moves_away, preempts, round_of(), elsewhere)


@pytest.mark.parametrize(
    "first",
    [
        moved(),
        moved(move(old="n2")),
        moved(move(gang="y")),
        moved(move(new="n9")),
        moved(move(), move()),
        moved(move(name="y", old="n2", new="n1"), move()),
    ],
    ids=["no place", "it was elsewhere", "for another gang", "no such node", "two places", "not evicted"],
)
def test_each_moved_pod_has_one_place(first: Object) -> None:
    assert Promise.MOVES in broken(cluster(), first)


def test_a_place_must_hold_the_pod_beside_all_others() -> None:
    full = [*cluster(), pod("z", on="n2", ids="1")]
    assert broken(full, FIRST) == {Promise.MOVES}
    tainted = [node("n2", gpus=2, taints=[{"key": "a", "effect": "NoSchedule"}]), *cluster()[:1], *cluster()[2:]]
    assert Promise.MOVES in broken(tainted, FIRST)


def test_nobody_moves_to_where_it_was() -> None:
    roomy = [node("n1", gpus=4), *cluster()[1:]]
    assert broken(roomy, moved(move(new="n1"))) == {Promise.MOVES}


def test_only_those_move_who_say_so() -> None:
    assert broken(cluster(movable=False), FIRST) == {Promise.MOVES}


def test_nobody_moves_who_may_not_be_evicted() -> None:
    assert broken(cluster(preemptable=False), FIRST) == {Promise.VICTIMS}


def test_nobody_moves_for_a_lower_priority() -> None:
    high: Object = {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 100}
    assert broken([high, *cluster(priorityClassName="high")], FIRST) == {Promise.MOVES}
    assert not broken([high, *cluster()], FIRST, SECOND)


def test_nobody_moves_for_a_gang_that_does_not_start() -> None:
    assert Promise.VICTIMS in broken(cluster(), round_of(evictions=[take("x-0", "new", "Moved")], moves=[move()]))


def test_a_gang_moves_whole_or_keeps_its_minimum() -> None:
    pair = [
        group("p", 2, movable=True),
        pod("p-0", on="n1", group="p", ids="0"),
        pod("p-1", on="n2", group="p", ids="0"),
    ]
    nodes = [node(name, gpus=2) for name in ("n1", "n2")]
    first = round_of(evictions=[take("p-0", "new", "Moved")], moves=[move("p-0")], nominations=[nominate("new", "n1")])
    assert broken([*nodes, *pair, pod("new", 2)], first) == {Promise.GANGS}


# While nothing waits.


def tidy(*moves: Object, **more: list[Object]) -> Object:
    """A round in which these pods move."""
    evictions = [take(str(entry["pod"]).removeprefix("default/"), "", "Moved") for entry in moves]
    for entry, eviction in zip(moves, evictions, strict=True):
        eviction["for"] = entry["for"]
    return round_of(evictions=evictions, moves=list(moves), **more)


def step(name: str, old: str, new: str, purpose: str) -> Object:
    return {"pod": f"default/{name}", "from": old, "to": new, "for": purpose}


def resting() -> list[Object]:
    """`x` has one of four GPUs on n1 and `y` one on n2; both may move."""
    return [
        *(node(name, gpus=4) for name in ("n1", "n2", "n3")),
        group("x", 1, movable=True),
        pod("x-0", on="n1", group="x", ids="0"),
        group("y", 1, movable=True),
        pod("y-0", on="n2", group="y", ids="0"),
    ]


TIDIED = tidy(step("x-0", "n1", "n2", "emptying n1"))
BACK = round_of(binds=[bind("x-0", "n2", "1")])


def test_a_node_may_be_emptied_while_nothing_waits() -> None:
    assert not broken(resting(), TIDIED, BACK)


def test_nobody_is_tidied_while_a_gang_waits() -> None:
    waits = tidy(step("x-0", "n1", "n2", "emptying n1"), waiting=[wait("new") | {"position": 1}])
    assert Promise.TIDYING in broken([*resting(), pod("new", 8)], waits)


@pytest.mark.parametrize(
    "first",
    [
        tidy(step("x-0", "n1", "n3", "emptying n1")),
        tidy(step("x-0", "n1", "n2", "emptying n2")),
        tidy(step("x-0", "n1", "n2", "gathering default/x")),
        tidy(step("x-0", "n1", "n2", "emptying n1"), step("y-0", "n2", "n1", "emptying n1")),
        tidy(step("x-0", "n1", "n2", "emptying n1"), step("y-0", "n2", "n3", "emptying n2")),
    ],
    ids=["as much disorder", "not that node", "not spread", "needless", "two purposes"],
)
def test_tidying_makes_more_order_for_one_purpose(first: Object) -> None:
    assert Promise.TIDYING in broken(resting(), first)


def test_a_node_is_emptied_of_all_pods_with_gpus() -> None:
    more = [*resting(), pod("z", on="n1", ids="1")]
    assert broken(more, TIDIED) == {Promise.TIDYING}


def test_a_gang_may_be_gathered() -> None:
    pair = [
        *(node(name, gpus=4) for name in ("n1", "n2")),
        group("p", 1, movable=True),
        pod("p-0", on="n1", group="p", ids="0"),
        pod("p-1", on="n2", group="p", ids="0"),
    ]
    back = round_of(binds=[bind("p-1", "n1", "1")])
    assert not broken(pair, tidy(step("p-1", "n2", "n1", "gathering default/p")), back)


def test_nobody_moves_to_another_model_for_more_order() -> None:
    models = resting()
    for item, model in zip(models, ("NVIDIA-H100", "NVIDIA-A100"), strict=False):
        item["metadata"] = {"name": item["metadata"]["name"], "labels": {"nvidia.com/gpu.product": model}}  # type: ignore[index]
    assert broken(models, TIDIED) == {Promise.TIDYING}
