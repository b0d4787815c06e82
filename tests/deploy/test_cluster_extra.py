"""Planning needs four packages; commands that call a cluster need the extra."""

import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from deploy import run_like_container
from deploy.rbac_rights import ROOT
from maniple.cli.main import CLUSTER_EXTRA, COMMANDS

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NEEDED = ("click", "msgspec", "numpy", "pyyaml")
EXAMPLE = ROOT / "examples" / "01-small-behind-large.yaml"
ELASTIC = ROOT / "examples" / "elastic" / "sweep.yaml"

# Command lines that are right, and need a cluster.
ON_A_CLUSTER = {
    "serve": ("serve",),
    "serve --once": ("serve", "--once"),
    "plan --live": ("plan", "--live"),
    "explain --live": ("explain", "a", "--live"),
    "submit": ("submit", "--name", "a", "--gpus", "1", "--image", "i", "--", "true"),
    "jobs": ("jobs",),
    "describe": ("describe", "a"),
    "logs": ("logs", "a"),
    "resize": ("resize", "a", "--pin", "2"),
    "suspend": ("suspend", "a"),
    "resume": ("resume", "a"),
    "delete": ("delete", "a"),
    "watch": ("watch",),
}
WITHOUT = {
    "submit --dry-run": ("submit", "--name", "a", "--gpus", "1", "--image", "i", "--dry-run", "--", "true"),
    "submit FILE --dry-run": ("submit", str(ELASTIC), "--dry-run"),
    "jobs --help": ("jobs", "--help"),
    "plan": ("plan", "-f", str(EXAMPLE)),
    "explain": ("explain", "b", "-f", str(EXAMPLE)),
    "agent": ("agent", "--", "true"),
    "topology": ("topology", "--help"),
    "policy": ("policy",),
    "bench": ("bench", "--help"),
    "crds": ("crds",),
    "completion": ("completion", "bash"),
}


def names(requirements: list[str]) -> list[str]:
    return [re.split(r"[<>=;! ]", requirement)[0] for requirement in requirements]


def test_planning_needs_four_packages() -> None:
    assert tuple(names(PROJECT["dependencies"])) == NEEDED


def test_the_modules_of_the_extra_are_known_by_name() -> None:
    extra = names(PROJECT["optional-dependencies"]["cluster"])
    assert tuple(name.replace("-", "_") for name in extra) == CLUSTER_EXTRA


def test_every_command_is_tried() -> None:
    assert {line.split()[0] for line in (*ON_A_CLUSTER, *WITHOUT)} == set(COMMANDS)


def test_the_image_has_the_extra() -> None:
    text = (ROOT / "Containerfile").read_text(encoding="utf-8")
    script = re.search(r'RUN python -c "(.+)" > needed.txt', text)
    assert script
    done = subprocess.run([sys.executable, "-c", script[1]], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["cluster"]]


@pytest.fixture(scope="module")
def maniple(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Installed into a fresh environment that has these four packages and nothing else."""
    return run_like_container.install(tmp_path_factory.mktemp("extra"), NEEDED) / "bin" / "maniple"


def run(maniple: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **env}
    command = [str(maniple), *arguments]
    return subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, check=False)


def test_only_the_needed_packages_are_installed(maniple: Path) -> None:
    script = "import importlib.metadata as m; print(*(d.name.lower() for d in m.distributions()))"
    python = [str(maniple.with_name("python")), "-c", script]
    done = subprocess.run(python, capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()) == sorted(
        ["maniple", *(metadata.metadata(name)["Name"].lower() for name in NEEDED)]
    )


@pytest.mark.parametrize("arguments", WITHOUT.values(), ids=WITHOUT)
def test_commands_that_need_no_cluster_run_without_the_extra(maniple: Path, arguments: tuple[str, ...]) -> None:
    done = run(maniple, *arguments)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("arguments", ON_A_CLUSTER.values(), ids=ON_A_CLUSTER)
def test_commands_that_need_a_cluster_name_the_missing_extra(maniple: Path, arguments: tuple[str, ...]) -> None:
    done = run(maniple, *arguments)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    sentence = r"error: this command needs the extra 'cluster', and its module \w+ is not installed: "
    remedy = "pip install 'maniple[cluster]', or in a checkout make install\n"
    assert re.fullmatch(sentence + re.escape(remedy), done.stderr), done.stderr


def test_completing_job_names_without_the_extra_is_silent(maniple: Path) -> None:
    done = run(maniple, COMP_WORDS="maniple describe b", COMP_CWORD="2", _MANIPLE_COMPLETE="bash_complete")
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")
