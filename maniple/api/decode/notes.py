"""Notes about input: what was read differently, set aside or not read. Notes of one kind are one line with a count."""

import re
from collections.abc import Hashable

_MOST_LINES = 30
_BRACKETS = re.compile(r"\[\d+\]")  # places in lists


class Notes:
    def __init__(self) -> None:
        self._groups: dict[Hashable, tuple[str, int]] = {}  # the first note of each kind, and how many there are

    def add(self, kind: Hashable, text: str) -> None:
        first, count = self._groups.get(kind, (text, 0))
        self._groups[kind] = (first, count + 1)

    def set_aside(self, what: str, kind: str, problems: list[str], effect: str = "") -> None:
        """`what`: the object, with its place; `kind`: of the object; `effect`: what of it still counts."""
        fields = tuple(_BRACKETS.sub("[]", problem).partition(": ")[0] for problem in problems)
        self.add(("set aside", kind, fields, effect), f"{what}: set aside{effect}: {'; '.join(problems)}")

    def lines(self) -> list[str]:
        lines = [text if count == 1 else f"{text} ({count - 1} more like it)" for text, count in self._groups.values()]
        rest = len(lines) - _MOST_LINES
        return lines[:_MOST_LINES] + ([f"… and {rest} notes of other kinds"] if rest > 0 else [])
