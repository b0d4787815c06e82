"""Makes agent.pyz: this package as one archive that any Python from 3.9 on can run and import from.

The bytes depend on the sources alone, so that two replicas of the controller and every restart make the same Secret.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

_LONG_AGO = (1980, 1, 1, 0, 0, 0)
_MAIN = "import sys\nfrom maniple.worker.agent import main\nsys.exit(main())\n"


def agent_pyz() -> bytes:
    """The archive."""
    package = Path(__file__).resolve().parent
    files = {f"maniple/worker/{path.name}": path.read_bytes() for path in package.glob("*.py")}
    files["maniple/__init__.py"] = (package.parent / "__init__.py").read_bytes()
    files["__main__.py"] = _MAIN.encode()
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _LONG_AGO)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, files[name], compresslevel=9)
    return made.getvalue()
