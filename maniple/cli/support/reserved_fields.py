"""What Maniple sets itself in a job's pods, and therefore takes from nobody else."""

import posixpath
from collections.abc import Iterator
from typing import Any

from maniple.api.types import RESERVED_ENV_PREFIX, RESERVED_MOUNT_PATH

_FOLDERS = (RESERVED_MOUNT_PATH, "/run/maniple")  # in most images /var/run is a link to /run


def is_our_folder(path: str) -> bool:
    place = posixpath.normpath("/" + path.lstrip("/"))
    return any(place == folder or place.startswith(f"{folder}/") for folder in _FOLDERS)


def taken_in(job: dict[str, Any]) -> Iterator[str]:
    """What the templates of a job that was decoded say in vain, each with its place."""
    for number, role in enumerate(job["spec"]["roles"]):
        spec, at = role["template"]["spec"], f"spec.roles[{number}].template.spec"
        policy = spec.get("restartPolicy") or "Never"
        if policy != "Never":
            yield (
                f"{at}.restartPolicy: expected Never or none, found {policy!r}: the job's controller starts replicas "
                f"again; write spec.restartPolicy: {policy} instead"
            )
        for kind in ("initContainers", "containers"):
            for index, container in _objects(spec, kind):
                yield from _taken_in_container(container, f"{at}.{kind}[{index}]")


def _taken_in_container(container: dict[str, Any], at: str) -> Iterator[str]:
    for index, one in _objects(container, "env"):
        name = str(one.get("name"))
        if name.startswith(RESERVED_ENV_PREFIX):
            yield (
                f"{at}.env[{index}].name: names that begin with {RESERVED_ENV_PREFIX} are Maniple's own, "
                f"for its agent; expected another, such as MY_{name}, found {name!r}"
            )
    for index, one in _objects(container, "volumeMounts"):
        path = str(one.get("mountPath"))
        if is_our_folder(path):
            yield (
                f"{at}.volumeMounts[{index}].mountPath: {RESERVED_MOUNT_PATH} is Maniple's own, "
                f"where its agent is mounted; expected another, such as /data, found {path!r}"
            )


def _objects(parent: dict[str, Any], field: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Those of a list that scheduling does not read: what else is wrong with it, the API server says."""
    listed = parent.get(field)
    for index, one in enumerate(listed if isinstance(listed, list) else ()):
        if isinstance(one, dict):
            yield index, one
