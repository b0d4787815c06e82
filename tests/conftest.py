"""What holds for all tests: a run that started clusters stops them, whichever worker it was that needed one; and what
tests start can be interrupted."""

import os
import signal

import pytest

from tools.failure_report import observe


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts what runs in its background with interrupts ignored, and so would be all that we start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    observe(config)


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        from e2e.running import stop_shared

        stop_shared(os.getpid())
