"""Credentials that are read without the library are the library's."""

import asyncio
import base64
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from maniple.api.errors import InputError
from maniple.kube.transport.credentials import Credentials, read_plain_kubeconfig, read_service_account
from maniple.kube.transport.library_login import LibraryLogin
from maniple.kube.transport.login import Login

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
DATA = base64.b64encode(PEM.encode()).decode()
EXEC = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "plugin"}}


def write(folder: Path, user: dict[str, Any], cluster: dict[str, Any] | None = None, name: str = "config") -> Path:
    (folder / "ca.crt").write_text(PEM)
    (folder / "me.crt").write_text(PEM)
    (folder / "me.key").write_text(PEM)
    (folder / "token").write_text("from-a-file")
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "main",
        "contexts": [
            {"name": "main", "context": {"cluster": "here", "user": "me", "namespace": "research"}},
            {"name": "other", "context": {"cluster": "here", "user": "other"}},
        ],
        "clusters": [{"name": "here", "cluster": {"server": "https://10.0.0.1:6443/", **(cluster or {})}}],
        "users": [{"name": "me", "user": user}, {"name": "other", "user": EXEC}],
    }
    path = folder / name
    path.write_bytes(msgspec.yaml.encode(config))
    return path


def from_library(path: Path) -> Credentials:
    return asyncio.run(LibraryLogin(str(path), None).read())


@pytest.mark.parametrize(
    "user",
    [
        {},
        {"token": "abc"},
        {"tokenFile": "token"},
        {"client-certificate": "me.crt", "client-key": "me.key"},
        {"client-certificate-data": DATA, "client-key-data": DATA, "token": "abc"},
    ],
)
@pytest.mark.parametrize(
    "cluster",
    [
        {},
        {"certificate-authority": "ca.crt"},
        {"certificate-authority-data": DATA, "tls-server-name": "kubernetes"},
        {"insecure-skip-tls-verify": True, "proxy-url": "http://proxy:3128"},
    ],
)
def test_plain_credentials_are_what_the_library_reads(
    tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any]
) -> None:
    path = write(tmp_path, user, cluster)
    plain = read_plain_kubeconfig(path, None)
    assert plain is not None
    expected = from_library(path)
    for field in ("server", "authority", "verifies", "server_name", "proxy", "certificate", "key", "authorization"):
        assert getattr(plain, field) == getattr(expected, field), field
    assert plain.namespace == expected.namespace == "research"


@pytest.mark.parametrize(
    ("user", "cluster"),
    [
        (EXEC, {}),
        ({"auth-provider": {"name": "oidc"}}, {}),
        ({"username": "me", "password": "secret"}, {}),
        ({"token": "abc", "something": "new"}, {}),
        ({"tokenFile": "missing"}, {}),
        ({"client-certificate": "me.crt", "client-certificate-data": DATA}, {}),
        ({"token": "abc"}, {"certificate-authority": "missing"}),
        ({"token": "abc"}, {"server": 5}),
    ],
)
def test_anything_else_is_left_to_the_library(tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any]) -> None:
    assert read_plain_kubeconfig(write(tmp_path, user, cluster), None) is None


def test_another_context_is_read_if_it_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, {"token": "abc"})
    assert read_plain_kubeconfig(path, "main") is not None
    assert read_plain_kubeconfig(path, "other") is None  # its user has a plugin
    assert read_plain_kubeconfig(path, "missing") is None


def test_a_token_file_that_is_replaced_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, {"tokenFile": "token"}, {"server": "http://10.0.0.1"})
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)

    async def test() -> None:
        nonlocal now
        login = Login(str(path), None)
        await login.renew()
        (tmp_path / "token").write_text("later\n")
        assert await login.authorization() == "Bearer from-a-file"
        now += 61.0
        assert await login.authorization() == "Bearer later"

    asyncio.run(test())


def test_a_service_account_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    for name, text in (("ca.crt", PEM), ("token", "abc\n"), ("namespace", "kube-system\n")):
        (tmp_path / name).write_text(text)
    credentials = read_service_account(tmp_path)
    assert credentials.server == "https://[fd00::1]:443"
    assert (credentials.authority, credentials.authorization) == (PEM, "Bearer abc")
    assert credentials.namespace == "kube-system"


def test_wrong_certificates_are_an_error_of_one_line(tmp_path: Path) -> None:
    login = Login(str(write(tmp_path, {"token": "abc"}, {"certificate-authority": "ca.crt"})), None)
    with pytest.raises(InputError, match="expected a kubeconfig that can be used"):
        asyncio.run(login.renew())


def test_logging_in_plainly_does_not_load_the_library(tmp_path: Path) -> None:
    path = write(tmp_path, {"token": "abc"})
    code = (
        "import asyncio, sys; from maniple.kube.transport.login import log_in\n"
        f"asyncio.run(log_in({str(path)!r})); print('kubernetes_asyncio' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
