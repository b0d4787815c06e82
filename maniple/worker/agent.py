"""The agent: the entry point of a replica's container. It runs the workers of one generation after another.

    python3 agent.pyz -- python train.py          (or: maniple agent -- python train.py)

On a newer generation the workers are asked to checkpoint (SIGTERM, and the notice in a file), have the grace period of
the notice to end, and are started again with their new ranks. The pod stays. Workers that can resize while they run
(`elastic()`) get only the notice. A generation that is not newer than the last is ignored, so each runs once.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

from maniple.worker.controller_connection import ControllerConnection, Settings, free_port, from_environment, log
from maniple.worker.local_socket import LocalSocket
from maniple.worker.notices import Notice, environment, local_notice
from maniple.worker.worker_processes import Processes, adopt_orphans

GRACE_S = 30.0
FAILED_GRACE_S = 5.0  # for the other workers after one has failed: there is nothing to save any more
FAILED_WAIT_S = 900.0  # how long the agent waits for a new generation after a failure
SILENCE_S = 60.0  # how long it waits then without an answer from the controller
FLUSH_S = 10.0
REPORT_FIELDS = ("generation", "step", "throughput", "total")

USAGE = """usage: maniple agent [--nproc N] -- COMMAND [ARGUMENT ...]

Runs COMMAND as the workers of an elastic job, one generation after another, with RANK, WORLD_SIZE, LOCAL_RANK,
MASTER_ADDR and MASTER_PORT. Meant as the entry point of a container of an ElasticJob. Outside of one it runs COMMAND
once, as N workers on this machine (1 without --nproc).

