"""Jobs, pods and queues for the tests of views."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from maniple.api import types
from maniple.views.jobs import JobView, ProgressView, RoleView

NOW = datetime(2026, 1, 1, 10, 0, 0, tzinfo=UTC)


def elastic_job(**status: object) -> types.ElasticJob:
    template = {"spec": {"containers": [{"name": "main"}]}}
    roles = [{"name": "worker", "min": 4, "max": 8, "template": template}]
    whole = {"metadata": {"name": "bert", "namespace": "ml"}, "spec": {"roles": roles}, "status": status}
    return msgspec.convert(whole, types.ElasticJob)


def view_of(
    name: str = "bert",
    running: int = 4,
    target: int = 4,
    phase: str = "Running",
    reason: str = "",
    progress: ProgressView | None = None,
) -> JobView:
    role = RoleView("worker", running, target, 4, 8)
    return JobView("ml", name, "research", phase, "torch", (role,), float(running), 0, 0, "", reason, "", progress)


def condition(kind: str, status: str, reason: str, message: str) -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message}
