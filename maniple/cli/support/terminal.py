"""The only place from which commands print. Names in the text cannot control the terminal (api/terminal_text.py).

On a terminal, titles, headers and prefixes get colours after that, unless NO_COLOR is set; FORCE_COLOR sets them
elsewhere, too. The text is the same with and without them.
"""

import logging
import os
import re
import sys

import click
import msgspec

from maniple.api.terminal_text import printable, printable_json, printable_lines, printable_log

_START_OF_LINE = "\r\033[K"  # and clears it
_TITLES = {"Starts": "green", "Waits": "yellow", "Leaves": "red", "Not as in that file": "yellow"}
_PREFIXES = {"error:": "red", "note:": "yellow"}
_HEADER = re.compile(r" *[A-Z][A-Z0-9 ,/%]*")


def say(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Prints text of one or several lines. nl=False: for programs, such as YAML, and never coloured."""
    shown = printable_lines(str(text))
    has_colours = nl and _has_colours(err)
    if has_colours:
        shown = _paint_prefix(shown) if err else paint(shown)
    click.echo(shown, err=err, nl=nl, color=has_colours)


def say_error(message: object) -> None:
    """On one line."""
    say(f"error: {printable(str(message))}", err=True)


def say_note(message: object) -> None:
    """On one line."""
    say(f"note: {printable(str(message))}", err=True)


class SaidLogs(logging.Handler):
    """What libraries log becomes notes. Python would print it raw where nothing is set up."""

    def emit(self, record: logging.LogRecord) -> None:
        say_note(record.getMessage().strip())


def say_json(value: object) -> None:
    say_json_text(msgspec.json.format(msgspec.json.encode(value), indent=1).decode())


def say_json_text(text: str) -> None:
    click.echo(printable_json(text))


def say_log(line: str) -> None:
    """A line of a job's log: unchanged into a file or a pipe."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    click.echo(printable_log(line) if is_terminal else line)


def say_progress(text: str, *, nl: bool = False) -> None:
    """Replaces the last line of standard error, which must be a terminal."""
    click.echo(_START_OF_LINE + printable(text), nl=nl, err=True)


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


def _paint_prefix(text: str) -> str:
    prefix, _, rest = text.partition(" ")
    return f"{click.style(prefix, fg=_PREFIXES[prefix], bold=True)} {rest}" if prefix in _PREFIXES else text


def _has_colours(is_error: bool) -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    stream = sys.stderr if is_error else sys.stdout
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
