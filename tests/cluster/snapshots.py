"""Snapshots as plain values, so that two of them can be compared field by field.

Numbers that only tell things apart (of shapes and constraints) are left out.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import msgspec
import numpy as np

from maniple.model.job import Job, TaskGroup
from maniple.model.pod_shape import Constraint, Shape
from maniple.model.snapshot import Snapshot
from maniple.model.topology_domains import Level

Picture = dict[str, Any]


def picture(snapshot: Snapshot) -> Picture:
    nodes = snapshot.nodes
    return {
        "now": snapshot.now,
        "axis": snapshot.axis.names,
        "nodes": {
            name: {
                "allocatable": _plain(nodes.allocatable[:, at]),
                "ready": bool(nodes.ready[at]),
                "unschedulable": bool(nodes.unschedulable[at]),
                "pressure": {kind: bool(column[at]) for kind, column in nodes.pressure.items()},
                "taints": nodes.taint_sets[nodes.taint_class[at]],
                "labels": dict(nodes.labels(at)),
                "free": _plain(snapshot.free[:, at]),
                "releasing": _plain(snapshot.releasing[:, at]),
                "exclusives": sorted(map(str, snapshot.exclusives.get(at, ()))),
                "gpus": {row: _devices(snapshot, row, at) for row in snapshot.gpus.tables},
            }
            for at, name in enumerate(nodes.names)
        },
        "images": {name: (_plain(found[0]), found[1]) for name, found in sorted(nodes.images.items())},
        "domains": {name: _level(level) for name, level in snapshot.domains.levels.items()},
        "rank": _plain(snapshot.domains.rank),
        "total": _plain(snapshot.total),
        "queues": [_plain(queue) for queue in snapshot.queues],
        "queue_allocated": _plain(snapshot.queue_allocated),
        "queue_pending": _plain(snapshot.queue_pending),
        "indivisible": _plain(snapshot.indivisible),
        "jobs": [_job(job) for job in snapshot.jobs],
        "waiting": [job.key for job in snapshot.waiting],
        "moved": [job.key for job in snapshot.moved],
        "incomplete": [job.key for job in snapshot.incomplete],
        "elastic": [job.key for job in snapshot.elastic],
        "gpu_pods": sorted((str(kind), count) for kind, count in snapshot.gpu_pods.items()),
        "pod_affinity": sorted((_sorted(info), node, count) for (info, node), count in snapshot.pod_affinity.items()),
        "leaving_for": {
            gang: {node: _plain(held) for node, held in by_node.items()}
            for gang, by_node in snapshot.leaving_for.items()
        },
        "stuck": {
            node: [(*pod[:2], _plain(pod.requests)) for pod in pods] for node, pods in sorted(snapshot.stuck.items())
        },
        "leaving_affinity": sorted(
            (_sorted(info), node, count) for (info, node), count in snapshot.leaving_affinity.items()
        ),
        "leaving_exclusives": {
            node: sorted(map(str, held)) for node, held in sorted(snapshot.leaving_exclusives.items())
        },
        "owners": {owner: dict(counts) for owner, counts in snapshot.owners.items()},
        "budgets": [_plain(budget) for budget in snapshot.budgets],
    }


def differences(one: Any, other: Any, at: str = "") -> list[str]:
    """Where two pictures differ, for the person who reads a failing test."""
    if isinstance(one, dict) and isinstance(other, dict):
        found = []
        for key in [*one, *(key for key in other if key not in one)]:
            if key not in one or key not in other:
                found.append(f"{at}.{key}: only in the {'second' if key not in one else 'first'}")
            else:
                found += differences(one[key], other[key], f"{at}.{key}")
        return found
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        return [
            text for n, (a, b) in enumerate(zip(one, other, strict=True)) for text in differences(a, b, f"{at}[{n}]")
        ]
    same = (
        np.isclose(one, other, rtol=1e-9, atol=0)
        if isinstance(one, float) and isinstance(other, float)
        else one == other
    )
    return [] if same else [f"{at}: {one!r} != {other!r}"]


def _devices(snapshot: Snapshot, row: int, at: int) -> Picture:
    table = snapshot.gpus.tables[row]
    models = [snapshot.gpus.models[code] if code >= 0 else "" for code in table.model[at].tolist()]
    count = len(table.ids[at])
    return {
        "ids": table.ids[at],
        "there": _plain(table.there[at, :count]),
        "models": models[:count],
        "memory": _plain(table.memory[at, :count]),
        "links": repr(table.links[table.link_class[at]].matrix),
        "free": _plain(snapshot.gpus_free[row][at, :count]),
        "releasing": _plain(snapshot.gpus_releasing[row][at, :count]),
    }


def _level(level: Level) -> Picture:
    return {"codes": _plain(level.codes), "names": level.names, "depth": level.depth}


def _job(job: Job) -> Picture:
    made: Picture = {name: _plain(getattr(job, name)) for name in _fields(job)}
    made["groups"] = [_group(group) for group in job.groups]
    made["growth"] = {role: _group(group) for role, group in job.growth.items()}
    return made


def _group(group: TaskGroup) -> Picture:
    shape, constraint = group.shape, group.shape.constraint
    made: Picture = {name: _plain(getattr(group, name)) for name in _fields(group) if name != "shape"}
    made["pod_affinity"] = None if group.pod_affinity is None else _sorted(group.pod_affinity)
    made["labels"], made["annotations"] = dict(group.labels), dict(group.annotations)
    made["shape"] = {
        "requests": _plain(shape.requests),
        "exclusives": _plain(shape.exclusives),
        "gpus": _plain(shape.gpus),
        "is_best_effort": shape.is_best_effort,
        **{
            name: _plain(getattr(constraint, name))
            for name in _fields(constraint)
            if name not in ("number", "labels", "annotations")
        },
    }
    return made


def _fields(value: Any) -> list[str]:
    return (
        list(value.__struct_fields__) if isinstance(value, msgspec.Struct) else [field.name for field in fields(value)]
    )


def _plain(value: Any) -> Any:
    """Arrays as lists, and values as dictionaries: what a picture holds cannot be changed by anybody else."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Shape | Constraint):
        own = [name for name in _fields(value) if name not in ("number", "request", "labels", "annotations")]
        return {name: _plain(getattr(value, name)) for name in own}
    if (is_dataclass(value) and not isinstance(value, type)) or isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, name)) for name in _fields(value)}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, frozenset | set):
        return sorted(map(str, value))
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _sorted(value: Any) -> str:
    return str(_plain(value))
