"""Text that may be printed on a terminal. Names come from the input, and must not move its cursor or hide what follows.

Control characters, line separators, marks that turn the direction of writing, and characters that have no width are
written as escapes. Whatever Maniple prints or logs passes through here.
"""

import re

# Letters and marks that are shown as nothing, though Unicode calls them printable: fillers and variation selectors.
_BLANK = "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef"
_IS_BLANK = re.compile(f"[{_BLANK}]")
_COLOUR = re.compile("(\x1b\\[[0-9;]*m)")


def printable(text: str) -> str:
    """`text` on one line, with everything escaped that is not seen as it is written."""
    if text.isprintable() and (text.isascii() or not _IS_BLANK.search(text)):
        return text
    return "".join(letter if _is_seen(letter) else _escaped(letter) for letter in text)


def printable_lines(text: str) -> str:
    """The same for text of several lines, which may be indented with tabs."""
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))


def printable_log(line: str) -> str:
    """A line that a job has printed. Its colours stay, and end with the line."""
    line = line.rstrip("\r")
    if "\x1b" not in line:
        return printable_lines(line)
    parts = _COLOUR.split(line)
    shown = "".join(part if number % 2 else printable_lines(part) for number, part in enumerate(parts))
    return f"{shown}\x1b[0m" if len(parts) > 1 else shown


def printable_json(text: str) -> str:
    """JSON of the same value. What must be escaped can only stand in strings."""
    if text.isascii():
        return text  # JSON has escaped the control characters
    return "".join(letter if letter == "\n" or _is_seen(letter) else _json_escape(letter) for letter in text)


def _is_seen(letter: str) -> bool:
    return letter.isprintable() and not _IS_BLANK.match(letter)


def _escaped(letter: str) -> str:
    return repr(letter)[1:-1] if not letter.isprintable() else letter.encode("unicode_escape").decode()


def _json_escape(letter: str) -> str:
    units = letter.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
