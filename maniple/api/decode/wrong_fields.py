"""Finds every wrong field of an object. A decoder stops at the first, so it runs again without that field."""

import re
import typing
from collections.abc import Callable, Iterator

import msgspec

from maniple.api.errors import Problem, shown

_MOST_FIELDS = 20
_LARGEST = 1_000_000  # bytes; for larger objects only the first problem is reported
_TOKEN = re.compile(r"([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_MISSING = object()

Path = tuple[str | int, ...]


class FieldProblem(typing.NamedTuple):
    problem: Problem
    path: str  # of the field to remove before decoding again; empty if that is impossible
    is_missing: bool  # whether the field is missing, rather than wrong


Check = Callable[[bytes], FieldProblem | None]  # the first problem of a text


def all_problems(text: bytes, first: FieldProblem, *checks: Check) -> list[Problem]:
    """`first` and all others. Each check starts with the whole text: it may accept what another had to remove."""
    if len(text) > _LARGEST:
        return [first.problem]
    problems: dict[Problem, None] = {}
    for check in checks:
        try:
            document = msgspec.json.decode(text)
        except (ValueError, RecursionError):
            return [first.problem]
        problems.update(dict.fromkeys(_problems(document, check(text), check)))
    return list(problems) or [first.problem]


def _problems(document: object, wrong: FieldProblem | None, check: Check) -> Iterator[Problem]:
    removed: set[Path] = set()
    for _ in range(_MOST_FIELDS):
        if wrong is None:
            return
        path = _tokens(wrong.path)
        if path in removed:
            path = path[:-1]  # a required field, missing only because it was removed: remove its owner
        elif not any(other[: len(path)] == path for other in removed):  # else it may be wrong because of a removal
            yield _with_value(wrong, document)
            if wrong.is_missing:
                return
        while path and isinstance(path[-1], int):
            path = path[:-1]  # removing an item would change the indices of the others
        if not _remove(document, path):
            return
        removed.add(path)
        wrong = check(msgspec.json.encode(document))


def _with_value(wrong: FieldProblem, document: object) -> Problem:
    """The problem, with the value if its message says only what is expected."""
    problem = wrong.problem
    if not problem.message.startswith("expected ") or re.search(r", (got|found) ", problem.message):
        return problem
    value = _value_at(document, _tokens(wrong.path))
    if not isinstance(value, str | int | float):
        return problem
    text = msgspec.json.encode(value).decode() if isinstance(value, bool) else shown(value)
    return Problem(problem.field, f"{problem.message}, found {text}")


def _tokens(path: str) -> Path:
    return tuple(int(index) if index.isdecimal() else name or index for name, index in _TOKEN.findall(path))


def _value_at(document: object, path: Path) -> object:
    for token in path:
        if isinstance(token, int) and isinstance(document, list) and token < len(document):
            document = document[token]
        elif isinstance(token, str) and isinstance(document, dict):
            document = document.get(token, _MISSING)
        else:
            return _MISSING
    return document


def _remove(document: object, path: Path) -> bool:
    """Returns whether there was such a field of a map."""
    owner = _value_at(document, path[:-1]) if path else None
    if not isinstance(owner, dict) or path[-1] not in owner:
        return False
    del owner[path[-1]]
    return True
