"""What workers report: how fast a job is at a size, and how far it is."""

from elastic.simulated_cluster import running
from maniple.api import types
from maniple.api.timestamps import from_seconds
from maniple.elastic.events import Reported


def test_what_workers_report_becomes_the_speed_of_that_size() -> None:
    world = running(2)
    for throughput in (1.0, 100.0, 100.0, 100.0):
        world.report(throughput)
    assert world.status.speeds == (types.MeasuredSpeed(2, 100.0),)
    world.report(101.0)
    assert world.status.speeds == (types.MeasuredSpeed(2, 100.0),)
    world.decide(worker=4)
    world.settle()
    for throughput in (1.0, 150.0, 150.0, 150.0):
        world.report(throughput)
    assert [(one.replicas, one.throughput) for one in world.status.speeds] == [(2, 100.0), (4, 150.0)]


def test_a_speed_in_a_tiny_unit_is_a_speed() -> None:
    world = running(2)
    for _ in range(5):
        world.report(3.9e-7)
    assert world.status.speeds == (types.MeasuredSpeed(2, 3.9e-7),)


def test_how_far_a_job_is_is_written_now_and_then_and_with_all_else() -> None:
    world = running(2)
    world.settle()

    def step() -> int:
        return world.status.progress.step

    world.report(2.5, step=10)
    world.pass_time(1.0)
    assert world.status.progress == types.JobProgress(10, 100, 2.5, from_seconds(world.now - 1.0))
    for number in range(11, 40):  # one a second: in half a minute there is one write of it
        world.report(None, step=number)
        world.pass_time(1.0)
        assert step() == 10
    world.report(None, step=40)
    world.pass_time(1.0)
    assert step() == 40
    world.report(2.5, step=41)
    world.decide(worker=4)
    world.hear_all()
    assert (world.phase, step()) == ("Growing", 41)
    world.report(2.5, step=99)
    world.settle()
    world.tell(Reported(1, 7, world.now, 2.5))  # of a generation that is over
    world.report(2.5, step=100)
    world.acknowledge(world.pod(0), "done")
    assert (world.phase, step()) == ("Succeeded", 100)
    world.report(2.5, step=101)
    world.settle()
    assert step() == 100
