"""A control group in every hierarchy, for the pods of a real node.

It alone outlives the node's namespaces, so it has a name by which it can be found again.
"""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

REMOVE_S = 10.0


def _hierarchies() -> list[Path]:
    """Where control groups are mounted: one place with version 2, one for each controller with version 1."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return [Path(fields[1]) for fields in mounts if fields[2] in {"cgroup", "cgroup2"}]


def can_be_made() -> bool:
    return bool(_hierarchies()) and all(os.access(path, os.W_OK) for path in _hierarchies())


def create(name: str) -> None:
    """Creates the group in every hierarchy. Version 1 does not inherit which cores a group may use: they are copied."""
    for parent in _hierarchies():
        group = parent / name
        group.mkdir(exist_ok=True)
        for setting in ("cpuset.cpus", "cpuset.mems"):
            if (parent / setting).exists() and (parent / "tasks").exists():
                (group / setting).write_text((parent / setting).read_text())
        controllers = parent / "cgroup.controllers"
        if controllers.exists():
            wanted = " ".join(f"+{each}" for each in controllers.read_text().split())
            _write_if_allowed(parent / "cgroup.subtree_control", wanted)
            _write_if_allowed(group / "cgroup.subtree_control", wanted)


def _write_if_allowed(path: Path, text: str) -> None:
    with suppress(OSError):
        path.write_text(text)


def remove(name: str) -> None:
    """Ends what still runs in the group and removes it, deepest first; the kernel needs a moment to release it."""
    deadline = time.monotonic() + REMOVE_S
    while True:
        left = [path for parent in _hierarchies() if (path := parent / name).exists()]
        if not left or time.monotonic() > deadline:
            return
        for group in left:
            for folder, _, _ in os.walk(group, topdown=False):
                _remove_one(Path(folder))
        time.sleep(0.02)


def _remove_one(group: Path) -> None:
    try:
        for pid in (group / "cgroup.procs").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        group.rmdir()
    except (OSError, ValueError):
        return
