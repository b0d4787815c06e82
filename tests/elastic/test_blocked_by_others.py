"""What keeps a job from what it is to be, and is not its own doing: its status says so, and for as long as it is so."""

from elastic.simulated_cluster import World, elastic_job, running
from maniple.api import types
from maniple.elastic.events import Hindered


def hindered(world: World) -> types.StatusCondition | None:
    return next((one for one in world.status.conditions if one.type == "Hindered"), None)


def test_what_could_not_be_done_is_said_until_it_can_be() -> None:
    world = World(elastic_job((("worker", 2, 4),)))
    world.hear_all()
    world.tell(Hindered("Forbidden", "exceeded quota"))
    world.pass_time(1.1)
    said = hindered(world)
    assert said is not None
    assert (said.status, said.reason, said.message) == ("True", "Forbidden", "exceeded quota")
    before = world.status
    world.tell(Hindered("Forbidden", "exceeded quota"))
    world.pass_time(5)
    assert world.status == before
    world.pass_time(60)
    world.tell(Hindered("NameTaken", "there is a Service j"))
    world.pass_time(1.1)
    again = hindered(world)
    assert again is not None
    assert (again.reason, again.last_transition_time) == ("NameTaken", said.last_transition_time)
    world.tell(Hindered())
    world.pass_time(1.1)
    assert hindered(world) is None


def test_a_replica_that_should_be_gone_is_named() -> None:
    """Its node is dead, or a finalizer holds it: the job cannot start over before it is gone."""
    world = running(2)
    pod = world.pod(1)
    world.evict(pod)
    pod.leaves_at = world.now + 30
    world.hear_all()
    assert world.phase == "Restarting"
    world.vanish(world.pod(0))
    world.hear_all()
    world.pass_time(31)
    assert hindered(world) is None
    world.pass_time(30)
    said = hindered(world)
    assert said is not None
    assert said.reason == "ReplicaLingers"
    assert "j-worker-1 on n0" in said.message
    world.restart()
    world.vanish(pod)
    world.hear_all()
    world.pass_time(1.1)
    assert hindered(world) is None
    world.settle()
    assert world.phase == "Running"


def test_a_job_that_goes_on_smaller_says_who_is_in_the_way() -> None:
    world = running(4)
    pod = world.pod(3)
    world.evict(pod)
    pod.leaves_at = world.now
    world.hear_all()
    world.pass_time(31)
    said = hindered(world)
    assert (world.phase, len(world.members())) == ("Growing", 3)
    assert said is not None
    assert "j-worker-3" in said.message


def test_a_job_that_is_over_is_not_hindered() -> None:
    world = running(2)
    world.tell(Hindered("Forbidden", "exceeded quota"))
    assert hindered(world) is not None
    world.end(world.pod(0), 0)
    world.hear_all()
    assert world.phase == "Succeeded"
    assert hindered(world) is None
