"""Who comes back first, what a pin means for losses, and that what a job says of itself is true."""

import re

import pytest

from elastic.simulated_cluster import World, elastic_job, running

# -- lower indices first


def full_cluster_loses(index: int) -> World:
    """A job of 4 that is to have 6 finds no room for them, and loses one of the 4."""
    world = running(4, most=6)
    world.decide(worker=6)
    world.hear_all()
    assert world.indices() == [0, 1, 2, 3, 4, 5]
    world.vanish(world.pod(index))
    world.hear_all()
    return world


@pytest.mark.parametrize("index", [0, 1])
def test_a_lost_replica_comes_back_before_the_job_grows(index: int) -> None:
    world = full_cluster_loses(index)
    assert world.indices() == [0, 1, 2, 3]
    world.bind(world.pod(index))
    world.hear_all()
    assert world.indices() == [0, 1, 2, 3]
    world.get_ready(world.pod(index))
    world.hear_all()
    assert (len(world.members()), world.indices()) == (4, [0, 1, 2, 3, 4, 5])
    world.settle()
    assert len(world.members()) == 6


def test_a_newcomer_that_is_starting_gives_its_room_to_a_lost_replica_and_one_that_is_ready_joins() -> None:
    world = running(4, most=6)
    world.decide(worker=6)
    world.hear_all()
    world.get_ready(world.pod(4))
    world.bind(world.pod(5))
    world.hear_all()
    world.vanish(world.pod(0))
    world.hear_all()
    assert (world.indices(), world.pod(5).is_leaving, world.pod(4).is_leaving) == ([0, 1, 2, 3, 4, 5], True, False)
    world.pass_time(11)
    assert world.members() == ["j-worker-1", "j-worker-2", "j-worker-3", "j-worker-4"]
    world.settle()
    assert len(world.members()) == 6


def test_a_job_without_its_first_replica_grows_in_no_role() -> None:
    world = World(elastic_job((("chief", 1, 2), ("worker", 1, 4))))
    world.decide(chief=2, worker=2)
    world.settle()
    world.vanish(world.pod(0, "chief"))
    world.hear_all()
    world.decide(worker=4)
    world.hear_all()
    assert (world.indices("chief"), world.indices()) == ([0, 1], [0, 1])
    world.settle()
    assert world.indices() == [0, 1, 2, 3]


def test_while_the_first_replica_is_away_the_first_that_is_there_speaks_and_the_job_says_who() -> None:
    world = full_cluster_loses(0)
    assert world.members()[0] == "j-worker-1"
    world.acknowledge(world.pod(2), "done")
    assert world.phase == "Growing"
    world.end(world.pod(1), 0)
    world.hear_all()
    assert world.phase == "Succeeded"
    said = next(one.message for one in world.status.conditions if one.type == "Succeeded")
    assert said == "j-worker-1, the first of its replicas, has ended well"
    assert 0 not in world.indices()


def test_every_size_is_told_with_its_generation() -> None:
    """`maniple describe` has the sizes over time from there."""
    world = running(4)
    world.vanish(world.pod(3))
    world.hear_all()
    world.settle()
    world.end(world.pod(2), 1)
    world.hear_all()
    world.pass_time(2.5)
    told = [int(found[1]) for one in world.records if (found := re.search(r" in generation (\d+)$", one.message))]
    assert told == [generation.number for generation in world.published]


@pytest.mark.parametrize("is_before", [True, False])
def test_a_member_that_is_no_longer_ready_has_its_time_for_a_checkpoint_too(is_before: bool) -> None:
    """A probe may fail just because the workers stop."""
    world = running(4)
    if is_before:
        world.get_unready(world.pod(3))
        world.hear_all()
    world.decide(worker=2)
    world.hear_all()
    world.get_unready(world.pod(3))
    world.hear_all()
    assert (world.phase, world.pod(3).is_leaving) == ("Shrinking", False)
    world.acknowledge(world.pod(2), "stopped")
    world.acknowledge(world.pod(3), "stopped")
    assert (world.pod(2).is_leaving, world.pod(3).is_leaving) == (True, True)
    world.settle()
    assert (world.phase, len(world.members())) == ("Running", 2)


