"""A job on this machine for tests: a real endpoint, real agents and real workers, each in its own process."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from maniple.kube.jobs import agent_credentials
from maniple.kube.jobs.agent_server import AgentServer
from maniple.worker.pack_agent import agent_pyz
from tools.cluster import free_port
from worker.endpoint_process import JOB, UID

HERE = Path(__file__).parent
WAIT_S = 120.0


def wait(what: str, condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + WAIT_S
    while not (result := condition()):
        assert time.monotonic() < deadline, f"waited {WAIT_S:.0f} s for {what}"
        time.sleep(0.01)
    return result


class Stage:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.generation = 0
        credentials = agent_credentials.create(["127.0.0.1"])
        (folder / "secret.json").write_text(json.dumps(credentials.to_secret()))
        (folder / "notice.json").write_text("")
        (folder / "heard.jsonl").touch()
        self.mounted = folder / "agent"
        self.mounted.mkdir()
        (self.mounted / "ca.crt").write_bytes(credentials.authority)
        (self.mounted / "agent.pyz").write_bytes(agent_pyz())
        token = AgentServer(credentials.token_key, lambda *_: None, lambda *_: None, lambda: True).token(JOB, UID)
        (self.mounted / "token").write_text(token)
        self.agents: dict[str, subprocess.Popen[bytes]] = {}
        self._endpoint: subprocess.Popen[bytes] | None = None

    # -- the controller's end

    def start_endpoint(self, *, is_open: bool = True) -> None:
        """Returns when it listens, or, if it is not open, when it is ready to.

        Scripts and agents wait only a few seconds for their last message to be sent, less than a controller needs to
        start.
        """
        for mark in ("ready", "open"):
            (self.folder / mark).unlink(missing_ok=True)
        (self.folder / "closed").touch()
        environment = os.environ | {"PYTHONPATH": str(HERE.parent.parent)}
        command = [sys.executable, str(HERE / "endpoint_process.py"), str(self.folder), str(self.port)]
        self._endpoint = subprocess.Popen(command, env=environment)
        wait("the endpoint to be ready", (self.folder / "ready").exists)
        if is_open:
            self.open_endpoint()

    def open_endpoint(self) -> None:
        (self.folder / "closed").unlink()
        wait("the endpoint to listen", (self.folder / "open").exists)

    def kill_endpoint(self) -> None:
        assert self._endpoint is not None
        self._endpoint.kill()
        self._endpoint.wait()

    def publish(
        self, members: Sequence[str], *, slots: int = 1, grace_s: float = 30.0, stop: bool = False, uid: str = ""
    ) -> int:
        """Publishes a new generation of these pods. Returns its number."""
        self.generation += 1
        self.write_notice(self.folder / "notice.json", members, slots, grace_s, stop, uid)
        return self.generation

    def write_notice(
        self,
        path: Path,
        members: Sequence[str],
        slots: int = 1,
        grace_s: float = 30.0,
        stop: bool = False,
        uid: str = "",
    ) -> None:
        entries = [
            {"pod": pod, "uid": uid, "role": "worker", "index": index, "address": "127.0.0.1", "slots": slots}
            for index, pod in enumerate(members)
        ]
        notice = {"job": JOB, "generation": self.generation, "members": entries, "port": free_port()}
        whole = notice | {"graceSeconds": grace_s} | ({"stop": True} if stop else {})
        unfinished = path.with_suffix(".new")
        unfinished.write_text(json.dumps(whole))
        unfinished.rename(path)

    def heard(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "heard.jsonl").read_text().splitlines()]

    def has_said(self, pod: str, state: str, generation: int | None = None) -> bool:
        return any(
            message["pod"] == pod and message.get("state") == state and generation in {None, message["generation"]}
            for message in self.heard()
        )

    def await_said(self, state: str, generation: int, *pods: str) -> None:
        for pod in pods:
            wait(f"{pod} to be {state} in {generation}", partial(self.has_said, pod, state, generation))

    # -- pods

    def start_agent(self, pod: str, command: Sequence[str], has_endpoint: bool = True, **more: str) -> None:
        environment = {
            "PATH": os.environ["PATH"],
            "MANIPLE_URL": f"https://127.0.0.1:{self.port}" if has_endpoint else "",
            "MANIPLE_JOB": JOB,
            "MANIPLE_POD": pod,
            "MANIPLE_POD_UID": f"{pod}-uid",
            "MANIPLE_AGENT_FOLDER": str(self.mounted),
            "MANIPLE_POD_FOLDER": str(self.folder / pod),
            "SCRATCH": str(self.folder),
        }
        started = [sys.executable, str(self.mounted / "agent.pyz"), "--", *command]
        with (self.folder / f"{pod}.log").open("ab") as log:
            self.agents[pod] = subprocess.Popen(started, env=environment | more, stdout=log, stderr=log)

    def end(self, pod: str, number: int = signal.SIGTERM) -> int:
        self.agents[pod].send_signal(number)
        return self.agents[pod].wait(WAIT_S)

    def close(self) -> None:
        for agent in self.agents.values():
            agent.kill()
            agent.wait()
        if self._endpoint is not None:
            self.kill_endpoint()

    # -- what workers wrote, each to its own file

    def lines(self, prefix: str) -> list[dict[str, Any]]:
        files = sorted(self.folder.glob(f"{prefix}*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def zombies_of(parent: int) -> list[int]:
    """Its children that have ended and are not reaped."""
    zombies = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # a process that ends while we look
            state, its_parent = path.read_text().rpartition(")")[2].split()[:2]
            if state == "Z" and int(its_parent) == parent:
                zombies.append(int(path.parent.name))
    return zombies
