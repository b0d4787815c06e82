"""What counts as a failure, what is tried again and when, and starts that are stuck."""

import pytest

from elastic.simulated_cluster import World, elastic_job, running


def test_workers_that_crash_start_again_in_their_pods() -> None:
    world = running(2)
    uids = [pod.uid for pod in world.pods.values()]
    for index in (1, 0):
        world.acknowledge(world.pod(index), "failed", code=1)
    world.pass_time(2.5)
    assert (world.phase, world.status.failures.count, world.reason("Restarting")) == ("Restarting", 1, "WorkerFailed")
    world.acknowledge(world.pod(0), "failed", code=1)
    world.settle()
    assert (world.phase, world.status.generation.number) == ("Running", 2)
    assert [pod.uid for pod in world.pods.values()] == uids
    assert world.status.failures.count == 1


def test_workers_that_die_with_a_lost_replica_have_not_failed() -> None:
    world = running(3)
    world.acknowledge(world.pod(0), "failed", code=1)
    world.vanish(world.pod(2))
    world.hear_all()
    world.pass_time(5)
    assert (world.phase, world.status.failures.count) == ("Growing", 0)


@pytest.mark.parametrize(
    "reason", ["Evicted", "OutOfcpu", "OutOfnvidia.com/gpu", "UnexpectedAdmissionError", "NodeLost"]
)
def test_what_is_done_to_a_replica_is_no_failure_of_it(reason: str) -> None:
    world = running(2)
    world.end(world.pod(1), 137, reason)
    world.settle()
    assert (world.phase, world.status.failures.count, world.status.restarts) == ("Running", 0, 1)


def test_exit_143_in_a_shrink_is_no_failure() -> None:
    world = running(4)
    world.decide(worker=2)
    world.hear_all()
    world.end(world.pod(3), 143)
    world.settle()
    assert (world.phase, world.status.failures.count) == ("Running", 0)


@pytest.mark.parametrize(
    ("policy", "code", "phase"),
    [
        ("Never", 137, "Failed"),
        ("ExitCode", 1, "Failed"),
        ("ExitCode", 127, "Failed"),
        ("ExitCode", 128, "Running"),
        ("ExitCode", 137, "Running"),
        ("OnFailure", 1, "Running"),
        ("Always", 1, "Running"),
    ],
)
def test_the_restart_policy_says_whether_a_failed_replica_is_started_again(policy: str, code: int, phase: str) -> None:
    world = running(2, restartPolicy=policy)
    world.end(world.pod(1), code)
    world.settle()
    assert world.phase == phase
    assert world.status.failures.count == 1
    if phase == "Failed":
        assert world.reason("Failed") == "ReplicaFailed"
        assert not [pod for pod in world.pods.values() if not pod.has_ended]


def test_always_starts_a_replica_again_that_ended_well() -> None:
    world = running(3, framework="none", restartPolicy="Always")
    world.end(world.pod(2), 0)
    world.settle()
    assert (world.phase, world.indices(), world.pod(2).stage) == ("Running", [0, 1, 2], "ready")


def test_pauses_between_failures_grow_and_end_with_the_backoff_limit() -> None:
    world = running(2, backoffLimit=3)
    pauses = []
    while world.phase == "Running":
        world.end(world.pod(1), 1)
        world.hear_all()
        world.pass_time(2.5)
        if world.phase == "Restarting":
            assert world.status.failures.retry_time is not None
            pauses.append(round(world.status.failures.retry_time.timestamp() - world.now))
            assert [pod for pod in world.pods.values() if pod.stage == "ready" and not pod.is_leaving]
        world.settle()
    assert pauses == [5, 10, 20]
    assert (world.phase, world.reason("Failed")) == ("Failed", "BackoffLimitExceeded")


def test_a_replica_that_failed_above_the_minimum_is_made_again_after_the_pause() -> None:
    world = running(3)
    world.end(world.pod(2), 1)
    world.hear_all()
    world.pass_time(2.5)
    assert (world.phase, len(world.members()), world.indices()) == ("Running", 2, [0, 1, 2])
    world.settle()
    assert (len(world.members()), world.status.failures.count) == (3, 1)


def test_a_failure_that_takes_many_replicas_counts_once() -> None:
    world = running(8, most=8, framework="torchrun", backoffLimit=1)
    for index in range(1, 8):
        world.end(world.pod(index), 1)
        world.hear_all()
        world.pass_time(0.2)
    world.settle()
    assert (world.phase, world.status.failures.count) == ("Running", 1)


def test_a_start_that_is_stuck_gives_its_gpus_back_and_says_why() -> None:
    world = World(elastic_job(startSeconds=60, backoffLimit=1))
    world.bind(world.pod(0))
    world.get_ready(world.pod(0))
    world.bind(world.pod(1))
    world.pod(1).trouble = "ImagePullBackOff: no such image"
    world.hear_all()
    world.pass_time(61)
    assert (world.phase, world.status.failures.count) == ("Restarting", 1)
    assert any("ImagePullBackOff" in one.message for one in world.records)
    assert all(pod.is_leaving for pod in world.pods.values())
    for pod in list(world.pods.values()):
        world.vanish(pod)
    world.hear_all()
    world.pass_time(6)
    assert (world.phase, world.indices()) == ("Pending", [0, 1])


def test_a_start_does_not_fail_of_those_above_the_minimum() -> None:
    world = World(elastic_job(startSeconds=5))
    world.decide(worker=4)
    world.hear_all()
    for index in range(4):
        world.bind(world.pod(index))
    world.hear_all()
    for index in (0, 1):
        world.get_ready(world.pod(index))
    world.hear_all()
    assert world.phase == "Starting"  # those that came with the minimum are waited for a little
    world.pass_time(20)
    assert (world.phase, world.status.failures.count) == ("Running", 0)
    assert world.members() == ["j-worker-0", "j-worker-1"]
    assert [pod.index for pod in world.pods.values() if pod.is_leaving] == [2, 3]
    assert [one.reason for one in world.records if one.kind == "Warning"] == ["StartTimeout", "StartTimeout"]


def test_newcomers_that_are_stuck_give_their_gpus_back_and_the_job_goes_on() -> None:
    world = running(2, most=6, startSeconds=60)
    world.decide(worker=6)
    world.hear_all()
    for index in (2, 3, 4, 5):
        world.bind(world.pod(index))
    world.get_ready(world.pod(2))
    for index in (3, 4, 5):
        world.pod(index).trouble = "ImagePullBackOff"
    world.hear_all()
    world.pass_time(61)
    world.settle()
    assert (world.phase, len(world.members()), world.indices()) == ("Running", 3, [0, 1, 2])
    assert [one.replicas for one in world.status.target] == [3]
    assert world.status.failures.count == 0
    # For as long as they had the GPUs, others may.
    grow_after, resized = world.status.grow_after, world.status.last_resize_time
    assert grow_after is not None
    assert resized is not None
    assert (grow_after - resized).total_seconds() == 60
