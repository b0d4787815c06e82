"""An option with one value that is given twice is refused, by every command; a list of values is not."""

from __future__ import annotations

import click
import pytest

from cli.run_maniple import run_here
from maniple.cli.main import COMMANDS, group


def single_options() -> list[tuple[str, ...]]:
    """(command, option), for each option that takes one value."""
    context = click.Context(group)
    found: list[tuple[str, ...]] = []
    for name in COMMANDS:
        command = group.get_command(context, name)
        assert command is not None
        inner = command.commands.items() if isinstance(command, click.Group) else ()
        for words, each in [((name,), command), *(((name, word), one) for word, one in inner)]:
            options = [param for param in each.params if isinstance(param, click.Option)]
            single = [option for option in options if not (option.multiple or option.is_flag or option.count)]
            found += [(*words, option.opts[-1]) for option in single]
    return found


@pytest.mark.parametrize("words", single_options(), ids=" ".join)
def test_an_option_given_twice_is_refused(words: tuple[str, ...]) -> None:
    *command, option = words
    done = run_here(*command, option, "1", option, "2")
    assert done.returncode == 2
    assert f"Option '{option}' is given 2 times; expected once." in done.stderr


def test_a_list_of_values_and_what_follows_a_double_dash_are_no_repetition() -> None:
    done = run_here("plan", "-f", "nosuch.yaml", "-f", "nosuch2.yaml")
    assert "nosuch2.yaml: cannot be read" in done.stderr
    done = run_here("submit", "--name", "a", "--image", "i", "--dry-run", "--", "train", "--name", "b", "--name", "c")
    assert "times" not in done.stderr
