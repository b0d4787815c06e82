"""Fields of a job's pods that Maniple sets itself: a template must not set them."""

import posixpath
from collections.abc import Iterator
from typing import Any

from maniple.api.types import RESERVED_ENV_PREFIX, RESERVED_MOUNT_PATH

RESERVED_VARIABLE = f"names that begin with {RESERVED_ENV_PREFIX} are reserved for Maniple's agent; expected another"
RESERVED_PATH = f"{RESERVED_MOUNT_PATH} is reserved for Maniple's agent; expected another"
_FOLDERS = (RESERVED_MOUNT_PATH, "/run/maniple")  # in most images /var/run is a link to /run


def is_reserved_variable(name: str) -> bool:
    return name.startswith(RESERVED_ENV_PREFIX)


def is_reserved_path(path: str) -> bool:
    normal = posixpath.normpath("/" + path.lstrip("/"))
    return any(normal == folder or normal.startswith(f"{folder}/") for folder in _FOLDERS)


def reserved_field_errors(job: dict[str, Any]) -> Iterator[str]:
    """The reserved fields in the templates of a valid job, each with its path."""
    for number, role in enumerate(job["spec"]["roles"]):
        spec, path = role["template"]["spec"], f"spec.roles[{number}].template.spec"
        policy = spec.get("restartPolicy") or "Never"
        if policy != "Never":
            yield (
                f"{path}.restartPolicy: expected Never or none, found {policy!r}: the job's controller starts replicas "
                f"again; write spec.restartPolicy: {policy} instead"
            )
        for kind in ("initContainers", "containers"):
            for index, container in _objects(spec, kind):
                yield from _container_errors(container, f"{path}.{kind}[{index}]")


def _container_errors(container: dict[str, Any], path: str) -> Iterator[str]:
    for index, variable in _objects(container, "env"):
        name = str(variable.get("name"))
        if is_reserved_variable(name):
            yield f"{path}.env[{index}].name: {RESERVED_VARIABLE}, such as MY_{name}, found {name!r}"
    for index, mount in _objects(container, "volumeMounts"):
        folder = str(mount.get("mountPath"))
        if is_reserved_path(folder):
            yield f"{path}.volumeMounts[{index}].mountPath: {RESERVED_PATH}, such as /data, found {folder!r}"


def _objects(parent: dict[str, Any], field: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a list that scheduling does not read; the API server reports what else is wrong with it."""
    entries = parent.get(field)
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(entry, dict):
            yield index, entry
