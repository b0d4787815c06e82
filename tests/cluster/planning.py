"""`maniple plan` as a function, for tests: Kubernetes objects in, the documented JSON form out."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from maniple.api.decode.decode import decode
from maniple.cluster.in_memory_cluster import MemoryCluster, Outcome, Round, run_rounds
from maniple.model.building.input_objects import sort_objects
from maniple.scheduler import Policy, load_policy, schedule


def plan_objects(objects: Sequence[Mapping[str, object]], policy: str | None = None, rounds: int = 1) -> dict[str, Any]:
    loaded = _loaded(policy)
    return _plain(run_rounds(_cluster(objects, loaded), loaded, rounds))


def plan_until_settled(
    objects: Sequence[Mapping[str, object]], policy: str | None, rounds: int, has_reasons: bool
) -> dict[str, Any]:
    """Stops after a round that moves no pod and leaves the cluster as it found it. Pods that are leaving at the start
    are gone after the first. Without `has_reasons` nothing is said about those who wait.
    """
    loaded, outcome = _loaded(policy), Outcome()
    cluster = _cluster(objects, loaded)
    for number in range(rounds):
        snapshot = cluster.snapshot()
        plan = schedule(snapshot, loaded, has_reasons=has_reasons)
        last = outcome.rounds[-1].plan if outcome.rounds else None
        outcome.rounds.append(Round(snapshot.now, plan, {}))
        moves = plan.binds or plan.evictions or plan.resizes
        if number and not moves and last is not None and plan.nominations in ((), last.nominations):
            break
        cluster.apply(plan)
    plain = _plain(outcome)
    if not has_reasons:
        for written in plain["rounds"]:
            del written["waiting"]
    return plain


@cache
def _loaded(policy: str | None) -> Policy | None:
    return None if policy is None else load_policy(policy.encode(), "policy")


def _cluster(objects: Sequence[Mapping[str, object]], policy: Policy | None) -> MemoryCluster:
    decoded = decode([("objects", msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": objects}))])
    reads = None if policy is None else policy.reads
    return MemoryCluster(sort_objects(decoded, scheduler_name="maniple"), reads=reads)


def _plain(outcome: Outcome) -> dict[str, Any]:
    plan: dict[str, Any] = json.loads(json.dumps(outcome.to_json()))
    return plan
