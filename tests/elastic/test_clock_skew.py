"""Clocks that are set back, and nodes whose clocks are ahead: nobody waits longer than a little more than usual."""

import pytest

from elastic.simulated_cluster import running

HOUR = 3600.0


def test_a_failure_is_judged_although_the_clock_was_set_back() -> None:
    world = running(2)
    world.end(world.pod(1), 1)
    world.hear_all()
    world.set_clock(-HOUR)
    world.pass_time(40)
    assert (world.phase, world.status.failures.count) == ("Restarting", 1)


@pytest.mark.parametrize("is_killed", [False, True])
def test_the_pause_after_a_failure_ends_although_the_clock_was_set_back(is_killed: bool) -> None:
    world = running(2)
    world.end(world.pod(1), 1)
    world.hear_all()
    world.pass_time(2.5)
    assert world.phase == "Restarting"
    for pod in list(world.pods.values()):
        world.acknowledge(pod, "stopped")
        world.vanish(pod)
    world.hear_all()
    world.set_clock(-HOUR)
    if is_killed:
        world.restart()
    world.pass_time(331)
    assert world.phase == "Pending"


@pytest.mark.parametrize("is_killed", [False, True])
def test_replicas_that_do_not_answer_are_taken_although_the_clock_was_set_back(is_killed: bool) -> None:
    world = running(4)
    world.decide(worker=2)
    world.hear_all()
    assert world.phase == "Shrinking"
    world.set_clock(-HOUR)
    if is_killed:
        world.restart()
    world.pass_time(61)
    assert [index for index in world.indices() if world.pod(index).is_leaving] == [2, 3]


def test_a_suspended_job_gives_its_gpus_back_although_the_clock_was_set_back() -> None:
    world = running(2)
    world.edit(suspend=True)
    world.hear_all()
    world.set_clock(-HOUR)
    world.pass_time(61)
    assert all(pod.is_leaving for pod in world.pods.values())


def test_replicas_of_a_job_that_has_succeeded_are_taken_although_the_clock_was_set_back() -> None:
    world = running(2)
    world.end(world.pod(0), 0)
    world.hear_all()
    assert world.phase == "Succeeded"
    world.set_clock(-HOUR)
    world.pass_time(61)
    assert world.pod(1).is_leaving


def test_a_node_whose_clock_is_ahead_holds_nobody_up() -> None:
    """What it says of when a pod was ready is later than now."""
    world = running(2, most=4)
    world.decide(worker=4)
    world.hear_all()
    newcomer = world.pod(2)
    world.get_ready(newcomer)
    newcomer.ready_at += HOUR
    world.hear_all()
    world.pass_time(41)
    assert world.members() == ["j-worker-0", "j-worker-1", "j-worker-2"]


def test_what_people_read_is_written_although_the_clock_was_set_back() -> None:
    world = running(2, most=4)
    world.decide(worker=4)
    world.hear_all()
    world.bind(world.pod(2))
    world.hear_all()
    world.set_clock(-HOUR)
    world.pass_time(32)
    assert (world.status.replicas.pending, world.status.replicas.starting) == (1, 1)


def test_a_little_difference_between_two_leaders_takes_nobodys_grace() -> None:
    world = running(4)
    world.decide(worker=2)
    world.hear_all()
    world.set_clock(-5.0)
    world.restart()
    world.pass_time(10.0)
    assert not any(pod.is_leaving for pod in world.pods.values())


def test_a_clock_that_was_set_back_neither_ends_a_job_nor_deletes_it() -> None:
    """Both are late by as much: what is too early could not be made good."""
    world = running(2)
    world.edit(active_deadline_seconds=7200, ttl_seconds_after_finished=60)
    world.hear_all()
    world.set_clock(-HOUR)
    world.pass_time(7300)
    assert world.phase == "Running"
    world.pass_time(HOUR)
    assert world.phase == "Failed"
    world.set_clock(-HOUR)
    world.pass_time(120)
    assert not world.is_deleted
