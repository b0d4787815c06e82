"""`maniple describe` as text, without a cluster."""

from __future__ import annotations

import pytest
from views.objects import NOW, elastic_job

from maniple.api import types
from maniple.cli.commands.describe import sections
from maniple.views.job_detail import describe_job


def described(job: types.ElasticJob) -> list[str]:
    return list(sections(describe_job(job, [], []), NOW))


def generation(members: int) -> dict[str, object]:
    entries = [
        {"pod": f"bert-worker-{index}", "uid": "u", "role": "worker", "index": index, "address": f"10.0.0.{index}"}
        for index in range(members)
    ]
    return {"number": 3, "members": entries, "coordinator": "10.0.0.0", "port": 23117}


@pytest.mark.parametrize(
    ("members", "text"), [(1, "1 member, coordinator 10.0.0.0:23117"), (2, "2 members, coordinator 10.0.0.0:23117")]
)
def test_one_member_is_singular(members: int, text: str) -> None:
    parts = described(elastic_job(phase="Running", generation=generation(members)))
    assert any(part.startswith(f"Generation 3: {text}\n") for part in parts)


@pytest.mark.parametrize(
    ("phase", "size"), [("Running", "0 running of 4, from 4 to 8"), ("Succeeded", "0 running, from 4 to 8")]
)
def test_a_finished_job_is_described_without_a_target(phase: str, size: str) -> None:
    assert f"  Size:      {size}\n" in described(elastic_job(phase=phase))[0]
