"""A pytest plugin: writes for tools.rerun_failures which tests failed, and whether anything else went wrong.

It only observes, and never changes a run.
"""

import json
import os
from dataclasses import asdict
from pathlib import Path

import pytest

from tools.rerun_failures import REPORT_VARIABLE, Report


class _Writer:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._report = Report()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.failed:
            return
        if report.when not in ("setup", "call", "teardown"):  # what pytest-xdist makes up for a test that was cut off
            self._report.trouble.append(f"a worker crashed in {report.nodeid}")
        elif report.nodeid not in self._report.failed:
            self._report.failed.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._report.trouble.append(f"{report.nodeid} cannot be collected")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, error: object) -> None:
        if error:
            self._report.trouble.append(f"a worker ended: {error}")

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._report.exit_code = int(exitstatus)
        self._path.write_text(json.dumps(asdict(self._report)), encoding="utf-8")


def configure(config: pytest.Config) -> None:
    """Call it from `pytest_configure`. It removes the variable: tests that run pytest must not write there too."""
    path = os.environ.pop(REPORT_VARIABLE, "")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Writer(Path(path)))
