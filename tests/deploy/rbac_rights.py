"""RBAC rights: what the shipped roles grant, and what a request needs."""

from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).resolve().parents[2]
_VERBS = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}


class Right(NamedTuple):
    group: str
    resource: str  # with its part, such as pods/binding
    verb: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}" + (f".{self.group}" if self.group else "")


def granted() -> set[Right]:
    """What deploy/rbac.yaml grants the scheduler, in its own namespace or everywhere."""
    return {right for rule in rules() for right in _of(rule)}


def rules() -> list[dict[str, Any]]:
    text = (ROOT / "deploy" / "rbac.yaml").read_text(encoding="utf-8")
    return [rule for item in yaml.safe_load_all(text) for rule in item.get("rules", ())]


def _of(rule: dict[str, Any]) -> list[Right]:
    return [
        Right(group, resource, verb)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


def needed_for(method: str, path: str, is_watch: bool) -> Right:
    """The right that the API server requires for this request."""
    group, parts = _split(path)
    if parts[0] == "namespaces" and len(parts) > 2:
        parts = parts[2:]
    resource = "/".join([parts[0], *parts[2:]])
    if method != "GET":
        return Right(group, resource, _VERBS[method])
    return Right(group, resource, "get" if len(parts) > 1 else "watch" if is_watch else "list")


def _split(path: str) -> tuple[str, list[str]]:
    root, *rest = path.strip("/").split("/")
    return ("", rest[1:]) if root == "api" else (rest[0], rest[2:])
