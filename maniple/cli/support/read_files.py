"""Reads the files, directories and standard input that options name."""

import errno
import sys
from pathlib import Path

from maniple.api.errors import InputError

ENDINGS = (".yaml", ".yml", ".json")


def read_sources(names: tuple[str, ...]) -> list[tuple[str, bytes]]:
    """(name, content) of each file; a directory stands for the YAML and JSON files in it."""
    sources: list[tuple[str, bytes]] = []
    wrong: list[str] = []
    for name in names:
        if name == "-":
            sources.append(("<stdin>", sys.stdin.buffer.read() if sys.stdin else b""))
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
                sources.append((str(file), file.read_bytes()))
            except OSError as error:
                wrong.append(f"{file}: cannot be read: {error.strerror}")
    if wrong:
        raise InputError(wrong)
    return sources


def _files(name: str) -> list[Path]:
    if not name:
        raise FileNotFoundError(errno.ENOENT, "the name is empty")  # Path("") would be the current directory
    path = Path(name)
    return sorted(file for file in path.iterdir() if file.suffix in ENDINGS) if path.is_dir() else [path]
