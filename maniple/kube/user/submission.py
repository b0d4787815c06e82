"""An object that a user submits. It needs no cluster, so `maniple submit --dry-run` needs no extra."""

from dataclasses import dataclass
from typing import Any

from maniple.api import types
from maniple.api.keys import Key, join_key


@dataclass(frozen=True)
class Submission:
    """An object to create, and where it is in the input."""

    where: str
    body: dict[str, Any]

    @property
    def kind(self) -> tuple[str, str]:
        return str(self.body.get("apiVersion", "")), str(self.body.get("kind", ""))

    @property
    def name(self) -> str:
        return str(self.body.get("metadata", {}).get("name", ""))

    @property
    def is_job(self) -> bool:
        return self.kind == (types.API_VERSION, "ElasticJob")

    def key(self, default_namespace: str) -> Key:
        return str(self.body.get("metadata", {}).get("namespace") or default_namespace), self.name

    def label(self, default_namespace: str) -> str:
        """The object in messages."""
        return f"{self.where}: {self.kind[1]} {join_key(self.key(default_namespace))}"
