"""What a training script asks and says. Without Maniple around it is told nothing, and what it says goes nowhere."""

from __future__ import annotations

import atexit
import math
import os
import threading
from typing import Any

from maniple.worker.controller_connection import Line, complain, from_environment
from maniple.worker.local_socket import NOTICE_VARIABLE, SOCKET_VARIABLE, tell
from maniple.worker.notices import Notice, NoticeFile

_MOST_STEPS = 1 << 53
_FLUSH_S = 2.0  # at the end of a script, for what it has said last


class Inside:
    """One for each process, made when it is first asked for: see the functions of `maniple.worker`."""

    def __init__(self) -> None:
        self.settings = from_environment()
        self.socket = os.environ.get(SOCKET_VARIABLE, "")
        self.rank = _first_number("RANK", "HOROVOD_RANK")
        self.local_rank = _first_number("LOCAL_RANK", "HOROVOD_LOCAL_RANK") or 0
        self._file = NoticeFile(os.environ.get(NOTICE_VARIABLE) or self.settings.notice_path)
        self._heard: Notice | None = None
        self._line: Line | None = None
        self._has_complained = False
        self.generation = _number("MANIPLE_GENERATION")
        # No agent: the first process of the pod calls the controller itself; the others go by the file. To Horovod's
        # workers the launcher's pod is their own, since horovodrun gives them its environment: one of all calls for it.
        caller = _first_number("HOROVOD_RANK") if "HOROVOD_RANK" in os.environ else self.local_rank
        if not self.socket and self.settings.has_endpoint and caller == 0:
            self._line = Line(self.settings, self._hear, lambda: None)  # a script ends when its work does
            self._line.start()
        self._unheard: dict[str, Any] | None = None  # the last report, if the agent was behind
        self._pid = os.getpid()
        atexit.register(self._say_last)

    def newest(self) -> Notice | None:
        """The last notice that reached us, whether or not it changes anything."""
        read, heard = self._file.read(), self._heard
        if read is None or (heard is not None and heard.generation > read.generation):
            return heard
        return read

    def notice(self) -> Notice | None:
        newest = self.newest()
        if newest is None:
            return None
        if self.generation is None:  # nobody told us in which generation we began: in the first one we hear of
            self.generation = newest.generation
            return newest if newest.stop or self.is_leaving(newest) else None
        return newest if newest.generation > self.generation else None

    def is_leaving(self, notice: Notice) -> bool:
        return notice.stop or notice.place_of(self.settings.pod, self.settings.uid) is None

    def ack(self) -> None:
        newest = self.newest()
        if newest is None:
            return
        self.generation = newest.generation
        self.tell(joined=newest.generation)
        if self._line is not None:
            self._line.say(newest.generation, "stopped" if self.is_leaving(newest) else "running")

    def report(self, step: int, throughput: float | None, total: int | None) -> None:
        if not self._speaks():
            return
        try:
            said = {"step": _step(step), "throughput": _speed(throughput), "total": _total(total)}
        except Exception as error:  # of whatever was given: training goes on
            self._complain(f"report: {error}; nothing is reported")
            return
        body = {name: value for name, value in said.items() if value is not None}
        if self._line is not None:
            self._line.report(body)  # of the generation that is the newest then
        elif self.socket:
            body["generation"] = self.generation or 0
            self._unheard = None if self.tell(**body) else body

    def _speaks(self) -> bool:
        """Rank 0; where nobody has ranks, the first of those who take part."""
        if self.rank is not None:
            return self.rank == 0
        newest = self.newest()
        if newest is None or not newest.members:
            return _first_number("MANIPLE_REPLICA_INDEX") in (0, None)
        return newest.place_of(self.settings.pod, self.settings.uid) == 0

    def _say_last(self) -> None:
        """At the end of the script; a child that it has forked has nothing to say."""
        if os.getpid() != self._pid:
            return
        if self._line is not None:
            self._line.flush(_FLUSH_S)
        elif self._unheard is not None:
            self.tell(_FLUSH_S, **self._unheard)

    def _complain(self, text: str) -> None:
        """Once, and where nobody would hear the report, not at all."""
        if (self.socket or self._line is not None) and not self._has_complained:
            self._has_complained = True
            complain(text)

    def tell(self, within_s: float = 0.0, **message: object) -> bool:
        """Says it to the agent, if there is one; whether it was said."""
        return bool(self.socket) and tell(self.socket, {"local_rank": self.local_rank, **message}, within_s)

    def _hear(self, notice: Notice) -> None:
        self._heard = notice


def _number(variable: str) -> int | None:
    """None, if it is not one: other launchers have variables of the same names."""
    text = os.environ.get(variable, "")
    return int(text) if text.isascii() and text.isdecimal() else None


def _first_number(*variables: str) -> int | None:
    return next((number for number in map(_number, variables) if number is not None), None)


def _step(given: Any) -> int:
    number = int(given)
    if not 0 <= number < _MOST_STEPS:
        raise ValueError(f"expected a step of 0 or more, found {number}")
    return number


def _total(given: Any) -> int | None:
    return None if given is None else _step(given)


def _speed(given: Any) -> float | None:
    if given is None:
        return None
    speed = float(given)
    if not 0 < speed < math.inf:
        raise ValueError(f"expected a throughput of more than 0, found {speed}")
    return speed


_lock = threading.RLock()  # a signal handler may ask, too
_inside: list[Inside] = []


def inside() -> Inside:
    with _lock:
        if not _inside:
            _inside.append(Inside())
        return _inside[0]
