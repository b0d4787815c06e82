"""The other commands, help and completion."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cli.run_maniple import ROOT, run, run_here
from maniple import __version__
from maniple.cli.main import COMMANDS


@pytest.mark.parametrize("command", ["", *COMMANDS])
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_has_examples(command: str, option: str) -> None:
    done = run_here(*([command] if command else []), option)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"Usage: maniple {command}".rstrip() in done.stdout
    after = done.stdout.split("Example", 1)[1]
    assert f"maniple {command}" in after


def test_help_lists_every_command() -> None:
    listed = run_here("--help").stdout.split("Commands:")[1]
    assert [line.split()[0] for line in listed.splitlines() if line.startswith("  ") and line[2] != " "][
        : len(COMMANDS)
    ] == list(COMMANDS)


def test_version() -> None:
    assert run_here("--version").stdout.strip().endswith(__version__)


def test_the_installed_command_is_the_same_program() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).parent / "maniple"), "--version"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, run("--version").stdout)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pln"], "error: no such command 'pln'; did you mean 'plan'?"),
        (["submi", "--name", "bert"], "error: no such command 'submi'; did you mean 'submit'?"),
        (["xyzzy"], "error: no such command 'xyzzy'\n"),
        (["--nope"], "--nope"),
        (["completion", "tcsh"], "error: invalid value for '{bash|zsh|fish}': 'tcsh' is not one of"),
        (["completion"], "error: missing argument '{bash|zsh|fish}'"),
        (["crds", "--write", __file__], "error: invalid value for '--write': Directory"),
    ],
)
def test_wrong_usage_exits_with_2_and_prints_only_to_standard_error(arguments: list[str], message: str) -> None:
    done = run_here(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


# -- completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_calls_maniple(shell: str) -> None:
    done = run_here("completion", shell)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"_MANIPLE_COMPLETE={shell}_complete" in done.stdout
    if program := shutil.which(shell):
        subprocess.run([program, "-n"], input=done.stdout, text=True, check=True)


@pytest.mark.parametrize(
    ("words", "position", "expected"),
    [
        ("maniple pl", "1", {"plan"}),
        ("maniple ", "1", set(COMMANDS)),
        ("maniple plan --ro", "2", {"--rounds"}),
        ("maniple plan -o ", "3", {"table", "json", "yaml"}),
        ("maniple completion ", "2", {"bash", "zsh", "fish"}),
    ],
)
def test_completion_offers_matching_words(words: str, position: str, expected: set[str]) -> None:
    done = run_here(env={"COMP_WORDS": words, "COMP_CWORD": position, "_MANIPLE_COMPLETE": "bash_complete"})
    assert {line.split(",")[1] for line in done.stdout.splitlines()} == expected


# -- crds


def test_crds_prints_what_is_in_deploy() -> None:
    done = run_here("crds")
    assert (done.returncode, done.stderr) == (0, "")
    kept = {path.read_text(encoding="utf-8") for path in (ROOT / "deploy/crds").glob("*.yaml")}
    assert set(done.stdout.split("---\n")) == kept


def test_crds_writes_one_file_each_and_says_which(tmp_path: Path) -> None:
    done = run_here("crds", "--write", tmp_path / "new/folder")
    assert done.returncode == 0
    written = sorted((tmp_path / "new/folder").iterdir())
    assert sorted(done.stdout.split()) == [str(path) for path in written]
    kept = sorted((ROOT / "deploy/crds").glob("*.yaml"))
    assert [path.read_bytes() for path in written] == [path.read_bytes() for path in kept]


def test_a_folder_that_cannot_be_written_to_is_an_error_without_a_traceback() -> None:
    done = run_here("crds", "--write", "/proc/nosuch/folder")
    assert (done.returncode, done.stdout) == (1, "")
    path = "/proc/nosuch/folder/maniple.dev_queues.yaml"
    assert done.stderr == f"error: {path}: cannot be written: No such file or directory\n"


@pytest.mark.parametrize("text", ["garbage: [", "", "- 1", "apiVersion: v1\nkind: Config\n"])
def test_an_invalid_kubeconfig_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    done = run_here("serve", "--once", f"--kubeconfig={path}")
    assert done.returncode == 2
    assert f"{path}: expected a kubeconfig that can be used" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gang-timeout=nan"], "not a number of seconds"),
        (["--scheduler-name="], "--scheduler-name: expected a name"),
        (["--scheduler-name=A_b"], "--lease: required, because 'A_b' cannot be its name"),
    ],
)
def test_wrong_options_of_serve_are_refused(arguments: list[str], message: str) -> None:
    done = run_here("serve", "--once", *arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_once_without_an_answer_is_not_reported_as_another_leader(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(
        "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],"
        " clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: u, user: {}}]}"
    )
    done = run_here("serve", "--once", f"--kubeconfig={path}")
    assert done.returncode == 2
    assert "the API server did not answer" in done.stderr
