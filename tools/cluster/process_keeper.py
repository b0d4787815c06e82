"""Starts and ends the processes of one cluster, and makes sure that none outlives the process that runs this.

The system kills every child when its parent dies. All of this must run in the main thread: for the system, the
parent is the thread that started the child.
"""

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable

from tools.cluster.cluster_layout import ClusterError, Layout
from tools.cluster.component_commands import Component

PR_SET_PDEATHSIG = 1
STOP_S = 15.0
_LIBC = ctypes.CDLL(None, use_errno=True)


def dies_with(parent: int) -> Callable[[], None]:
    """Returns a `preexec_fn`: the child is killed when this parent ends."""

    def prepare() -> None:
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return prepare


class Keeper:
    """The processes of a cluster by component name."""

    def __init__(self, layout: Layout, lock: int) -> None:
        self._layout = layout
        self._lock = lock
        self._components: dict[str, Component] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def add(self, component: Component) -> None:
        """Registers a component and starts it."""
        self._components[component.name] = component
        self.start(component.name)

    def start(self, name: str) -> None:
        self._known(name)
        if self.is_running(name):
            raise ClusterError(f"{name} is running already")
        component = self._components[name]
        with self._layout.log(name).open("ab") as log:
            self._processes[name] = subprocess.Popen(
                component.command,
                env=os.environ | component.environment,
                cwd=self._layout.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=dies_with(os.getpid()),  # noqa: PLW1509 - no other thread runs then
                # The lock is free only when no process of this cluster runs.
                pass_fds=[self._lock],
            )

    def signal(self, name: str, number: int) -> None:
        """Sends a signal; if the signal ends the process, waits until it has ended."""
        self._known(name)
        if not self.is_running(name):
            raise ClusterError(f"{name} is not running")
        process = self._processes[name]
        os.kill(process.pid, number)
        if number in {signal.SIGKILL, signal.SIGTERM}:
            self._wait(name, STOP_S)

    def is_running(self, name: str) -> bool:
        self.reap()
        process = self._processes.get(name)
        return process is not None and process.returncode is None

    def status(self) -> dict[str, int | None]:
        """The process id of each component, None for those that do not run."""
        return {name: self._processes[name].pid if self.is_running(name) else None for name in self._components}

    def check(self) -> None:
        """Raises if a component has ended by itself."""
        for name in self._components:
            if not self.is_running(name):
                raise ClusterError(f"{name} ended: {self.last_words(name)}")

    def last_words(self, name: str) -> str:
        lines = self._layout.log(name).read_text(errors="replace").strip().splitlines()
        telling = [line for line in lines if "rror" in line or line.startswith(("E", "F", "panic"))]
        return (telling or lines or ["it logged nothing"])[-1][:500]

    def stop_all(self) -> None:
        """Asks each to end, the last started first, and kills what takes too long."""
        for name in reversed(self._components):
            if self.is_running(name):
                os.kill(self._processes[name].pid, signal.SIGTERM)
                self._wait(name, STOP_S)

    def _wait(self, name: str, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while self.is_running(name):
            if time.monotonic() > deadline:
                os.kill(self._processes[name].pid, signal.SIGKILL)
            time.sleep(0.01)

    def reap(self) -> None:
        """Reaps every child that ended; as the first process of a namespace, orphans too."""
        by_pid = {process.pid: process for process in self._processes.values()}
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in by_pid:
                by_pid[pid].returncode = os.waitstatus_to_exitcode(status)

    def _known(self, name: str) -> None:
        if name not in self._components:
            raise ClusterError(f"no component {name!r} here; there are {', '.join(self._components)}")
