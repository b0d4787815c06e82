"""Helm, which renders and checks the chart: one of the programs that `python -m tools.cluster build` builds."""

import os
import subprocess
from pathlib import Path

from tools.cluster import build
from tools.cluster.go_build import Say
from tools.cluster.program_versions import program_path


class HelmError(Exception):
    """Helm failed; the message is what it printed."""


def helm_path() -> Path:
    """Where Helm is once it is built."""
    return program_path("helm")


def is_built() -> bool:
    return helm_path().exists()


def ensure(say: Say) -> None:
    """Builds Helm if it is missing."""
    build.ensure(say, ("helm",), with_packages=False)


def helm(*arguments: str, **variables: str) -> str:
    """Runs Helm and returns what it prints. It sees nothing of the user's own Helm settings."""
    nowhere = dict.fromkeys(("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"), str(helm_path().parent / "home"))
    done = subprocess.run(
        [str(helm_path()), *arguments],
        env=os.environ | nowhere | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise HelmError((done.stderr + done.stdout).strip())
    return done.stdout
