"""Commands that only ask the API server something load nothing that takes long to import."""

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("numpy", "kubernetes_asyncio", "aiohttp", "cryptography", "prometheus_client", "uvloop", "maniple.scheduler")

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: main
contexts: [{name: main, context: {cluster: here, user: me}}]
clusters: [{name: here, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: me, user: {token: abc}}]
"""


def loaded(code: str) -> set[str]:
    """The heavy modules that are loaded after the code."""
    shown = f"print(*(name for name in {HEAVY!r} if name in sys.modules))"
    script = f"import sys\ntry:\n    {code}\nexcept SystemExit: pass\nsys.stdout = sys.__stdout__; {shown}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "command",
    [
        "jobs",
        "jobs -A -o json",
        "jobs -q research",
        "logs bert",
        "logs bert --follow",
        "resize bert --pin 2",
        "suspend bert",
        "resume bert",
        "delete bert",
        "delete bert --wait",
        "describe bert",
        "submit --name bert --gpus 1 --image training:1 -- python",
    ],
)
def test_commands_about_jobs_load_only_what_they_need(command: str, tmp_path: Path) -> None:
    """Nobody answers at that address: a command logs in, asks, and fails."""
    config = tmp_path / "config"
    config.write_text(KUBECONFIG)
    words = [*command.split(), *([] if "submit" in command else ["--kubeconfig", str(config)])]
    code = f"import os; os.environ['KUBECONFIG'] = {str(config)!r}; sys.argv = {['maniple', *words]!r}"
    assert loaded(f"{code}; from maniple.cli.main import main; main()") == set()


@pytest.mark.parametrize("words", ["--help", "jobs --help", "serve --help", "completion bash", "--version"])
def test_help_and_completion_load_nothing_heavy(words: str) -> None:
    code = f"sys.argv = {['maniple', *words.split()]!r}; from maniple.cli.main import main; main()"
    heavy = loaded(code) - ({"numpy", "maniple.scheduler"} if words.startswith("serve") else set())
    assert heavy == set()
