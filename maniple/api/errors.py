"""Errors that say what is wrong, where, and what to write instead."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from maniple.api.terminal_text import printable


@dataclass(frozen=True, order=True)
class Problem:
    """What is wrong with one field of an object."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


MOST_MESSAGES = 50
_LONGEST_MESSAGE = 2000
_FEW_NAMES = 200
_MOST_COMPARED = 20


class InputError(Exception):
    """Input that cannot be used. Has a message for every problem, on one line, which names the place.

    Of many problems the first are told, and how many more there are.
    """

    def __init__(self, messages: Iterable[str]) -> None:
        told = list(messages)
        rest = len(told) - MOST_MESSAGES
        if rest > 1:  # one more may say already how many there are
            told[MOST_MESSAGES:] = [f"… and {rest} more"]
        self.messages = [printable(message)[:_LONGEST_MESSAGE] for message in told]
        super().__init__("\n".join(self.messages))


def shown(value: object) -> str:
    """The value as it was written, cut off if it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no numbers with more than 4300 digits
        return "a very long number"
    return text if len(text) <= 80 else f"{text[:77]}…"


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or the list of known words if none is close."""
    names = sorted(known)
    if suggestion := did_you_mean(word, names):
        return suggestion
    shown = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    return f"; known: {shown}" if names else ""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or empty."""
    names = sorted(known)
    close = [name for name in names if name.lower() == word.lower()]
    if not close and "/" not in word:  # gpu is nvidia.com/gpu, and not cpu
        close = [name for name in names if name.lower().endswith(f"/{word.lower()}")]
    if not close:
        close = difflib.get_close_matches(word, _alike_after_namespace(word, _of_same_letters(word, names)), 1, 0.6)
    return f"; did you mean {close[-1]!r}?" if close else ""


def _of_same_letters(word: str, names: list[str]) -> list[str]:
    """The names that differ by few letters, if there are many: comparing with each takes long, for many words."""
    if len(names) <= _FEW_NAMES:
        return names
    letters = set(word)
    near = [name for name in names if abs(len(name) - len(word)) <= 2]
    return sorted(near, key=lambda name: len(letters.symmetric_difference(name)))[:_MOST_COMPARED]


def _alike_after_namespace(word: str, names: list[str]) -> list[str]:
    """The names whose part after the last slash is close to the word's: a shared namespace is no similarity."""
    if "/" not in word or not names:
        return names
    own = {name: name.rpartition("/")[2] for name in names}
    alike = set(difflib.get_close_matches(word.rpartition("/")[2], set(own.values()), n=len(names), cutoff=0.6))
    return [name for name in names if own[name] in alike]
