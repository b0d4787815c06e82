"""Mixes of clusters: nodes, queues, sizes, shapes, load and ages vary, so that nothing can be tuned for one of them.

For each mix: the pods that the first cycle decides in a second (decided: bound, or found to wait), how long it takes to
explain all that wait if somebody asks, and how long a cycle takes before which one running pod has ended: of 12 to 200
cycles, as many as fit into four seconds. Times are processor time.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import compare_mixes, growth_of_mixes
from benchmarks.generated_mixes import Mix, drawn, fixed, quick
from benchmarks.measured_mixes import Figures, measure

EXAMPLES = """examples:
  python -m benchmarks.mixes                       forty fixed ones
  python -m benchmarks.mixes --quick               eight of them
  python -m benchmarks.mixes --random 20 --seed 7  fresh ones
  python -m benchmarks.mixes --only '310 nodes'    those with this in their names
  python -m benchmarks.mixes --against ../before   the same with another worktree, in turns
  python -m benchmarks.mixes --growth              how cycles grow with each dimension
"""
HEAD = """| mix | pods | bound | decided/s | first cycle | explained in | p50 | p99 | of cycles |
|---|---|---|---|---|---|---|---|---|"""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.mixes",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--quick", action="store_true", help="eight of the fixed mixes")
    which.add_argument(
        "--random", type=int, metavar="N", help="so many mixes drawn at random instead of the fixed list"
    )
    which.add_argument("--growth", action="store_true", help="the exponents with which cycles grow")
    parser.add_argument("--seed", type=int, default=1, help="of all that is drawn (default: 1)")
    parser.add_argument("--only", metavar="TEXT", default="", help="only mixes with this in their names")
    parser.add_argument("--against", type=Path, metavar="TREE", help="compare with the tree in this folder")
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
    parser.add_argument("--json", dest="output", action="store_const", const="json", help="the same as -o json")
    options = parser.parse_args(arguments)
    is_table = options.output == "table"
    if options.against is not None:
        if options.growth:
            parser.error("--growth and --against do not go together")
        if not (options.against / "maniple").is_dir():
            parser.error(f"--against {options.against}: it has no folder 'maniple'; give the root of a worktree")
    if options.growth:
        _growth(options.seed, is_table)
        return
    mixes = quick() if options.quick else fixed() if options.random is None else drawn(options.random, options.seed)
    mixes = [mix for mix in mixes if options.only in mix.name]
    if not mixes:
        parser.error(f"no mix has {options.only!r} in its name")
    if options.against is not None:
        _against(options.against, mixes, options.seed, is_table)
    else:
        _measure(mixes, options.seed, is_table)


def _measure(mixes: Sequence[Mix], seed: int, is_table: bool) -> None:
    found = []
    if is_table:
        print(HEAD)
    for number, mix in enumerate(mixes):
        _say(f"{number + 1} of {len(mixes)}: {mix.name}")
        found.append(measure(mix, seed))
        _say("")
        if is_table:
            print(_row(found[-1]), flush=True)
    if is_table:
        print(f"\n{compare_mixes.summary(found)}")
    else:
        json.dump([vars(mix) | each.complete() for mix, each in zip(mixes, found, strict=True)], sys.stdout)


def _row(figures: Figures) -> str:
    explained = "in the cycle" if figures.explained_s is None else f"{figures.explained_s * 1e3:,.1f} ms"
    cells = [figures.name, f"{figures.pods:,}", f"{figures.bound:,}", f"{figures.rate:,.0f}"]
    cells += [f"{figures.first_s * 1e3:,.1f} ms", explained]
    cells += [f"{figures.p50_ms:,.1f} ms", f"{figures.p99_ms:,.1f} ms", str(len(figures.cycles_s))]
    return f"| {' | '.join(cells)} |"


def _against(other: Path, mixes: Sequence[Mix], seed: int, is_table: bool) -> None:
    pairs = []
    if is_table:
        print(compare_mixes.HEAD)
    for before, after in compare_mixes.compare(other, mixes, seed, _say):
        _say("")
        pairs.append((before, after))
        if is_table:
            print(compare_mixes.row(before, after), flush=True)
    if not is_table:
        rows = [{"before": before.complete(), "after": after.complete()} for before, after in pairs]
        json.dump([vars(mix) | row for mix, row in zip(mixes, rows, strict=True)], sys.stdout)
        return
    befores, afters = [before for before, _ in pairs], [after for _, after in pairs]
    if all(before.explained_s is None for before in befores):
        print("\nBefore, each cycle explains all that wait by itself: that is in its time.")
    print(f"\nbefore:\n\n{compare_mixes.summary(befores)}\n\nafter:\n\n{compare_mixes.summary(afters)}")


def _growth(seed: int, is_table: bool) -> None:
    found = []
    if is_table:
        print("| doubled three times | first cycle: calls | time | after a pod has ended: calls | time |")
        print("|---|---|---|---|---|")
    for growth in growth_of_mixes.growths(growth_of_mixes.BASE, seed, _say):
        _say("")
        found.append(growth)
        if is_table:
            exponents = (growth.first_calls, growth.first_s, growth.next_calls, growth.next_s)
            print(f"| {growth.dimension} | {' | '.join(f'{exponent:.2f}' for exponent in exponents)} |", flush=True)
    if not is_table:
        json.dump([vars(growth) for growth in found], sys.stdout)


def _say(text: str) -> None:
    """What is being measured, in a line that the next one replaces."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
