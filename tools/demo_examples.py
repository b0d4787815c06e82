"""`make demo`: plans each numbered example and prints its comment above the table.

Exits with 1 if an outcome differs from the one that the example's comment promises.
"""

import contextlib
import io
import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from maniple.cli.commands.plan import command

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
Plan = dict[str, Any]


def gangs(plan: Plan) -> dict[str, int]:
    """Pods that start, by gang: the pods are named after it."""
    return dict(Counter(re.sub(r"-\d+$", "", bind["pod"]) for bind in plan["rounds"][0]["binds"]))


def places(plan: Plan) -> dict[str, str]:
    return {bind["pod"]: bind["node"] for bind in plan["rounds"][0]["binds"]}


def gpus(plan: Plan) -> dict[str, str]:
    """What each queue holds at the end."""
    held = {queue["name"]: queue["allocated"].get("nvidia.com/gpu") for queue in plan["queues"]}
    return {name: count for name, count in held.items() if count}


def sizes(plan: Plan) -> list[tuple[int, int]]:
    """Every resize, in order."""
    return [(resize["from"], resize["to"]) for round_ in plan["rounds"] for resize in round_["resizes"]]


# The example, what to look at, and what its comment promises.
EXPECTED: dict[str, tuple[Callable[[Plan], object], object]] = {
    "01-small-behind-large": (gangs, {"default/b": 2}),
    "02-four-of-five": (gangs, {"default/b": 4}),
    "03-room-for-nine": (gangs, {}),
    "04-one-of-two": (gangs, {"default/first": 10}),
    "05a-most-memory-left": (places, {"default/three-gi": "server01"}),
    "05b-balance": (places, {"default/memory-heavy": "server01", "default/cpu-heavy": "server02"}),
    "06-weights": (gpus, {"research": "10", "production": "30"}),
    "07-elastic": (sizes, [(4, 8), (8, 4), (4, 8)]),
}

# How an example is planned, if not in one round.
OPTIONS = {"07-elastic": ("--now", "2026-01-01T10:00:00Z", "--step", "300", "--rounds", "7")}


def title(path: Path) -> str:
    """The comment at the top of the file, as one paragraph."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return " ".join(line.removeprefix("# ") for line in lines[: lines.index("---")])


def plan(path: Path, *options: str) -> None:
    """`maniple plan -f PATH …`, in this process."""
    command.main(["-f", str(path), *options], prog_name="maniple plan", standalone_mode=False)


def planned(path: Path, *options: str) -> Plan:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        plan(path, *options, "-o", "json")
    outcome: Plan = json.loads(printed.getvalue())
    return outcome


def main() -> None:
    wrong = []
    unknown = {path.stem for path in EXAMPLES.glob("[0-9]*.yaml")} ^ EXPECTED.keys()
    if unknown:
        wrong.append(f"examples and expectations differ: {', '.join(sorted(unknown))}")
    for name, (look, expected) in EXPECTED.items():
        path, options = EXAMPLES / f"{name}.yaml", OPTIONS.get(name, ())
        click.secho(f"{path.relative_to(ROOT)}: {title(path)}\n", bold=True)
        plan(path, *options)
        click.echo()
        outcome = look(planned(path, *options))
        if outcome != expected:
            wrong.append(f"{name}: expected {expected}, found {outcome}")
    for line in wrong:
        click.echo(f"error: {line}", err=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
