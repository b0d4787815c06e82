"""notice(), ack() and report() in a script that has no agent: frameworks that read the file, or call the controller."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .endpoint import JOB
from .stage import Stage, wait

POD = "bert-worker-0"
SCRIPT = """
import sys, time
import maniple.worker as worker
deadline = time.monotonic() + 60
began = False
while time.monotonic() < deadline:
    seen = worker.notice()
    if not began and worker.inside.inside().generation is not None:
        began = True
        print("began", flush=True)
    if seen:
        print(seen.generation, seen.size, flush=True)
        worker.ack()
        worker.report(step=seen.generation * 10)
        if seen.stop:
            time.sleep(3)
            sys.exit(0)
    time.sleep(0.01)
"""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.close()


def start(stage: Stage, url: str) -> subprocess.Popen[str]:
    environment = {
        "MANIPLE_URL": url,
        "MANIPLE_JOB": JOB,
        "MANIPLE_POD": POD,
        "MANIPLE_POD_UID": "u",
        "MANIPLE_AGENT_FOLDER": str(stage.mounted),
        "MANIPLE_POD_FOLDER": str(stage.folder),
        "PYTHONPATH": str(stage.mounted / "agent.pyz"),
    }
    return subprocess.Popen([sys.executable, "-c", SCRIPT], env=environment, stdout=subprocess.PIPE, text=True)


def line_of(script: subprocess.Popen[str]) -> str:
    assert script.stdout is not None
    return script.stdout.readline()


def test_a_script_without_an_agent_speaks_for_itself(stage: Stage) -> None:
    stage.start_endpoint()
    stage.publish([POD])
    with start(stage, f"https://127.0.0.1:{stage.port}") as script:
        assert line_of(script) == "began\n"
        stage.publish([POD, "bert-worker-1"])
        assert line_of(script) == "2 2\n"  # and not 1: the generation in which it began is no news
        stage.await_said("running", 2, POD)
        wait("a report", lambda: any(said.get("step") == 20 for said in stage.heard()))
        stage.publish([POD], stop=True)
        assert line_of(script) == "3 1\n"
        stage.await_said("stopped", 3, POD)


def test_a_script_reads_the_file_of_the_downward_api(stage: Stage) -> None:
    path = stage.folder / "generation"
    stage.generation = 1
    stage.write_notice(path, [POD])
    with start(stage, "") as script:
        assert line_of(script) == "began\n"
        stage.generation = 2
        stage.write_notice(path, [POD], stop=True)
        assert line_of(script) == "2 1\n"
