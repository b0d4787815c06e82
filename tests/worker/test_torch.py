"""Real PyTorch, resized: by generations, and live. One step at most is lost, and the loss goes on where it was."""

import json
import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tools.cluster import build, pytorch
from worker.local_job import HERE, WAIT_S, Stage, wait

EXAMPLES = HERE.parent.parent / "examples" / "torch"
PODS = ["bert-worker-0", "bert-worker-1", "bert-worker-2"]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    if pytorch.missing():
        reason = "no PyTorch here: `python -m tools.cluster build` fetches it, or says why it cannot"
        (pytest.fail if os.environ.get(build.REQUIRE_VARIABLE) == "1" else pytest.skip)(reason)
    made = Stage(tmp_path)
    yield made
    made.close()


class Training:
    def __init__(self, stage: Stage, script: str, steps: int = 100_000) -> None:
        self.stage = stage
        self.path = stage.folder / "steps.log"
        self.command = [
            *(str(pytorch.python()), str(EXAMPLES / script)),
            *("--checkpoint", str(stage.folder / "model.pt"), "--log", str(self.path)),
            *("--steps", str(steps), "--pause", "0.01"),
        ]
        stage.start_endpoint()

    def start(self, *pods: str) -> None:
        for pod in pods:
            self.stage.start_agent(pod, self.command, True, GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")

    def lines(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    def await_size(self, size: int, steps: int = 5) -> None:
        """So many steps at this size, at the end of what has been done."""

        def is_so() -> bool:
            return [line["size"] for line in self.lines()[-steps:]] == [size] * steps

        wait(f"{steps} steps at size {size}", is_so)

    def pauses(self) -> list[float]:
        """Seconds between the last step of a size and the first of the next."""
        lines = self.lines()
        return [
            round(after["time"] - before["time"], 2)
            for before, after in pairwise(lines)
            if before["size"] != after["size"]
        ]


def check(training: Training) -> None:
    steps = [line["step"] for line in training.lines()]
    assert steps == list(range(1, len(steps) + 1))  # monotone, and none done twice or left out
    losses = [line["loss"] for line in training.lines()]
    assert sum(losses[-5:]) < sum(losses[:5])


@pytest.mark.parametrize("script", ["train.py", "live_resize.py"])
def test_one_grows_to_three_and_shrinks_to_two_without_losing_a_step(stage: Stage, script: str) -> None:
    training = Training(stage, script)
    training.start(PODS[0])
    stage.publish(PODS[:1], grace_s=60.0)
    training.await_size(1)
    training.start(*PODS[1:])
    stage.publish(PODS, grace_s=60.0)
    training.await_size(3)
    stage.publish(PODS[:2], grace_s=60.0)
    training.await_size(2)
    stage.await_said("running", 3, *PODS[:2])
    stage.await_said("stopped", 3, PODS[2])
    check(training)
    print(f"{script}: seconds without progress: {training.pauses()}")
    started = [line for line in (stage.folder / f"{PODS[0]}.log").read_text().splitlines() if "ranks" in line]
    assert len(started) == (1 if script == "live_resize.py" else 3)  # live, the survivor was started once
    assert not any(said.get("state") == "failed" for said in stage.heard())
    if script == "live_resize.py":
        assert max(training.pauses()) < 10  # below a second at rest; this machine may be busy


def test_live_all_stop_together_and_begin_again_where_they_were(stage: Stage) -> None:
    training = Training(stage, "live_resize.py")
    training.start(*PODS[:2])
    stage.publish(PODS[:2], grace_s=60.0)
    training.await_size(2)
    stage.publish([], stop=True, grace_s=60.0)
    stage.await_said("stopped", 2, *PODS[:2])
    stage.publish(PODS[:1], grace_s=60.0)
    training.await_size(1)
    check(training)


def test_live_after_the_crash_of_one_all_begin_again_from_the_checkpoint(stage: Stage) -> None:
    training = Training(stage, "live_resize.py")
    training.start(*PODS[:2])
    stage.publish(PODS[:2], grace_s=60.0)
    training.await_size(2)
    stage.agents[PODS[1]].kill()
    stage.await_said("failed", 1, PODS[0])
    stage.publish(PODS[:1])
    training.await_size(1)
    assert training.lines()[-1]["step"] < len(training.lines())  # from the beginning: there was no checkpoint


def test_the_work_ends_well(stage: Stage) -> None:
    training = Training(stage, "live_resize.py", steps=20)
    training.start(*PODS[:2])
    stage.publish(PODS[:2])
    for pod in PODS[:2]:
        assert stage.agents[pod].wait(WAIT_S) == 0
        assert stage.has_said(pod, "done", 1)
    assert training.lines()[-1]["step"] == 20
    check(training)
