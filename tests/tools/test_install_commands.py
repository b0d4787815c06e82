"""`make install` is for users: what maniple needs to run, and no tools of developers. `make dev` has all of them."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOR_USERS = ("install", "demo", "cluster", "crds")
FOR_DEVELOPERS = ("dev", "unit", "lint", "types", "imports", "all-tests", "bench", "properties", "stress")


def recipe(target: str) -> str:
    """What make would run for it in a checkout without an environment."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "VENV=no-such-folder", target],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize("target", FOR_USERS)
def test_users_get_what_runs_with_all_commands_in_the_tested_versions(target: str) -> None:
    text = recipe(target)
    assert "pip install" in text
    assert "--constraint requirements.lock --editable '.[cluster]'" in text
    assert "--requirement" not in text


@pytest.mark.parametrize("target", FOR_DEVELOPERS)
def test_developers_get_all_tools(target: str) -> None:
    text = recipe(target)
    assert "--requirement requirements.lock" in text
    assert ".[cluster]" not in text


def test_the_tools_of_developers_are_no_dependency_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    needed = [*project["project"]["dependencies"], *project["project"]["optional-dependencies"]["cluster"]]
    names = {re.split(r"[<>=;! ]", requirement)[0] for requirement in needed}
    tools = {re.split(r"[<>=;! ]", requirement)[0] for requirement in project["dependency-groups"]["dev"]}
    assert {"mypy", "ruff", "pytest"} <= tools
    assert not names & tools
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8").lower().replace("_", "-")
    for name in names | tools:
        assert re.search(rf"^{name}==", lock, re.M), f"make lock: {name}"


def test_ci_installs_the_tools() -> None:
    assert "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert re.search(
        r"^test:.*\n\t@tools/run_timed_steps.sh install \"\$\(SUB\) dev ", (ROOT / "Makefile").read_text(), re.M
    )
