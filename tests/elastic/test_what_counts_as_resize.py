"""What counts as a resize: what somebody decided. What is lost, or cannot be had, is none."""

from typing import Any

import msgspec

from elastic.simulated_cluster import World, elastic_job, running


def pinned(size: int, least: int = 2, most: int = 8, **spec: Any) -> World:
    """A job that was submitted with its pin."""
    job = elastic_job((("worker", least, most),), **spec)
    roles = (msgspec.structs.replace(job.spec.roles[0], pin=size),)
    world = World(msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, roles=roles)))
    world.settle()
    assert len(world.members()) == size
    return world


def sizes(world: World) -> list[int]:
    return [one.replicas for one in world.status.target]


def test_a_job_keeps_the_size_that_it_starts_with_and_that_is_no_resize() -> None:
    world = running(2, most=8)
    assert (sizes(world), world.status.resizes, world.status.last_resize_time) == ([2], 0, None)


def test_a_pin_is_the_size_at_once_and_counts_as_a_resize() -> None:
    world = running(2, most=8)
    world.edit_role(pin=6)
    world.settle()
    assert (len(world.members()), sizes(world), world.status.resizes) == (6, [6], 1)
    world.edit_role(pin=3)
    world.settle()
    assert (len(world.members()), sizes(world), world.status.resizes) == (3, [3], 2)
    assert world.status.last_resize_time is not None
    world.edit_role(pin=None)
    world.settle()
    assert (len(world.members()), world.status.resizes) == (3, 2)


def test_a_pin_before_the_job_runs_is_no_resize() -> None:
    world = World(elastic_job((("worker", 2, 8),)))
    world.hear_all()
    world.edit_role(pin=5)
    world.settle()
    assert (len(world.members()), world.status.resizes) == (5, 0)


def test_a_pin_of_a_role_whose_size_the_scheduler_never_decided_counts_too() -> None:
    world = World(elastic_job((("worker", 2, 8), ("eval", 1, 4))))
    world.settle()
    world.decide(worker=4)
    world.settle()
    resizes = world.status.resizes
    world.edit_role(1, pin=3)
    world.settle()
    assert (len(world.members()), world.status.resizes) == (7, resizes + 1)


def test_a_pin_that_cannot_be_had_counts_once() -> None:
    world = running(2, most=8, startSeconds=60)
    world.edit_role(pin=4)
    world.hear_all()
    for _ in range(3):
        for index in (2, 3):
            world.bind(world.pod(index))
        world.hear_all()
        world.pass_time(61)
        for index in (2, 3):
            world.vanish(world.pod(index))
        world.hear_all()
        world.pass_time(61)
    assert (sizes(world), world.status.resizes) == ([4], 1)


def test_a_loss_of_a_pinned_job_is_no_resize() -> None:
    world = pinned(6)
    world.vanish(world.pod(5))
    world.hear_all()
    world.settle()
    assert (len(world.members()), world.status.resizes, world.status.last_resize_time) == (6, 0, None)


def test_a_finished_replica_of_a_pinned_sweep_that_somebody_deletes_is_no_resize() -> None:
    world = pinned(4, framework="none")
    world.end(world.pod(3), 0)
    world.hear_all()
    world.settle()
    world.vanish(world.pod(3))
    world.hear_all()
    world.settle()
    assert (world.phase, world.status.resizes) == ("Running", 0)


def test_a_lower_maximum_counts_once_also_if_the_controller_starts_again() -> None:
    world = running(8, most=8)
    resizes = world.status.resizes
    world.edit_role(max=5)
    world.settle()
    world.restart()
    world.settle()
    assert (len(world.members()), world.status.resizes) == (5, resizes + 1)