def test_a_member_that_is_no_longer_ready_has_its_time_when_the_job_is_suspended() -> None:
    world = running(2)
    world.edit(suspend=True)
    world.hear_all()
    world.get_unready(world.pod(1))
    world.hear_all()
    assert not world.pod(1).is_leaving
    world.pass_time(31)
    assert world.pod(1).is_leaving


# -- pins


def test_a_pin_is_no_minimum_for_losses_and_is_filled_up_again() -> None:
    world = running(2, most=8)
    world.edit_role(pin=6)
    world.settle()
    world.end(world.pod(4), 1)
    world.vanish(world.pod(5))
    world.hear_all()
    world.pass_time(2.5)
    assert (world.phase, len(world.members()), world.status.restarts) == ("Running", 4, 0)
    world.settle()
    assert (len(world.members()), world.status.restarts, world.status.failures.count) == (6, 0, 1)


def test_a_pinned_job_below_its_minimum_starts_over_with_the_pinned_size() -> None:
    world = running(4, most=8)
    world.edit_role(pin=4)
    world.settle()
    for index in (1, 2, 3):
        world.vanish(world.pod(index))
    world.hear_all()
    assert world.phase == "Restarting"
    for pod in list(world.pods.values()):
        world.acknowledge(pod, "stopped")
        world.vanish(pod)
    world.hear_all()
    for index in (0, 1, 2):
        world.get_ready(world.pod(index))
    world.hear_all()
    world.pass_time(60)
    assert world.phase == "Pending"
    world.get_ready(world.pod(3))
    world.hear_all()
    assert (world.phase, len(world.members())) == ("Running", 4)


# -- what a job says of itself


def test_a_job_says_that_it_is_suspended_when_it_holds_nothing() -> None:
    world = running(2)
    world.edit(suspend=True)
    world.hear_all()

    def suspended() -> tuple[str, str]:
        return next((one.status, one.reason) for one in world.status.conditions if one.type == "Suspended")

    assert (world.phase, suspended()) == ("Suspended", ("False", "Stopping"))
    world.pass_time(31)
    assert all(pod.is_leaving for pod in world.pods.values())
    assert suspended() == ("False", "Stopping")
    world.settle()
    assert suspended() == ("True", "Suspended")
    world.edit(suspend=False)
    world.hear_all()
    assert suspended() == ("False", "JobPending")


def test_a_job_resumed_while_it_stops_says_that_it_stops_until_it_starts_again() -> None:
    world = running(2)
    world.edit(suspend=True)
    world.hear_all()
    world.edit(suspend=False)
    world.hear_all()
    assert world.phase == "Suspended"
    world.settle()
    assert world.phase == "Running"
    assert not [one for one in world.status.conditions if one.reason == "Stopping"]


@pytest.mark.parametrize("is_killed", [False, True])
def test_no_generation_has_the_number_of_another_although_somebody_removed_the_status(is_killed: bool) -> None:
    """Replicas listen to newer ones only."""
    world = running(4)
    before = world.status.generation.number
    world.wipe()
    if is_killed:
        world.restart()
    world.settle()
    world.decide(worker=2)
    world.settle()
    assert (world.phase, len(world.members())) == ("Running", 2)
    assert world.status.generation.number > before


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("phase", ["Running", "Growing", "Shrinking"])
def test_a_phase_that_somebody_else_wrote_is_put_right(phase: str, is_killed: bool) -> None:
    world = World(elastic_job())
    world.overwrite(phase)
    if is_killed:
        world.restart()
    else:
        world.hear_all()
    assert world.phase == "Pending"
    world.settle()
    assert world.phase == "Running"
