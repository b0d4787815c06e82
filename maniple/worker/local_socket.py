"""How workers reach their agent: a socket and a file in a folder of the replica.

Workers send datagrams to a Unix socket: a training loop that reports never waits for a network, and loses only the
report if no agent listens.
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

from maniple.worker.controller_connection import log
from maniple.worker.notices import Notice

SOCKET_VARIABLE = "MANIPLE_AGENT_SOCKET"
NOTICE_VARIABLE = "MANIPLE_NOTICE"
_MESSAGE_BYTES = 4096


class LocalSocket:
    """The agent's side. `on_message` is called in a thread of the socket with every message that is an object."""

    def __init__(self, on_message: Callable[[dict[str, Any]], None]) -> None:
        self._on_message = on_message
        self._received = threading.Condition()
        self._mark = ""  # the last mark that was received
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
        threading.Thread(target=self._listen, name="maniple-socket", daemon=True).start()

    def write_notice(self, notice: Notice) -> bool:
        """Replaces the notice in the file that workers read, as a whole.

        Returns whether that worked: the folder may have been removed, or its disk may be full.
        """
        path = self.environment[NOTICE_VARIABLE]
        try:
            with open(path + ".new", "w", encoding="utf-8") as file:
                file.write(notice.text)
            os.replace(path + ".new", path)
        except OSError as error:
            log(f"cannot write the notice for workers, sending them SIGTERM instead: {error}")
            return False
        return True

    def drain(self, within_s: float = 1.0) -> None:
        """Returns when all messages that were sent until now have been handled."""
        mark = f"{time.monotonic_ns()}"
        with self._received:
            if send(self.environment[SOCKET_VARIABLE], {"mark": mark}, within_s):
                self._received.wait_for(lambda: self._mark == mark, within_s)

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _listen(self) -> None:
        while True:
            datagram = self._socket.recv(_MESSAGE_BYTES)
            try:
                message = json.loads(datagram)
            except (ValueError, RecursionError):
                continue
            if not isinstance(message, dict):
                continue
            if "mark" in message:
                with self._received:
                    self._mark = message["mark"]
                    self._received.notify_all()
            else:
                self._on_message(message)


def new_folder() -> str:
    """In shared memory if the root of the container is read-only."""
    try:
        return tempfile.mkdtemp(prefix="maniple-")
    except OSError:
        return tempfile.mkdtemp(prefix="maniple-", dir="/dev/shm")


def send(path: str, message: dict[str, Any], within_s: float = 0.0) -> bool:
    """A worker's side: sends a message to the agent. Returns whether the agent's socket took it in time."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
            client.settimeout(within_s)
            client.sendto(json.dumps(message).encode(), path)
    except OSError:
        return False
    return True
