"""The scripts inside the elastic examples, run or read. Other tests apply the objects to a cluster."""

from __future__ import annotations

import ast
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.run_maniple import EXAMPLES
from maniple.kube.jobs.manifests import HOSTS_DIR

SHELL = [found, "sh"] if (found := shutil.which("busybox")) else ["sh"]
SAID = re.compile(r"replica (\d+): trial (\d+) with")


def objects(name: str) -> dict[str, dict[str, Any]]:
    """By kind."""
    return {item["kind"]: item for item in yaml.safe_load_all((EXAMPLES / "elastic" / name).read_text())}


# -- the sweep


class Sweep:
    """The replicas of the sweep as processes in a folder of the test, with short times."""

    def __init__(self, folder: Path) -> None:
        self.trials = folder / "trials"
        self.trials.mkdir()
        self._log = folder / "log"
        self._log.touch()
        self._running: list[subprocess.Popen[bytes]] = []
        (role,) = objects("sweep.yaml")["ElasticJob"]["spec"]["roles"]
        (container,) = role["template"]["spec"]["containers"]
        *words, self._script = container["command"]
        assert words == ["sh", "-c"]

    def begin(self, index: int, training_s: float) -> subprocess.Popen[bytes]:
        script = self._script.replace("/trials", str(self.trials)).replace("sleep 60", f"sleep {training_s}")
        script = script.replace("sleep 20", "sleep 0.1").replace("sleep 5", "sleep 0.1")
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [*SHELL, "-c", script],
                stdout=log,
                env={**os.environ, "MANIPLE_REPLICA_INDEX": str(index)},
                start_new_session=True,  # as a container: all of its processes end together
            )
        self._running.append(process)
        return process

    @property
    def taken(self) -> list[tuple[str, str]]:
        """(replica, trial), in order."""
        return SAID.findall(self._log.read_text())

    @property
    def done(self) -> int:
        return len(list(self.trials.glob("*/done")))

    def wait(self, what: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 180
        while not what():
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.02)

    def close(self) -> None:
        for process in self._running:
            kill(process)


def kill(replica: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):  # also processes that an ended replica left behind
        os.killpg(replica.pid, signal.SIGKILL)
    replica.wait()


@pytest.fixture
def sweep(tmp_path: Path) -> Iterator[Sweep]:
    sweep = Sweep(tmp_path)
    yield sweep
    sweep.close()


def test_the_replicas_of_the_sweep_run_each_trial_once(sweep: Sweep) -> None:
    replicas = [sweep.begin(index, 0.05) for index in range(3)]
    assert [process.wait(timeout=180) for process in replicas] == [0, 0, 0]
    assert sweep.done == 20
    assert sorted(int(trial) for _, trial in sweep.taken) == list(range(1, 21))


def test_the_trial_of_an_evicted_replica_is_taken_over_at_once(sweep: Sweep) -> None:
    leaving = sweep.begin(0, 60)
    sweep.wait(lambda: sweep.taken == [("0", "1")])
    time.sleep(0.2)  # it is in its trial
    leaving.terminate()
    assert leaving.wait(timeout=180) == 143
    assert sweep.begin(1, 0.01).wait(timeout=180) == 0
    assert sweep.taken[1] == ("1", "1")
    assert sweep.done == 20


def test_the_trial_of_a_killed_replica_is_taken_over_after_a_timeout(sweep: Sweep) -> None:
    killed = sweep.begin(0, 60)
    sweep.wait(lambda: sweep.taken == [("0", "1")])
    kill(killed)
    other = sweep.begin(1, 0.01)
    sweep.wait(lambda: sweep.done == 19)
    assert ("1", "1") not in sweep.taken
    assert other.poll() is None
    make_old(sweep.trials / "1" / "1")
    assert other.wait(timeout=180) == 0
    assert sweep.taken[-1] == ("1", "1")
    assert sweep.done == 20


def test_the_trial_of_a_living_replica_is_never_taken_over(sweep: Sweep) -> None:
    sweep.begin(0, 60)
    sweep.wait(lambda: sweep.taken == [("0", "1")])
    attempt = sweep.trials / "1" / "1"
    make_old(attempt)
    sweep.wait(lambda: time.time() - attempt.stat().st_mtime < 60)
    other = sweep.begin(1, 0.01)
    sweep.wait(lambda: sweep.done == 19)
    time.sleep(0.5)
    assert other.poll() is None
    assert ("1", "1") not in sweep.taken


def test_only_one_replica_takes_over_an_abandoned_trial(sweep: Sweep) -> None:
    for trial in range(1, 21):
        attempt = sweep.trials / str(trial) / "1"
        attempt.mkdir(parents=True)
        make_old(attempt)
    replicas = [sweep.begin(index, 0.05) for index in range(4)]
    assert [process.wait(timeout=180) for process in replicas] == [0] * 4
    assert sorted(int(trial) for _, trial in sweep.taken) == list(range(1, 21))


def make_old(folder: Path) -> None:
    then = time.time() - 600
    os.utime(folder, (then, then))


# -- PyTorch


def test_the_ddp_script_handles_sigterm_after_the_rendezvous_and_reports_its_steps() -> None:
    """As docs/training.md says."""
    script = objects("pytorch-ddp.yaml")["ConfigMap"]["data"]["train.py"]
    calls = [ast.unparse(node.func) for node in ordered_calls(ast.parse(script))]
    assert calls.index("dist.init_process_group") < calls.index("signal.signal") < calls.index("optimizer.step")
    assert "maniple.worker.report(step=step, total=10000)" in ast.unparse(ast.parse(script))


def ordered_calls(tree: ast.AST) -> list[ast.Call]:
    return sorted((node for node in ast.walk(tree) if isinstance(node, ast.Call)), key=lambda node: node.lineno)


# -- Horovod


def test_the_arguments_of_horovodrun_match_the_job() -> None:
    launcher, worker = objects("horovod.yaml")["ElasticJob"]["spec"]["roles"]
    (container,) = launcher["template"]["spec"]["containers"]
    flags = dict(word[2:].split("=", 1) for word in container["command"] if word.startswith("--"))
    gpus = worker["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
    assert flags["min-num-proc"] == flags["num-proc"] == str(worker["min"] * gpus)
    assert flags["max-num-proc"] == str(worker["max"] * gpus)
    assert flags["host-discovery-script"] == f"{HOSTS_DIR}/discover_hosts.sh"
    (mount,) = container["volumeMounts"]
    assert flags["ssh-identity-file"] == f"{mount['mountPath']}/id"


def test_a_replica_that_leaves_horovod_does_not_wait_for_itself() -> None:
    """The hook looks for ssh sessions by their command lines, and must not find its own."""
    worker = objects("horovod.yaml")["ElasticJob"]["spec"]["roles"][1]
    (container,) = worker["template"]["spec"]["containers"]
    hook = " ".join(container["lifecycle"]["preStop"]["exec"]["command"])
    (pattern,) = re.findall(r"pgrep -f '(.*)'", hook)
    assert re.search(pattern, "sshd: root@notty")
    assert re.search(pattern, "sshd-session: root@notty")  # as newer versions name it
    assert not re.search(pattern, hook)
    assert not re.search(pattern, "sshd: /usr/sbin/sshd -De [listener] 0 of 10-100 startups")
