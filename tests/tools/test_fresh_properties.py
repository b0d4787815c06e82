"""Property tests draw the same cases in every run, and new ones in `make properties`, which says how to repeat them."""

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tools import fresh_properties

ROOT = Path(__file__).resolve().parents[2]
CONFTEST = """
from tools import pytest_failure_report, fresh_properties
fresh_properties.load_profiles()
def pytest_configure(config):
    pytest_failure_report.configure(config)
    fresh_properties.configure(config)
"""
# Writes down what it draws, each run as a line.
DRAWS = """
import pathlib
import pytest
from hypothesis import Phase, given, settings, strategies as st
drawn = []
@settings(max_examples=20, phases=[Phase.generate])
@given(st.integers(0, 10**9))
def test_numbers(number): drawn.append(number)
def test_no_property():
    pathlib.Path("others").touch()
def teardown_module():
    with open("drawn", "a") as file: print(*drawn, file=file)
"""
FAILS = """
import pytest
from hypothesis import given, settings, strategies as st
@pytest.mark.parametrize("text", ["a b"])
@settings(max_examples=2000)
@given(number=st.integers(0, 10**9))
def test_fails(text, number): assert number % 97
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    ini = f'[tool.pytest.ini_options]\npythonpath = ["{ROOT}"]\naddopts = "-q"\nmarkers = ["properties"]\n'
    (tmp_path / "pyproject.toml").write_text(ini)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    return tmp_path


def run(suite: Path, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=suite,
        env={name: value for name, value in os.environ.items() if name != "CI"} | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def draw(suite: Path, *arguments: str) -> str:
    done = run(suite, "pytest", "-p", "no:cacheprovider", *arguments)
    assert done.returncode == 0, done.stdout
    return (suite / "drawn").read_text().splitlines()[-1]


def test_the_cases_are_the_same_in_every_run_and_new_with_the_fresh_profile(suite: Path) -> None:
    (suite / "test_draws.py").write_text(DRAWS)
    always = draw(suite)
    assert len(set(always.split())) > 5
    assert draw(suite, "--hypothesis-seed=1") == always, "a seed changes nothing in CI"
    fresh = draw(suite, "--hypothesis-profile=fresh")
    assert always != fresh != draw(suite, "--hypothesis-profile=fresh")
    seeded = draw(suite, "--hypothesis-profile=fresh", "--hypothesis-seed=7")
    assert seeded == draw(suite, "--hypothesis-profile=fresh", "--hypothesis-seed=7"), "a seed repeats a run"


def test_the_quick_profile_has_the_first_few_of_the_same_cases(suite: Path) -> None:
    machine = """
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, rule
class Machine(RuleBasedStateMachine):
    starts = []
    def __init__(self):
        super().__init__()
        self.starts.append(self)
    @rule()
    def step(self): pass
TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=100, stateful_step_count=2)
def test_afterwards():
    with open("starts", "w") as file: print(len(Machine.starts), file=file)
"""
    (suite / "test_draws.py").write_text(DRAWS.replace("max_examples=20", "max_examples=100"))
    (suite / "test_machine.py").write_text(machine)
    all_of_them = draw(suite).split()
    few = draw(suite, "--hypothesis-profile=quick").split()
    assert (len(few), few) == (fresh_properties.QUICK_EXAMPLES, all_of_them[: fresh_properties.QUICK_EXAMPLES])
    assert len(all_of_them) == 100
    assert int((suite / "starts").read_text()) <= fresh_properties.QUICK_EXAMPLES + 2, (
        "a state machine is run once on its own"
    )


def test_rounds_run_until_the_time_is_up_each_with_its_own_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, seeds = iter(range(0, 100, 3)), list[int]()
    monkeypatch.setattr(sys, "argv", ["properties", "--seconds=10", "tests/elastic"])
    monkeypatch.setattr(time, "time", lambda: float(next(clock)))

    def run_round(seed: int, until: float, arguments: list[str]) -> tuple[int, list[str]]:
        assert (until, arguments) == (10.0, ["tests/elastic"])
        seeds.append(seed)
        return 0, []

    monkeypatch.setattr(fresh_properties, "run_round", run_round)
    assert fresh_properties.main() == 0
    assert len(set(seeds)) == len(seeds) == 4


def test_a_round_has_all_property_tests_and_no_others(suite: Path) -> None:
    (suite / "test_draws.py").write_text(DRAWS)
    (suite / "test_calls.py").write_text("import pytest\n@pytest.mark.properties\ndef test_calls(): pass\n")
    done = run(suite, "tools.fresh_properties", "--seed=3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    assert not (suite / "others").exists()


def test_no_test_starts_after_the_time_is_up(suite: Path) -> None:
    (suite / "test_fails.py").write_text(FAILS)
    done = run(suite, "tools.fresh_properties", "--seconds=0")
    assert done.returncode == 0, done.stdout
    assert "1 skipped" in done.stdout


def test_a_failure_is_printed_with_its_seed_and_the_command_that_repeats_it(suite: Path) -> None:
    (suite / "test_fails.py").write_text(FAILS)
    done = run(suite, "tools.fresh_properties", "--seconds=600")
    assert done.returncode == 1, done.stdout
    printed = re.search(r"^== FAILED with seed (\d+); again: \.venv/bin/python -m (.+)$", done.stdout, re.M)
    assert printed, done.stdout
    assert shlex.split(printed[2]) == [
        "tools.fresh_properties",
        "--seed",
        printed[1],
        "--",
        "test_fails.py::test_fails[a b]",
    ]
    assert "@reproduce_failure(" in done.stdout
    again = run(suite, *shlex.split(printed[2]))
    examples = [re.findall(r"number=\d+", each.stdout) for each in (done, again)]
    assert examples[0] == examples[1] != []


def test_no_test_sets_derandomize_itself() -> None:
    mine = Path(__file__).resolve()
    choosing = [path for path in (ROOT / "tests").rglob("*.py") if path != mine and "derandomize" in path.read_text()]
    assert not choosing
