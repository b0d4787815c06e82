"""The agent: a container's entry point. It runs the workers of one generation after another.

    python3 agent.pyz -- python train.py          (or: maniple agent -- python train.py)

A newer generation: workers are asked to checkpoint (SIGTERM, and the notice in a file), have the notice's grace to end,
and are started again with their new ranks. The pod stays. Workers that can resize while they run (`elastic()`) are
shown the notice and left to it. Every generation is run once: what is not newer than the last is not heard.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

from maniple.worker.controller_connection import Line, Settings, complain, free_port, from_environment
from maniple.worker.local_socket import Desk
from maniple.worker.notices import Notice, alone, environment
from maniple.worker.processes import Processes, adopt_orphans

GRACE_S = 30.0
FAILED_GRACE_S = 5.0  # for those beside a worker that failed: there is nothing to save any more
FAILED_WAIT_S = 900.0  # how long after a failure a new generation is waited for
SILENCE_S = 60.0  # and for how long without a word from the controller
FLUSH_S = 10.0
REPORTED = ("generation", "step", "throughput", "total")

USAGE = """usage: maniple agent [--nproc N] -- COMMAND [ARGUMENT ...]

Runs COMMAND as the workers of an elastic job, one generation after another, with RANK, WORLD_SIZE, LOCAL_RANK,
MASTER_ADDR and MASTER_PORT. Meant as the entry point of a container of an ElasticJob. Outside of one it runs COMMAND
once, as N workers on this machine (1 without --nproc).

