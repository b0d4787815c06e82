"""The connection to the controller: one thread listens for notices, another sends states and reports.

A replica sends its state, not messages: only the last state counts, and it is sent again whenever the connection was
broken, because a new controller may not know it. So controller and agent find each other again after a crash of either.
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
_POLL_TIMEOUT_S = 40.0  # the server answers within 25 s
_REQUEST_TIMEOUT_S = 10.0
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 3.0
_URGENT_PAUSE_S = 0.2  # while somebody waits for the last message to be sent
_REPORT_S = 5.0  # between two reports
_FILE_S = 0.5


def log(text: str) -> None:
    print(f"maniple: {text}", file=sys.stderr, flush=True)


def free_port() -> int:
    """A port for the rendezvous of workers outside of a cluster."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True)
class Settings:
    """This replica and its controller, from the pod's environment."""

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


class _UnavailableError(Exception):
    """No controller can be reached, or it cannot answer now. Try again after `pause_s`."""

    def __init__(self, why: str, pause_s: float = 0.0) -> None:
        super().__init__(why)
        self.pause_s = pause_s


class _HttpsConnection:
    """One kept-alive HTTPS connection, used by one thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._connection: http.client.HTTPSConnection | None = None

    def request(
        self, method: str, path: str, body: Any = None, timeout_s: float = _REQUEST_TIMEOUT_S
    ) -> tuple[int, bytes]:
        """Status and content of the answer. Raises _UnavailableError also if the server is not the leader."""
        try:
            if self._connection is None:
                self._connection = self._connect(timeout_s)
            self._connection.request(
                method,
                f"/v1/jobs/{self._settings.job}/{path}",
                body=None if body is None else json.dumps(body).encode(),
                headers={"Authorization": f"Bearer {self._token()}"},
            )
            answer = self._connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise _UnavailableError(f"{self._settings.url} does not answer: {error!r}") from error
        if answer.status >= 500 or answer.status == 429:
            self.close()  # a new connection may reach another replica
            raise _UnavailableError(_text(content), _seconds(answer.headers.get("Retry-After")))
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
        context = ssl.create_default_context(cafile=os.path.join(self._settings.agent_folder, "ca.crt"))
        return http.client.HTTPSConnection(parts.hostname, parts.port or 443, timeout=timeout_s, context=context)

    def _token(self) -> str:
        with open(os.path.join(self._settings.agent_folder, "token"), encoding="ascii") as file:
            return file.read().strip()


def _text(content: bytes) -> str:
    return content.decode(errors="replace").strip()


def _seconds(text: str | None) -> float:
    return float(text) if text and text.isdecimal() else 0.0


class ControllerConnection:
    """Both threads, and what they share.

    `on_notice` is called in the listening thread, once for each newer generation, in order. `on_job_over` is called
    once: nothing will follow.
    """

    def __init__(
        self, settings: Settings, on_notice: Callable[[Notice], None], on_job_over: Callable[[], None]
    ) -> None:
        self.answered_at: float | None = None  # on the monotonic clock; a refusal does not count
        self._settings = settings
        self._on_notice = on_notice
        self._on_job_over = on_job_over
        self._generation = -1  # the newest that was heard of
        self._changed = threading.Condition()
        self._state: dict[str, Any] | None = None
        self._is_state_sent = True
        self._report: dict[str, Any] | None = None  # the newest; waits until the next report is due
        self._due_report: dict[str, Any] | None = None  # to be sent now, and before the state that followed it
        self._reported_at = -_REPORT_S
        self._is_urgent = threading.Event()  # `flush` waits for the sending thread

    def start(self) -> None:
        if self._settings.has_endpoint:
            threading.Thread(target=self._listen, name="maniple-listen", daemon=True).start()
            threading.Thread(target=self._send, name="maniple-send", daemon=True).start()
        threading.Thread(target=self._read_file, name="maniple-file", daemon=True).start()

    # -- sending

    def set_state(self, generation: int, state: str, code: int | None = None) -> None:
        """The state of this replica. Replaces the last one, sent or not."""
        body = {"pod": self._settings.pod, "uid": self._settings.uid, "generation": generation, "state": state}
        with self._changed:
            self._state = body if code is None else {**body, "exit": code}
            self._is_state_sent = False
            self._due_report, self._report = self._report or self._due_report, None
            self._changed.notify_all()

    def report(self, progress: Mapping[str, Any]) -> None:
        """Only the newest report is sent, every few seconds. Without a generation it is of the newest one."""
        with self._changed:
            self._report = {"pod": self._settings.pod, **progress}
            self._changed.notify_all()

    def flush(self, within_s: float) -> bool:
        """Waits until the state and the last report are sent. Returns whether they are."""
        if not self._settings.has_endpoint:
            return False
        with self._changed:
            self._due_report, self._report = self._report or self._due_report, None
            self._is_urgent.set()
            self._changed.notify_all()
            is_sent = self._changed.wait_for(lambda: self._is_state_sent and self._due_report is None, within_s)
            self._is_urgent.clear()
            return is_sent

    def _send(self) -> None:
        connection = _HttpsConnection(self._settings)
        backoff = _Backoff(self._is_urgent)
        while True:
            path, body = self._next_message()
            try:
                self._post(connection, path, {"generation": self._generation, **body})  # a state has its own
                backoff.reset()
            except _UnavailableError as error:
                backoff.wait(error)
                continue  # with the newest message by then
            with self._changed:
                self._is_state_sent = self._is_state_sent or self._state is body
                self._due_report = None if self._due_report is body else self._due_report
                self._changed.notify_all()

    def _next_message(self) -> tuple[str, Any]:
        """Waits for the next message: a report when it is due, a state at once but after the report before it."""
        with self._changed:
            while True:
                wait_s = self._reported_at + _REPORT_S - time.monotonic()
                if self._due_report is None and self._report is not None and wait_s <= 0:
                    self._due_report, self._report = self._report, None
                if self._due_report is not None and ("generation" in self._due_report or self._generation >= 0):
                    self._reported_at = time.monotonic()
                    return "report", self._due_report
                if not self._is_state_sent:
                    return "ack", self._state
                self._changed.wait(None if self._report is None or wait_s <= 0 else wait_s)

    def _post(self, connection: _HttpsConnection, path: str, body: Any) -> None:
        was_open = connection.is_open
        try:
            status, content = connection.request("POST", path, body)
        except _UnavailableError:
            if not was_open:
                raise
            status, content = connection.request("POST", path, body)  # the server may have closed an idle connection
        if status in {401, 403}:  # the job is gone, or the token's file will be renewed
            raise _UnavailableError(f"refused: {_text(content)}", _LONGEST_PAUSE_S)
        self.answered_at = time.monotonic()
        if status >= 400:
            log(f"the controller did not understand {path} {body}: {_text(content)}")

    # -- listening

    def _listen(self) -> None:
        connection = _HttpsConnection(self._settings)
        backoff = _Backoff()
        while True:
            query = {"pod": self._settings.pod, "uid": self._settings.uid, "after": max(self._generation, 0)}
            path = f"notice?{urllib.parse.urlencode(query)}"
            try:
                status, content = connection.request("GET", path, None, _POLL_TIMEOUT_S)
                if status == 410:
                    connection.close()
                    self._on_job_over()
                    return
                if status not in {200, 204}:
                    raise _UnavailableError(f"refused: {_text(content)}", _LONGEST_PAUSE_S)
                self.answered_at = time.monotonic()
                if status == 200:
                    self._pass_on(parse(content.decode()))
                backoff.reset()
            except (_UnavailableError, NoticeError, UnicodeDecodeError) as error:
                with self._changed:  # the next controller may not know our state
                    self._is_state_sent = self._state is None
                    self._changed.notify_all()
                backoff.wait(error)

    def _read_file(self) -> None:
        """Reads the downward API's file, which the kubelet renews about once a minute, also without an endpoint."""
        file = NoticeFile(self._settings.notice_path)
        while True:
            notice = file.read()
            if notice is not None:
                self._pass_on(notice)
            time.sleep(_FILE_S)

    def _pass_on(self, notice: Notice) -> None:
        with self._changed:
            if notice.generation <= self._generation:
                return
            self._generation = notice.generation
            self._changed.notify_all()
            self._on_notice(notice)


class _Backoff:
    """Waits longer and longer while the controller is unavailable. Logs once, and not before it has lasted.

    While `is_urgent` is set, waits are short.
    """

    def __init__(self, is_urgent: threading.Event | None = None) -> None:
        self._is_urgent = is_urgent or threading.Event()
        self.reset()

    def reset(self) -> None:
        self._next_s = _FIRST_PAUSE_S
        self._has_logged = False

    def wait(self, error: Exception) -> None:
        if self._next_s >= _LONGEST_PAUSE_S and not self._has_logged:
            log(f"no controller, trying again: {error}")
            self._has_logged = True
        asked_s = getattr(error, "pause_s", 0.0)
        wait_s = max(self._next_s, asked_s) * random.uniform(0.7, 1.3)  # not all agents at once
        if self._is_urgent.is_set():
            time.sleep(min(wait_s, _URGENT_PAUSE_S))
        else:
            self._is_urgent.wait(wait_s)
        self._next_s = min(self._next_s * 1.6, _LONGEST_PAUSE_S)
