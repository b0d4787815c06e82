"""What commands print for people: results, errors and notes. JSON, YAML and logs are printed as they are.

Control characters are escaped first. On a terminal, titles, headers and prefixes then get colours, unless NO_COLOR is
set; FORCE_COLOR sets them elsewhere too. The text is the same with and without them.
"""

import os
import re
import sys

import click

from maniple.api.errors import printable

_TITLES = {"Starts": "green", "Waits": "yellow", "Leaves": "red", "Not as in that file": "yellow"}
_HEADER = re.compile(r" *[A-Z][A-Z0-9 ,/%]*")


def show(text: str) -> None:
    """Prints a result to standard output."""
    text = "\n".join(map(printable, text.split("\n")))
    has_colours = _has_colours(is_error=False)
    click.echo(paint(text) if has_colours else text, color=has_colours)


def show_error(message: str) -> None:
    _show_message("error", message, "red")


def show_note(message: str) -> None:
    _show_message("note", message, "yellow")


def _show_message(kind: str, message: str, colour: str) -> None:
    has_colours = _has_colours(is_error=True)
    prefix = click.style(f"{kind}:", fg=colour, bold=True) if has_colours else f"{kind}:"
    click.echo(f"{prefix} {printable(message)}", err=True, color=has_colours)


def paint(text: str) -> str:
    """Colours what a table begins with: a title is at the start of a line and has indented lines below it."""
    lines = text.split("\n")
    painted = []
    for number, line in enumerate(lines):
        below = lines[number + 1] if number + 1 < len(lines) else ""
        above = lines[number - 1] if number else ""
        if line and not line.startswith(" ") and below.startswith("  "):
            painted.append(click.style(line, fg=_TITLES.get(line.partition(" (")[0]), bold=True))
        elif _HEADER.fullmatch(line) and not above.startswith("  ") and (above or not number):
            painted.append(click.style(line, dim=True))
        else:
            painted.append(line)
    return "\n".join(painted)


def _has_colours(*, is_error: bool) -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    stream = sys.stderr if is_error else sys.stdout
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
