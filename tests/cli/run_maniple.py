"""Runs maniple as a user does: arguments, an exit code and two streams.

`run` starts a process, which takes most of a second. Tests of what a process is (its streams, encoding, signals, start)
need it; others use `run_here`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from click.testing import CliRunner

from maniple.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
COMMAND = [sys.executable, "-m", "maniple"]

Plan = dict[str, Any]


def run(
    *arguments: str | Path, stdin: str | bytes = b"", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs at the root of the project. The output must be UTF-8, and never a traceback."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        cwd=ROOT,
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        env={**os.environ, **(env or {})},
        capture_output=True,
        timeout=300,
        check=False,
    )
    result = subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())
    assert "Traceback" not in result.stderr, result.stderr
    return result


def run_here(
    *arguments: str | Path, stdin: str | bytes = "", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The same in this process."""
    words = ["maniple", *map(str, arguments)]
    with patch.object(sys, "argv", words), CliRunner().isolation(stdin, env) as streams:
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        out, err = (stream.getvalue().decode() for stream in streams[:2])
    return subprocess.CompletedProcess(words, code, out, err)


def plan(*arguments: str | Path, stdin: str | bytes = b"") -> Plan:
    """The plan of a run that must succeed and print nothing else."""
    return plan_of(run_here("plan", *arguments, "-o", "json", stdin=stdin))


def plan_of(done: subprocess.CompletedProcess[str]) -> Plan:
    assert (done.returncode, done.stderr) == (0, "")
    outcome: Plan = json.loads(done.stdout)
    return outcome


@cache
def example(name: str) -> Plan:
    """The plan of examples/<name>*.yaml."""
    (path,) = EXAMPLES.glob(f"{name}*.yaml")
    return plan("-f", path)


def refused(*arguments: str | Path, stdin: str | bytes = b"") -> list[str]:
    """The lines on standard error of a run that must fail with exit code 2 and print nothing."""
    done = run_here("plan", *arguments, stdin=stdin)
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr.splitlines()


def untimed(outcome: Plan) -> Plan:
    return {key: value for key, value in outcome.items() if key != "timings"}
