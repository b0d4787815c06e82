"""The line to the controller: one thread listens for notices, another says what became of them.

What is said is a state, not a message: only the last counts, and it is said again whenever the line was broken, since
whoever had heard it may be gone. So controller and agent find each other again after a crash of either.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import socket
import ssl
import sys
import threading
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Callable

from maniple.worker.notices import Notice, NoticeError, NoticeFile, parse

AGENT_FOLDER = "/var/run/maniple/agent"
POD_FOLDER = "/var/run/maniple/pod"
_POLL_TIMEOUT_S = 40.0  # the server answers after 25 s at the latest
_ASK_TIMEOUT_S = 10.0
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 3.0
_REPORT_S = 5.0  # between two reports, if nothing else is said
_FILE_S = 0.5


def complain(text: str) -> None:
    print(f"maniple: {text}", file=sys.stderr, flush=True)


def free_port() -> int:
    """For those who are alone, and have nobody to tell them where to meet."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True)
class Settings:
    """Who we are and whom to call, from the pod's environment."""

    url: str
    job: str
    pod: str
    uid: str
    agent_folder: str
    pod_folder: str

    @property
    def has_endpoint(self) -> bool:
        return bool(self.url and self.job and self.pod)

    @property
    def notice_path(self) -> str:
        return os.path.join(self.pod_folder, "generation")

    @property
    def has_file(self) -> bool:
        return os.path.exists(self.notice_path)


def from_environment(environment: Mapping[str, str] = os.environ) -> Settings:
    return Settings(
        url=environment.get("MANIPLE_URL", ""),
        job=environment.get("MANIPLE_JOB", ""),
        pod=environment.get("MANIPLE_POD", ""),
        uid=environment.get("MANIPLE_POD_UID", ""),
        agent_folder=environment.get("MANIPLE_AGENT_FOLDER", AGENT_FOLDER),
        pod_folder=environment.get("MANIPLE_POD_FOLDER", POD_FOLDER),
    )


class _BrokenError(Exception):
    """The line is broken, or nobody at its end may answer: try again after this long."""

    def __init__(self, why: str, pause_s: float = 0.0) -> None:
        super().__init__(why)
        self.pause_s = pause_s


