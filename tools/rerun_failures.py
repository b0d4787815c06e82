"""Runs the tests as CI does: a few that fail are tried once more, so that a flaky test does not cost a day.

`python3 -m tools.rerun_failures make test -- .venv/bin/pytest -n 0` runs the first command. If only tests failed, and
at most MOST of them, it runs the second one with these tests. If they pass now the run is green, and each is reported
as flaky. Anything else (lint, types, a build, a collection error, a crashed worker, an interrupt) is red at once.

It runs before anything is installed: nothing but the standard library may be imported here.
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

MOST = 5
PAGE = "docs/flaky.md"
# tools.pytest_failure_report, a pytest plugin, writes the report into the file that this names.
REPORT_VARIABLE = "MANIPLE_FAILURE_REPORT"
TESTS_FAILED = 1  # pytest's exit code for "some tests failed", and for nothing else


@dataclass
class Report:
    """How a test run ended. `trouble` is what a second try cannot fix: collection errors and crashed workers."""

    exit_code: int = 0
    failed: list[str] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)


def run(tests: list[str], again: list[str]) -> int:
    """Runs the tests, and those that failed again if they are few; the exit code, 0 if green."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        code = subprocess.run(tests, env=os.environ | {REPORT_VARIABLE: str(path)}, check=False).returncode
        report = read_report(path)
    if code == 0:
        return 0
    refusal = why_not_again(report)
    if refusal or report is None:
        _say(f"RED: {refusal}")
        return code
    _say(f"{_counted(report.failed)} failed; once more, alone and serially:", *report.failed)
    second = subprocess.run([*again, *report.failed], check=False).returncode
    if second:
        _say(f"RED: {_counted(report.failed)} failed, and not all of them passed alone")
        return second
    _say(
        *(f"FLAKY: {test}" for test in report.failed), f"GREEN, but add each to {PAGE} with today's date: to be mended"
    )
    return 0


def why_not_again(report: Report | None) -> str:
    """Why a second try would prove nothing; empty if it may."""
    if report is None:
        return "it failed before the tests, or they did not come to an end"
    if report.trouble:
        return "; ".join(report.trouble)
    if report.exit_code != TESTS_FAILED or not report.failed:
        return f"it was not a test that failed (pytest ended with {report.exit_code})"
    if len(report.failed) > MOST:
        return f"{len(report.failed)} tests failed, more than {MOST}"
    return ""


def read_report(path: Path) -> Report | None:
    """The report; None if no run finished."""
    return Report(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def _counted(tests: list[str]) -> str:
    return "1 test" if len(tests) == 1 else f"{len(tests)} tests"


def _say(*lines: str) -> None:
    print("\n" + "\n".join(f"== {line}" for line in lines), flush=True)


def main(arguments: list[str]) -> int:
    if "--" not in arguments[1:-1]:
        print("usage: python3 -m tools.rerun_failures COMMAND… -- PYTEST…", file=sys.stderr)
        return 2
    split = arguments.index("--")
    return run(arguments[:split], arguments[split + 1 :])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
