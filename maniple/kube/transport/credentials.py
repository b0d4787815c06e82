"""Credentials for an API server, and the two plain ways to read them: a kubeconfig's certificates or tokens, a pod's
service account.

A kubeconfig that says anything else, or cannot be read, is left to the library (library_login.py): it takes half a
second to import, which commands that answer at once must not wait for.
"""

import base64
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True)
class Credentials:
    """Where the server is, and who we are. Certificates and keys are PEM."""

    server: str = "http://localhost"
    authority: str | None = None
    verifies: bool = True  # the server's certificate
    server_name: str | None = None  # in its certificate, if it differs from the host name
    proxy: str | None = None
    certificate: bytes | None = None
    key: bytes | None = None
    authorization: str | None = None  # the header
    token_file: Path | None = None  # the token of the header, if it may be replaced
    namespace: str = ""

    def with_token_as_it_is(self) -> "Credentials":
        """The token may have been replaced in its file."""
        if self.token_file is None:
            return self
        return replace(self, authorization=_bearer(self.token_file.read_text(encoding="utf-8").strip()))


class _Named(msgspec.Struct):
    name: str
    context: dict[str, Any] = {}
    cluster: dict[str, Any] = {}
    user: dict[str, Any] = {}


class _Kubeconfig(msgspec.Struct, rename="kebab"):
    contexts: list[_Named]
    clusters: list[_Named]
    users: list[_Named]
    current_context: str = ""


class _Context(msgspec.Struct):
    cluster: str
    user: str
    namespace: str = ""


class _Plain(msgspec.Struct, rename="kebab", forbid_unknown_fields=True):
    """Everything that is understood here. What has another field is the library's."""


class _Cluster(_Plain):
    server: str
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str | None = None
    proxy_url: str | None = None
    extensions: Any = None


class _User(_Plain):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    extensions: Any = None


def read_plain_kubeconfig(path: Path, context: str | None) -> Credentials | None:
    """None if the library has to read it, which also says what is wrong with it."""
    try:
        config = msgspec.yaml.decode(path.read_bytes(), type=_Kubeconfig)
        where = msgspec.convert(_only(config.contexts, context or config.current_context).context, _Context)
        cluster = msgspec.convert(_only(config.clusters, where.cluster).cluster, _Cluster)
        user = msgspec.convert(_only(config.users, where.user).user, _User)
        return _credentials(path.absolute().parent, where.namespace, cluster, user)
    except (OSError, ValueError, msgspec.MsgspecError):
        return None


def _only(items: list[_Named], name: str) -> _Named:
    (item,) = [item for item in items if item.name == name]  # ValueError for another number of them
    return item


def _credentials(folder: Path, namespace: str, cluster: _Cluster, user: _User) -> Credentials:
    authority = _pem(folder, cluster.certificate_authority, cluster.certificate_authority_data)
    token_file = folder / user.token_file if user.token_file and not user.token else None
    credentials = Credentials(
        server=cluster.server.rstrip("/"),
        authority=None if authority is None else authority.decode(),
        verifies=not cluster.insecure_skip_tls_verify,
        server_name=cluster.tls_server_name or None,
        proxy=cluster.proxy_url or None,
        certificate=_pem(folder, user.client_certificate, user.client_certificate_data),
        key=_pem(folder, user.client_key, user.client_key_data),
        authorization=_bearer(user.token) if user.token else None,
        token_file=token_file,
        namespace=namespace,
    )
    return credentials.with_token_as_it_is()


def _pem(folder: Path, file: str, data: str) -> bytes | None:
    if file and data:
        raise ValueError("both a file and its content")
    if data:
        return base64.b64decode(data)
    return (folder / file).read_bytes() if file else None


def read_service_account(folder: Path = _SERVICE_ACCOUNT) -> Credentials:
    """That of the pod that we run in. Raises OSError, or ValueError for what a pod does not have."""
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{part}", "") for part in ("HOST", "PORT"))
    if not host or not port:
        raise ValueError("$KUBERNETES_SERVICE_HOST or $KUBERNETES_SERVICE_PORT is empty")
    authority = (folder / "ca.crt").read_text(encoding="utf-8")
    if not authority:
        raise ValueError(f"{folder / 'ca.crt'} is empty")
    named = folder / "namespace"
    namespace = named.read_text(encoding="utf-8").strip() if named.is_file() else ""
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return Credentials(server, authority, token_file=folder / "token", namespace=namespace).with_token_as_it_is()


def _bearer(token: str) -> str:
    if not token:
        raise ValueError("the token is empty")
    return f"Bearer {token}"
