"""The only place from which commands print. Names in the text cannot control the terminal (api/terminal_text.py)."""

import sys

import click
import msgspec

from maniple.api.terminal_text import printable, printable_json, printable_lines, printable_log

_START_OF_LINE = "\r\033[K"  # and clears it


def say(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Prints text of one or several lines."""
    click.echo(printable_lines(str(text)), err=err, nl=nl)


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
