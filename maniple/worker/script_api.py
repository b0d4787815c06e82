"""What a training script can ask and report. Outside of Maniple there is never a notice, and reports go nowhere."""

from __future__ import annotations

import atexit
import math
import os
import threading
from typing import Any

from maniple.worker.controller_connection import ControllerConnection, from_environment, log
from maniple.worker.local_socket import NOTICE_VARIABLE, SOCKET_VARIABLE, send
from maniple.worker.notices import Notice, NoticeFile

_MOST_STEPS = 1 << 53
_FLUSH_S = 2.0  # for the last report, when a script ends


class ScriptApi:
    """One for each process, made when it is first asked for: see the functions of `maniple.worker`."""

    def __init__(self) -> None:
        self.settings = from_environment()
        self.socket = os.environ.get(SOCKET_VARIABLE, "")
        self.rank = _first_number("RANK", "HOROVOD_RANK")
        self.local_rank = _first_number("LOCAL_RANK", "HOROVOD_LOCAL_RANK") or 0
        self._file = NoticeFile(os.environ.get(NOTICE_VARIABLE) or self.settings.notice_path)
        self._notice: Notice | None = None  # from the controller
        self._controller: ControllerConnection | None = None
        self._has_logged = False
        self.generation = _number("MANIPLE_GENERATION")
        # Without an agent the first process of the pod connects to the controller; the others use the file. Horovod's
        # workers all have the environment of the launcher's pod, so only the first of all workers connects for it.
        caller = _first_number("HOROVOD_RANK") if "HOROVOD_RANK" in os.environ else self.local_rank
        if not self.socket and self.settings.has_endpoint and caller == 0:
            # A script ends when its work does, not when the job is over.
            self._controller = ControllerConnection(self.settings, self._set_notice, lambda: None)
            self._controller.start()
        self._unsent: dict[str, Any] | None = None  # the last report, if the agent's socket was full
        self._pid = os.getpid()
        atexit.register(self._flush)

    def newest(self) -> Notice | None:
        """The newest notice, whether or not it changes anything."""
        from_file, from_controller = self._file.read(), self._notice
        if from_file is None or (from_controller is not None and from_controller.generation > from_file.generation):
            return from_controller
        return from_file

    def notice(self) -> Notice | None:
        newest = self.newest()
        if newest is None:
            return None
        if self.generation is None:  # nothing says in which generation we started: in the first that we hear of
            self.generation = newest.generation
            return newest if newest.stop or self.is_leaving(newest) else None
        return newest if newest.generation > self.generation else None

    def is_leaving(self, notice: Notice) -> bool:
        return notice.stop or notice.position(self.settings.pod, self.settings.uid) is None

    def ack(self) -> None:
        newest = self.newest()
        if newest is None:
            return
        self.generation = newest.generation
        self.send(joined=newest.generation)
        if self._controller is not None:
            self._controller.set_state(newest.generation, "stopped" if self.is_leaving(newest) else "running")

    def report(self, step: int, throughput: float | None, total: int | None) -> None:
        if not self._is_reporter():
            return
        try:
            values = {"step": _step(step), "throughput": _speed(throughput), "total": _total(total)}
        except Exception as error:  # whatever was passed, training goes on
            self._log(f"report: {error}; nothing is reported")
            return
        body = {name: value for name, value in values.items() if value is not None}
        if self._controller is not None:
            self._controller.report(body)  # of the generation that is the newest when it is sent
        elif self.socket:
            body["generation"] = self.generation or 0
            self._unsent = None if self.send(**body) else body

    def _is_reporter(self) -> bool:
        """Rank 0 reports; without ranks the first member."""
        if self.rank is not None:
            return self.rank == 0
        newest = self.newest()
        if newest is None or not newest.members:
            return _first_number("MANIPLE_REPLICA_INDEX") in (0, None)
        return newest.position(self.settings.pod, self.settings.uid) == 0

    def _flush(self) -> None:
        """At the end of the script, but not of a child that it has forked."""
        if os.getpid() != self._pid:
            return
        if self._controller is not None:
            self._controller.flush(_FLUSH_S)
        elif self._unsent is not None:
            self.send(_FLUSH_S, **self._unsent)

    def _log(self, text: str) -> None:
        """Once, and only where reports are sent."""
        if (self.socket or self._controller is not None) and not self._has_logged:
            self._has_logged = True
            log(text)

    def send(self, within_s: float = 0.0, **message: object) -> bool:
        """Sends a message to the agent, if there is one. Returns whether it was sent."""
        return bool(self.socket) and send(self.socket, {"local_rank": self.local_rank, **message}, within_s)

    def _set_notice(self, notice: Notice) -> None:
        self._notice = notice


def _number(variable: str) -> int | None:
    """None if it is no number: other launchers have variables of the same names."""
    text = os.environ.get(variable, "")
    return int(text) if text.isascii() and text.isdecimal() else None


def _first_number(*variables: str) -> int | None:
    return next((number for number in map(_number, variables) if number is not None), None)


def _step(value: Any) -> int:
    number = int(value)
    if not 0 <= number < _MOST_STEPS:
        raise ValueError(f"expected a step of 0 or more, found {number}")
    return number


def _total(value: Any) -> int | None:
    return None if value is None else _step(value)


def _speed(value: Any) -> float | None:
    if value is None:
        return None
    speed = float(value)
    if not 0 < speed < math.inf:
        raise ValueError(f"expected a throughput of more than 0, found {speed}")
    return speed


_lock = threading.RLock()  # reentrant: a signal handler may ask, too
_instances: list[ScriptApi] = []


def script_api() -> ScriptApi:
    with _lock:
        if not _instances:
            _instances.append(ScriptApi())
        return _instances[0]
