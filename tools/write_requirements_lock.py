"""Renews requirements.lock: resolves pyproject.toml's ranges in a throw-away environment and freezes the outcome.

Exact versions without hashes or addresses, so that the file does not depend on pip's index.
"""

import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [
        *project["project"]["dependencies"],
        *project["project"]["optional-dependencies"]["cluster"],
        *project["dependency-groups"]["dev"],
        *project["build-system"]["requires"],
        "editables",  # hatchling needs it for --editable
    ]
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        pip = [str(Path(folder) / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet"]
        subprocess.run([*pip, "install", *wanted], check=True)
        frozen = subprocess.run([*pip, "freeze"], check=True, capture_output=True, text=True).stdout
    header = "# Written by `make lock` from pyproject.toml; CI, `make install` and `make dev` use exactly these.\n"
    (ROOT / "requirements.lock").write_text(header + frozen)
    print(f"requirements.lock: {len(frozen.splitlines())} packages", file=sys.stderr)


if __name__ == "__main__":
    main()
