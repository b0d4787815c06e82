"""Errors for the person who reads them: what was wrong, where, and what to write instead."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Problem:
    """One thing wrong with one field of one object."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


_LONGEST_MESSAGE = 2000


class InputError(Exception):
    """Input that cannot be used. Carries every problem found, each a full sentence naming where it is, on one line."""

    def __init__(self, messages: Iterable[str]) -> None:
        self.messages = [printable(message)[:_LONGEST_MESSAGE] for message in messages]
        super().__init__("\n".join(self.messages))


def printable(text: str) -> str:
    """`text` with line breaks and control characters escaped: names come from the input and go to a terminal."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or the list of known words where none is near."""
    names = sorted(known)
    if meant := meant_by(word, names):
        return meant
    shown = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    return f"; known: {shown}" if names else ""


def meant_by(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or nothing."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if not close:
        close = [name for name in names if name.lower() == word.lower()]
    return f"; did you mean {close[-1]!r}?" if close else ""
