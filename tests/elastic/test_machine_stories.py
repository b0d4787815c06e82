"""The life of an elastic job, story by story."""

import pytest

from elastic.simulated_cluster import World, elastic_job, running
from maniple.api import types


def test_a_job_starts_as_a_gang_and_runs_when_its_minimum_is_ready() -> None:
    world = World(elastic_job())
    assert (world.phase, world.indices()) == ("Pending", [0, 1])
    for index in (0, 1):
        world.bind(world.pod(index))
    world.hear_all()
    assert world.phase == "Starting"
    world.get_ready(world.pod(0))
    world.hear_all()
    assert world.phase == "Starting"
    assert world.published == []
    world.get_ready(world.pod(1))
    world.hear_all()
    assert world.phase == "Running"
    assert world.members() == ["j-worker-0", "j-worker-1"]
    assert [one.slots for one in world.status.generation.members] == [2, 2]
    assert world.status.start_time is not None


def test_what_only_people_read_is_written_within_a_second_and_at_once_with_all_else() -> None:
    waits = World(elastic_job())
    assert (waits.status.phase, waits.indices()) == ("", [0, 1])
    waits.pass_time(1.0)
    assert (waits.status.phase, waits.status.replicas.pending) == ("Pending", 2)
    waits.pass_time(3600.0)
    waits.bind(waits.pod(0))
    waits.hear_all()
    assert waits.status.replicas == types.ReplicaCounts(pending=2)
    waits.pass_time(1.0)
    assert waits.status.replicas == types.ReplicaCounts(pending=1, starting=1)

    starts = World(elastic_job())
    for index in (0, 1):
        starts.bind(starts.pod(index))
        starts.get_ready(starts.pod(index))
    starts.hear_all()
    assert (starts.status.phase, starts.status.replicas.running) == ("Running", 2)
    assert starts.reason("Created") == "JobCreated"


def test_growing_makes_all_new_pods_at_once_and_the_others_go_on_until_they_are_ready() -> None:
    world = running(2, most=8)
    world.decide(worker=8)
    world.hear_all()
    assert (world.phase, world.indices()) == ("Growing", list(range(8)))
    for index in range(2, 7):
        world.bind(world.pod(index))
        world.get_ready(world.pod(index))
    world.bind(world.pod(7))
    world.hear_all()
    assert (world.phase, len(world.members())) == ("Growing", 2)
    world.get_ready(world.pod(7))
    world.hear_all()
    assert (world.phase, len(world.members()), len(world.published)) == ("Running", 8, 2)


def test_newcomers_that_find_no_node_do_not_keep_the_others_waiting_for_ever() -> None:
    world = running(2, most=4)
    world.decide(worker=4)
    world.hear_all()
    world.get_ready(world.pod(2))
    world.hear_all()
    assert len(world.members()) == 2
    world.pass_time(11)
    assert (world.phase, len(world.members())) == ("Growing", 3)


def test_shrinking_asks_for_a_checkpoint_and_waits_for_the_answer() -> None:
    world = running(4)
    world.decide(worker=2)
    world.hear_all()
    assert (world.phase, world.members()) == ("Shrinking", ["j-worker-0", "j-worker-1"])
    assert not world.pod(3).is_leaving
    world.acknowledge(world.pod(3), "stopped")
    assert (world.pod(3).is_leaving, world.pod(2).is_leaving) == (True, False)
    world.pass_time(31)
    assert world.pod(2).is_leaving
    world.settle()
    assert (world.phase, world.indices()) == ("Running", [0, 1])


def test_shrinking_removes_pods_that_do_not_run_at_once() -> None:
    world = running(2, most=8)
    world.decide(worker=6)
    world.hear_all()
    world.decide(worker=2)
    world.hear_all()
    assert (world.phase, world.indices(), len(world.published)) == ("Running", [0, 1], 1)


def test_without_agents_sigterm_is_the_notice() -> None:
    world = running(4, framework="none")
    world.decide(worker=3)
    world.hear_all()
    assert world.pod(3).is_leaving


def test_a_lost_replica_above_the_minimum_is_gone_on_without_and_made_again() -> None:
    world = running(3)
    world.vanish(world.pod(1))
    world.hear_all()
    assert world.members() == ["j-worker-0", "j-worker-2"]
    assert world.phase == "Growing"
    world.settle()
    assert world.members() == ["j-worker-0", "j-worker-1", "j-worker-2"]
    assert (world.status.failures.count, world.status.restarts) == (0, 0)