class _Connection:
    """One kept-alive HTTPS connection, used by one thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._connection: http.client.HTTPSConnection | None = None

    def ask(self, method: str, what: str, body: Any = None, timeout_s: float = _ASK_TIMEOUT_S) -> tuple[int, bytes]:
        """Status and answer. The line is down (also: not the leader, not known yet): _BrokenError."""
        try:
            if self._connection is None:
                self._connection = self._connect(timeout_s)
            self._connection.request(
                method,
                f"/v1/jobs/{self._settings.job}/{what}",
                body=None if body is None else json.dumps(body).encode(),
                headers={"Authorization": f"Bearer {self._token()}"},
            )
            answer = self._connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise _BrokenError(f"{self._settings.url} does not answer: {error!r}") from error
        if answer.status >= 500 or answer.status == 429:
            self.close()  # a new connection may reach another replica
            raise _BrokenError(content.decode(errors="replace").strip(), _seconds(answer.headers.get("Retry-After")))
        return answer.status, content

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self, timeout_s: float) -> http.client.HTTPSConnection:
        parts = urllib.parse.urlsplit(self._settings.url)
        if parts.scheme != "https" or not parts.hostname:
            raise ValueError(f"MANIPLE_URL: expected https://HOST:PORT, found {self._settings.url!r}")
        trusted = ssl.create_default_context(cafile=os.path.join(self._settings.agent_folder, "ca.crt"))
        return http.client.HTTPSConnection(parts.hostname, parts.port or 443, timeout=timeout_s, context=trusted)

    def _token(self) -> str:
        with open(os.path.join(self._settings.agent_folder, "token"), encoding="ascii") as file:
            return file.read().strip()


def _seconds(text: str | None) -> float:
    return float(text) if text and text.isdecimal() else 0.0


class Line:
    """Both threads, and what they share. `hear` is called in the listening thread, each generation once, in order."""

    def __init__(self, settings: Settings, hear: Callable[[Notice], None], hear_end: Callable[[], None]) -> None:
        self.answered_at: float | None = None  # on the monotonic clock; to be refused is no answer
        self._settings = settings
        self._hear = hear
        self._hear_end = hear_end  # called once: the job is over, and nothing will follow
        self._heard = -1
        self._lock = threading.Condition()
        self._state: dict[str, Any] | None = None
        self._is_said = True
        self._report: dict[str, Any] | None = None
        self._before: dict[str, Any] | None = None  # what was reported before the state, and is said before it
        self._reported_at = -_REPORT_S
        self._hurry = threading.Event()  # somebody waits for what is being said

    def start(self) -> None:
        if self._settings.has_endpoint:
            threading.Thread(target=self._listen, name="maniple-listen", daemon=True).start()
            threading.Thread(target=self._speak, name="maniple-speak", daemon=True).start()
        threading.Thread(target=self._read_file, name="maniple-file", daemon=True).start()

    # -- speaking

    def say(self, generation: int, state: str, code: int | None = None) -> None:
        """What has become of this replica; takes the place of what was said before, said or not."""
        body = {"pod": self._settings.pod, "uid": self._settings.uid, "generation": generation, "state": state}
        with self._lock:
            self._state = body if code is None else {**body, "exit": code}
            self._is_said = False
            self._before, self._report = self._report or self._before, None
            self._lock.notify_all()

    def report(self, said: Mapping[str, Any]) -> None:
        """How far the job is; only the newest is sent, now and then. Without a generation it is of the newest."""
        with self._lock:
            self._report = {"pod": self._settings.pod, **said}
            self._lock.notify_all()

    def flush(self, within_s: float) -> bool:
        """Waits until all is said, also a report that waits; whether it is."""
        if not self._settings.has_endpoint:
            return False
        with self._lock:
            self._before, self._report = self._report or self._before, None
            self._hurry.set()
            self._lock.notify_all()
            is_said = self._lock.wait_for(lambda: self._is_said and self._before is None, within_s)
            self._hurry.clear()
            return is_said

    def _speak(self) -> None:
        connection = _Connection(self._settings)
        pause = _Pause(self._hurry)
        while True:
            what, body = self._next()
            try:
                self._post(connection, what, {"generation": self._heard, **body})  # a state has its own
                pause.reset()
            except _BrokenError as error:
                pause.wait(error)
                continue  # with whatever is the newest by then
            with self._lock:
                self._is_said = self._is_said or self._state is body
                self._before = None if self._before is body else self._before
                self._lock.notify_all()

    def _next(self) -> tuple[str, Any]:
        """What is to be said, as soon as it is time for it: a state at once, and before it what was reported before."""
        with self._lock:
            while True:
                wait_s = self._reported_at + _REPORT_S - time.monotonic()
                if self._before is None and self._report is not None and wait_s <= 0:
                    self._before, self._report = self._report, None
                if self._before is not None and ("generation" in self._before or self._heard >= 0):
                    self._reported_at = time.monotonic()
                    return "report", self._before
                if not self._is_said:
                    return "ack", self._state
                self._lock.wait(None if self._report is None or wait_s <= 0 else wait_s)

    def _post(self, connection: _Connection, what: str, body: Any) -> None:
        was_open = connection.is_open
        try:
            status, content = connection.ask("POST", what, body)
        except _BrokenError:
            if not was_open:
                raise
            status, content = connection.ask("POST", what, body)  # the old one may have been closed while nobody spoke
        if status in {401, 403}:  # the job is gone, or the token's file will be renewed
            raise _BrokenError(f"refused: {content.decode(errors='replace').strip()}", _LONGEST_PAUSE_S)
        self.answered_at = time.monotonic()
        if status >= 400:
            complain(f"the controller did not understand {what} {body}: {content.decode(errors='replace').strip()}")

    # -- listening

    def _listen(self) -> None:
        connection = _Connection(self._settings)
        pause = _Pause()
        while True:
            who = {"pod": self._settings.pod, "uid": self._settings.uid, "after": max(self._heard, 0)}
            try:
                status, content = connection.ask("GET", f"notice?{urllib.parse.urlencode(who)}", None, _POLL_TIMEOUT_S)
                if status == 410:
                    connection.close()
                    self._hear_end()
                    return
                if status not in {200, 204}:
                    raise _BrokenError(f"refused: {content.decode(errors='replace').strip()}", _LONGEST_PAUSE_S)
                self.answered_at = time.monotonic()
                if status == 200:
                    self._pass_on(parse(content.decode()))
                pause.reset()
            except (_BrokenError, NoticeError, UnicodeDecodeError) as error:
                with self._lock:  # whoever had heard us may be gone: say it again
                    self._is_said = self._state is None
                    self._lock.notify_all()
                pause.wait(error)

    def _read_file(self) -> None:
        """The downward API's file: the kubelet renews it about once a minute, also where no endpoint is reached."""
        file = NoticeFile(self._settings.notice_path)
        while True:
            notice = file.read()
            if notice is not None:
                self._pass_on(notice)
            time.sleep(_FILE_S)

    def _pass_on(self, notice: Notice) -> None:
        with self._lock:
            if notice.generation <= self._heard:
                return
            self._heard = notice.generation
            self._lock.notify_all()
            self._hear(notice)


class _Pause:
    """Waits longer and longer while a line is broken; complains once, and not before it has lasted.

    Whoever is in a hurry does not wait so long.
    """

    def __init__(self, hurry: threading.Event | None = None) -> None:
        self._hurry = hurry or threading.Event()
        self.reset()

    def reset(self) -> None:
        self._next_s = _FIRST_PAUSE_S
        self._has_complained = False

    def wait(self, error: Exception) -> None:
        if self._next_s >= _LONGEST_PAUSE_S and not self._has_complained:
            complain(f"no controller, trying again: {error}")
            self._has_complained = True
        asked_s = getattr(error, "pause_s", 0.0)
        wait_s = max(self._next_s, asked_s) * random.uniform(0.7, 1.3)  # not all agents at once
        if self._hurry.is_set():
            time.sleep(min(wait_s, _FIRST_PAUSE_S))
        else:
            self._hurry.wait(wait_s)
        self._next_s = min(self._next_s * 1.6, _LONGEST_PAUSE_S)
