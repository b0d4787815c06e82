"""Builds what a cluster and its tests need into the cache, once.

Each program is kept as soon as it is finished, so an interrupted build continues where it stopped. Two builds at the
same time wait for each other instead of doing the work twice.
"""

import fcntl
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.cluster import debian_packages, go_build, pytorch
from tools.cluster.go_build import CannotBuildError, Say
from tools.cluster.program_versions import BY_NAME, KWOK, cache_folder, missing_programs, source_folder

ALL = tuple(BY_NAME)
# Set to 1 where a missing cluster is a failure, as in CI.
REQUIRE_VARIABLE = "MANIPLE_REQUIRE_CLUSTER"
STAGES = {
    "node-initialize": "node/fast/node-initialize.yaml",
    "node-heartbeat-with-lease": "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod-ready": "pod/fast/pod-ready.yaml",
    "pod-complete": "pod/fast/pod-complete.yaml",
    "pod-delete": "pod/fast/pod-delete.yaml",
}


def stages_path() -> Path:
    """How simulated nodes and pods behave, as KWOK ships it."""
    return source_folder(KWOK) / "stages.yaml"


def what_is_missing(names: tuple[str, ...] = ALL) -> str:
    """What `ensure` would build and fetch, and how long that takes on two idle cores; empty if nothing is missing."""
    parts = [program.name for program in missing_programs(names)]
    seconds = sum(program.build_s for program in missing_programs(names))
    if debian_packages.missing():
        parts.append(", ".join(debian_packages.PACKAGES))
        seconds += debian_packages.FETCH_S
    if pytorch.missing():
        parts.append(pytorch.PACKAGE)
        seconds += pytorch.FETCH_S
    return f"{', '.join(parts)}: {_minutes(seconds)}" if parts else ""


def _minutes(seconds: int) -> str:
    return f"about {max(1, round(seconds / 60))} min on two idle cores"


def is_built(names: tuple[str, ...] = ALL, with_packages: bool = True, with_torch: bool = False) -> bool:
    if missing_programs(names) or _missing_stages(names) or (with_packages and debian_packages.missing()):
        return False
    return not (with_torch and pytorch.missing())


def ensure(say: Say, names: tuple[str, ...] = ALL, with_packages: bool = True, with_torch: bool = False) -> None:
    """Builds what is missing of these programs; says what, how long it takes, and how far it is."""
    if is_built(names, with_packages, with_torch):
        return
    if platform.system() != "Linux":
        raise CannotBuildError(f"a cluster needs Linux, this is {platform.system()}")
    with _locked_cache(say):
        missing = missing_programs(names)
        if missing:
            listed = ", ".join(program.name for program in missing)
            takes = _minutes(sum(program.build_s for program in missing))
            say(f"building {listed}: once, {takes}, into {cache_folder()}")
        for program in missing:
            go_build.build(program, say)
            if program.source is KWOK:
                _write_stages()
        if _missing_stages(names):
            _write_stages()
        if with_packages and debian_packages.missing():
            debian_packages.fetch(say)
        if with_torch and pytorch.missing():
            pytorch.fetch(say)
        if not missing_programs(ALL):
            go_build.remove_work()


def _missing_stages(names: tuple[str, ...]) -> bool:
    return "kwok" in names and not stages_path().exists()


def _write_stages() -> None:
    folder = go_build.download(KWOK) / "kustomize" / "stage"
    texts = [(folder / path).read_text() for path in STAGES.values()]
    unfinished = stages_path().with_suffix(".unfinished")
    unfinished.write_text("\n---\n".join(texts))
    unfinished.rename(stages_path())


@contextmanager
def _locked_cache(say: Say) -> Iterator[None]:
    """Holds the cache's lock; the system releases it even if the process is killed."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    with (cache_folder() / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another build is under way: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
