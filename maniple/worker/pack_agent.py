"""Builds agent.pyz: this package as one archive that Python 3.9 or newer can run and import from.

The bytes depend on the sources only, so that all replicas of the controller and every restart write the same Secret.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

_TIMESTAMP = (1980, 1, 1, 0, 0, 0)
_MAIN = "import sys\nfrom maniple.worker.agent import main\nsys.exit(main())\n"


def agent_pyz() -> bytes:
    package = Path(__file__).resolve().parent
    files = {f"maniple/worker/{path.name}": path.read_bytes() for path in package.glob("*.py")}
    files["maniple/__init__.py"] = (package.parent / "__init__.py").read_bytes()
    files["__main__.py"] = _MAIN.encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _TIMESTAMP)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, files[name], compresslevel=9)
    return buffer.getvalue()
