"""Jobs without a framework: each replica speaks for itself, and what it has done stays done."""

import pytest

from elastic.simulated_cluster import World, elastic_job, running


def test_without_a_framework_a_job_is_done_when_its_first_role_is() -> None:
    world = World(elastic_job((("sweep", 2, 2), ("server", 1, 1)), framework="none"))
    world.settle()
    world.end(world.pod(0, "sweep"), 0)
    world.hear_all()
    assert world.phase == "Running"
    world.end(world.pod(1, "sweep"), 0)
    world.hear_all()
    assert world.phase == "Succeeded"


@pytest.mark.parametrize("how", ["evicted", "failed", "failed twice", "stuck"])
def test_the_last_replica_of_a_sweep_is_made_again_and_what_the_others_have_done_stays(how: str) -> None:
    world = running(4, least=1, framework="none", startSeconds=60)
    for index in range(3):
        world.end(world.pod(index), 0)
    done = [world.pod(index).uid for index in range(3)]
    world.hear_all()
    if how == "evicted":
        world.evict(world.pod(3))
    else:
        world.end(world.pod(3), 1)
    world.hear_all()
    world.pass_time(3)
    assert world.members() == []
    if how in ("failed twice", "stuck"):
        world.pass_time(6)
        world.hear_all()
        world.bind(world.pod(3))
        world.hear_all()
        if how == "stuck":
            world.pass_time(61)
        else:
            world.end(world.pod(3), 1)
            world.hear_all()
            world.pass_time(3)
        assert world.status.failures.count == 2
    world.settle()
    assert (world.phase, world.members()) == ("Running", ["j-worker-3"])
    assert [world.pod(index).uid for index in range(3)] == done
    world.end(world.pod(3), 0)
    world.hear_all()
    assert world.phase == "Succeeded"


def test_a_replica_that_is_done_counts_for_the_minimum_when_a_sweep_shrinks() -> None:
    world = running(3, least=2, framework="none")
    world.end(world.pod(1), 0)
    world.hear_all()
    world.vanish(world.pod(0))
    world.settle()
    assert world.members() == ["j-worker-0", "j-worker-2"]
    world.edit_role(max=2)
    world.settle()
    assert (world.indices(), world.members()) == ([0, 1], ["j-worker-0"])


def test_what_a_replica_of_a_sweep_has_done_is_not_done_again() -> None:
    world = running(4, most=4, framework="none")
    done = world.pod(3)
    world.end(done, 0)
    world.hear_all()
    world.edit_role(pin=2)
    world.settle()
    assert (len(world.members()), world.pod(3).uid) == (2, done.uid)
    world.edit_role(pin=None)
    world.decide(worker=4)
    world.settle()
    assert (world.indices(), world.pod(3).uid) == ([0, 1, 2, 3], done.uid)
