"""Reads what `-f` names: files, folders, or standard input."""

import sys
from pathlib import Path

from maniple.api.errors import InputError

ENDINGS = (".yaml", ".yml", ".json")


def read_sources(names: tuple[str, ...]) -> list[tuple[str, bytes]]:
    """(name, content) of each file; a folder stands for the YAML and JSON files in it."""
    sources: list[tuple[str, bytes]] = []
    wrong: list[str] = []
    for name in names:
        if name == "-":
            sources.append(("<stdin>", sys.stdin.buffer.read()))
            continue
        path = Path(name)
        paths = sorted(p for p in path.iterdir() if p.suffix in ENDINGS) if path.is_dir() else [path]
        if not paths:
            wrong.append(f"{name}: the folder has no file that ends in {', '.join(ENDINGS)}")
        for file in paths:
            try:
                sources.append((str(file), file.read_bytes()))
            except OSError as error:
                wrong.append(f"{file}: cannot be read: {error.strerror}")
    if wrong:
        raise InputError(wrong)
    return sources
