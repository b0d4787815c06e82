"""examples/plugin: what its README says is run as it stands, in a fresh environment beside Maniple."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = ROOT / "examples" / "plugin"
LONGEST_S = 60.0


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The template, and a new .venv with this Maniple. The packages that it needs are lent: no network is used."""
    checkout = tmp_path / "checkout"
    shutil.copytree(TEMPLATE, checkout / "examples" / "plugin", ignore=shutil.ignore_patterns("__pycache__", ".*"))
    venv = checkout / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "lent.pth").write_text(f"{ROOT}\nimport site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    python = venv / "bin" / "python"
    for name, module in (("maniple", "maniple"), ("pip", "pip")):
        script = venv / "bin" / name
        script.write_text(f'#!/bin/sh\nexec {python} -m {module} "$@"\n')
        script.chmod(0o755)
    return checkout


def test_a_plugin_is_copied_renamed_installed_tested_and_used(checkout: Path) -> None:
    """All of it within a minute."""
    (commands,) = re.findall(r"```\n(.*?)```", (TEMPLATE / "README.md").read_text(), re.S)
    outside = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYTEST", "COV"))}
    offline = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "false", "PIP_QUIET": "1"}
    start = time.monotonic()
    done = subprocess.run(
        ["bash", "-euc", commands],
        cwd=checkout,
        env={**outside, **offline},
        capture_output=True,
        text=True,
        timeout=LONGEST_S * 5,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    assert re.search(r"default/train .* n2\n", done.stdout), done.stdout
    assert time.monotonic() - start < LONGEST_S
    spot = checkout.parent / "spot"
    renamed = [path for path in (*spot.glob("*.*"), *spot.glob("tests/*.py")) if path.name != "README.md"]
    assert "flavor" not in "".join(path.read_text() for path in renamed if path.is_file())
    assert (spot / "README.md").read_text() == (TEMPLATE / "README.md").read_text()
