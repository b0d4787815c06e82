"""The smallest objects, and what the reader makes of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from maniple.api.decode.decode import Decoded, decode
from maniple.api.errors import InputError

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1"},
    "status": {"allocatable": {"cpu": "4", "pods": "110"}},
}
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p1"}, "spec": {"containers": [{"name": "main"}]}}
QUEUE = {"apiVersion": "maniple.dev/v1alpha1", "kind": "Queue", "metadata": {"name": "q1"}}
NODE_YAML = "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n"
POD_YAML = "apiVersion: v1\nkind: Pod\nmetadata: {name: p1}\nspec: {containers: [{name: main}]}\n"


def read(*texts: str | bytes | dict[str, Any]) -> Decoded:
    """The objects of a.yaml, b.yaml, …"""
    sources = []
    for name, text in zip("abcdef", texts, strict=False):
        data = json.dumps(text) if isinstance(text, dict) else text
        sources.append((f"{name}.yaml", data.encode() if isinstance(data, str) else data))
    return decode(sources)


def names(decoded: Decoded) -> list[str]:
    return [f"{type(item).__name__} {item.metadata.name}" for item in decoded.objects]


def errors(*texts: str | bytes | dict[str, Any]) -> list[str]:
    with pytest.raises(InputError) as error:
        read(*texts)
    return error.value.messages


def many(api_version: str, kind: str, *items: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"resourceVersion": "1"}, "items": list(items)}


def bare(obj: dict[str, Any]) -> dict[str, Any]:
    """As the API server writes the items of a typed list: without apiVersion and kind."""
    return {key: value for key, value in obj.items() if key not in ("apiVersion", "kind")}


def pod_with(**spec: Any) -> dict[str, Any]:
    return {**POD, "spec": {**POD["spec"], **spec}}  # type: ignore[dict-item]
