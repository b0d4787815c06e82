"""Reads the files, directories and standard input that options name."""

import errno
import sys
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from pathlib import Path
from typing import BinaryIO

from maniple.api.errors import InputError

ENDINGS = (".yaml", ".yml", ".json")
MOST_BYTES = 2**30  # of one file: a dump of 200,000 pods
_PART_BYTES = 2**24
_UTF_16 = (BOM_UTF16_LE, BOM_UTF16_BE)


def read_sources(names: tuple[str, ...]) -> list[tuple[str, bytes]]:
    """(name, content) of each file; a directory stands for the YAML and JSON files in it."""
    sources: list[tuple[str, bytes]] = []
    wrong: list[str] = []
    for name in names:
        if name == "-":
            try:
                sources.append(("<stdin>", _content(sys.stdin.buffer) if sys.stdin else b""))
            except ValueError as error:
                wrong.append(f"<stdin>: {error}")
            continue
        try:
            paths = _files(name)
        except OSError as error:
            wrong.append(f"{name}: cannot be read: {error.strerror}")
            continue
        if not paths:
            wrong.append(f"{name}: the directory has no file that ends in {', '.join(ENDINGS)}")
        for file in paths:
            try:
                sources.append((str(file), read_file(file)))
            except OSError as error:
                wrong.append(f"{file}: cannot be read: {error.strerror}")
            except ValueError as error:
                wrong.append(f"{file}: {error}")
    if wrong:
        raise InputError(wrong)
    return sources


def read_file(path: Path) -> bytes:
    """Raises OSError, or ValueError if it has no text or never ends."""
    with path.open("rb") as stream:
        return _content(stream)


def _content(stream: BinaryIO) -> bytes:
    parts: list[bytes] = []
    left = MOST_BYTES
    while part := stream.read(_PART_BYTES):
        if not parts and b"\0" in part and not part.startswith(_UTF_16):
            raise ValueError("is not text; expected YAML or JSON")
        left -= len(part)
        if left < 0:
            raise ValueError(f"has more than {MOST_BYTES >> 20} MB; expected a smaller file")
        parts.append(part)
    return b"".join(parts)


def _files(name: str) -> list[Path]:
    if not name:
        raise FileNotFoundError(errno.ENOENT, "the name is empty")  # Path("") would be the current directory
    path = Path(name)
    return sorted(file for file in path.iterdir() if file.suffix in ENDINGS) if path.is_dir() else [path]
