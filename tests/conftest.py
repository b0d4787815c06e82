"""For all tests: a run stops the clusters that it started, whichever worker needed one; what tests start can be
interrupted; property tests draw the same cases in every run."""

import os
import signal

import pytest

from tools import fresh_properties, pytest_failure_report

fresh_properties.load_profiles()


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts what runs in its background with interrupts ignored, and so would be all that we start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    pytest_failure_report.configure(config)
    fresh_properties.configure(config)


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        from e2e.clusters_of_this_run import stop_shared

        stop_shared(os.getpid())
