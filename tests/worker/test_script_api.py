"""notice(), ack() and report() in a script that has no agent: frameworks that read the file, or call the controller."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from maniple.worker.local_socket import new_folder
from worker.endpoint_process import JOB
from worker.local_job import WAIT_S, Stage, wait

ROOT = Path(__file__).resolve().parents[2]
POD = "bert-worker-0"
SCRIPT = """
import sys, time
import maniple.worker as worker
deadline = time.monotonic() + 180
began = False
while time.monotonic() < deadline:
    seen = worker.notice()
    if not began and worker.script_api.script_api().generation is not None:
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


def start(stage: Stage, url: str, script: str = SCRIPT, **more: str) -> subprocess.Popen[str]:
    environment = {
        "MANIPLE_URL": url,
        "MANIPLE_JOB": JOB,
        "MANIPLE_POD": POD,
        "MANIPLE_POD_UID": "u",
        "MANIPLE_AGENT_FOLDER": str(stage.mounted),
        "MANIPLE_POD_FOLDER": str(stage.folder),
        "PYTHONPATH": str(stage.mounted / "agent.pyz"),
        **more,
    }
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE if script is not SCRIPT else None}
    return subprocess.Popen([sys.executable, "-c", script], env=environment, text=True, **pipes)  # type: ignore[call-overload,no-any-return]


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


def reports(stage: Stage) -> list[tuple[int, int, int]]:
    return [(one["generation"], one["step"], one["total"]) for one in stage.heard() if "step" in one]


ENDS = """
import time
import maniple.worker as worker
from maniple.worker.script_api import script_api
while not script_api().newest():
    time.sleep(0.01)
for step in range(50):
    worker.report(step=step + 1, total=50)
"""


@pytest.mark.parametrize("members", [[POD, "bert-chief-0"], ["bert-chief-0", POD]])
def test_a_script_that_ends_without_an_agent_has_said_how_far_it_came_if_it_is_the_first_replica(
    stage: Stage, members: list[str]
) -> None:
    stage.start_endpoint()
    stage.publish(members)
    with start(stage, f"https://127.0.0.1:{stage.port}", ENDS, MANIPLE_REPLICA_INDEX="0") as script:
        assert script.wait(WAIT_S) == 0
    assert reports(stage)[-1:] == ([(1, 50, 50)] if members[0] == POD else [])


def test_a_script_that_ends_before_it_has_heard_of_a_generation_reports_all_the_same(stage: Stage) -> None:
    stage.start_endpoint()
    stage.publish([POD])
    once = "import maniple.worker as worker; worker.report(step=50, total=50)"
    with start(stage, f"https://127.0.0.1:{stage.port}", once) as script:
        assert script.wait(WAIT_S) == 0
    assert reports(stage) == [(1, 50, 50)]


ASKS = """
import os, time
import maniple.worker as worker
step = 0
while not os.path.exists(os.environ["MANIPLE_POD_FOLDER"] + "/end"):
    worker.notice()
    step += 1
    worker.report(step=step, total=0)
    time.sleep(0.01)
worker.report(step=step + 1, total=1)
"""


def test_who_goes_on_through_a_new_size_and_a_new_controller_is_heard_to_the_end(stage: Stage) -> None:
    stage.start_endpoint()
    stage.publish([POD])
    with start(stage, f"https://127.0.0.1:{stage.port}", ASKS) as script:
        wait("a report", lambda: reports(stage))
        stage.publish([POD, "bert-worker-1"])  # nobody acknowledges it
        wait("a report of the new size", lambda: reports(stage)[-1][0] == 2)
        stage.kill_endpoint()
        before = len(reports(stage))
        stage.start_endpoint()
        wait("a report to the new controller", lambda: len(reports(stage)) > before)
        (stage.folder / "end").touch()
        assert script.wait(WAIT_S) == 0
    assert reports(stage)[-1][2] == 1


HURRIES = """
import os, threading, time
import maniple.worker.controller_connection as connection
folder = os.environ["MANIPLE_POD_FOLDER"]
connection._FIRST_PAUSE_S = connection._LONGEST_PAUSE_S = 600.0
connection.log = lambda text: open(f"{folder}/broken-{threading.current_thread().name}", "w").close()
post = connection.ControllerConnection._post
def tell(*given):
    try:
        post(*given)
    except connection._UnavailableError as error:
        if "not known" in str(error):
            open(f"{folder}/refused", "w").close()
        raise
connection.ControllerConnection._post = tell
made = connection.ControllerConnection(connection.from_environment(), lambda notice: None, lambda: None)
made.start()
made.set_state(1, "running")
while not os.path.exists(folder + "/end"):
    time.sleep(0.01)
raise SystemExit(0 if made.flush(100.0) else 1)
"""


