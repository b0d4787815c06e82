"""`maniple plan` as a function, for tests: Kubernetes objects in, the documented JSON form out."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from maniple.api.decode.decode import decode
from maniple.cluster.in_memory_cluster import MemoryCluster, run_rounds
from maniple.model.building.input_objects import sort_objects
from maniple.scheduler import load_policy


def plan_objects(objects: Sequence[Mapping[str, object]], policy: str | None = None, rounds: int = 1) -> dict[str, Any]:
    decoded = decode([("objects", msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": objects}))])
    loaded = None if policy is None else load_policy(policy.encode(), "policy")
    reads = None if loaded is None else loaded.reads
    cluster = MemoryCluster(sort_objects(decoded, scheduler_name="maniple"), reads=reads)
    plan: dict[str, Any] = json.loads(json.dumps(run_rounds(cluster, loaded, rounds).to_json()))
    return plan
