"""Logging in like kubectl: an exec plugin, a token that is replaced, missing rights, no server."""

import json
from pathlib import Path

import yaml

from e2e.serve_process import Bench


def test_an_exec_plugin_is_called_again_when_its_token_is_refused(bench: Bench, tmp_path: Path) -> None:
    """Its first token is invalid, like a revoked one: the server refuses it, and the plugin is called again."""
    bench.nodes(1)
    account = yaml.safe_load(_account(bench).read_text())
    token = account["users"][0]["user"].pop("token")
    counter = tmp_path / "asked"
    counter.write_text("")
    plugin = tmp_path / "plugin"
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "TOKEN"}}
    plugin.write_text(
        f"#!/bin/sh\n"
        f"echo asked >> {counter}\n"
        f"if [ $(wc -l < {counter}) -eq 1 ]; then T=revoked; else T={token}; fi\n"
        f"echo '{json.dumps(answer)}' | sed s/TOKEN/$T/\n"
    )
    plugin.chmod(0o700)
    account["users"][0]["user"]["exec"] = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": str(plugin),
        "interactiveMode": "Never",
    }
    config = tmp_path / "kubeconfig"
    config.write_text(yaml.safe_dump(account))
    pods = bench.pods("a", 1)
    done = bench.run("serve", "--once", *bench.arguments(f"--kubeconfig={config}"))
    assert done.returncode == 0, done.stderr
    assert bench.bound().keys() == set(pods)
    assert len(counter.read_text().splitlines()) == 2


def test_a_token_file_may_be_replaced(bench: Bench, tmp_path: Path) -> None:
    bench.nodes(1)
    account = yaml.safe_load(_account(bench).read_text())
    good = account["users"][0]["user"].pop("token")
    file = tmp_path / "token"
    file.write_text(good)
    account["users"][0]["user"]["tokenFile"] = str(file)
    config = tmp_path / "kubeconfig"
    config.write_text(yaml.safe_dump(account))
    server = bench.serve(f"--kubeconfig={config}")
    bench.wait_bound(bench.pods("a", 1))
    # The old token ends with its account; the new one is in the same file.
    accounts = f"/api/v1/namespaces/{bench.namespace}/serviceaccounts"
    bench.client.delete(f"{accounts}/maniple")
    bench.client.post(accounts, {"metadata": {"name": "maniple"}})
    renewed = yaml.safe_load(bench.cluster.service_account_kubeconfig(bench.namespace, "maniple").read_text())
    file.write_text(renewed["users"][0]["user"]["token"])
    bench.wait_bound(bench.pods("b", 1))
    assert server.is_running


def test_serve_reports_missing_rights(bench: Bench) -> None:
    done = bench.run("serve", "--once", f"--kubeconfig={bench.cluster.kubeconfig('nobody')}", "--no-leader-elect")
    assert done.returncode == 2
    assert "403 Forbidden" in done.stderr
    assert all(f" {kind}." in done.stderr for kind in ("nodes", "pods", "namespaces", "podgroups", "elasticjobs"))


def test_serve_reports_an_unreachable_server(bench: Bench, tmp_path: Path) -> None:
    config = yaml.safe_load(_account(bench).read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    done = bench.run("serve", "--dry-run", f"--kubeconfig={path}")
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "127.0.0.1:1" in done.stderr


def _account(bench: Bench) -> Path:
    return bench.cluster.service_account_kubeconfig(bench.namespace, "maniple")
