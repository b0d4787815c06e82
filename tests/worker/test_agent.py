"""The agent with real worker processes, against the real endpoint: every generation once, and nothing left behind."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from worker.local_job import HERE, WAIT_S, Stage, is_alive, wait, zombies_of

PODS = ["bert-worker-0", "bert-worker-1", "bert-worker-2"]
OBEDIENT = [sys.executable, str(HERE / "obedient_worker.py")]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.close()


def ranks(stage: Stage, generation: int) -> dict[str, set[tuple[str, str]]]:
    """By pod, the (RANK, WORLD_SIZE) of the workers that ran in this generation."""
    found: dict[str, set[tuple[str, str]]] = {}
    for line in ran(stage, generation):
        found.setdefault(line["pod"], set()).add((line["RANK"], line["WORLD_SIZE"]))
    return found


def ran(stage: Stage, generation: int) -> list[dict[str, Any]]:
    return [line for line in stage.lines("ran-") if line["MANIPLE_GENERATION"] == str(generation)]


def await_ran(stage: Stage, generation: int, count: int) -> list[dict[str, Any]]:
    """Those that ran in this generation, once they are so many: then they also listen to signals."""
    wait(f"{count} workers of generation {generation}", lambda: len(ran(stage, generation)) >= count)
    return ran(stage, generation)


def start(stage: Stage, *pods: str, **environment: str) -> None:
    stage.start_endpoint()
    for pod in pods:
        stage.start_agent(pod, OBEDIENT, True, **environment)


def test_one_grows_to_three_and_shrinks_to_two_and_every_generation_runs_once(stage: Stage) -> None:
    start(stage, *PODS)
    sizes = {1: PODS[:1], 2: PODS, 3: PODS[:2]}
    for generation, members in sizes.items():
        assert stage.publish(members, uid="") == generation
        stage.await_said("running", generation, *members)
        await_ran(stage, generation, len(members))
    stage.await_said("stopped", 3, PODS[2])
    for generation, members in sizes.items():
        expected = {pod: {(str(rank), str(len(members)))} for rank, pod in enumerate(members)}
        assert ranks(stage, generation) == expected
        assert len(ran(stage, generation)) == len(members)  # nobody ran twice
        assert len({(line["MASTER_ADDR"], line["MASTER_PORT"]) for line in ran(stage, generation)}) == 1
    assert len({line["MASTER_PORT"] for line in stage.lines("ran-")}) == 3
    # Whoever ended was asked to, and knew why.
    assert sorted((line["generation"], line["seen"]) for line in stage.lines("left-")) == [("1", 2), *[("2", 3)] * 3]
    assert stage.end(PODS[0]) == 143
    assert stage.end(PODS[2]) == 143  # the one that waited to be deleted


def test_reports_reach_the_controller_from_rank_zero_alone(stage: Stage) -> None:
    start(stage, *PODS[:2])
    stage.publish(PODS[:2])
    reports = wait("two reports", lambda: [said for said in stage.heard() if said.get("step", 0) > 10])
    assert {(said["pod"], said["throughput"], said["generation"]) for said in reports} == {(PODS[0], 2.0, 1)}


def test_what_was_reported_last_is_heard_before_the_work_is_said_to_be_done(stage: Stage) -> None:
    start(stage, PODS[0], WORK="finish")
    stage.publish(PODS[:1])
    stage.await_said("done", 1, PODS[0])
    said = [one for one in stage.heard() if one["pod"] == PODS[0]]
    assert [one.get("state") or (one["step"], one["total"]) for one in said][-2:] == [(100, 100), "done"]


def test_a_new_controller_hears_the_state_at_once_and_reports_as_seldom_as_before(stage: Stage) -> None:
    start(stage, PODS[0])
    stage.publish(PODS[:1])
    stage.await_said("running", 1, PODS[0])
    wait("a report", lambda: any("step" in said for said in stage.heard()))
    stage.kill_endpoint()
    before = len(stage.heard())
    stage.start_endpoint()
    wait("it to be said again", lambda: any("state" in said for said in stage.heard()[before:]))
    heard = len(stage.heard())
    time.sleep(4.0)  # a report in five seconds, though the worker reports a hundred times a second
    assert len([said for said in stage.heard()[heard:] if "step" in said]) <= 2


def test_what_was_reported_while_the_controller_was_away_is_heard_before_the_end(stage: Stage) -> None:
    start(stage, PODS[0], WORK="late")
    stage.publish(PODS[:1])
    stage.await_said("running", 1, PODS[0])
    wait("a report", lambda: any("step" in said for said in stage.heard()))
    stage.kill_endpoint()
    stage.start_endpoint(is_open=False)
    (stage.folder / "end").touch()
    wait("the worker to have ended", lambda: stage.lines("over-"))
    time.sleep(1.0)  # it cannot be told for a while
    stage.open_endpoint()
    stage.await_said("done", 1, PODS[0])
    assert [one.get("state") or one["step"] for one in stage.heard()][-2:] == [1000, "done"]


def test_a_worker_that_tidies_the_agents_folder_away_is_sent_sigterm_all_the_same(stage: Stage) -> None:
    start(stage, PODS[0], WORK="tidy")
    stage.publish(PODS[:1])
    await_ran(stage, 1, 1)
    stage.publish([PODS[0], PODS[1]])
    stage.await_said("running", 2, PODS[0])
    assert stage.lines("left-")


def test_a_pod_with_two_slots_runs_two_workers(stage: Stage) -> None:
    start(stage, *PODS[:2])
    stage.publish(PODS[:2], slots=2)
    await_ran(stage, 1, 4)
    found = {(line["pod"], line["NODE_RANK"], line["LOCAL_RANK"], line["RANK"]) for line in ran(stage, 1)}
    assert found == {
        (PODS[0], "0", "0", "0"),
        (PODS[0], "0", "1", "1"),
        (PODS[1], "1", "0", "2"),
        (PODS[1], "1", "1", "3"),
    }
    assert {(line["WORLD_SIZE"], line["LOCAL_WORLD_SIZE"]) for line in ran(stage, 1)} == {("4", "2")}


def test_killed_and_restarted_the_endpoint_finds_its_agents_again_and_nothing_runs_twice(stage: Stage) -> None:
    start(stage, *PODS[:2])
    stage.publish(PODS[:1])
    stage.await_said("running", 1, PODS[0])
    await_ran(stage, 1, 1)
    stage.kill_endpoint()
    # What the dead one had heard is lost; agents say it again to the next, without being asked.
    (stage.folder / "heard.jsonl").write_text("")
    stage.start_endpoint()
    stage.await_said("running", 1, PODS[0])
    assert len(ran(stage, 1)) == 1
    # A generation that was written down while nobody could be told is heard as soon as somebody tells.
    stage.kill_endpoint()
    stage.publish(PODS[:2])
    stage.start_endpoint()
    stage.await_said("running", 2, *PODS[:2])
    await_ran(stage, 2, 2)
    assert (len(ran(stage, 1)), len(ran(stage, 2))) == (1, 2)


def test_who_does_not_end_in_time_is_killed_and_the_next_generation_starts(stage: Stage) -> None:
    start(stage, PODS[0], WORK="deaf")
    stage.publish(PODS[:1])
    first = await_ran(stage, 1, 1)[0]["pid"]
    asked_at = time.monotonic()
    stage.publish(PODS[:1], grace_s=1.0)
    await_ran(stage, 2, 1)
    assert time.monotonic() - asked_at >= 1.0
    assert not is_alive(first)
    assert not stage.has_said(PODS[0], "failed")


def test_a_crash_is_told_and_the_next_generation_begins_in_the_same_pod(stage: Stage) -> None:
    start(stage, *PODS[:2], WORK="crash")
    stage.publish(PODS[:2])
    stage.await_said("failed", 1, PODS[1])
    assert {said["exit"] for said in stage.heard() if said.get("state") == "failed"} == {7}
    assert stage.agents[PODS[1]].poll() is None  # it waits for what the controller says
    stage.publish(PODS[:2])
    await_ran(stage, 2, 2)


def test_when_the_job_is_over_agents_end_and_whose_worker_failed_says_so(stage: Stage) -> None:
    start(stage, PODS[0])
    stage.start_agent(PODS[1], OBEDIENT, True, WORK="crash")
    stage.publish(PODS[:2])
    stage.await_said("failed", 1, PODS[1])
    await_ran(stage, 1, 2)
    (stage.folder / "over").touch()
    assert [stage.agents[pod].wait(WAIT_S) for pod in PODS[:2]] == [143, 7]
    assert len(stage.lines("left-")) == 1  # whose worker ran on was asked to end, and had time for it


def test_a_worker_killed_by_a_signal_counts_as_128_and_its_neighbours_are_ended(stage: Stage) -> None:
    start(stage, PODS[0])
    stage.publish(PODS[:1], slots=2)
    workers = await_ran(stage, 1, 2)
    os.kill(workers[1]["pid"], signal.SIGKILL)
    stage.await_said("failed", 1, PODS[0])
    assert {said["exit"] for said in stage.heard() if said.get("state") == "failed"} == {137}
    assert not any(is_alive(worker["pid"]) for worker in workers)


def test_done_is_told_and_the_agent_ends_well(stage: Stage) -> None:
    start(stage, PODS[0], WORK="finish")
    stage.publish(PODS[:1])
    assert stage.agents[PODS[0]].wait(WAIT_S) == 0
    assert stage.has_said(PODS[0], "done", 1)


def test_told_to_end_it_lets_workers_checkpoint_and_ends_with_143(stage: Stage) -> None:
    start(stage, PODS[0], WORK="children")
    stage.publish(PODS[:1])
    worker = await_ran(stage, 1, 1)[0]
    assert stage.end(PODS[0]) == 143
    assert len(stage.lines("left-")) == 1
    assert not any(is_alive(worker[name]) for name in ("pid", "child", "runaway"))


def test_nothing_is_left_behind_from_one_generation_to_the_next(stage: Stage) -> None:
    start(stage, PODS[0], WORK="children")
    stage.publish(PODS[:1])
    worker = await_ran(stage, 1, 1)[0]
    stage.publish(PODS[:1])
    await_ran(stage, 2, 1)
    assert not any(is_alive(worker[name]) for name in ("pid", "child", "runaway"))
    assert zombies_of(stage.agents[PODS[0]].pid) == []


def test_workers_die_with_an_agent_that_is_killed(stage: Stage) -> None:
    start(stage, PODS[0])
    stage.publish(PODS[:1])
    worker = await_ran(stage, 1, 1)[0]["pid"]
    stage.end(PODS[0], signal.SIGKILL)
    wait("the worker to be gone", lambda: not is_alive(worker))


def test_a_pod_made_anew_does_not_run_the_generation_of_its_predecessor(stage: Stage) -> None:
    start(stage, PODS[0])
    stage.publish(PODS[:1], uid="an older pod of this name")
    stage.await_said("stopped", 1, PODS[0])
    stage.publish(PODS[:1], uid=f"{PODS[0]}-uid")
    stage.await_said("running", 2, PODS[0])
    assert ran(stage, 1) == []


def test_stop_ends_the_workers_and_the_agent_waits_to_be_deleted(stage: Stage) -> None:
    start(stage, *PODS[:2])
    stage.publish(PODS[:2])
    await_ran(stage, 1, 2)
    stage.publish(PODS[:2], stop=True)
    stage.await_said("stopped", 2, *PODS[:2])
    assert stage.agents[PODS[0]].poll() is None
    assert ran(stage, 2) == []
    assert len(stage.lines("left-")) == 2


def test_without_an_endpoint_the_file_of_the_downward_api_will_do(stage: Stage) -> None:
    mounted = stage.folder / PODS[0]
    mounted.mkdir()
    (mounted / "generation").touch()
    stage.start_agent(PODS[0], OBEDIENT, has_endpoint=False)
    for generation in (1, 2):
        stage.generation = generation
        stage.write_notice(mounted / "generation", PODS[:1])
        await_ran(stage, generation, 1)
    assert stage.end(PODS[0]) == 143


def test_alone_in_the_world_it_runs_the_command_once(stage: Stage) -> None:
    stage.start_agent("", OBEDIENT, has_endpoint=False, WORK="finish")
    assert stage.agents[""].wait(WAIT_S) == 0
    assert [(line["RANK"], line["WORLD_SIZE"], line["MANIPLE_GENERATION"]) for line in stage.lines("ran-")] == [
        ("0", "1", "0")
    ]


@pytest.mark.parametrize(("command", "code"), [(["no-such-program"], 127), (["/"], 126), (["sh", "-c", "exit 9"], 9)])
def test_alone_a_command_that_fails_gives_its_exit_code(stage: Stage, command: list[str], code: int) -> None:
    stage.start_agent("", command, has_endpoint=False)
    assert stage.agents[""].wait(WAIT_S) == code


def test_a_worker_writes_into_a_pipe_that_nobody_reads_any_more_and_dies_of_it_as_anywhere(stage: Stage) -> None:
    endless = "while :; do echo line; done | { read line; }"
    stage.start_agent("", ["sh", "-c", endless], has_endpoint=False)
    assert stage.agents[""].wait(WAIT_S) == 0
