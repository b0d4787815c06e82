"""Reads the pages: fenced blocks, the commands in them, and their output.

Run as a program, it renews the shown output and the included files when a message has changed:
`python tests/docs/pages.py`. Read the difference before you commit it.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ELISION = "…"  # alone on a line: any number of lines that are not shown
# The assumed output of `kubectl … |`.
STANDARD_INPUT = ROOT / "examples" / "01-small-behind-large.yaml"
POLICY_INPUT = ROOT / "examples" / "policies" / "volcano.yaml"  # for `maniple policy check -`

# Commands on the pages that no test runs, each with the reason.
NOT_RUN = {
    "make install": "it asks the package index; tests/tools compares what it installs",
    "make dev": "it creates the environment of the tests",
    "pip install .": "it asks the package index; tests/deploy installs the wheel",
    "pipx install '.[cluster]'": "it asks the package index; tests/deploy installs the wheel",
    "uvx --from . maniple plan -f examples/01-small-behind-large.yaml": "it asks the package index",
    "make test": "it runs this test",
    "make bench": "it takes minutes",
    ".venv/bin/python -m benchmarks loading": "it takes minutes",
    ".venv/bin/python -m benchmarks.mixes": "it takes minutes; tests/tools measures small mixes",
    ".venv/bin/python -m benchmarks.mixes --quick": "it takes minutes",
    ".venv/bin/python -m benchmarks.mixes --only '100 nodes'": "it takes minutes",
    ".venv/bin/python -m benchmarks.mixes --random 20 --seed 7": "it takes minutes",
    ".venv/bin/python -m benchmarks.mixes --against ../before": "it takes minutes; see tests/tools",
    ".venv/bin/python -m benchmarks.mixes --growth": "it takes minutes; see tests/tools",
    "git worktree add --detach ../before main": "it writes beside this folder",
    ".venv/bin/python -m benchmarks --against ../before reclaim preempt": "it takes minutes; see tests/tools",
    "cd tests && ../.venv/bin/python -m properties.many_clusters --clusters 100000 --seed 1": "it takes hours",
    "cd tests && ../.venv/bin/python -m properties.many_clusters --kind guarantees --clusters 100000": "it takes long",
    "make lock": "it asks the package index",
    "make crds": "tests/api compares what it would write",
    "make manifests": "tests/deploy compares what it would write",
    ".venv/bin/python tests/docs/pages.py": "it rewrites these pages",
    ".venv/bin/pytest tests/docs": "it runs this test",
    "kubectl apply --server-side -f deploy/crds": "it needs a cluster",
    "maniple serve": "it needs a cluster, and does not end",
    "maniple serve --dry-run": "it needs a cluster; tests/e2e runs it",
    "make cluster": "tests/e2e starts clusters",
    "export KUBECONFIG=$(.venv/bin/python -m tools.cluster kubeconfig)": "it needs a cluster",
    "kubectl get nodes": "it needs a cluster; tests/e2e runs it",
    "make cluster-down": "tests/e2e stops clusters",
}

_FENCE = re.compile(r"^```(?P<language>[^\n`]*)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)
_INCLUDE = re.compile(r"# (examples/\S+\.(?:yaml|json))")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    body: str

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def included(self) -> Path | None:
        """The file that this block shows; its first line names it."""
        match = _INCLUDE.match(self.body)
        return ROOT / match[1] if match else None


@dataclass(frozen=True)
class Command:
    where: str
    line: str
    shown: tuple[str, ...]  # the output below it, () if the page shows none


def pages() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, text.count("\n", 0, match.start()) + 1, match["language"].strip(), match["body"])
        for match in _FENCE.finditer(text)
    ]


def commands(block: Block) -> Iterator[Command]:
    """The `$` lines of a console block, each with the output shown below it."""
    line, shown = "", list[str]()
    for number, text in enumerate(block.body.splitlines()):
        if text.startswith("$ "):
            if line:
                yield Command(block.where, line, tuple(shown))
            line, shown = text.removeprefix("$ "), []
        elif not line:
            raise ValueError(f"{block.where}: line {number + 1} of the block is before any command")
        else:
            shown.append(text.rstrip())
    if line:
        while shown and not shown[-1]:
            shown.pop()
        yield Command(block.where, line, tuple(shown))


@cache
def run_on_a_cluster() -> frozenset[str]:
    """The commands of the pages install, jobs and cluster. tests/e2e runs those that end and need no registry."""
    lines = (
        command.line
        for page in ("install.md", "jobs.md", "cluster.md")
        for block in blocks(ROOT / "docs" / page)
        if block.language == "console"
        for command in commands(block)
    )
    return frozenset(line for line in lines if "maniple submit" not in line or "--dry-run" not in line)


def arguments(line: str) -> tuple[list[str], bool]:
    """Returns the arguments that run a command of the pages, and whether it reads standard input."""
    is_piped = line.startswith("kubectl ") and " | " in line
    if is_piped:
        line = line.split(" | ", 1)[1]
    program, *rest = shlex.split(line)
    if program in ("maniple", ".venv/bin/maniple"):
        return [sys.executable, "-m", "maniple", *rest], is_piped
    if [program, *rest] == ["make", "demo"]:
        return [sys.executable, "tools/demo_examples.py"], False
    if [program, *rest] == ["make", "help"]:
        return ["make", "--no-print-directory", "help"], False
    raise ValueError(f"no rule to run {line!r}")


@cache
def run(line: str) -> tuple[int, tuple[str, ...]]:
    """Runs a command of the pages at the root of the project. Returns its exit code and its output, errors included."""
    argv, reads_input = arguments(line)
    piped = POLICY_INPUT if "maniple policy" in line else STANDARD_INPUT
    done = subprocess.run(
        argv,
        cwd=ROOT,
        env={key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS", "COLUMNS"))},
        input=piped.read_text(encoding="utf-8") if reads_input else "",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if "Traceback (most recent call last)" in done.stdout:
        raise RuntimeError(f"{line}\n{done.stdout}")  # a page must never show a traceback
    return done.returncode, tuple(text.rstrip() for text in done.stdout.rstrip("\n").splitlines())


def is_as_shown(shown: tuple[str, ...], printed: tuple[str, ...]) -> bool:
    pattern = "".join("(?:.*\n)*?" if text == ELISION else re.escape(text) + "\n" for text in shown)
    return re.fullmatch(pattern, "".join(f"{text}\n" for text in printed)) is not None


def renew(text: str) -> str:
    """Returns the page with current included files and output. Elided output is left alone."""

    def replaced(match: re.Match[str]) -> str:
        block = Block(ROOT / "page", 0, match["language"].strip(), match["body"])
        body = block.body
        if block.included is not None:
            body = block.included.read_text(encoding="utf-8")
        elif block.language == "console":
            lines: list[str] = []
            for command in commands(block):
                shown = command.shown
                if shown and ELISION not in shown:
                    shown = run(command.line)[1]
                lines += [f"$ {command.line}", *shown]
            body = "\n".join(lines) + "\n"
        return f"```{match['language']}\n{body}```"

    return _FENCE.sub(replaced, text)


def main() -> None:
    for page in pages():
        text = page.read_text(encoding="utf-8")
        new = renew(text)
        if new != text:
            page.write_text(new, encoding="utf-8")
            print(page.relative_to(ROOT))


if __name__ == "__main__":
    main()
