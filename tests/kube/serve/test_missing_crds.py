"""A cluster without our CRDs: who looks is told, and not that there is nothing to do."""

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kube.transport.scripted_server import UNKNOWN, Request, Says, list_of, scripted
from maniple.cli.main import group
from maniple.kube.transport.resource_kinds import RESOURCES, missing_crds

NODE = {
    "metadata": {"name": "n1", "uid": "n1", "resourceVersion": "1"},
    "status": {
        "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}
POD = {
    "metadata": {"name": "a", "namespace": "ns", "uid": "a", "resourceVersion": "2"},
    "spec": {"schedulerName": "maniple", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
}


def run(tmp_path: Path, *arguments: str, has_pod: bool = False, has_crds: bool = False) -> Result:
    def answer(request: Request) -> Says:
        if "maniple.dev" in request.path and not has_crds:
            return UNKNOWN
        items = {"/api/v1/nodes": [NODE], "/api/v1/pods": [POD] if has_pod else []}
        return list_of(*items.get(request.path, []))

    async def play() -> Result:
        async with scripted(answer) as (server, _):
            config = {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.port}"}}],
                "users": [{"name": "u", "user": {}}],
            }
            path = tmp_path / "kubeconfig"
            path.write_text(json.dumps(config))
            return await asyncio.to_thread(CliRunner().invoke, group, [*arguments, "--kubeconfig", str(path)])

    return asyncio.run(play())


@pytest.mark.parametrize("arguments", [("serve", "--dry-run"), ("serve", "--once", "--no-leader-elect")])
def test_nothing_to_do_is_not_said_of_gangs_that_cannot_be_seen(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    result = run(tmp_path, *arguments)
    assert result.exit_code == 0, result.output
    assert "Nothing to do" not in result.output
    assert "the cluster has no elasticjobs, podgroups, queues, topologies" in result.stderr
    assert "maniple crds | kubectl apply" in result.stderr


def test_single_pods_are_planned_all_the_same(tmp_path: Path) -> None:
    result = run(tmp_path, "serve", "--dry-run", has_pod=True)
    assert "Starts" in result.stdout
    assert "ns/a" in result.stdout
    assert "install their CRDs" in result.stderr


def test_a_plan_of_a_live_cluster_says_it_too(tmp_path: Path) -> None:
    assert "install their CRDs" in run(tmp_path, "plan", "--live", has_pod=True).stderr


def test_with_them_nothing_is_said(tmp_path: Path) -> None:
    result = run(tmp_path, "serve", "--dry-run", has_crds=True)
    assert "Nothing to do." in result.stdout
    assert result.stderr == ""


def test_kinds_of_other_systems_are_not_missed() -> None:
    assert missing_crds(resource for resource in RESOURCES if resource.is_foreign) == ""
