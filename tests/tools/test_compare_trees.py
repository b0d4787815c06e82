"""`python -m benchmarks --against PATH`, on made-up trees whose benchmarks take no time."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import compare_trees
from benchmarks.__main__ import main

# Each run of a tree takes the next of its times.
BENCHMARKS = """
import json, pathlib
times = pathlib.Path("times")
first, *rest = times.read_text().split()
times.write_text(" ".join(rest))
print(json.dumps([{{"name": "a case", {field}: float(first)}}, {{"name": "memory", {field}: None}}]))
"""


def tree(folder: Path, *times: float, field: str = '"seconds"') -> Path:
    (folder / "benchmarks").mkdir(parents=True)
    (folder / "benchmarks" / "__init__.py").touch()
    (folder / "benchmarks" / "__main__.py").write_text(BENCHMARKS.format(field=field))
    (folder / "times").write_text(" ".join(map(str, times)))
    return folder


@pytest.mark.parametrize(
    ("times", "row"),
    [
        ([3.0, 1.1], "| a case | 1.00 s | 1.10 s | 1.10 | SLOWER |"),
        ([0.9, 2.0], "| a case | 1.00 s | 900.0 ms | 0.90 |  |"),
    ],
)
def test_the_best_times_of_both_trees_are_compared(
    times: list[float], row: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compare_trees, "_THIS", tree(tmp_path / "this", *times))
    main(["--against", str(tree(tmp_path / "other", 1.0, 2.0)), "idle"])
    assert capsys.readouterr().out.splitlines()[2:] == [row]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--against", "/proc"], "it has no folder 'benchmarks'; give the root of a worktree"),
        (["--against", ".", "--rounds", "0"], "--rounds 0: give at least 1"),
    ],
)
def test_what_cannot_be_compared_is_an_error(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert message in capsys.readouterr().err


def test_a_tree_that_reports_no_seconds_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare_trees, "_THIS", tree(tmp_path / "this", 1.0))
    with pytest.raises(SystemExit, match="report no seconds: they are older than --against"):
        main(["--against", str(tree(tmp_path / "other", 1.0, field='"figure"')), "idle"])
