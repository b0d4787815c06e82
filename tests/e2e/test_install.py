"""The install page, command by command, on a real API server. The replicas that Helm waits for are simulated; the one
that schedules is real, and runs like their container."""

import os
import re
import shlex
import subprocess
import sys
import urllib.request
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy.conftest import need_helm  # noqa: F401  # a fixture
from deploy.rbac_rights import ROOT
from docs.pages import blocks, commands

from deploy import run_like_container
from e2e.clusters_of_this_run import NewCluster
from tools.cluster import Cluster, ClusterError, free_port, wait_until
from tools.cluster.client import PATIENCE_S
from tools.cluster.program_versions import program_path
from tools.helm import helm_path

PAGE = ROOT / "docs" / "install.md"
DEPLOYMENT = "/apis/apps/v1/namespaces/maniple-system/deployments/maniple"
GROUP = "/apis/maniple.dev/v1alpha1/namespaces/default/podgroups/hello"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "alone"},
    "spec": {
        "schedulerName": "maniple",
        "containers": [{"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": 1}}}],
    },
}
QUEUE_ROW = {
    "NAME": "queue.maniple.dev/default",
    "PARENT": "",
    "WEIGHT": "1",
    "DESERVED-GPUS": "1",
    "ALLOCATED-GPUS": "1",
    "RUNNING": "1",
    "PENDING": "0",
    "AGE": "",
}
GROUP_ROW = {
    "NAME": "podgroup.maniple.dev/hello",
    "QUEUE": "default",
    "PHASE": "Finished",
    "MIN": "4",
    "RUNNING": "0",
    "PENDING": "0",
    "REASON": "Scheduled",
    "AGE": "",
}


class Shell:
    """A reader's shell: helm, kubectl and maniple, and the cluster in $KUBECONFIG."""

    def __init__(self, cluster: Cluster, home: Path) -> None:
        self._programs = {
            "helm": [str(helm_path())],
            "kubectl": [str(program_path("kubectl"))],
            "maniple": [sys.executable, "-m", "maniple"],
        }
        self._environment = os.environ | {"HOME": str(home), "KUBECONFIG": str(cluster.kubeconfig())}

    def run(self, line: str) -> str:
        program, *arguments = shlex.split(line)
        command = [*self._programs[program], *arguments]
        done = subprocess.run(
            command, cwd=ROOT, env=self._environment, capture_output=True, text=True, check=False, timeout=300
        )
        if done.returncode:
            raise ClusterError(f"{line}\n{done.stdout}{done.stderr}")
        return done.stdout


def section(heading: str) -> list[str]:
    """The commands below a heading of the page, without those of podman, which need a registry."""
    text = PAGE.read_text(encoding="utf-8")
    start = text.count("\n", 0, text.index(f"\n## {heading}\n"))
    end = text.count("\n", 0, text.find("\n## ", text.index(f"\n## {heading}\n") + 1) % len(text))
    below = [block for block in blocks(PAGE) if block.language == "console" and start < block.line <= end + 1]
    found = [command.line for block in below for command in commands(block)]
    assert found, heading
    return [line for line in found if not line.startswith("podman ")]


@contextmanager
def replica(cluster: Cluster, deployed: dict[str, Any], folder: Path) -> Iterator[None]:
    """One real replica: the Deployment's arguments and service account, on a free port."""
    port = free_port()
    spec = deployed["spec"]["template"]["spec"]
    arguments = [each for each in spec["containers"][0]["args"] if not each.startswith("--listen")]
    known = yaml.safe_load(cluster.service_account_kubeconfig("maniple-system", spec["serviceAccountName"]).read_text())
    account = folder / "account"
    account.mkdir()
    (account / "token").write_text(known["users"][0]["user"]["token"])
    (account / "ca.crt").write_bytes(b64decode(known["clusters"][0]["cluster"]["certificate-authority-data"]))
    (account / "namespace").write_text("maniple-system")
    command = [str(run_like_container.install(folder) / "bin" / "maniple"), *arguments, f"--listen=127.0.0.1:{port}"]
    server = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(cluster.spec.ports["apiserver"])}
    log = folder / "log"
    with (
        log.open("wb") as output,
        subprocess.Popen(
            run_like_container.contained(command, account),
            env=run_like_container.environment(**server),
            cwd="/",
            stdout=output,
            stderr=output,
        ) as process,
    ):

        def passes(probe: str) -> bool:
            assert process.poll() is None, f"it ended:\n{log.read_text()[-3000:]}"
            path = spec["containers"][0][probe]["httpGet"]["path"]
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
                    return bool(answer.status == 200)
            except OSError:
                return False

        try:
            wait_until("the replica to be ready", lambda: passes("readinessProbe"))
            assert passes("livenessProbe")
            yield
            assert passes("livenessProbe")
        finally:
            process.terminate()
            process.wait(PATIENCE_S)
    assert process.returncode == 0, log.read_text()[-3000:]


