"""An ElasticJob from the options of `maniple submit`. Pure: options in, the object out."""

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from maniple.api import types
from maniple.api.errors import InputError
from maniple.cli.support.reserved_fields import (
    RESERVED_PATH,
    RESERVED_VARIABLE,
    is_reserved_path,
    is_reserved_variable,
)

ROLE = "worker"
# The controller mounts it into every pod; with framework torch it restarts the workers at each new size.
AGENT = ("python3", f"{types.RESERVED_MOUNT_PATH}/agent/agent.pyz", "--")

_RANGE = re.compile(r"(\d{1,6})(?::(\d{1,6}))?", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*", re.ASCII)
_MOUNT = re.compile(r"([^:]*):(/[^:]*)(?::(ro|rw)?)?")
_EXPECTED_MOUNT = (
    "expected SOURCE:PATH or SOURCE:PATH:ro, SOURCE being pvc/NAME, configmap/NAME, secret/NAME, memory, "
    "or a directory of the node such as /data"
)


@dataclass(frozen=True)
class JobOptions:
    """The options of `maniple submit` for a job that is in no file."""

    name: str | None
    image: str | None
    gpus: str | None
    replicas: str | None
    gpus_per_replica: int
    gpu_resource: str
    queue: str
    priority: str
    framework: str
    cpu: str
    memory: str
    env: Sequence[str]
    mounts: Sequence[str]


def make_job(options: JobOptions, command: Sequence[str], namespace: str | None) -> dict[str, Any]:
    """Raises an InputError with everything that is wrong with the options. The object itself is not validated here."""
    wrong: list[str] = []
    low, high = _replicas(options, wrong)
    env = [_variable(text, wrong) for text in options.env]
    mounts, volumes = _mounts(options.mounts, wrong)
    if wrong:
        raise InputError(wrong)
    limits = {"cpu": options.cpu, "memory": options.memory, options.gpu_resource: str(options.gpus_per_replica)}
    container: dict[str, Any] = {
        "name": "main",
        "image": options.image,
        "command": [*(AGENT if options.framework == "torch" else ()), *command],
        "resources": {"limits": {name: amount for name, amount in limits.items() if amount not in ("", "0")}},
    }
    container |= {key: value for key, value in (("env", env), ("volumeMounts", mounts)) if value}
    pod: dict[str, Any] = {"containers": [container]}
    if volumes:
        pod["volumes"] = volumes
    named = {"queue": options.queue, "priorityClassName": options.priority, "framework": options.framework}
    spec: dict[str, Any] = {name: value for name, value in named.items() if value}
    spec["roles"] = [{"name": ROLE, "min": low, "max": high, "template": {"spec": pod}}]
    return {
        "apiVersion": types.API_VERSION,
        "kind": "ElasticJob",
        "metadata": {"name": options.name, **({"namespace": namespace} if namespace else {})},
        "spec": spec,
    }


def _replicas(options: JobOptions, wrong: list[str]) -> tuple[int, int]:
    """Minimum and maximum of replicas, given as such or as GPUs."""
    if options.gpus is None:
        return _range("--replicas", options.replicas or "1", "replicas", wrong)
    each = options.gpus_per_replica
    low, high = _range("--gpus", options.gpus, "GPUs", wrong)
    if each == 0:
        wrong.append("--gpus: not allowed with --gpus-per-replica 0; write --replicas MIN:MAX instead")
        return 1, 1
    for amount in dict.fromkeys((low, high)):
        if amount % each and not wrong:
            near = sorted({max(each, amount // each * each), -(-amount // each) * each})
            wrong.append(
                f"--gpus: {amount} GPUs are not a whole number of replicas with {each} each; "
                f"expected {' or '.join(map(str, near))}"
            )
    return low // each, high // each


def _range(option: str, text: str, what: str, wrong: list[str]) -> tuple[int, int]:
    match = _RANGE.fullmatch(text)
    low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if match is None:
        wrong.append(f"{option}: expected a number of {what} such as 8, or minimum and maximum as 4:8, found {text!r}")
    elif low < 1:
        wrong.append(f"{option}: expected at least 1, found {text!r}")
    elif high < low:
        wrong.append(f"{option}: expected the minimum first, such as {high}:{low}, found {text!r}")
    return low, high


def _variable(text: str, wrong: list[str]) -> dict[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not _VARIABLE.fullmatch(name):
        wrong.append(f"--env: expected NAME=VALUE, such as EPOCHS=90, found {text!r}")
    elif is_reserved_variable(name):
        wrong.append(f"--env: {RESERVED_VARIABLE}, such as MY_{name}, found {text!r}")
    return {"name": name, "value": value}


def _mounts(texts: Sequence[str], wrong: list[str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """volumeMounts and volumes; one source mounted twice is one volume."""
    mounts: list[dict[str, Any]] = []
    volumes: dict[str, dict[str, Any]] = {}
    seen: dict[str, str] = {}
    for text in texts:
        match = _MOUNT.fullmatch(text)
        source, path, mode = match.groups() if match else ("", "", "")
        volume = _volume(source)
        if volume is None:
            wrong.append(f"--mount: {_EXPECTED_MOUNT}, found {text!r}")
            continue
        folder = posixpath.normpath("/" + path.lstrip("/"))
        if is_reserved_path(path):
            wrong.append(f"--mount: {RESERVED_PATH} PATH, such as /data, found {text!r}")
        elif folder in seen:
            wrong.append(f"--mount: expected one mount at {folder}, found {seen[folder]!r} and {text!r}")
        seen.setdefault(folder, text)
        name = volumes.setdefault(source, {"name": f"mount-{len(volumes)}", **volume})["name"]
        mounts.append({"name": name, "mountPath": path, **({"readOnly": True} if mode == "ro" else {})})
    return mounts, list(volumes.values())


def _volume(source: str) -> dict[str, Any] | None:
    if source == "memory":
        return {"emptyDir": {"medium": "Memory"}}
    if source.startswith("/"):
        return {"hostPath": {"path": source}}
    kind, _, name = source.partition("/")
    if not name:
        return None
    return {
        "pvc": {"persistentVolumeClaim": {"claimName": name}},
        "configmap": {"configMap": {"name": name}},
        "secret": {"secret": {"secretName": name}},
    }.get(kind)
