"""Compares the speed of this tree with that of another one, such as a worktree of an earlier commit.

Each tree runs its own benchmarks, in processes that alternate: the speed of a machine drifts from minute to minute.
Both use the interpreter and the libraries that this process uses.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_THIS = Path(__file__).parent.parent
_SLOWER = 1.05  # less is within the noise


def compare(other: Path, names: Sequence[str], rounds: int) -> None:
    """Prints the least processor time of each case in both trees, and the ratio."""
    print("| what | other | this | this / other | |\n|---|---|---|---|---|")
    for name in names:
        times: dict[Path, dict[str, float]] = {other: {}, _THIS: {}}
        for number in range(rounds):
            for tree in (other, _THIS) if number % 2 == 0 else (_THIS, other):
                for case, seconds in _run(tree, name).items():
                    times[tree][case] = min(seconds, times[tree].get(case, seconds))
        for case, seconds in times[_THIS].items():
            before = times[other].get(case)
            if before is None:
                print(f"| {case} | not there | {_text(seconds)} | | |", flush=True)
                continue
            verdict = "SLOWER" if seconds > before * _SLOWER else ""
            print(f"| {case} | {_text(before)} | {_text(seconds)} | {seconds / before:.2f} | {verdict} |", flush=True)


def _run(tree: Path, name: str) -> dict[str, float]:
    """Runs one benchmark of a tree. Returns the seconds of each case."""
    command = [sys.executable, "-m", "benchmarks", name, "-o", "json"]
    done = subprocess.run(command, cwd=tree, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"benchmark {name!r} failed in {tree}, see above")
    results = json.loads(done.stdout)
    if any("seconds" not in result for result in results):
        raise SystemExit(f"the benchmarks in {tree} report no seconds: they are older than --against")
    return {result["name"]: result["seconds"] for result in results if result["seconds"] is not None}


def _text(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"