def test_whoever_waits_for_the_last_word_ends_the_pause_after_a_broken_line(stage: Stage) -> None:
    """It is refused at first, because the new controller does not know the generation yet."""
    with start(stage, f"https://127.0.0.1:{stage.port}", HURRIES) as script:
        wait("a pause", (stage.folder / "broken-maniple-send").exists)
        stage.start_endpoint()
        (stage.folder / "end").touch()
        wait("a refusal", (stage.folder / "refused").exists)
        stage.publish([POD])
        assert script.wait(WAIT_S) == 0
    assert stage.has_said(POD, "running", 1)


@pytest.mark.parametrize(("rank", "calls"), [("0", True), ("1", False)])
def test_of_horovods_workers_who_all_think_that_they_are_in_the_launchers_pod_one_calls(
    stage: Stage, rank: str, calls: bool
) -> None:
    """Two who listen for one pod are refused in turn. Each is the first process of the host that it runs on."""
    script = "from maniple.worker.script_api import script_api; print(script_api()._controller is not None)"
    ranks = {"HOROVOD_RANK": rank, "HOROVOD_LOCAL_RANK": "0"}
    with start(stage, "https://127.0.0.1:1", script, **ranks) as asked:
        assert line_of(asked) == f"{calls}\n"


FORKS = """
import os, sys, time
import maniple.worker as worker
worker.report(step=1, total=1)
took = []
for _ in range(3):
    began = time.monotonic()
    child = os.fork()
    if not child:
        worker.report(step=2, total=1)
        sys.exit(0)
    while not os.waitpid(child, os.WNOHANG)[0]:
        if time.monotonic() - began > 10:  # it was forked while another thread held a lock of OpenSSL
            os.kill(child, 9)
        time.sleep(0.01)
    took.append(time.monotonic() - began)
print(min(took), flush=True)  # of the one that was least disturbed
"""


def test_children_that_a_script_forks_end_at_once(stage: Stage) -> None:
    stage.start_endpoint()
    stage.publish([POD])
    with start(stage, f"https://127.0.0.1:{stage.port}", FORKS) as script:
        assert float(line_of(script)) < 1.5  # two seconds, if they waited for a thread that they have not
        assert script.wait(WAIT_S) == 0


def test_a_script_reads_the_file_of_the_downward_api(stage: Stage) -> None:
    path = stage.folder / "generation"
    stage.generation = 1
    stage.write_notice(path, [POD])
    with start(stage, "") as script:
        assert line_of(script) == "began\n"
        stage.generation = 2
        stage.write_notice(path, [POD], stop=True)
        assert line_of(script) == "2 1\n"


REPORTS = """
import maniple.worker as worker
class Odd:
    def __int__(self): raise RuntimeError("odd")
    __float__ = __int__
for step in ("x", -1, None, Odd(), 1 << 60, float("nan"), [], b"\\xff"):
    worker.report(step=step)
for throughput in ("fast", -1, 0, float("nan"), float("inf"), Odd(), {}):
    worker.report(step=1, throughput=throughput)
worker.notice()
worker.ack()
worker.report(step="7", throughput="2.5")
"""
GOES_ON = """
import time
while True:
    worker.report(step="7", throughput="2.5")
    time.sleep(0.1)
"""


def test_outside_of_maniple_nothing_that_is_said_matters() -> None:
    environment = {"RANK": "none", "LOCAL_RANK": "-1", "MANIPLE_GENERATION": "²", "PYTHONPATH": str(ROOT)}
    script = [sys.executable, "-c", REPORTS]
    done = subprocess.run(script, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_report_that_is_none_is_complained_of_once_and_training_goes_on(stage: Stage) -> None:
    stage.start_endpoint()
    stage.publish([POD])
    with start(stage, f"https://127.0.0.1:{stage.port}", REPORTS + GOES_ON) as script:
        wait("a report", lambda: any("step" in one for one in stage.heard()))
        assert script.poll() is None
        script.kill()
        assert script.stderr is not None
        said = script.stderr.read()
    assert said.count("maniple: report: ") == 1, said
    assert "Traceback" not in said
    reports = [one for one in stage.heard() if "step" in one]
    assert {(one["step"], one["throughput"]) for one in reports} == {(7, 2.5)}


def test_an_agent_finds_a_folder_where_the_root_of_its_container_is_read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nosuch")
    folder = Path(new_folder())
    assert folder.parent == Path("/dev/shm")
    folder.rmdir()