@pytest.mark.usefixtures("need_helm")
def test_the_install_page_from_an_empty_cluster_to_a_running_gang_and_back(
    new_cluster: NewCluster, tmp_path: Path
) -> None:
    reason = run_like_container.why_not()
    if reason:
        pytest.skip(reason)
    cluster = new_cluster(nodes=2, gpus=2, kube_scheduler=True)
    shell = Shell(cluster, tmp_path)
    with cluster.client() as client:
        install, apply_gang, show = section("Five commands")
        shell.run(install)
        deployed = client.get(DEPLOYMENT)
        assert deployed["status"]["readyReplicas"] == 2
        pods = client.get("/api/v1/namespaces/maniple-system/pods")["items"]
        assert len({pod["spec"]["nodeName"] for pod in pods}) == 2, "not on nodes of their own"
        with replica(cluster, deployed, tmp_path):
            shell.run(apply_gang)
            # A simulated node ends the pods of Jobs as soon as they run.
            wait_until("the gang to end", lambda: client.get(GROUP).get("status", {}).get("succeeded") == 4)
            client.post("/api/v1/namespaces/default/pods", POD)
            # A decided gang counts as allocated at once, and as running when it is bound.
            with suppress(ClusterError):  # said better below
                wait_until("the queue to show the pod", lambda: ageless(shell.run(show)) == [QUEUE_ROW, GROUP_ROW])
            assert ageless(shell.run(show)) == [QUEUE_ROW, GROUP_ROW]
            assert [list(row) for row in rows(page_shows())] == [list(QUEUE_ROW), list(GROUP_ROW)]
            for line in section("Configuration"):
                shell.run(line)
        arguments = client.get(DEPLOYMENT)["spec"]["template"]["spec"]["containers"][0]["args"]
        assert "--policy=/etc/maniple/policy.yaml" in arguments
        for line in section("Upgrade"):
            shell.run(line)
        uninstall, remove_namespace, remove_lease, remove_all = section("Removal")
        shell.run(uninstall)
        assert not client.exists("/apis/rbac.authorization.k8s.io/v1/clusterroles/maniple")
        assert client.exists(GROUP), "everybody's gangs stay"
        shell.run(remove_namespace)
        shell.run(remove_lease)
        shell.run(remove_all)
        assert client.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")["items"] == []

        with pytest.raises(ClusterError, match='no matches for kind "Queue"'):
            shell.run(f"kubectl --cache-dir={tmp_path / 'new'} apply --server-side -f deploy/install.yaml")
        for line in section("Without Helm"):
            shell.run(line)
        image = client.get(DEPLOYMENT)["spec"]["template"]["spec"]["containers"][0]["image"]
        assert image == "registry.example.com/maniple:0.1.0"


def ageless(printed: str) -> list[dict[str, str]]:
    return [row | {"AGE": ""} for row in rows(printed)]


def page_shows() -> str:
    (shown,) = (block.body for block in blocks(PAGE) if block.body.startswith("NAME "))
    return shown


def rows(printed: str) -> list[dict[str, str]]:
    """The rows of kubectl's tables, by column heading."""
    found = []
    for table in printed.strip().split("\n\n"):
        heading, *lines = table.splitlines()
        starts = [match.start() for match in re.finditer(r"\S+", heading)]
        cuts = list(zip(starts, [*starts[1:], None], strict=True))
        names = [heading[start:end].strip() for start, end in cuts]
        found += [dict(zip(names, (line[start:end].strip() for start, end in cuts), strict=True)) for line in lines]
    return found
