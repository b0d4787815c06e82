"""The walk on the page about clusters, with the commands that it shows, on a cluster like the one that it starts."""

import os
import subprocess
import sys
from pathlib import Path

from docs.pages import blocks, commands

from e2e import clusters_of_this_run
from e2e.serve_process import OURS, ROOT
from tools.cluster import wait_until
from tools.cluster.program_versions import program_path

STARTS = ("make cluster", "export ")  # what `new_cluster` does
ENDS = ("kill %1", "make cluster-down")


def shown() -> list[str]:
    """The commands of the page up to its list of commands."""
    page = ROOT / "docs" / "cluster.md"
    last = page.read_text().splitlines().index("## Commands")
    return [
        command.line
        for block in blocks(page)
        if block.language == "console" and block.line < last
        for command in commands(block)
    ]


def test_the_page_leads_to_a_running_job(new_cluster: clusters_of_this_run.NewCluster, tmp_path: Path) -> None:
    cluster = new_cluster(nodes=4)
    client = cluster.client()
    programs = (str(Path(sys.executable).parent), str(program_path("kubectl").parent))
    path = os.pathsep.join([*programs, os.environ["PATH"]])
    env = os.environ | {"KUBECONFIG": str(cluster.kubeconfig()), "PATH": path}

    def do(line: str, code: int = 0) -> str:
        done = subprocess.run(line, shell=True, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == code, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def running(job: str) -> int:
        pods = client.get("/api/v1/namespaces/default/pods")["items"]
        mine = [pod for pod in pods if pod["metadata"]["labels"].get("maniple.dev/job") == job]
        return sum(pod["status"].get("phase") == "Running" for pod in mine)

    def phase(group: str) -> str:
        status: str = client.get(f"{OURS}/namespaces/default/podgroups/{group}")["status"].get("phase", "")
        return status

    serving: subprocess.Popen[bytes] | None = None
    done: list[str] = []
    try:
        for line in shown():
            if line.startswith((*STARTS, *ENDS)):
                continue
            done.append(line)
            if line.endswith(" &"):
                program = line.removesuffix(" &").removesuffix(" 2> serve.log").split()
                with (tmp_path / "serve.log").open("wb") as log:
                    serving = subprocess.Popen(program, env=env, cwd=ROOT, stderr=log)
                continue
            do(line)
            if line.startswith("maniple submit"):
                wait_until("8 replicas", lambda: running("bert") == 8)
                assert "is simulated, and runs nothing" in do("maniple logs bert", 2)
            elif line.startswith("maniple resize"):
                wait_until("6 replicas", lambda: running("bert") == 6)
            elif line.startswith("kubectl apply -f examples/"):
                wait_until("the gang to be over", lambda: phase("hello") == "Finished")
        assert not client.exists(f"{OURS}/namespaces/default/elasticjobs/bert")
        assert any(line.startswith("maniple delete") for line in done)
    finally:
        client.close()
        if serving is not None:
            serving.terminate()
            serving.wait(60)
