"""Measures mixes in this tree and in another one, such as a worktree of an earlier commit, in turns.

This tree's benchmark runs on either tree's `maniple`: the clusters are the same, and so are the cycles.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.generated_mixes import Mix
from benchmarks.measured_mixes import Figures

_THIS = Path(__file__).parent.parent
_CODE = """
import json, sys
sys.path.insert(0, sys.argv[1])
import maniple
assert maniple.__file__.startswith(sys.argv[1]), maniple.__file__
sys.path[0] = sys.argv[2]
from benchmarks.generated_mixes import Mix
from benchmarks.measured_mixes import measure
json.dump(vars(measure(Mix(**json.loads(sys.argv[3])), int(sys.argv[4]))), sys.stdout)
"""
HEAD = (
    "| mix | pods | decided/s before | after | times | p50 before | after | times | p99 before | after | of cycles |"
    " explained in |\n|---|---|---|---|---|---|---|---|---|---|---|---|"
)


def compare(
    other: Path, mixes: Sequence[Mix], seed: int, say: Callable[[str], None]
) -> Iterator[tuple[Figures, Figures]]:
    """The figures of each mix before and after, of the same cycles: as many as both trees had time for."""
    for number, mix in enumerate(mixes):
        found = {}
        for tree in (other, _THIS) if number % 2 == 0 else (_THIS, other):
            say(f"{number + 1} of {len(mixes)}, {'before' if tree == other else 'after'}: {mix.name}")
            found[tree] = _run(tree.resolve(), mix, seed)
        before, after = found[other], found[_THIS]
        cycles = min(len(before.cycles_s), len(after.cycles_s))
        del before.cycles_s[cycles:], after.cycles_s[cycles:]
        yield before, after


def _run(tree: Path, mix: Mix, seed: int) -> Figures:
    command = [sys.executable, "-P", "-c", _CODE, str(tree), str(_THIS), json.dumps(vars(mix)), str(seed)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the mix {mix.name!r} failed in {tree}, see above")
    return Figures(**json.loads(done.stdout))


def row(before: Figures, after: Figures) -> str:
    explained = "in the cycle" if after.explained_s is None else f"{after.explained_s * 1e3:,.1f} ms"
    cells = [after.name, f"{after.pods:,}", f"{before.rate:,.0f}", f"{after.rate:,.0f}"]
    cells += [f"{after.rate / before.rate:.1f}", f"{before.p50_ms:,.1f} ms", f"{after.p50_ms:,.1f} ms"]
    cells += [f"{before.p50_ms / after.p50_ms:.1f}", f"{before.p99_ms:,.1f} ms", f"{after.p99_ms:,.1f} ms"]
    return f"| {' | '.join([*cells, str(len(after.cycles_s)), explained])} |"


def summary(found: Sequence[Figures]) -> str:
    """The worst and the median of the mixes."""
    lines = ["| | worst | median |\n|---|---|---|"]
    rates = [figures.rate for figures in found]
    lines.append(f"| pods decided/s | {min(rates):,.0f} | {statistics.median(rates):,.0f} |")
    for name, cycles in (("p50", [each.p50_ms for each in found]), ("p99", [each.p99_ms for each in found])):
        lines.append(f"| {name} of a cycle | {max(cycles):,.1f} ms | {statistics.median(cycles):,.1f} ms |")
    return "\n".join(lines)
