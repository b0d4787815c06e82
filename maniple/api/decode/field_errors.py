"""Every field of one object that cannot be read: a decoder stops at the first, and so is asked again without it."""

import re
import typing
from collections.abc import Callable, Iterator

import msgspec

from maniple.api.errors import Problem

_MOST_FIELDS = 20
_LARGEST = 1_000_000  # bytes; of a larger object only the first mistake is told
_TOKEN = re.compile(r"([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_NOTHING = object()

Path = tuple[str | int, ...]


class Mistake(typing.NamedTuple):
    problem: Problem
    path: str  # of what must go so that reading can go on; empty if nothing can
    is_missing: bool  # whether the field is not there, rather than wrong


Reader = Callable[[bytes], Mistake | None]  # what is wrong first with a text; None if nothing is


def every_mistake(text: bytes, first: Mistake, *readers: Reader) -> list[Problem]:
    """`first` and all others that the readers find, each on its own: what one must leave out another may read."""
    if len(text) > _LARGEST:
        return [first.problem]
    found: dict[Problem, None] = {}
    for read in readers:
        try:
            document = msgspec.json.decode(text)
        except (ValueError, RecursionError):
            return [first.problem]
        found.update(dict.fromkeys(_mistakes(document, read(text), read)))
    return list(found) or [first.problem]


def _mistakes(document: object, mistake: Mistake | None, read: Reader) -> Iterator[Problem]:
    gone: set[Path] = set()
    for _ in range(_MOST_FIELDS):
        if mistake is None:
            return
        path = _tokens(mistake.path)
        if path in gone:
            path = path[:-1]  # it is needed, and missing only because we took it away: all that needs it goes
        elif not any(taken[: len(path)] == path for taken in gone):  # else it may be wrong because of what we took
            yield _with_value(mistake, document)
            if mistake.is_missing:
                return
        while path and isinstance(path[-1], int):
            path = path[:-1]  # without an item of a list the others would change their place
        if not _remove(document, path):
            return
        gone.add(path)
        mistake = read(msgspec.json.encode(document))


def _with_value(mistake: Mistake, document: object) -> Problem:
    """The problem with what was found, where it says only what is expected."""
    problem = mistake.problem
    if not problem.message.startswith("expected ") or re.search(r", (got|found) ", problem.message):
        return problem
    value = _at(document, _tokens(mistake.path))
    if not isinstance(value, str | int | float):
        return problem
    written = msgspec.json.encode(value).decode() if isinstance(value, bool) else repr(value)
    return Problem(problem.field, f"{problem.message}, found {written if len(written) <= 80 else written[:77] + '…'}")


def _tokens(path: str) -> Path:
    return tuple(int(index) if index.isdecimal() else name or index for name, index in _TOKEN.findall(path))


def _at(document: object, path: Path) -> object:
    for token in path:
        if isinstance(token, int) and isinstance(document, list) and token < len(document):
            document = document[token]
        elif isinstance(token, str) and isinstance(document, dict):
            document = document.get(token, _NOTHING)
        else:
            return _NOTHING
    return document


def _remove(document: object, path: Path) -> bool:
    """Whether there was such a field of a map."""
    owner = _at(document, path[:-1]) if path else None
    if not isinstance(owner, dict) or path[-1] not in owner:
        return False
    del owner[path[-1]]
    return True