def test_below_the_minimum_all_stop_and_start_over_as_a_gang() -> None:
    world = running(3)
    world.vanish(world.pod(0))
    world.vanish(world.pod(2))
    world.hear_all()
    assert world.phase == "Restarting"
    assert world.published[-1].stop
    assert not world.pod(1).is_leaving
    world.acknowledge(world.pod(1), "stopped")
    assert world.pod(1).is_leaving
    world.settle()
    assert (world.phase, len(world.members()), world.status.restarts) == ("Running", 2, 1)
    assert [one.replicas for one in world.status.target] == [2]
    assert [one.number for one in world.published] == [*range(1, len(world.published) + 1)]


def test_a_hole_below_the_size_does_not_push_the_job_below_its_minimum() -> None:
    world = running(4, least=3, most=4)
    world.vanish(world.pod(1))
    world.hear_all()
    world.decide(worker=3)
    world.hear_all()
    assert world.members() == ["j-worker-0", "j-worker-2", "j-worker-3"]
    world.settle()
    assert world.members() == ["j-worker-0", "j-worker-1", "j-worker-2"]


def test_suspended_a_job_checkpoints_and_has_no_pods_and_resumes_with_its_minimum() -> None:
    world = running(4)
    world.edit(suspend=True)
    world.hear_all()
    assert world.phase == "Suspended"
    assert world.published[-1].stop
    assert not any(pod.is_leaving for pod in world.pods.values())
    world.settle()
    assert (world.indices(), world.status.start_time) == ([], None)
    world.edit(suspend=False)
    world.settle()
    assert (world.phase, len(world.members())) == ("Running", 2)


def test_the_deadline_counts_from_the_start_of_the_job() -> None:
    world = World(elastic_job(activeDeadlineSeconds=100))
    world.pass_time(500)
    world.settle()
    assert world.phase == "Failed"
    assert world.status.completion_time is not None
    assert world.status.start_time is not None
    assert round((world.status.completion_time - world.status.start_time).total_seconds()) == 100
    assert world.reason("Failed") == "DeadlineExceeded"
    assert world.indices() == []


def test_the_first_replica_speaks_for_all_and_the_others_have_time_to_end() -> None:
    world = running(2)
    world.acknowledge(world.pod(0), "done")
    assert (world.phase, world.reason("Succeeded")) == ("Succeeded", "JobSucceeded")
    world.acknowledge(world.pod(1), "failed", code=1)
    world.end(world.pod(0), 0)
    world.hear_all()
    assert not world.pod(1).is_leaving
    world.settle()
    assert (world.phase, world.indices()) == ("Succeeded", [0])


@pytest.mark.parametrize(("policy", "left"), [("Running", [0]), ("All", []), ("None", [0, 1])])
def test_the_clean_pod_policy_says_which_pods_stay(policy: str, left: list[int]) -> None:
    world = running(2, cleanPodPolicy=policy)
    world.end(world.pod(0), 0)
    world.settle()
    assert (world.phase, world.indices()) == ("Succeeded", left)


@pytest.mark.parametrize(("policy", "left"), [("Running", [0, 1]), ("All", [])])
def test_agents_of_a_job_that_failed_end_by_themselves_and_their_pods_stay(policy: str, left: list[int]) -> None:
    world = running(2, restartPolicy="Never", cleanPodPolicy=policy, elastic={"graceSeconds": 10})
    world.acknowledge(world.pod(0), "failed", code=5)
    world.pass_time(3)
    assert world.phase == "Failed"
    if policy == "Running":  # as the endpoint tells them to
        world.end(world.pod(0), 5)
        world.end(world.pod(1), 143)
        world.hear_all()
    world.pass_time(100)
    world.settle()
    assert (world.phase, world.indices()) == ("Failed", left)


def test_an_agent_that_does_not_end_with_its_job_is_deleted() -> None:
    world = running(2, restartPolicy="Never", elastic={"graceSeconds": 10})
    world.acknowledge(world.pod(0), "failed", code=5)
    world.pass_time(3)
    assert (world.phase, world.indices()) == ("Failed", [0, 1])
    world.pass_time(15)
    world.settle()
    assert world.indices() == []


