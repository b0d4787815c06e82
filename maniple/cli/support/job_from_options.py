"""An ElasticJob made from the options of `maniple submit`. Pure: options in, the object out."""

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from maniple.api import types
from maniple.api.errors import InputError
from maniple.cli.support.reserved_fields import is_our_folder

ROLE = "worker"
# What the controller mounts into every pod; with framework torch it starts the workers anew at each size.
AGENT = ("python3", f"{types.RESERVED_MOUNT_PATH}/agent/agent.pyz", "--")

_RANGE = re.compile(r"(\d{1,6})(?::(\d{1,6}))?", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*", re.ASCII)
_MOUNT = (
    "expected SOURCE:PATH or SOURCE:PATH:ro, SOURCE being pvc/NAME, configmap/NAME, secret/NAME, memory, "
    "or a folder of the node such as /data"
)


@dataclass(frozen=True)
class Wish:
    """What a person asked for."""

    name: str
    image: str
    command: tuple[str, ...]
    gpus: str | None = None
    replicas: str | None = None
    gpus_per_replica: int = 1
    gpu_resource: str = types.GPU_RESOURCES[0]
    queue: str = ""
    priority: str = ""
    framework: str = "torch"
    cpu: str = ""
    memory: str = ""
    env: Sequence[str] = field(default=())
    mounts: Sequence[str] = field(default=())


def make_job(wish: Wish, namespace: str | None) -> dict[str, Any]:
    """InputError with everything that is wrong with the options; the object itself is validated as any other."""
    wrong: list[str] = []
    low, high = _replicas(wish, wrong)
    env = [_variable(text, wrong) for text in wish.env]
    mounts, volumes = _mounts(wish.mounts, wrong)
    if wrong:
        raise InputError(wrong)
    limits = {"cpu": wish.cpu, "memory": wish.memory, wish.gpu_resource: str(wish.gpus_per_replica)}
    container: dict[str, Any] = {
        "name": "main",
        "image": wish.image,
        "command": [*(AGENT if wish.framework == "torch" else ()), *wish.command],
        "resources": {"limits": {name: amount for name, amount in limits.items() if amount not in ("", "0")}},
    }
    container |= {key: value for key, value in (("env", env), ("volumeMounts", mounts)) if value}
    pod: dict[str, Any] = {"containers": [container]}
    if volumes:
        pod["volumes"] = volumes
    spec: dict[str, Any] = {"queue": wish.queue, "priorityClassName": wish.priority, "framework": wish.framework}
    spec = {name: value for name, value in spec.items() if value}
    spec["roles"] = [{"name": ROLE, "min": low, "max": high, "template": {"spec": pod}}]
    return {
        "apiVersion": types.API_VERSION,
        "kind": "ElasticJob",
        "metadata": {"name": wish.name, **({"namespace": namespace} if namespace else {})},
        "spec": spec,
    }


def _replicas(wish: Wish, wrong: list[str]) -> tuple[int, int]:
    """Least and most replicas, given as such or as so many GPUs."""
    if wish.gpus is None:
        return _range("--replicas", wish.replicas or "1", "replicas", wrong)
    each = wish.gpus_per_replica
    low, high = _range("--gpus", wish.gpus, "GPUs", wrong)
    if each == 0:
        wrong.append("--gpus: expected none beside --gpus-per-replica 0; write --replicas MIN:MAX instead")
        return 1, 1
    for amount in dict.fromkeys((low, high)):
        if amount % each and not wrong:
            near = sorted({max(each, amount // each * each), -(-amount // each) * each})
            wrong.append(
                f"--gpus: {amount} GPUs are no whole number of replicas with {each} each; "
                f"expected {' or '.join(map(str, near))}"
            )
    return low // each, high // each


def _range(option: str, text: str, what: str, wrong: list[str]) -> tuple[int, int]:
    match = _RANGE.fullmatch(text)
    low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if match is None:
        wrong.append(
            f"{option}: expected a number of {what} such as 8, or the least and the most as 4:8, found {text!r}"
        )
    elif low < 1:
        wrong.append(f"{option}: expected at least 1, found {text!r}")
    elif high < low:
        wrong.append(f"{option}: expected the least first, such as {high}:{low}, found {text!r}")
    return low, high


def _variable(text: str, wrong: list[str]) -> dict[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not _VARIABLE.fullmatch(name):
        wrong.append(f"--env: expected NAME=VALUE, such as EPOCHS=90, found {text!r}")
    elif name.startswith(types.RESERVED_ENV_PREFIX):
        wrong.append(
            f"--env: names that begin with {types.RESERVED_ENV_PREFIX} are Maniple's own, for its agent; "
            f"expected another, such as MY_{name}, found {text!r}"
        )
    return {"name": name, "value": value}


def _mounts(texts: Sequence[str], wrong: list[str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """volumeMounts and volumes; one source mounted twice is one volume."""
    mounts: list[dict[str, Any]] = []
    volumes: dict[str, dict[str, Any]] = {}
    seen: dict[str, str] = {}
    for text in texts:
        source, path, mode = _split_mount(text)
        made = _volume(source)
        if made is None or not path.startswith("/") or mode not in ("", "ro", "rw"):
            wrong.append(f"--mount: {_MOUNT}, found {text!r}")
            continue
        place = posixpath.normpath("/" + path.lstrip("/"))
        if is_our_folder(path):
            wrong.append(
                f"--mount: {types.RESERVED_MOUNT_PATH} is Maniple's own, where its agent is mounted; "
                f"expected another PATH, such as /data, found {text!r}"
            )
        elif place in seen:
            wrong.append(f"--mount: expected one mount at {place}, found {seen[place]!r} and {text!r}")
        seen.setdefault(place, text)
        name = volumes.setdefault(source, {"name": f"mount-{len(volumes)}", **made})["name"]
        mounts.append({"name": name, "mountPath": path, **({"readOnly": True} if mode == "ro" else {})})
    return mounts, list(volumes.values())


def _split_mount(text: str) -> tuple[str, str, str]:
    parts = text.split(":")
    if len(parts) not in (2, 3):
        return "", "", ""
    return parts[0], parts[1], parts[2] if len(parts) == 3 else ""


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
