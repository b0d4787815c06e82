"""Kubeconfig files for the components and for users of the cluster."""

import base64
import fcntl
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import yaml

from tools.cluster.cluster_layout import Layout

COMPONENT_USERS = ("admin", "controller-manager", "scheduler", "kwok")


def write(layout: Layout, name: str, port: int, token: str = "") -> None:
    """Writes the kubeconfig of a certificate that was issued as `name`, or of a token."""
    certificates = layout.certificates
    if token:
        credentials = {"token": token}
    else:
        credentials = {
            "client-certificate-data": _encoded(certificates.certificate(name).read_bytes()),
            "client-key-data": _encoded(certificates.key(name).read_bytes()),
        }
    server = {
        "server": f"https://127.0.0.1:{port}",
        "certificate-authority-data": _encoded(certificates.certificate("cluster").read_bytes()),
    }
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": layout.name,
        "clusters": [{"name": layout.name, "cluster": server}],
        "users": [{"name": name, "user": credentials}],
        "contexts": [{"name": layout.name, "context": {"cluster": layout.name, "user": name}}],
    }
    path = layout.kubeconfig(name)
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(content, sort_keys=False))


@contextmanager
def only_one_at_a_time(layout: Layout) -> Iterator[None]:
    """Two workers that request the same user must not mix one key with the other certificate."""
    handle = os.open(layout.certificates.folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def user_file_name(user: str, groups: list[str]) -> str:
    """A unique file name for a user with these groups."""
    if not groups and re.fullmatch(r"[a-z0-9-]+", user):
        return f"user-{user}"
    digest = hashlib.sha256("\n".join([user, *groups]).encode()).hexdigest()[:8]
    return f"user-{re.sub('[^a-z0-9]+', '-', user.lower())}-{digest}"


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()