Exit codes: 0 the workers are done, 143 told to stop or the job is over, else the code of the first worker that
failed."""


class Agent:
    """One loop over events that signals and threads put into a queue. Nothing else changes the agent's state."""

    def __init__(self, command: Sequence[str], settings: Settings, nproc: int = 1) -> None:
        self._command = list(command)
        self._settings = settings
        self._nproc = nproc
        self._events: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._controller = ControllerConnection(
            settings,
            on_notice=lambda notice: self._events.put(("notice", notice)),
            on_job_over=lambda: self._events.put(("over", None)),
        )
        self._socket = LocalSocket(self._take_message)
        self._processes = Processes()
        self._newest: Notice | None = None  # the last notice
        self._running: Notice | None = None  # the notice whose workers run, or ran last
        self._asked = False  # the workers have been asked to end or to move on
        self._signalled = False  # and have been sent SIGTERM
        self._deadline: float | None = None  # when workers are killed; after a failure, when the agent gives up
        self._live: set[int] = set()  # local ranks that can move on without ending
        self._joined: set[int] = set()  # those of them that have moved on to the newest generation
        self._signal: int | None = None  # the signal that told the agent to end
        self._failure: int | None = None  # exit code of the workers that ran last, if they failed
        self._failed_at = 0.0
        self._is_over = False  # the job is over: no generation will follow

    def run(self) -> int:
        """Runs until the work is done or the agent is told to end. Returns the exit code."""
        adopt_orphans()
        # SimpleQueue.put may be called from a signal handler, whatever the main thread is doing.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, lambda number, _: self._events.put(("signal", number)))
        self._socket.start()
        if self._settings.has_endpoint or self._settings.has_file:
            self._controller.start()
        else:
            self._events.put(("notice", local_notice(self._settings.pod, self._nproc, free_port())))
        try:
            while True:
                code = self._handle_event()
                if code is not None:
                    return code
        finally:
            self._processes.kill_all()
            self._processes.sweep()
            self._socket.close()

    def _handle_event(self) -> int | None:
        """One event, or the end of a deadline. Returns the exit code if the agent is to end, as all below do."""
        wait_s = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        try:
            kind, value = self._events.get(timeout=wait_s)
        except queue.Empty:
            return self._on_deadline()
        if kind == "notice":
            return self._on_notice(value)
        if kind == "message":
            return self._on_message(value)
        if kind == "over":
            return self._on_job_over()
        if value == signal.SIGCHLD:
            return self._on_worker_end() if self._processes.reap() else None
        return self._on_signal(value)

    # -- events

    def _on_notice(self, notice: Notice) -> int | None:
        self._newest = notice
        self._joined = set()
        if not self._socket.write_notice(notice):
            self._live = set()  # workers that cannot read the notice cannot move on by themselves
        if not self._processes.running:
            return self._proceed()
        position = self._position(notice)
        can_move_on = position is not None and self._can_move_on(notice, position)
        log(f"generation {notice.generation}: {'workers move on' if can_move_on else 'workers are asked to end'}")
        self._ask_to_end(notice.grace_s, must_signal=not self._are_all_live())
        return None

    def _take_message(self, message: dict[str, Any]) -> None:
        """Called in the socket's thread. Reports change nothing here, and are passed on."""
        if "step" in message:
            self._controller.report({name: message[name] for name in REPORT_FIELDS if name in message})
        else:
            self._events.put(("message", message))

    def _on_message(self, message: dict[str, Any]) -> int | None:
        local_rank = message.get("local_rank")
        if not isinstance(local_rank, int) or local_rank not in self._processes.running.values():
            return None
        if self._running is None or self._newest is None:
            return None
        if "live" in message:
            self._live.add(local_rank)
        if message.get("joined") == self._newest.generation and self._running is not self._newest:
            self._joined.add(local_rank)
            if self._joined == set(self._processes.running.values()):
                self._running, self._asked, self._deadline = self._newest, False, None
                log(f"generation {self._running.generation}: workers have moved on")
                self._controller.set_state(self._running.generation, "running")
        return None

    def _on_worker_end(self) -> int | None:
        """At least one worker has ended."""
        if self._processes.running:
            if not self._asked and self._processes.first_failure is not None:
                self._ask_to_end(FAILED_GRACE_S, must_signal=True)  # the others might wait for it forever
            return None
        self._processes.sweep()
        self._socket.drain()  # their last report is sent before their state
        return self._proceed()

    def _on_signal(self, number: int) -> int | None:
        """The agent is told to end: the pod is being deleted, or somebody pressed Control-C."""
        if self._signal is None:
            self._signal = number
            return self._wind_up()
        return None if self._processes.running else self._proceed()

    def _on_job_over(self) -> int | None:
        """The job has failed, here or elsewhere. The pod ends and is not deleted, so that its log stays."""
        self._is_over = True
        log("the job is over: ending")
        return self._wind_up()

    def _wind_up(self) -> int | None:
        if not self._processes.running:
            return self._proceed()
        self._ask_to_end(self._newest.grace_s if self._newest else GRACE_S, must_signal=True)
        return None

    def _on_deadline(self) -> int | None:
        if self._processes.running:
            log("the time to end is over: workers are killed")
            self._processes.kill_all()
            self._deadline = None
            return None
        if self._must_give_up():
            return self._processes.first_failure or 1
        return None

    # -- what follows

    def _proceed(self) -> int | None:
        """Decides what to do when no worker runs."""
        # Workers that were asked to move on and succeeded without a signal had just finished their work.
        is_done = self._asked and not self._signalled and self._is_member() and self._processes.first_failure is None
        self._asked, self._signalled, self._deadline, self._live = False, False, None, set()
        if self._signal is not None:
            if self._newest is not None:
                self._controller.set_state(self._newest.generation, "stopped")
                self._controller.flush(1.0)
            return 128 + self._signal
        if self._is_over:
            return self._failure or 128 + signal.SIGTERM
        if self._newest is None:
            return None
        if self._newest is not self._running and not is_done:
            return self._start_workers(self._newest)
        return self._finish_generation(self._newest.generation)

    def _start_workers(self, notice: Notice) -> int | None:
        self._controller.set_state(notice.generation, "stopped")
        self._running = notice
        position = self._position(notice)
        if position is None or notice.stop:
            log(f"generation {notice.generation}: nothing to do here, waiting to be deleted")
            return None
        member = notice.members[position]
        first = notice.first_rank(position)
        self._failure = None
        log(f"generation {notice.generation}: ranks {first}-{first + member.slots - 1} of {notice.size}")
        inherited = {**os.environ, **self._socket.environment, **_python_path()}
        self._processes.start(
            self._command, [{**inherited, **environment(notice, position, rank)} for rank in range(member.slots)]
        )
        self._controller.set_state(notice.generation, "running")
        return None

    def _finish_generation(self, generation: int) -> int | None:
        """The workers of the newest generation have ended by themselves, or there are none."""
        if not self._processes.codes:
            return None
        failure = self._processes.first_failure
        if failure is None:
            self._controller.set_state(generation, "done")
            self._controller.flush(FLUSH_S)
            return 0
        log(f"generation {generation}: a worker failed with exit code {failure}")
        self._failure = failure
        self._controller.set_state(generation, "failed", failure)
        if not self._settings.has_endpoint:
            return failure
        self._deadline = time.monotonic() + SILENCE_S
        self._failed_at = time.monotonic()
        return None

    def _must_give_up(self) -> bool:
        """Whether there was no new generation for too long after a failure. If not, sets the next deadline."""
        now = time.monotonic()
        silent_s = now - (self._controller.answered_at or self._failed_at)
        if silent_s >= SILENCE_S or now - self._failed_at >= FAILED_WAIT_S:
            log("no new generation after a failure: giving up")
            return True
        self._deadline = now + min(SILENCE_S - silent_s, self._failed_at + FAILED_WAIT_S - now)
        return False

    def _ask_to_end(self, grace_s: float, must_signal: bool) -> None:
        """Asks the workers once. A newer notice meanwhile gives them no more time."""
        if must_signal and not self._signalled:
            self._signalled = True
            self._processes.signal_all(signal.SIGTERM)
        if not self._asked or self._deadline is None:
            self._deadline = time.monotonic() + grace_s
        self._asked = True

    def _is_member(self) -> bool:
        return self._newest is not None and not self._newest.stop and self._position(self._newest) is not None

    def _position(self, notice: Notice) -> int | None:
        return notice.position(self._settings.pod, self._settings.uid)

    def _are_all_live(self) -> bool:
        return self._live == set(self._processes.running.values())

    def _can_move_on(self, notice: Notice, position: int) -> bool:
        return self._are_all_live() and not notice.stop and notice.members[position].slots == len(self._live)


def _python_path() -> dict[str, str]:
    """Lets a script `import maniple.worker` from the agent's archive."""
    archive = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if not os.path.isfile(archive):
        return {}
    before = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": f"{before}{os.pathsep}{archive}" if before else archive}


def main(arguments: Sequence[str] | None = None) -> int:
    options, command = list(sys.argv[1:] if arguments is None else arguments), []
    if "--" in options:
        end = options.index("--")
        options, command = options[:end], options[end + 1 :]
    if options in (["-h"], ["--help"]):
        print(USAGE)
        return 0
    nproc = 1
    if len(options) == 2 and options[0] == "--nproc" and options[1].isdecimal() and int(options[1]) > 0:
        nproc = int(options[1])
    elif options:
        log(f"unknown arguments {' '.join(options)!r}: the command stands after --, such as -- python train.py")
        return 2
    if not command:
        log("no command: write it after --, such as maniple agent -- python train.py")
        return 2
    return Agent(command, from_environment(), nproc).run()
