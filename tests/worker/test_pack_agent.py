"""The archive that pods get: the same bytes every time, nothing in it but the worker's package, for old Pythons too."""

import ast
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

from maniple.worker.pack_agent import agent_pyz
from worker.local_job import HERE


def test_the_archive_is_the_same_every_time_and_small() -> None:
    code = "import sys; from maniple.worker.pack_agent import agent_pyz; sys.stdout.buffer.write(agent_pyz())"
    again = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, cwd=HERE.parent.parent)
    assert again.stdout == agent_pyz()
    assert len(agent_pyz()) < 100_000  # a Secret holds a megabyte


def test_it_can_be_run_and_imported_where_nothing_else_is(tmp_path: Path) -> None:
    archive = tmp_path / "agent.pyz"
    archive.write_bytes(agent_pyz())
    alone = [sys.executable, "-I", "-S"]
    helped = subprocess.run([*alone, str(archive), "--help"], capture_output=True, text=True, check=True)
    assert helped.stdout.startswith("usage: maniple agent")
    script = (
        f"import sys; sys.path.insert(0, {str(archive)!r}); import maniple.worker as w; print(w.notice(), w.__file__)"
    )
    script += "; w.ack(); w.report(step=1); print('torch' in sys.modules, 'ssl' in sys.modules)"
    asked = subprocess.run([*alone, "-c", script], capture_output=True, text=True, check=True)
    assert asked.stdout.split() == ["None", f"{archive}/maniple/worker/__init__.py", "False", "True"]


def test_python_3_9_can_read_all_of_it() -> None:
    with ZipFile(BytesIO(agent_pyz())) as archive:
        for name in archive.namelist():
            ast.parse(archive.read(name), name, feature_version=(3, 9))


def test_wrong_usage_says_what_to_write(tmp_path: Path) -> None:
    archive = tmp_path / "agent.pyz"
    archive.write_bytes(agent_pyz())
    for arguments in ([], ["--"], ["python", "train.py"], ["--nproc", "0", "--", "true"]):
        done = subprocess.run([sys.executable, str(archive), *arguments], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (2, "")
        assert "-- python train.py" in done.stderr
