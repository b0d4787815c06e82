"""Stock PyTorch for tests, from Debian's packages: a root folder, a way to run it here, and an image of it.

Unpacked, not installed: no package's scripts run, and the machine is not changed. What a training step on a CPU
never loads is left out (torch is linked with many video libraries), which halves what a node has to import.
"""

import os
import platform
import shutil
import subprocess
from pathlib import Path

from tools.cluster import debian_packages, images
from tools.cluster.go_build import CannotBuildError, Say
from tools.cluster.program_versions import cache_folder

# Raise it when what is made here changes: a new recipe never meets an old folder.
RECIPE = 1
PACKAGE = "python3-torch"
FETCH_S = 150
IMAGE = "maniple.dev/torch:local"
LIBRARIES = f"usr/lib/{platform.machine()}-linux-gnu"
LOADERS = {"x86_64": "lib64/ld-linux-x86-64.so.2", "aarch64": "lib/ld-linux-aarch64.so.1"}
LEFT_OUT = (
    "usr/include",
    "usr/lib/libtorch-test",
    "usr/lib/python3/dist-packages/sympy",
    "usr/lib/python3/dist-packages/torch/bin/*test*",
    "usr/lib/python3/dist-packages/torch/include",
    "usr/lib/python3/dist-packages/torch/test",
    "usr/share",
    "var",
)
# Debian chooses between several of these with links that a package's script makes.
CHOICES = {"libblas.so.3": "blas/libblas.so.3", "liblapack.so.3": "lapack/liblapack.so.3"}
SMALL_BYTES = 1 << 20
PYTHON_VARIABLE = "MANIPLE_TORCH_PYTHON"
# One step of training, to compile what it imports and to see which libraries it has.
PROBE = """
import ctypes, http.client, sqlite3, ssl, torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
store = distributed.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.Adam(model.parameters())
DistributedDataParallel(model)(torch.ones(1, 2)).sum().backward()
optimizer.step()
torch.save(optimizer.state_dict(), "/dev/null")
print(*{line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}, sep="\\n")
"""


def _folder() -> Path:
    return cache_folder() / f"{PACKAGE}-{RECIPE}"


def python() -> Path:
    """Runs this Python, with torch, on the machine itself; or another that has one, to try another version."""
    chosen = os.environ.get(PYTHON_VARIABLE)
    return Path(chosen) if chosen else _folder() / "python3"


def image() -> Path:
    return _folder() / "image.tar"


def missing() -> bool:
    return not _folder().exists()


def fetch(say: Say) -> None:
    """Downloads, unpacks and trims; the folder gets its name when complete. Call `debian_packages.fetch` first."""
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb") and shutil.which("tar")):
        raise CannotBuildError("PyTorch comes from Debian's packages: apt-get, dpkg-deb and tar are needed")
    unfinished = cache_folder() / f".{PACKAGE}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    say(f"fetching {PACKAGE} and what it needs from Debian's packages: 260 MB, once")
    packages = _download(unfinished / "apt")
    say(f"unpacking {len(packages)} packages: about a minute")
    root = unfinished / "root"
    _unpack(packages, root)
    shutil.rmtree(unfinished / "apt")
    _write_python(unfinished / "python3", root)
    say("trimming it, and writing an image of it")
    _trim(unfinished / "python3", root)
    _add_shell(root)
    _write_python(unfinished / "python3", _folder() / "root")
    layer = unfinished / "layer.tar"
    debian_packages.run(
        ["tar", "--create", "--file", str(layer), "--numeric-owner", "--owner=0", "--group=0", "."], root
    )
    with layer.open("rb") as content:
        images.write_image(unfinished / "image.tar", IMAGE, content, ["/usr/bin/python3"])
    layer.unlink()
    unfinished.rename(_folder())


def _download(folder: Path) -> list[Path]:
    """The packages for an empty system, so that all dependencies are included."""
    archives = folder / "archives"
    for each in (archives / "partial", folder / "lists" / "partial"):
        each.mkdir(parents=True)
    (folder / "status").touch()
    settings = {
        "Dir::State::lists": folder / "lists",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder,
        "Dir::Cache::archives": archives,
        "APT::Sandbox::User": "root",
        "APT::Install-Recommends": "false",
        "Debug::NoLocking": "true",
    }
    private = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    debian_packages.run(["apt-get", *private, "--quiet", "update"], folder)
    debian_packages.run(["apt-get", *private, "--quiet", "--yes", "--download-only", "install", PACKAGE], folder)
    return sorted(archives.glob("*.deb"))


def _unpack(packages: list[Path], root: Path) -> None:
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    left_out = [f"--exclude=./{each}" for each in LEFT_OUT]
    for package in packages:
        content = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE)
        # Some packages have /lib as a folder: it stays the link that it is.
        unpack = ["tar", "--extract", "--keep-directory-symlink", "--no-same-owner", *left_out]
        done = subprocess.run(unpack, stdin=content.stdout, cwd=root, check=False)
        if content.wait() or done.returncode:
            raise CannotBuildError(f"cannot unpack {package.name}")
    for name, target in CHOICES.items():
        (root / LIBRARIES / name).symlink_to(target)


def _write_python(path: Path, root: Path) -> None:
    """A script that runs the root's Python with the root's own loader and libraries: no container, no privilege."""
    python3, libraries = root / "usr/bin/python3", root / LIBRARIES
    places = f"{libraries}:{libraries / 'pulseaudio'}:{root / 'usr/lib'}"
    loader = f"{root / LOADERS[platform.machine()]} --library-path {places} --argv0 {python3}"
    path.write_text(f'#!/bin/sh\nPYTHONHOME={root / "usr"} exec {loader} {python3} "$@"\n', encoding="utf-8")
    path.chmod(0o755)


def _trim(python3: Path, root: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    probe = subprocess.run(
        [str(python3), "-c", PROBE],
        env=environment | {"GLOO_SOCKET_IFNAME": "lo"},
        capture_output=True,
        text=True,
        check=False,
    )
    if probe.returncode:
        raise CannotBuildError(f"PyTorch does not run: {probe.stderr.strip().splitlines()[-1]}")
    used = {os.path.realpath(line) for line in probe.stdout.splitlines()}
    for path in (root / LIBRARIES).rglob("*"):
        is_large = path.is_file() and not path.is_symlink() and path.stat().st_size > SMALL_BYTES
        if is_large and str(path.resolve()) not in used:
            path.unlink()


def _add_shell(root: Path) -> None:
    shutil.copy(debian_packages.path("busybox"), root / "usr/bin/busybox")
    for applet in images.APPLETS:
        if not (root / "usr/bin" / applet).exists():
            (root / "usr/bin" / applet).symlink_to("busybox")
    for folder in ("dev", "proc", "root", "run", "sys", "tmp"):
        (root / folder).mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)
    (root / "etc/passwd").write_bytes(images.PASSWORDS)
    (root / "etc/group").write_bytes(images.GROUPS)