@pytest.mark.parametrize("policy", ["None", "Running", "All"])
def test_a_replica_that_waits_when_the_job_ends_goes_at_once(policy: str) -> None:
    """It would take room that nobody needs any more."""
    world = running(2, least=1, most=3, cleanPodPolicy=policy)
    world.decide(worker=3)
    world.hear_all()
    assert world.indices() == [0, 1, 2]
    world.end(world.pod(0), 0)
    world.hear_all()
    assert world.phase == "Succeeded"
    assert 2 not in world.indices()


def test_a_job_is_deleted_when_its_time_after_the_end_is_over() -> None:
    world = running(2, ttlSecondsAfterFinished=100)
    world.end(world.pod(0), 0)
    world.hear_all()
    world.pass_time(99)
    assert not world.is_deleted
    world.pass_time(2)
    assert world.is_deleted


def test_a_lower_maximum_is_carried_out_at_once() -> None:
    world = running(4)
    world.edit_role(max=3)
    world.settle()
    assert ([one.replicas for one in world.status.target], len(world.members())) == ([3], 3)


def test_a_minimum_that_is_raised_is_grown_to_while_the_job_runs() -> None:
    world = running(2, most=8)
    world.edit_role(min=4)
    world.hear_all()
    assert (world.phase, len(world.members()), world.indices()) == ("Growing", 2, [0, 1, 2, 3])
    world.settle()
    assert len(world.members()) == 4


def test_a_pod_that_the_server_never_takes_fails_the_job_with_its_words() -> None:
    world = running(2)
    world.refuses = "spec.containers[0].image: required"
    world.decide(worker=4)
    world.settle()
    assert (world.phase, world.reason("Failed")) == ("Failed", "PodRefused")


@pytest.mark.parametrize("framework", ["torchrun", "horovod"])
def test_whoever_meets_at_the_first_replica_cannot_go_on_without_it(framework: str) -> None:
    world = running(4, framework=framework)
    world.vanish(world.pod(0))
    world.hear_all()
    assert world.phase == "Restarting"


def test_torch_goes_on_without_the_first_replica_and_takes_it_back() -> None:
    world = running(4)
    world.vanish(world.pod(0))
    world.hear_all()
    assert (world.phase, world.members()[0]) == ("Growing", "j-worker-1")
    world.settle()
    assert world.members()[0] == "j-worker-0"


def test_a_role_that_the_job_can_be_without_never_speaks_for_it_wherever_it_stands() -> None:
    world = World(elastic_job((("eval", 0, 2), ("worker", 1, 2))))
    world.get_ready(world.pod(0))
    world.hear_all()
    world.decide(eval=1, worker=2)
    world.hear_all()
    for pod in list(world.pods.values()):
        world.get_ready(pod)
    world.hear_all()
    assert world.members() == ["j-worker-0", "j-eval-0", "j-worker-1"]
    world.end(world.pods["eval", 0], 0)
    world.hear_all()
    assert world.phase == "Running"
    world.end(world.pods["worker", 0], 0)
    world.hear_all()
    assert world.phase == "Succeeded"


def test_newcomers_of_a_pinned_job_that_did_not_start_are_not_made_again_for_as_long() -> None:
    world = running(2, startSeconds=60)
    world.edit_role(pin=4)
    world.hear_all()
    for _ in range(2):
        assert world.indices() == [0, 1, 2, 3]
        for index in (2, 3):
            world.bind(world.pod(index))
            world.pod(index).trouble = "ImagePullBackOff"
        world.hear_all()
        world.pass_time(61)
        for index in (2, 3):
            world.vanish(world.pod(index))
        world.hear_all()
        assert (world.phase, world.indices()) == ("Running", [0, 1])
        world.pass_time(59)
        assert world.indices() == [0, 1]
        world.pass_time(2)
    assert world.phase == "Growing"


def test_conditions_are_those_of_pytorch_operator() -> None:
    world = running(2)
    assert [(one.type, one.status) for one in world.status.conditions] == [("Created", "True"), ("Running", "True")]
    world.vanish(world.pod(1))
    world.hear_all()
    kinds = [(one.type, one.status) for one in world.status.conditions]
    assert kinds == [("Created", "True"), ("Restarting", "True")]
    world.settle()
    world.end(world.pod(0), 0)
    world.hear_all()
    kinds = [(one.type, one.status) for one in world.status.conditions]
    assert kinds == [("Created", "True"), ("Running", "False"), ("Succeeded", "True")]
