"""Plain tables: columns padded with spaces, folded at the width of the terminal."""

import shutil
import sys
from collections.abc import Iterable, Sequence

from maniple.api.terminal_text import printable
from maniple.cli.support.terminal import say_json

PIPE_WIDTH = 160  # where standard output is no terminal
_LEAST_WIDTH = 40  # of the last column


def render(header: Sequence[str], rows: Sequence[Sequence[str]], indent: str = "  ") -> str:
    """The table as text. The last column takes the rest of the line and is folded, never cut."""
    cells, widths = _layout(header, rows)
    before = len(indent) + sum(widths[:-1]) + 2 * (len(header) - 1)
    room = max(_LEAST_WIDTH, screen_width() - before)
    lines = []
    for row in cells:
        start = indent + "".join(cell.ljust(width) + "  " for cell, width in zip(row[:-1], widths, strict=False))
        for number, part in enumerate(_fold(row[-1], room)):
            lines.append((start if number == 0 else " " * before) + part)
    return "\n".join(line.rstrip() for line in lines)


def columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The table as lines, none of them folded: for a view that is cut to the screen."""
    cells, widths = _layout(header, rows)
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def render_fields(fields: Iterable[tuple[str, str]]) -> str:
    """`  Name:      value`, a line for each; without those that have no value."""
    return "\n".join(f"  {name + ':':11}{printable(value)}" for name, value in fields if value)


def echo_json(value: object) -> None:
    say_json(value)


def screen_width() -> int:
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    return shutil.get_terminal_size((PIPE_WIDTH, 40)).columns if is_terminal else PIPE_WIDTH


def _layout(header: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[list[list[str]], list[int]]:
    """All cells, the header's first, and the width of each column."""
    cells = [[printable(cell) for cell in row] for row in (header, *rows)]
    return cells, [max(len(row[index]) for row in cells) for index in range(len(header))]


def _fold(text: str, width: int) -> list[str]:
    lines, line = [], ""
    for word in text.split(" "):
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, line]
