"""What holds for all tests: a run that started clusters stops them, whichever worker it was that needed one."""

import os

import pytest


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        from e2e.running import stop_shared

        stop_shared(os.getpid())
