"""A user at a shell: `maniple` as a process, on a real cluster, in the test's own namespace."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from cli.run_maniple import run, run_here

from e2e.serve_process import GPU, OURS, ROOT, Json
from tools.cluster import Cluster, wait_until
from tools.cluster.client import PATIENCE_S

IMAGE: Json = {"image": "maniple.dev/busybox:local", "imagePullPolicy": "Never"}


class People(Protocol):
    def __call__(self, cluster: Cluster, namespace: str, user: str = "admin") -> "Person": ...


class Person:
    def __init__(self, cluster: Cluster, namespace: str, user: str = "admin") -> None:
        self.cluster, self.namespace = cluster, namespace
        self.client = cluster.client()
        self._running: list[Running] = []
        self._options = [f"--kubeconfig={cluster.kubeconfig(user)}", f"--namespace={namespace}"]

    def run(self, command: str, *arguments: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Runs a command that ends by itself. Commands that follow close their connections when their process ends."""
        how = run if command in ("delete", "logs", "watch") or "--wait" in arguments else run_here
        return how(command, *self._options, *arguments, stdin=stdin)

    def do(self, command: str, *arguments: str | Path, stdin: str = "") -> str:
        """The output of a command that must succeed."""
        done = self.run(command, *arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refused(self, command: str, *arguments: str | Path, stdin: str = "") -> str:
        """The error of a command that must be refused."""
        done = self.run(command, *arguments, stdin=stdin)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        return done.stderr

    def begin(self, command: str, *arguments: str) -> "Running":
        self._running.append(Running([sys.executable, "-m", "maniple", command, *self._options, *arguments]))
        return self._running[-1]

    # -- the other side: what the controller and kubelets would do

    def path(self, kind: str, name: str = "") -> str:
        start = f"{OURS}/namespaces" if kind in ("elasticjobs", "podgroups") else "/api/v1/namespaces"
        return f"{start}/{self.namespace}/{kind}" + (f"/{name}" if name else "")

    def get(self, kind: str, name: str) -> Json:
        found: Json = self.client.get(self.path(kind, name))
        return found

    def exists(self, kind: str, name: str) -> bool:
        return self.client.exists(self.path(kind, name))

    def submit(self, name: str, *options: str) -> None:
        self.do("submit", "--name", name, "--image", "training:1", *options, "--", "python", "train.py")

    def say(self, job: str, **status: Any) -> None:
        """Writes the status of a job."""
        self.client.patch(f"{self.path('elasticjobs', job)}/status", {"status": status})

    def replica(self, job: str, index: int, *, node: str = "", role: str = "worker", **spec: Any) -> str:
        """Creates a pod as the controller would: it does not block the deletion of its job."""
        owner = self.get("elasticjobs", job)["metadata"]["uid"]
        name = f"{job}-{role}-{index}"
        container = {"name": "main", "image": "training:1", "resources": {"limits": {GPU: "1"}}}
        self.client.post(
            self.path("pods"),
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "labels": {f"maniple.dev/{key}": text for key, text in labels(job, role, index).items()},
                    "annotations": {"maniple.dev/gpus": str(index)},
                    "ownerReferences": [
                        {
                            "apiVersion": "maniple.dev/v1alpha1",
                            "kind": "ElasticJob",
                            "name": job,
                            "uid": owner,
                            "controller": True,
                        }
                    ],
                },
                "spec": {
                    "schedulerName": "nobody",
                    "nodeName": node or None,
                    "restartPolicy": "Never",
                    "containers": [container],
                    "terminationGracePeriodSeconds": 1,
                    "tolerations": [{"operator": "Exists"}],
                    **spec,
                },
            },
        )
        return name

    def wait_running(self, names: Iterable[str]) -> None:
        wanted = list(names)

        def all_run() -> bool:
            return all(self.get("pods", name)["status"].get("phase") == "Running" for name in wanted)

        wait_until(f"{wanted} to run", all_run)

    def jobs(self, *options: str) -> dict[str, Json]:
        found: list[Json] = json.loads(self.do("jobs", *options, "-o", "json"))
        return {job["name"]: job for job in found}

    def close(self) -> None:
        """Also after a failed test: what it leaves open would fail a later one."""
        for running in self._running:
            running.kill()
        self.client.close()


def labels(job: str, role: str, index: int) -> dict[str, str]:
    return {"job": job, "role": role, "index": str(index)}


class Running:
    """A running command. Its output is read as it arrives."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self.out: list[str] = []
        self.err: list[str] = []
        streams = ((self._process.stdout, self.out), (self._process.stderr, self.err))
        self._readers = [threading.Thread(target=_read, args=stream, daemon=True) for stream in streams]
        for reader in self._readers:
            reader.start()

    def wait_for(self, text: str) -> None:
        """Waits until a line with this text has been printed."""

        def is_said() -> bool:
            return any(text in line for line in (*self.out, *self.err))

        def is_said_or_over() -> bool:
            return is_said() or self._process.poll() is not None

        wait_until(f"{text!r} to be printed; so far {self.out} {self.err}", is_said_or_over)
        if not is_said():
            self.end()
        assert is_said(), (text, self.out, self.err)

    def interrupt(self) -> int:
        self._process.send_signal(2)
        return self.end()

    def end(self) -> int:
        """Waits for its end. Returns the exit code."""
        try:
            code = self._process.wait(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        self._close_streams()
        assert not any("Traceback" in line for line in self.err), self.err
        return code

    def kill(self) -> None:
        """Ends it if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._close_streams()

    def _close_streams(self) -> None:
        for reader in self._readers:
            reader.join(timeout=PATIENCE_S)
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()


def _read(stream: Any, lines: list[str]) -> None:
    while line := stream.readline():
        lines.append(line.rstrip("\n"))


def printing(text: str) -> Json:
    """The spec of a pod that runs a shell script on a real node."""
    return {"containers": [{"name": "main", **IMAGE, "command": ["sh", "-c", text]}]}
