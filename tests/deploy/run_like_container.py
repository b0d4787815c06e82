"""Runs Maniple like the Deployment's container, without an image from a registry: the wheel in its own environment,
a user with only a number, no capabilities, a read-only root, and the service account where a pod finds it."""

import shlex
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

from deploy.rbac_rights import ROOT

NOBODY = 65532
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_UNSHARE = ["unshare", "--user", "--mount", f"--map-user={NOBODY}", f"--map-group={NOBODY}", "--keep-caps"]
_WITHOUT_RIGHTS = ["setpriv", "--no-new-privs", "--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all"]
_MOUNT_ACCOUNT = "mount -t tmpfs none /run; mkdir -p {account}; cp {files} {account}; "
_READ_ONLY = (
    "mount -t tmpfs -o ro none /dev/shm; "
    "for folder in /tmp /run /; do if mountpoint -q $folder; then mount -o remount,bind,ro $folder; fi; done; "
)


def why_not() -> str:
    """Why such a container cannot run here; empty if it can."""
    try:
        subprocess.run(contained(["true"]), check=True, capture_output=True, text=True)
    except FileNotFoundError:
        return "it needs Linux with unshare"
    except subprocess.CalledProcessError as error:
        return f"no namespaces of our own: {error.stderr.strip()}"
    return ""


def contained(command: list[str], account: Path | None = None) -> list[str]:
    """The command in its container; `account` is a folder with the files token, ca.crt and namespace."""
    steps = "set -e; "
    if account is not None:
        steps += _MOUNT_ACCOUNT.format(account=ACCOUNT, files=shlex.quote(str(account)) + "/*")
    return [*_UNSHARE, "sh", "-c", steps + _READ_ONLY + "exec " + shlex.join([*_WITHOUT_RIGHTS, *command])]


def environment(**more: str) -> dict[str, str]:
    """Only what the image sets."""
    return {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1", **more}


def install(folder: Path, only: tuple[str, ...] = ()) -> Path:
    """Builds the wheel and installs it into its own environment.

    Dependencies are those of the tests' own environment: all of them, or only the named packages.
    """
    pip = [sys.executable, "-m", "pip", "--quiet"]
    building = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(building, check=True)
    (wheel,) = folder.glob("maniple-*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    python = folder / "venv" / "bin" / "python"
    subprocess.run([*pip, "--python", str(python), "install", "--no-deps", str(wheel)], check=True)
    packages = next((folder / "venv" / "lib").glob("python*/site-packages"))
    if not only:
        (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    for name in only:
        for top in {file.parts[0] for file in metadata.files(name) or () if ".." not in file.parts}:
            (packages / top).symlink_to(Path(sysconfig.get_path("purelib")) / top)
    return folder / "venv"