Exit codes: 0 the workers are done, 143 told to stop or the job is over, else the code of the first worker that
failed."""


class Agent:
    """One loop over events that signals and threads put into a queue: nothing else changes what is in here."""

    def __init__(self, command: Sequence[str], settings: Settings, nproc: int = 1) -> None:
        self._command = list(command)
        self._settings = settings
        self._nproc = nproc
        self._events: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._line = Line(
            settings, lambda notice: self._events.put(("notice", notice)), lambda: self._events.put(("over", None))
        )
        self._desk = Desk(self._take)
        self._processes = Processes()
        self._newest: Notice | None = None  # the last that was heard
        self._running: Notice | None = None  # whose workers run, or ran last
        self._asked = False  # the workers are to end or to move on
        self._signalled = False  # and were sent SIGTERM
        self._deadline: float | None = None  # then they are killed; or, after a failure, we give up
        self._live: set[int] = set()  # local ranks that can move on without ending
        self._joined: set[int] = set()  # of these, who has moved on to the newest generation
        self._signal: int | None = None  # we were told to end
        self._failure: int | None = None  # of the workers that ran last, once they have
        self._failed_at = 0.0
        self._is_over = False  # the job is: no generation will follow

    def run(self) -> int:
        """Until the work is done or we are told to end; the exit code."""
        adopt_orphans()
        # SimpleQueue.put may be called from a signal handler, whatever the main thread is doing.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, lambda number, _: self._events.put(("signal", number)))
        self._desk.start()
        if self._settings.has_endpoint or self._settings.has_file:
            self._line.start()
        else:
            self._events.put(("notice", alone(self._settings.pod, self._nproc, free_port())))
        try:
            while True:
                code = self._turn()
                if code is not None:
                    return code
        finally:
            self._processes.kill_all()
            self._processes.sweep()
            self._desk.close()

    def _turn(self) -> int | None:
        """One event, or the end of a deadline; the exit code when it is over."""
        wait_s = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        try:
            kind, what = self._events.get(timeout=wait_s)
        except queue.Empty:
            return self._too_late()
        if kind == "notice":
            return self._hear(what)
        if kind == "said":
            return self._listen(what)
        if kind == "over":
            return self._give_up()
        if what == signal.SIGCHLD:
            return self._ended() if self._processes.reap() else None
        return self._end(what)

    # -- what happens

    def _hear(self, notice: Notice) -> int | None:
        self._newest = notice
        self._joined = set()
        if not self._desk.show(notice):
            self._live = set()  # who cannot see it cannot move on by itself
        if not self._processes.running:
            return self._settle()
        place = self._place(notice)
        can_move_on = place is not None and self._is_live(notice, place)
        complain(f"generation {notice.generation}: {'workers move on' if can_move_on else 'workers are asked to end'}")
        self._ask(notice.grace_s, must_signal=not self._all_live())
        return None

    def _take(self, said: dict[str, Any]) -> None:
        """In the desk's thread. A report changes nothing here, and is passed on as it is."""
        if "step" in said:
            self._line.report({name: said[name] for name in REPORTED if name in said})
        else:
            self._events.put(("said", said))

    def _listen(self, said: dict[str, Any]) -> int | None:
        local_rank = said.get("local_rank")
        if not isinstance(local_rank, int) or local_rank not in self._processes.running.values():
            return None
        if self._running is None or self._newest is None:
            return None
        if "live" in said:
            self._live.add(local_rank)
        if said.get("joined") == self._newest.generation and self._running is not self._newest:
            self._joined.add(local_rank)
            if self._joined == set(self._processes.running.values()):
                self._running, self._asked, self._deadline = self._newest, False, None
                complain(f"generation {self._running.generation}: workers have moved on")
                self._line.say(self._running.generation, "running")
        return None

    def _ended(self) -> int | None:
        """At least one worker has ended."""
        if self._processes.running:
            if not self._asked and self._processes.first_failure is not None:
                self._ask(FAILED_GRACE_S, must_signal=True)  # the others would wait for it, maybe for ever
            return None
        self._processes.sweep()
        self._desk.catch_up()  # what they reported last comes before what became of them
        return self._settle()

    def _end(self, number: int) -> int | None:
        """We are told to end: the pod is being deleted, or somebody pressed Control-C."""
        if self._signal is None:
            self._signal = number
            return self._wind_up()
        return None if self._processes.running else self._settle()

    def _give_up(self) -> int | None:
        """The job has failed, here or elsewhere. The pod is to end and not to be deleted: its log is asked for."""
        self._is_over = True
        complain("the job is over: ending")
        return self._wind_up()

    def _wind_up(self) -> int | None:
        if not self._processes.running:
            return self._settle()
        self._ask(self._newest.grace_s if self._newest else GRACE_S, must_signal=True)
        return None

    def _too_late(self) -> int | None:
        if self._processes.running:
            complain("the time to end is over: workers are killed")
            self._processes.kill_all()
            self._deadline = None
            return None
        if self._is_hopeless():
            return self._processes.first_failure or 1
        return None

    # -- what follows

    def _settle(self) -> int | None:
        """No worker runs: what now?"""
        # Asked to move on, and ended well without being told to: the work was done just then.
        is_done = self._asked and not self._signalled and self._is_member() and self._processes.first_failure is None
        self._asked, self._signalled, self._deadline, self._live = False, False, None, set()
        if self._signal is not None:
            if self._newest is not None:
                self._line.say(self._newest.generation, "stopped")
                self._line.flush(1.0)
            return 128 + self._signal
        if self._is_over:
            return self._failure or 128 + signal.SIGTERM
        if self._newest is None:
            return None
        if self._newest is not self._running and not is_done:
            return self._move_on(self._newest)
        return self._work_ended(self._newest.generation)

    def _move_on(self, notice: Notice) -> int | None:
        self._line.say(notice.generation, "stopped")
        self._running = notice
        place = self._place(notice)
        if place is None or notice.stop:
            complain(f"generation {notice.generation}: nothing to do here, waiting to be deleted")
            return None
        member = notice.members[place]
        first = notice.first_rank(place)
        self._failure = None
        complain(f"generation {notice.generation}: ranks {first}-{first + member.slots - 1} of {notice.size}")
        inherited = {**os.environ, **self._desk.environment, **_python_path()}
        self._processes.start(
            self._command, [{**inherited, **environment(notice, place, rank)} for rank in range(member.slots)]
        )
        self._line.say(notice.generation, "running")
        return None

    def _work_ended(self, generation: int) -> int | None:
        """The workers of the newest generation have ended by themselves, or there are none."""
        if not self._processes.codes:
            return None
        failure = self._processes.first_failure
        if failure is None:
            self._line.say(generation, "done")
            self._line.flush(FLUSH_S)
            return 0
        complain(f"generation {generation}: a worker failed with exit code {failure}")
        self._failure = failure
        self._line.say(generation, "failed", failure)
        if not self._settings.has_endpoint:
            return failure
        self._deadline = time.monotonic() + SILENCE_S
        self._failed_at = time.monotonic()
        return None

    def _is_hopeless(self) -> bool:
        """After a failure: has nobody said for too long how it goes on? Else looks again later."""
        now = time.monotonic()
        silent_s = now - (self._line.answered_at or self._failed_at)
        if silent_s >= SILENCE_S or now - self._failed_at >= FAILED_WAIT_S:
            complain("no new generation after a failure: giving up")
            return True
        self._deadline = now + min(SILENCE_S - silent_s, self._failed_at + FAILED_WAIT_S - now)
        return False

    def _ask(self, grace_s: float, must_signal: bool) -> None:
        """Workers are to end. Asked once; a newer notice meanwhile gives them no new time."""
        if must_signal and not self._signalled:
            self._signalled = True
            self._processes.signal_all(signal.SIGTERM)
        if not self._asked or self._deadline is None:
            self._deadline = time.monotonic() + grace_s
        self._asked = True

    def _is_member(self) -> bool:
        return self._newest is not None and not self._newest.stop and self._place(self._newest) is not None

    def _place(self, notice: Notice) -> int | None:
        return notice.place_of(self._settings.pod, self._settings.uid)

    def _all_live(self) -> bool:
        return self._live == set(self._processes.running.values())

    def _is_live(self, notice: Notice, place: int) -> bool:
        return self._all_live() and not notice.stop and notice.members[place].slots == len(self._live)


def _python_path() -> dict[str, str]:
    """So that a script can `import maniple.worker` where only the archive of the agent is at hand."""
    archive = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if not os.path.isfile(archive):
        return {}
    before = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": f"{before}{os.pathsep}{archive}" if before else archive}


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    options, command = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    if options in (["-h"], ["--help"]):
        print(USAGE)
        return 0
    nproc = 1
    if len(options) == 2 and options[0] == "--nproc" and options[1].isdecimal() and int(options[1]) > 0:
        nproc = int(options[1])
    elif options:
        complain(f"unknown arguments {' '.join(options)!r}: the command stands after --, such as -- python train.py")
        return 2
    if not command:
        complain("no command: write it after --, such as maniple agent -- python train.py")
        return 2
    return Agent(command, from_environment(), nproc).run()
