"""`make properties`: property tests with fresh seeds, round after round, until the time is up or one fails.

Everywhere else they are derandomised: the same cases in every run, so that a commit is never red by chance; few of them
in `make unit`. These are profiles of hypothesis, so a test must not choose `derandomize` itself.
"""

import argparse
import os
import random
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tools.rerun_failures import REPORT_VARIABLE, read_report

FIXED, FRESH, QUICK = "fixed", "fresh", "quick"
QUICK_EXAMPLES = 10
# Tests that hypothesis draws cases for, and tests that call it themselves.
SELECTION = "hypothesis or properties"
_UNTIL_VARIABLE, _SEED_VARIABLE = "MANIPLE_PROPERTIES_UNTIL", "MANIPLE_PROPERTIES_SEED"
_NOT_RUN = 5  # pytest's exit code if no test was selected


class _TimeBudget:
    """Skips tests once the time is up. The order is shuffled, so that short budgets reach every test too."""

    def __init__(self, until: float, seed: int) -> None:
        self._until, self._seed = until, seed

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        random.Random(self._seed).shuffle(items)  # the same in all workers, as pytest-xdist demands

    def pytest_runtest_setup(self) -> None:
        if time.time() > self._until:
            pytest.skip("the time is up")


class _FewExamples:
    """Reduces tests that ask for many examples: a profile only sets the default."""

    @pytest.hookimpl(trylast=True)  # hypothesis marks its tests first
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            if isinstance(item, pytest.Function) and item.get_closest_marker("hypothesis"):
                self._cut(getattr(item.obj, "__func__", item.obj), "_hypothesis_internal_use_settings")
                self._cut(item.cls, "settings")  # a state machine

    def _cut(self, holder: object, name: str) -> None:
        chosen = getattr(holder, name, None)
        if isinstance(chosen, settings) and chosen.max_examples > QUICK_EXAMPLES:
            setattr(holder, name, settings(chosen, max_examples=QUICK_EXAMPLES))


def configure(config: pytest.Config) -> None:
    """Call it from `pytest_configure`."""
    if config.getoption("--hypothesis-profile", default=None) == QUICK:
        config.pluginmanager.register(_FewExamples())
    if _UNTIL_VARIABLE in os.environ:
        budget = _TimeBudget(float(os.environ[_UNTIL_VARIABLE]), int(os.environ[_SEED_VARIABLE]))
        config.pluginmanager.register(budget)


def load_profiles() -> None:
    """Call it before any test is imported; `--hypothesis-profile` chooses another."""
    # Whether data is slow to draw depends on the machine, and says nothing about the code.
    settings.register_profile(
        FIXED, derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.register_profile(FRESH, settings.get_profile(FIXED), derandomize=False, print_blob=True)
    settings.register_profile(QUICK, settings.get_profile(FIXED), max_examples=QUICK_EXAMPLES)
    settings.load_profile(FIXED)


def run_round(seed: int, until: float, arguments: list[str]) -> tuple[int, list[str]]:
    """Runs the property tests with this seed: pytest's exit code, and the tests that failed."""
    command = [sys.executable, "-m", "pytest", f"--hypothesis-profile={FRESH}", f"--hypothesis-seed={seed}"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        variables = {REPORT_VARIABLE: str(path), _UNTIL_VARIABLE: str(until), _SEED_VARIABLE: str(seed)}
        code = subprocess.run([*command, "-m", SELECTION, *arguments], env=os.environ | variables, check=False)
        report = read_report(path)
    return code.returncode, report.failed if report else []


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.fresh_properties", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="no test begins after that")
    parser.add_argument("--seed", type=int, help="one round with this seed, however long it takes")
    parser.add_argument("pytest", nargs="*", help="arguments for pytest; after -- also options")
    given = parser.parse_args()
    until = time.time() + given.seconds if given.seed is None else float("inf")
    rounds = 0
    while rounds == 0 or time.time() < until:
        rounds += 1
        seed = random.SystemRandom().randrange(2**32) if given.seed is None else given.seed
        print(f"== round {rounds}, seed {seed}", flush=True)
        code, failed = run_round(seed, until, given.pytest)
        if code:
            for test in failed:
                repeat = f".venv/bin/python -m tools.fresh_properties --seed {seed} -- {shlex.quote(test)}"
                print(f"== FAILED with seed {seed}; again: {repeat}", flush=True)
            return 2 if code == _NOT_RUN else 1
        if given.seed is not None:
            break
    print(f"== {rounds} round{'s' * (rounds > 1)} without a failure", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
