"""Container images made by hand from a static busybox, so that a real node needs no image registry.

An image is one OCI tar with one layer. Pods name it and set `imagePullPolicy: Never`.
"""

import hashlib
import io
import json
import platform
import tarfile
from pathlib import Path
from typing import Any

PAUSE = "maniple.dev/pause:local"
BUSYBOX = "maniple.dev/busybox:local"
APPLETS = (
    *("cat", "date", "echo", "env", "false", "grep", "hostname", "id", "ip", "ls", "mkdir", "mv", "nc", "ping", "ps"),
    *("rm", "sh", "sleep", "test", "touch", "true", "wget"),
)
GROUPS = b"root:x:0:\nnobody:x:65534:\n"
PASSWORDS = b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def write_busybox(path: Path, name: str, busybox: Path, command: list[str]) -> None:
    """An image with busybox, links for its commands, and the folders that programs expect."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for folder in ("bin", "etc", "proc", "sys", "dev", "tmp", "root"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
        _add_file(tar, "bin/busybox", busybox.read_bytes(), 0o755)
        _add_file(tar, "etc/passwd", PASSWORDS, 0o644)
        _add_file(tar, "etc/group", GROUPS, 0o644)
        for applet in APPLETS:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    write_image(path, name, layer, command)


def write_image(path: Path, name: str, layer: io.BytesIO | io.BufferedReader, command: list[str]) -> None:
    """An image of one layer, an uncompressed tar, that runs `command` unless a pod says otherwise."""
    blobs: dict[str, bytes] = {}
    size = layer.seek(0, io.SEEK_END)
    layer.seek(0)
    digest = f"sha256:{hashlib.file_digest(layer, 'sha256').hexdigest()}"
    configuration = {
        "architecture": ARCHITECTURES[platform.machine()],
        "os": "linux",
        "config": {"Cmd": command, "Env": ["PATH=/bin:/usr/bin:/usr/local/bin"], "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [digest]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": _stored(blobs, "application/vnd.oci.image.config.v1+json", _encoded(configuration)),
        "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": digest, "size": size}],
    }
    described = _stored(blobs, "application/vnd.oci.image.manifest.v1+json", _encoded(manifest))
    index = {"schemaVersion": 2, "manifests": [described | {"annotations": {"io.containerd.image.name": name}}]}
    with tarfile.open(path, "w") as tar:
        _add_file(tar, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}', 0o644)
        _add_file(tar, "index.json", _encoded(index), 0o644)
        for each, content in blobs.items():
            _add_file(tar, _blob(each), content, 0o644)
        entry = tarfile.TarInfo(_blob(digest))
        entry.size, entry.mode = size, 0o644
        layer.seek(0)
        tar.addfile(entry, layer)


def _stored(blobs: dict[str, bytes], kind: str, content: bytes) -> dict[str, Any]:
    digest = _digest(content)
    blobs[digest] = content
    return {"mediaType": kind, "digest": digest, "size": len(content)}


def _blob(digest: str) -> str:
    return f"blobs/sha256/{digest.removeprefix('sha256:')}"


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _encoded(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode()


def _add_file(tar: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))
