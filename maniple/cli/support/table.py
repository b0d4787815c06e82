"""Plain tables for people: columns padded with spaces, cut to the width of the terminal where there is one."""

import shutil
import sys
from collections.abc import Sequence

from maniple.api.errors import printable


def render(header: Sequence[str], rows: Sequence[Sequence[str]], indent: str = "  ") -> str:
    """The table as text. The last column takes what is left of the line and is folded, never cut."""
    cells = [list(header), *([printable(cell) for cell in row] for row in rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(header))]
    terminal = shutil.get_terminal_size((160, 40)).columns if sys.stdout and sys.stdout.isatty() else 160
    before = len(indent) + sum(widths[:-1]) + 2 * (len(header) - 1)
    room = max(40, terminal - before)
    lines = []
    for row in cells:
        start = indent + "".join(cell.ljust(width) + "  " for cell, width in zip(row[:-1], widths, strict=False))
        for number, part in enumerate(_fold(row[-1], room)):
            lines.append((start if number == 0 else " " * before) + part)
    return "\n".join(line.rstrip() for line in lines)


def columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The table as lines, none of them folded: for a view that is cut to the screen."""
    cells = [list(header), *([printable(cell) for cell in row] for row in rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(header))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def _fold(text: str, width: int) -> list[str]:
    lines, line = [], ""
    for word in text.split(" "):
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, line]
