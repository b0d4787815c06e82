"""Where workers reach their agent: a socket and a file in a folder of the replica's own.

Datagrams to a socket on the same machine: a training loop that reports never waits for a network, and loses nothing but
the report if nobody listens.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
import threading
import time
from typing import Any, Callable

from maniple.worker.controller_connection import complain
from maniple.worker.notices import Notice

SOCKET_VARIABLE = "MANIPLE_AGENT_SOCKET"
NOTICE_VARIABLE = "MANIPLE_NOTICE"
_MESSAGE_BYTES = 4096


class Desk:
    """The agent's side. `hear` is called in a thread of the desk's own with every message that is an object."""

    def __init__(self, hear: Callable[[dict[str, Any]], None]) -> None:
        self._hear = hear
        self._heard = threading.Condition()
        self._mark = ""  # the last of our own that came through
        self.folder = new_folder()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(os.path.join(self.folder, "socket"))

    @property
    def environment(self) -> dict[str, str]:
        return {
            SOCKET_VARIABLE: os.path.join(self.folder, "socket"),
            NOTICE_VARIABLE: os.path.join(self.folder, "notice"),
        }

    def start(self) -> None:
        threading.Thread(target=self._listen, name="maniple-desk", daemon=True).start()

    def show(self, notice: Notice) -> bool:
        """Workers that look see all of it or what was there before; whether they can: somebody may tidy up or fill the
        disk that the folder is on."""
        path = self.environment[NOTICE_VARIABLE]
        try:
            with open(path + ".new", "w", encoding="utf-8") as file:
                file.write(notice.text)
            os.replace(path + ".new", path)
        except OSError as error:
            complain(f"cannot show workers the notice, which are sent SIGTERM instead: {error}")
            return False
        return True

    def catch_up(self, within_s: float = 1.0) -> None:
        """Returns when all that was said until now has been heard."""
        mark = f"{time.monotonic_ns()}"
        with self._heard:
            if tell(self.environment[SOCKET_VARIABLE], {"mark": mark}, within_s):
                self._heard.wait_for(lambda: self._mark == mark, within_s)

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _listen(self) -> None:
        while True:
            message = self._socket.recv(_MESSAGE_BYTES)
            try:
                said = json.loads(message)
            except (ValueError, RecursionError):
                continue
            if not isinstance(said, dict):
                continue
            if "mark" in said:
                with self._heard:
                    self._mark = said["mark"]
                    self._heard.notify_all()
            else:
                self._hear(said)


def new_folder() -> str:
    """Where the root of a container may not be written to, its shared memory still may."""
    try:
        return tempfile.mkdtemp(prefix="maniple-")
    except OSError:
        return tempfile.mkdtemp(prefix="maniple-", dir="/dev/shm")


def tell(path: str, message: dict[str, Any], within_s: float = 0.0) -> bool:
    """A worker's side: says it to the agent, if one listens and is not behind by then; whether it was said."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            line.settimeout(within_s)
            line.sendto(json.dumps(message).encode(), path)
    except OSError:
        return False
    return True
