"""Queue trees of any form are judged without recursion and in linear time; one that is too deep is refused."""

from __future__ import annotations

import random

import pytest

from maniple.api import types
from maniple.api.meta import ObjectMeta
from maniple.model.building.from_scratch import build_snapshot
from maniple.model.building.input_objects import Objects
from maniple.model.queues import MAX_LEVELS, sound_queues, tree_problems
from maniple.scheduler import schedule


def queue(name: str, parent: str = "") -> types.Queue:
    return types.Queue(metadata=ObjectMeta(name=name), spec=types.QueueSpec(parent=parent))


def chain(length: int) -> list[types.Queue]:
    return [queue(f"q{number}", f"q{number - 1}" if number else "") for number in range(length)]


def test_the_deepest_tree_that_is_allowed_can_be_planned() -> None:
    assert tree_problems(chain(MAX_LEVELS)) == []
    shares = schedule(build_snapshot(Objects(queues=chain(MAX_LEVELS)))).queues
    assert len(shares) == MAX_LEVELS + 1


@pytest.mark.parametrize("length", [MAX_LEVELS + 1, 1000, 20_000])
def test_a_deeper_tree_is_refused_with_the_queue_and_its_level(length: int) -> None:
    problems = tree_problems(chain(length))
    assert len(problems) == length - MAX_LEVELS
    first, text = problems[0]
    assert first.metadata.name == f"q{MAX_LEVELS}"
    assert text == f"spec.parent: expected a parent at most 99 levels deep, found 'q{MAX_LEVELS - 1}' at level 100"


def test_a_live_tree_that_is_too_deep_keeps_its_upper_part() -> None:
    sound, wrong = sound_queues(chain(MAX_LEVELS + 2))
    assert len(sound) == MAX_LEVELS + 1  # with `default`
    assert sorted(wrong) == [f"q{MAX_LEVELS}", f"q{MAX_LEVELS + 1}"]


def test_a_wide_tree_is_no_problem() -> None:
    assert tree_problems([queue("root"), *(queue(f"q{number}", "root") for number in range(20_000))]) == []


def test_every_queue_of_a_loop_is_reported_and_none_that_hangs_below_it() -> None:
    queues = [queue("a", "b"), queue("b", "c"), queue("c", "a"), queue("d", "a"), queue("e", "d")]
    assert [(found.metadata.name, text) for found, text in tree_problems(queues)] == [
        ("a", "spec.parent: the parents form a loop: a -> b -> c -> a"),
        ("b", "spec.parent: the parents form a loop: b -> c -> a -> b"),
        ("c", "spec.parent: the parents form a loop: c -> a -> b -> c"),
    ]


def test_a_long_loop_is_reported_in_a_short_line() -> None:
    queues = [queue(f"q{number}", f"q{(number + 1) % 5000}") for number in range(5000)]
    problems = tree_problems(queues)
    assert len(problems) == 5000
    assert max(len(text) for _, text in problems) < 300


@pytest.mark.parametrize("seed", range(30))
def test_loops_and_levels_equal_those_of_walking_up_from_each_queue(seed: int) -> None:
    random_ = random.Random(seed)
    names = [f"q{number}" for number in range(random_.randint(1, 12))]
    queues = [queue(name, random_.choice([*names, "", ""])) for name in names]
    parent_of = {item.metadata.name: item.spec.parent for item in queues}
    in_loop = set()
    for name in names:
        above, steps = parent_of[name], 0
        while above and above != name and steps < 20:
            above, steps = parent_of[above], steps + 1
        if above == name:
            in_loop.add(name)
    assert {found.metadata.name for found, text in tree_problems(queues) if "loop" in text} == in_loop
