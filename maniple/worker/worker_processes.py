"""The worker processes of one replica: started together, all reaped, none left behind.

The agent is process 1 of its container, so every orphan becomes its child. It reaps all children and kills those that
are left when the workers have ended. Where it is not process 1 it becomes a child subreaper.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

_PR_SET_CHILD_SUBREAPER = 36
# The child itself must ask to be killed with the agent, before it becomes the worker (PR_SET_PDEATHSIG is 1). Python
# ignores two signals from its start, and the worker would inherit that: writers to a closed pipe would never end.
_SHIM = """
import ctypes, os, signal, sys
parent, command = int(sys.argv[1]), sys.argv[2:]
ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(ignored, signal.SIG_DFL)
if os.getppid() != parent:
    sys.exit(137)
try:
    os.execvp(command[0], command)
except OSError as error:
    print(f"maniple: cannot start {command[0]}: {error.strerror}", file=sys.stderr)
    sys.exit(127 if isinstance(error, FileNotFoundError) else 126)
"""


def adopt_orphans() -> None:
    """Orphans among our descendants become our children, as they do for process 1."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Processes:
    """The worker processes that run now, by process id."""

    def __init__(self) -> None:
        self.running: dict[int, int] = {}  # process id -> local rank
        self.codes: dict[int, int] = {}  # local rank -> exit code, of those that have ended since `start`
        self.first_failure: int | None = None

    def start(self, command: Sequence[str], environments: Sequence[Mapping[str, str]]) -> None:
        """Starts one worker for each environment. None may be running."""
        self.codes = {}
        self.first_failure = None
        for local_rank, environment in enumerate(environments):
            pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", "-c", _SHIM, str(os.getpid()), *command],
                dict(environment),
                setpgroup=0,
                setsigmask=[],
                setsigdef=[signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD],
            )
            self.running[pid] = local_rank

    def signal_all(self, number: int) -> None:
        """Signals the workers only: a training script ends its own children."""
        for pid in self.running:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill_all(self) -> None:
        """Kills the workers and their process groups."""
        for pid in self.running:
            _kill_group(pid)

    def reap(self) -> list[int]:
        """Reaps every child that has ended. Returns the local ranks of the workers among them."""
        ended = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            local_rank = self.running.pop(pid, None)
            if local_rank is None:
                continue
            _kill_group(pid)  # data loaders and the like
            code = os.waitstatus_to_exitcode(status)
            self.codes[local_rank] = code if code >= 0 else 128 - code
            if self.first_failure is None and self.codes[local_rank] != 0:
                self.first_failure = self.codes[local_rank]
            ended.append(local_rank)
        return ended

    def sweep(self, within_s: float = 5.0) -> None:
        """Kills children that are not workers: they are left over from workers that have ended."""
        deadline = time.monotonic() + within_s
        # Their children become ours in turn.
        while time.monotonic() < deadline:
            orphans = [pid for pid in _children() if pid not in self.running]
            if not orphans:
                return
            for pid in orphans:
                _kill_group(pid)
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.reap()
            time.sleep(0.005)


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _children() -> list[int]:
    """Our children, running or not reaped yet."""
    children = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
            # The program's name is in parentheses and may contain some; state and parent follow the last one.
            if int(file.read().rpartition(")")[2].split()[1]) == os.getpid():
                children.append(int(name))
    return children
