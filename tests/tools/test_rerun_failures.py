"""How CI treats failing tests, tested with real pytest runs on small suites."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OBSERVED = "from tools.pytest_failure_report import configure as pytest_configure\n"
# Fails the first time it runs in this folder.
FLAKY = """
import pathlib
def fails_once(name):
    seen = pathlib.Path(__file__).with_name(name)
    if not seen.exists():
        seen.touch()
        raise AssertionError("not yet")
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text(f'[tool.pytest.ini_options]\npythonpath = ["{ROOT}"]\naddopts = "-q"\n')
    (tmp_path / "conftest.py").write_text(OBSERVED)
    (tmp_path / "test_good.py").write_text("def test_good(): pass\n")
    return tmp_path


def ci(suite: Path, first: str = "", workers: int = 0) -> subprocess.CompletedProcess[str]:
    """`first` is a shell command before the tests, as lint is."""
    pytest_command = [sys.executable, "-m", "pytest", "-p", "xdist", "-p", "no:cacheprovider", "-n"]
    tests = f"{first or 'true'} && {shlex.join([*pytest_command, str(workers)])}"
    command = [
        sys.executable,
        str(ROOT / "tools" / "rerun_failures.py"),
        "bash",
        "-c",
        tests,
        "--",
        *pytest_command,
        "0",
    ]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # a quick start
    return subprocess.run(command, cwd=suite, env=environment, capture_output=True, text=True, check=False)


def flaky_lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line.partition("FLAKY: ")[2] for line in done.stdout.splitlines() if "FLAKY: " in line]


def test_a_green_run_is_green_and_runs_once(suite: Path) -> None:
    done = ci(suite)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count(" passed in ") == 1
    assert "==" not in done.stdout


@pytest.mark.parametrize("workers", [0, 2])
def test_a_flaky_test_is_green_and_named_with_the_page_to_list_it_on(suite: Path, workers: int) -> None:
    (suite / "test_flaky.py").write_text(FLAKY + "def test_flaky(): fails_once('seen')\n")
    done = ci(suite, workers=workers)
    assert done.returncode == 0, done.stdout + done.stderr
    assert flaky_lines(done) == ["test_flaky.py::test_flaky"]
    assert "docs/flaky.md" in done.stdout
    assert "1 passed in " in done.stdout, "the second run has only that test, and pytest's closing line"


def test_tests_with_odd_parameters_in_folders_and_classes_are_found_again(suite: Path) -> None:
    odd = ["a b", "x::y", "[", "]", "ä\\n\\t\\\\", "a/b.py::c[d]", "--flag", "'\"$HOME`*", ""]
    (suite / "deep er").mkdir()
    body = f"import pytest\nclass TestOdd:\n  @pytest.mark.parametrize('text', {odd[:5]!r})\n"
    body += "  def test_odd(self, text): fails_once('seen' + text.encode().hex())\n"
    (suite / "deep er" / "test_odd.py").write_text(FLAKY + body)
    done = ci(suite)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(flaky_lines(done)) == 5
    body = body.replace(repr(odd[:5]), repr(odd[5:])).replace("'seen'", "'again'")
    (suite / "deep er" / "test_odd.py").write_text(FLAKY + body)
    done = ci(suite)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed in " in done.stdout


def test_an_error_of_a_fixture_counts_as_its_test_once(suite: Path) -> None:
    body = "import pytest\n@pytest.fixture\ndef bad():\n  yield\n  fails_once('after')\n"
    (suite / "test_flaky.py").write_text(FLAKY + body + "def test_flaky(bad): fails_once('in')\n")
    done = ci(suite)
    assert done.returncode == 0, done.stdout + done.stderr
    assert flaky_lines(done) == ["test_flaky.py::test_flaky"]


def test_six_failures_are_red_without_a_second_try(suite: Path) -> None:
    tests = "".join(f"def test_{number}(): fails_once('seen{number}')\n" for number in range(6))
    (suite / "test_flaky.py").write_text(FLAKY + tests)
    done = ci(suite)
    assert done.returncode != 0
    assert "RED: 6 tests failed, more than 5" in done.stdout
    assert not flaky_lines(done)
    assert done.stdout.count(" passed in ") == 1


def test_a_test_that_fails_twice_is_red_even_beside_a_flaky_test(suite: Path) -> None:
    (suite / "test_flaky.py").write_text(FLAKY + "def test_flaky(): fails_once('seen')\ndef test_bad(): assert False\n")
    done = ci(suite)
    assert done.returncode != 0
    assert "not all of them passed alone" in done.stdout
    assert not flaky_lines(done)


def test_a_failure_before_the_tests_is_red(suite: Path) -> None:
    done = ci(suite, first="echo E501 line too long && exit 3")
    assert done.returncode == 3
    assert "RED: it failed before the tests" in done.stdout
    assert "passed" not in done.stdout.partition("RED")[0]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_file_that_cannot_be_collected_is_red(suite: Path, workers: int) -> None:
    (suite / "test_broken.py").write_text("import there_is_no_such_module\n")
    done = ci(suite, workers=workers)
    assert done.returncode != 0
    assert "RED: test_broken.py cannot be collected" in done.stdout


def test_a_crashed_worker_is_red(suite: Path) -> None:
    (suite / "test_crash.py").write_text("import os\ndef test_crash(): os._exit(9)\n")
    done = ci(suite, workers=2)
    assert done.returncode != 0
    assert "crashed in test_crash.py::test_crash" in done.stdout


@pytest.mark.parametrize("workers", [0, 2])
def test_an_interrupted_run_is_red(suite: Path, workers: int) -> None:
    (suite / "test_stop.py").write_text("import pytest\ndef test_stop(): pytest.exit('enough')\n")
    done = ci(suite, workers=workers)
    assert done.returncode != 0
    assert "RED: " in done.stdout


def test_a_run_that_is_killed_is_red(suite: Path) -> None:
    (suite / "test_crash.py").write_text("import os\ndef test_crash(): os._exit(9)\n")
    done = ci(suite)
    assert done.returncode == 9
    assert "did not come to an end" in done.stdout


def test_tests_do_not_inherit_the_report(suite: Path) -> None:
    (suite / "test_nested.py").write_text(
        "import os\ndef test_none(): assert 'MANIPLE_FAILURE_REPORT' not in os.environ\n"
    )
    assert ci(suite, workers=2).returncode == 0


def test_the_script_of_ci_runs_make_test_and_then_the_failed_tests_alone(suite: Path) -> None:
    """The real script, in a project whose `make test` is a small suite."""
    (suite / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", suite / ".ci" / "run")
    (suite / "tools").symlink_to(ROOT / "tools")
    program = suite / ".venv" / "bin" / "pytest"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m pytest -p no:cacheprovider "$@"\n')
    program.chmod(0o755)
    (suite / "Makefile").write_text("test:\n\t.venv/bin/pytest -n 2\n")
    required = "import os\ndef test_cluster(): assert os.environ['MANIPLE_REQUIRE_CLUSTER'] == '1'\n"
    (suite / "test_flaky.py").write_text(FLAKY + "def test_flaky(): fails_once('seen')\n" + required)
    done = subprocess.run([str(suite / ".ci" / "run")], cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert flaky_lines(done) == ["test_flaky.py::test_flaky"]
    assert "1 passed in " in done.stdout
    (suite / "test_flaky.py").write_text("def test_bad(): assert False\n")
    done = subprocess.run([str(suite / ".ci" / "run")], cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode != 0
