"""The map of the rooms is complete, and the walks name files and functions that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
ROOMS = sorted(
    path.parent.relative_to(ROOT / "maniple").as_posix() + "/"
    for path in (ROOT / "maniple").rglob("__init__.py")
    if path.parent != ROOT / "maniple"
)
STEP = re.compile(r"`([a-z_/0-9]+\.py)::([A-Za-z_.]+)`")
WALKS = re.split(r"^## Walk: ", PAGE, flags=re.MULTILINE)[1:]


@cache
def names_in(file: str) -> frozenset[str]:
    """`function`, `Class` and `Class.method` of a file."""
    names: set[str] = set()
    for node in ast.parse((ROOT / "maniple" / file).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = (item for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef))
            names.update(f"{node.name}.{method.name}" for method in methods)
    return frozenset(names)


def test_every_room_is_on_the_map() -> None:
    assert sorted(re.findall(r"^\| `([a-z_/]+/)` \|", PAGE, re.MULTILINE)) == ROOMS


def test_there_are_three_walks() -> None:
    assert [walk.splitlines()[0] for walk in WALKS] == [
        "a pod, from watch to bind",
        "an elastic job, from event to API call",
        "a resize",
    ]
    assert all(len(STEP.findall(walk)) >= 8 for walk in WALKS)


@pytest.mark.parametrize(("file", "name"), sorted(set(STEP.findall(PAGE))))
def test_a_step_of_a_walk_exists(file: str, name: str) -> None:
    assert (ROOT / "maniple" / file).is_file(), file
    assert name in names_in(file)
