"""Long-running commands continue after the API server was down."""

import re
import signal

from e2e.clusters_of_this_run import NewCluster
from e2e.serve_process import install_crds
from e2e.user_at_shell import People, Person, Running, printing
from tools.cluster import Cluster, wait_until

SCRIPT = "i=0; until [ -e /tmp/stop ]; do i=$((i + 1)); echo line $i; sleep 0.1; done; echo last"
LOST, BACK = "note: the API server does not answer, trying again: ", "note: the API server answers again"


def number(lines: list[str]) -> int:
    """The number in the last line."""
    return max((int(found[1]) for line in lines if (found := re.fullmatch(r"line (\d+)", line))), default=0)


def lose(cluster: Cluster, person: Person, kind: signal.Signals, commands: list[Running]) -> None:
    """Stops the API server, and starts it again; all commands report both."""
    for command in commands:
        command.err.clear()
    person.client.close()
    cluster.kill("kube-apiserver", kind)
    for command in commands:
        command.wait_for(LOST)
    cluster.start("kube-apiserver")
    cluster.wait_until_ready()
    for command in commands:
        command.wait_for(BACK)
        assert [line[:20] for line in command.err] == [LOST[:20], BACK[:20]], command.err


def test_following_continues_when_the_api_server_is_back(new_cluster: NewCluster, people: People) -> None:
    """The API server is killed, or stopped."""
    cluster = new_cluster(real_node=True)
    install_crds(cluster)
    cluster.create_namespace("people")
    person = people(cluster, "people")
    person.submit("bert")
    person.replica("bert", 0, node=cluster.spec.real_node_name, **printing(SCRIPT))
    person.wait_running(["bert-worker-0"])
    logs, watching = person.begin("logs", "bert", "--follow"), person.begin("watch")
    logs.wait_for("line 3")
    watching.wait_for("people/bert New")
    for round, kind in enumerate((signal.SIGKILL, signal.SIGTERM)):
        lose(cluster, person, kind, [logs, watching])
        seen = number(logs.out)
        wait_until("the log to go on", lambda seen=seen: number(logs.out) > seen + 3)  # type: ignore[misc]
        person.say("bert", phase=("Running", "Shrinking")[round])
        watching.wait_for(("people/bert Running", "people/bert Shrinking")[round])
    cluster.kubectl("--namespace=people", "exec", "bert-worker-0", "--", "touch", "/tmp/stop")
    logs.wait_for("last")
    person.say("bert", phase="Succeeded")
    assert logs.end() == 0
    assert logs.out == [*(f"line {i}" for i in range(1, number(logs.out) + 1)), "last"]
    assert watching.interrupt() == 130


def test_waiting_continues_when_the_api_server_is_back(new_cluster: NewCluster, people: People) -> None:
    cluster = new_cluster()
    install_crds(cluster)
    person = people(cluster, "default")
    waiting = person.begin("submit", "--name", "bert", "--image", "i", "--wait", "--", "true")
    waiting.wait_for("bert: Submitted")
    lose(cluster, person, signal.SIGKILL, [waiting])
    person.say("bert", phase="Succeeded")
    assert waiting.end() == 0
