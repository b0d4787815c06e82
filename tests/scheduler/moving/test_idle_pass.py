"""The idle pass remembers that it found nothing: that changes no plan, and it ends when something changes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from maniple.api.decode.decode import decode
from maniple.model.building.from_scratch import build_snapshot
from maniple.model.building.input_objects import sort_objects
from maniple.model.snapshot import Snapshot
from maniple.scheduler import Policy, load_policy, schedule
from maniple.scheduler.moving.idle_pass import _Search
from scheduler.small_clusters import Object, group, node, pod

POLICY = """
actions: "allocate, consolidate, backfill"
tiers:
- plugins:
  - name: gang
  - name: predicates
  - name: nodeorder
  - name: consolidation
    arguments: {consolidate.idle: "true", cooldown: "1000"}
"""
START = 1_767_225_600  # 2026-01-01T00:00:00Z
MOVED = '{"at":"2026-01-01T00:00:00Z","size":1,"places":[]}'


def policy() -> Policy:
    return load_policy(POLICY.encode(), "policy")


def running(name: str, on: str, annotations: Object | None = None) -> list[Object]:
    gang = group(name, 1, movable=True)
    gang["metadata"]["annotations"] = annotations or {}
    member = pod(f"{name}-0", "1", {"maniple.dev/pod-group": name}, nodeName=on)
    member["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "1"}
    member["status"]["startTime"] = "2026-01-01T00:00:00Z"
    return [gang, member]


def snapshot(objects: list[Object]) -> Snapshot:
    written = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    return build_snapshot(sort_objects(decode([("test", written.encode())]), scheduler_name="maniple"))


def gpu_node(name: str, gpus: int) -> Object:
    return node(name, {"name": name}, allocatable={"cpu": "64", "memory": "64Gi", "nvidia.com/gpu": str(gpus)})


def both_cooling() -> Snapshot:
    """Two jobs that were moved a moment ago, on a node each."""
    annotations = {"maniple.dev/moved": MOVED}
    jobs = [*running("x", "n1", annotations), *running("y", "n2", annotations)]
    return snapshot([gpu_node("n1", 4), gpu_node("n2", 4), *jobs])


def test_what_is_remembered_changes_no_plan() -> None:
    here, shared = both_cooling(), policy()
    moved = []
    for second in (0, 400, 401, 900, 999, 1000, 1001, 401, 2000):
        later = replace(here, now=float(START + second))
        plan = schedule(later, shared)
        assert plan == schedule(later, policy())
        moved.append(bool(plan.moves))
    assert moved == [False] * 5 + [True, True, False, True]


def test_a_state_of_the_cluster_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[float] = []
    tidy = _Search.tidy

    def counted(search: _Search) -> bool:
        searches.append(search.settled_until)
        return tidy(search)

    monkeypatch.setattr(_Search, "tidy", counted)
    here, shared = both_cooling(), policy()
    for second in (500, 501, 502, 999):
        schedule(replace(here, now=float(START + second)), shared)
    assert len(searches) == 1
    schedule(replace(both_cooling(), now=START + 503.0), shared)
    assert len(searches) == 2


def test_all_candidates_have_their_turn() -> None:
    """Of many nodes that cannot be emptied a few are tried in each interval, and in the end the one that can be."""
    objects = []
    for number in range(40):
        name = f"m{number:02d}"
        gang, member = running(f"x{number:02d}", name)
        if number != 39:
            member["spec"]["nodeSelector"] = {"name": name}
        objects += [gpu_node(name, 2), gang, member]
    here, shared = snapshot(objects), policy()
    plans = [schedule(replace(here, now=float(START + 300 * turn)), shared) for turn in range(40)]
    assert not all(plan.moves for plan in plans)
    assert {move.pod for plan in plans for move in plan.moves} == {"default/x39-0"}
