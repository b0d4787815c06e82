"""containerd, runc and a static busybox, from Debian's packages, unpacked into the cache and not installed.

They are what a real node needs besides Kubernetes' own programs. Package lists are fetched into the cache too, so that
no privilege is needed and the machine's own are left alone.
"""

import shutil
import subprocess
from pathlib import Path

from tools.cluster.go_build import CannotBuildError, Say
from tools.cluster.program_versions import cache_folder

PACKAGES = ("containerd", "runc", "busybox-static")
FETCH_S = 15
FILES = ("usr/bin/containerd", "usr/bin/containerd-shim-runc-v2", "usr/bin/ctr", "usr/sbin/runc", "bin/busybox")


def _folder() -> Path:
    return cache_folder() / "debian"


def path(name: str) -> Path:
    """Where a program of these packages is."""
    return _folder() / next(file for file in FILES if Path(file).name == name)


def missing() -> bool:
    return not _folder().exists()


def fetch(say: Say) -> None:
    """Downloads and unpacks the packages; the folder gets its name when it is complete."""
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        raise CannotBuildError("containerd and runc come from Debian's packages: apt-get and dpkg are needed")
    say(f"fetching {', '.join(PACKAGES)} from Debian's packages")
    unfinished = cache_folder() / ".debian.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    downloads = unfinished / "downloads"
    for folder in (downloads, unfinished / "lists" / "partial"):
        folder.mkdir(parents=True)
    settings = (f"Dir::State::lists={unfinished / 'lists'}", f"Dir::Cache={downloads}", "APT::Sandbox::User=root")
    private = [word for setting in settings for word in ("-o", setting)]
    run(["apt-get", *private, "--quiet", "update"], downloads)
    run(["apt-get", *private, "--quiet", "download", *PACKAGES], downloads)
    for package in sorted(downloads.glob("*.deb")):
        run(["dpkg", "-x", str(package), str(unfinished)], downloads)
    lacking = [file for file in FILES if not (unfinished / file).exists()]
    if lacking:
        raise CannotBuildError(f"Debian's packages {', '.join(PACKAGES)} have no {', '.join(lacking)}")
    shutil.rmtree(downloads)
    shutil.rmtree(unfinished / "lists")
    unfinished.rename(_folder())


def run(command: list[str], folder: Path) -> None:
    """Runs a command in that folder; an error with its last line if it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise CannotBuildError(f"{command[0]} {command[-1]} failed: {lines[-1] if lines else 'it printed nothing'}")
