"""Files that are no text, or that never end, are refused before they fill the memory."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from cli.run_maniple import run_here
from maniple.cli.support import read_files

NODE = "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n"


@pytest.mark.parametrize("option", ["-f", "--policy"])
@pytest.mark.parametrize("name", ["/dev/zero", "a.gz"])
def test_what_is_no_text_is_refused(name: str, option: str, tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(b"\x1f\x8b\x08\x00" + bytes(range(256)))
    (tmp_path / "n.yaml").write_text(NODE)
    file = tmp_path / name  # an absolute name stays as it is
    done = run_here("plan", "-f", tmp_path / "n.yaml", option, file)
    assert done.returncode == 2
    assert done.stderr == f"error: {file}: is not text; expected YAML or JSON\n"


def test_text_that_never_ends_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            return b"y\n" * (size // 2)

    monkeypatch.setattr(read_files, "MOST_BYTES", 64 << 20)
    with pytest.raises(ValueError, match="has more than 64 MB; expected a smaller file"):
        read_files._content(Endless())  # type: ignore[arg-type]  # all that is used of it is here


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_text_of_other_systems_is_read(encoding: str, tmp_path: Path) -> None:
    file = tmp_path / "n.yaml"
    file.write_bytes(NODE.replace("\n", "\r\n").encode(encoding))
    assert run_here("plan", "-f", file).returncode == 0
