"""What users see of running jobs on a real API server: waiting, the live view, logs."""

import os
import pty
import re
import signal
import sys
from contextlib import suppress

import pytest

from e2e.serve_process import ROOT, Bench, install_crds
from e2e.user_at_shell import IMAGE, People, Person, printing
from tools.cluster import Cluster, wait_until

# -- waiting


@pytest.mark.parametrize(
    ("phase", "code"),
    [("Succeeded", 0), ("Failed", 1)],
)
def test_wait_reports_progress_and_exits_with_the_outcome_of_the_job(person: Person, phase: str, code: int) -> None:
    waiting = person.begin("submit", "--name", "bert", "--image", "i", "--gpus", "4:8", "--wait", "--", "true")
    waiting.wait_for("bert submitted")
    held = {"type": "Scheduled", "status": "False", "reason": "NoNodeFits", "message": "no node"}
    person.say("bert", phase="Pending", conditions=[held])
    waiting.wait_for(f"{person.namespace}/bert: Pending: NoNodeFits: no node")
    person.say("bert", phase="Running", replicas={"running": 4}, conditions=[])
    waiting.wait_for(f"{person.namespace}/bert: Running with 4 of 4 replicas")
    person.say("bert", phase=phase)
    assert waiting.end() == code
    assert waiting.err[-1] == f"{person.namespace}/bert: {phase}"
    assert waiting.out == []


def test_wait_ends_when_the_job_is_deleted_or_the_timeout_passes(person: Person) -> None:
    wish = ("--image", "i", "--wait", "--", "true")
    waiting = person.begin("submit", "--name", "bert", *wish)
    waiting.wait_for("bert submitted")
    person.do("delete", "bert")
    assert waiting.end() == 1
    assert waiting.err[-1] == f"{person.namespace}/bert: deleted"
    late = person.run("submit", "--name", "bert", "--timeout", "1", *wish)
    assert late.returncode == 3
    assert "not finished after 1 s; the jobs go on" in late.stderr
    assert person.exists("elasticjobs", "bert")


def test_interrupting_wait_leaves_the_job_running(person: Person) -> None:
    waiting = person.begin("submit", "--name", "bert", "--image", "i", "--wait", "--", "true")
    waiting.wait_for("bert: Submitted")
    assert waiting.interrupt() == 130
    assert person.exists("elasticjobs", "bert")


# -- the live view


def test_watch_in_a_pipe_prints_a_line_for_each_change(bench: Bench, person: Person) -> None:
    (node,) = bench.nodes(1)
    person.submit("bert", "--gpus", "1:2")
    watching = person.begin("watch")
    watching.wait_for(f"{bench.namespace}/bert New: NotSeen, size 0→1 of 1:2, 0 GPUs, queue default")
    person.replica("bert", 0, node=node)
    person.say("bert", phase="Running")
    watching.wait_for("Running, size 1 of 1:2, 1 GPUs")
    person.say("bert", phase="Growing", target=[{"role": "worker", "replicas": 2}])
    watching.wait_for("Growing, size 1→2 of 1:2")
    person.do("delete", "bert")
    watching.wait_for(f"{bench.namespace}/bert deleted")
    assert watching.interrupt() == 130


def test_watch_once_shows_the_gpus_of_the_cluster(bench: Bench, person: Person) -> None:
    (node,) = bench.nodes(1)
    person.submit("bert", "--gpus", "2")
    person.wait_running([person.replica("bert", index, node=node) for index in range(2)])
    shown = person.do("watch", "--once").splitlines()
    match = re.search(r"GPUs: (\d+) of (\d+) used, (\d+) idle", shown[0])
    assert match is not None
    used, total, idle = map(int, match.groups())
    assert used >= 2  # other tests use the cluster too
    assert total >= 8
    assert used + idle == total
    (line,) = [line for line in shown if line.startswith("bert ")]
    assert "▁" not in line  # all of its replicas run: a whole bar
    assert "█" in line


def test_watch_redraws_the_terminal_and_restores_it(person: Person) -> None:
    person.submit("bert", "--gpus", "1:2")
    pid, terminal = pty.fork()
    if pid == 0:  # the child: maniple in a terminal of its own
        command = [sys.executable, "-m", "maniple", "watch", f"--kubeconfig={person.cluster.kubeconfig()}"]
        os.chdir(ROOT)
        os.environ |= {"COLUMNS": "160", "LINES": "40"}
        os.execv(sys.executable, [*command, f"--namespace={person.namespace}"])
    os.set_blocking(terminal, False)
    shown = b""

    def has(words: bytes) -> bool:
        nonlocal shown
        with suppress(OSError):  # nothing to read yet, or the terminal is closed
            shown += os.read(terminal, 65536)
        return words in shown

    wait_until("the first frame", lambda: has(b"NotSeen"))
    person.say("bert", phase="Running")
    wait_until("the change", lambda: has(b"Running"))
    assert shown.startswith(b"\x1b[?1049h")
    assert shown.count(b"\x1b[H") >= 2
    os.kill(pid, signal.SIGTERM)
    wait_until("the other screen to be left", lambda: has(b"\x1b[?1049l"))
    wait_until("it to end", lambda: os.waitpid(pid, os.WNOHANG) != (0, 0))
    os.close(terminal)


# -- logs, on a real node


def test_logs_of_real_replicas(real_node: Cluster, real_namespace: str, people: People) -> None:
    install_crds(real_node)
    person = people(real_node, real_namespace)
    node = real_node.spec.real_node_name
    person.submit("bert", "--gpus", "1:3")
    done = person.run("logs", "bert")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no such replica exists now" in done.stderr
    assert "--role: unknown role 'wrker'; did you mean 'worker'?" in person.refused("logs", "bert", "--role", "wrker")
    following = person.begin("logs", "bert", "--all", "--follow")
    script = "for i in 1 2 3; do echo line $i of $HOSTNAME; done; until [ -e /tmp/stop ]; do sleep 0.1; done; echo last"
    person.replica("bert", 0, node=node, **printing(script))
    following.wait_for("[worker-0] line 3 of bert-worker-0")
    # A later replica, with a second container.
    later = printing(script)
    later["containers"].append({"name": "beside", **IMAGE, "command": ["sleep", "infinity"]})
    person.replica("bert", 1, node=node, **later)
    following.wait_for("[worker-1] line 3 of bert-worker-1")
    assert person.do("logs", "bert") == "".join(f"line {i} of bert-worker-0\n" for i in (1, 2, 3))
    assert person.do("logs", "bert", "--index", "1", "--tail", "1") == "line 3 of bert-worker-1\n"
    assert person.do("logs", "bert", "--all", "--tail", "1", "--since", "1h").splitlines() == [
        f"[worker-{index}] line 3 of bert-worker-{index}" for index in (0, 1)
    ]
    # A log that cannot be read is reported at once, not when the job has ended.
    assert "container nosuch is not valid" in person.refused("logs", "bert", "--follow", "--container", "nosuch")
    for index in (0, 1):
        person.cluster.kubectl(
            f"--namespace={real_namespace}", "exec", f"bert-worker-{index}", "--", "touch", "/tmp/stop"
        )
    for index in (0, 1):
        following.wait_for(f"[worker-{index}] last")
    person.say("bert", phase="Succeeded")
    assert following.end() == 0
    assert sorted(following.out) == sorted(
        f"[worker-{index}] {text}"
        for index in (0, 1)
        for text in (*(f"line {i} of bert-worker-{index}" for i in (1, 2, 3)), "last")
    )
