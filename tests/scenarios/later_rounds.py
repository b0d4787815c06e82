"""The objects of a scenario after some rounds, with what arrives and ends between them.

Applies plans to the raw objects as documented, like an API server and controllers. It shares no code with the
cluster in memory, so each checks the other.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from properties.cluster_facts import gang_of, key_of

from scenarios.shorthand import START, moment, objects_of
from scenarios.strict_maps import Fields, Table, merged, unrolled

# Keys of a step other than what is expected of its round.
EVENTS = ("after", "arrives", "ends")
JOB, ROLE, INDEX = "maniple.dev/job", "maniple.dev/role", "maniple.dev/index"
GPUS, BACKFILL, RESERVED = "maniple.dev/gpus", "maniple.dev/backfill", "maniple.dev/reserved"
MOVED = "maniple.dev/moved"


@dataclass(frozen=True)
class Chapter:
    """Rounds in a row without events between them."""

    events: Table
    rounds: list[Table | None]  # what is expected; None: nothing is said about the round


def chapters(scenario: Mapping[str, Any]) -> list[Chapter]:
    made = [Chapter({}, [scenario.get("expect")])]
    for step in scenario.get("then", []):
        events = {key: step[key] for key in EVENTS if key in step}
        wanted = {key: value for key, value in step.items() if key not in EVENTS}
        if events:
            made.append(Chapter(events, [wanted]))
        else:
            made[-1].rounds.append(wanted)
    return made


def newest(objects: Iterable[Table]) -> float:
    """The newest time that an object mentions, in seconds of the story."""
    times = [0.0]
    for item in objects:
        meta, status = item["metadata"], item.get("status", {})
        written = (meta.get("creationTimestamp"), meta.get("deletionTimestamp"), status.get("startTime"))
        times += [(datetime.fromisoformat(text) - START).total_seconds() for text in written if text]
    return max(times)


def with_events(objects: list[Table], events: Table, now: float) -> list[Table]:
    """The objects without those that end and with those that arrive, created now unless they say otherwise."""
    made = list(objects)
    for name, _ in unrolled(dict.fromkeys(events.get("ends", []))):
        full = name if "/" in name else f"default/{name}"
        kept = [item for item in made if not _is_of(item, full)]
        if len(kept) == len(made):
            raise ValueError(f"ends: there is no {name!r}")
        made = kept
    fields = Fields("arrives", events.get("arrives"))
    new: Table = {}
    for kind in ("gangs", "jobs", "pods"):
        given = fields.take(kind, {})
        new[kind] = {name: merged({"at": now}, value) for name, value in given.items()}
    new |= fields.take_some(("nodes", "queues", "budgets", "objects"))
    fields.finish()
    known = {(item["kind"], key_of(item)) for item in made}
    return made + [item for item in objects_of(new) if (item["kind"], key_of(item)) not in known]


def _is_of(item: Table, name: str) -> bool:
    """The gang or the pod of that name, or a pod of that gang."""
    if item["kind"] == "Pod":
        return name in (key_of(item), gang_of(item))
    return item["kind"] in ("PodGroup", "ElasticJob") and key_of(item) == name


def after_rounds(objects: list[Table], rounds: list[Table], now: float) -> list[Table]:
    """The objects after these plans, one second each, the first one at `now`."""
    made = copy.deepcopy(objects)
    for number, found in enumerate(rounds):
        made = _after(made, found, moment(now + number))
    return made


def _after(objects: list[Table], found: Table, time: str) -> list[Table]:
    jobs = {key_of(item): item for item in objects if item["kind"] == "ElasticJob"}
    for entry in found["resizes"]:
        status = jobs[entry["job"]].setdefault("status", {})
        target = [one for one in status.get("target", []) if one["role"] != entry["role"]]
        status["target"] = [*target, {"role": entry["role"], "replicas": entry["to"]}]
        status["lastResizeTime"] = time
    pods = {key_of(item): item for item in objects if item["kind"] == "Pod"}
    pods = {key: pod for key, pod in pods.items() if "deletionTimestamp" not in pod["metadata"] or _is_stuck(pod, time)}
    moved = {entry["pod"] for kind in ("binds", "nominations") for entry in found[kind]}
    for job in jobs.values():
        pods |= {key_of(pod): pod for pod in _replicas(job, time) if key_of(pod) in moved - pods.keys()}
    note_moves(objects, found, time)
    for entry in leaving(found):
        pod = pods[entry["pod"]]
        pod["metadata"]["creationTimestamp"] = time
        for made in (GPUS, BACKFILL):
            pod["metadata"].get("annotations", {}).pop(made, None)
        del pod["spec"]["nodeName"]
        pod["status"] = {"phase": "Pending"}
    holders = {entry["group"] for entry in found["reservations"]}
    for item in [*objects, *pods.values()]:
        if item["kind"] in ("PodGroup", "ElasticJob", "Pod"):
            item["metadata"].setdefault("annotations", {}).pop(RESERVED, None)
            if key_of(item) in holders:
                item["metadata"]["annotations"][RESERVED] = "true"
    promised = {entry["pod"]: entry["node"] for entry in found["nominations"]}
    for key, pod in pods.items():
        pod["status"].pop("nominatedNodeName", None)
        if key in promised:
            pod["status"]["nominatedNodeName"] = promised[key]
    for entry in found["binds"]:
        pod = pods[entry["pod"]]
        pod["spec"]["nodeName"] = entry["node"]
        pod["status"] = {"phase": "Running", "startTime": time}
        if entry["gpus"]:
            pod["metadata"].setdefault("annotations", {})[GPUS] = ",".join(entry["gpus"])
        if "backfill" in entry:
            pod["metadata"].setdefault("annotations", {})[BACKFILL] = entry["backfill"]
    sizes = {
        (key, one["role"]): one["replicas"]
        for key, job in jobs.items()
        for one in job.get("status", {}).get("target", [])
    }
    kept = [pod for pod in pods.values() if _index(pod) < sizes.get(_role(pod), 2**31)]
    return [item for item in objects if item["kind"] != "Pod"] + kept


def note_moves(objects: list[Table], found: Table, time: str) -> None:
    """Annotates the gangs of which pods are moved. Places end for gangs that are whole again, or lose pods otherwise.

    `objects`: as they were before.
    """
    pods = {key_of(item): item for item in objects if item["kind"] == "Pod"}
    by_gang: dict[str, list[Table]] = {}
    robbed = {gang_of(pods[entry["pod"]]) for entry in leaving(found) if entry["reason"] != "Moved"}
    for item in objects:
        written = item["metadata"].get("annotations", {}).get(MOVED)
        if written is not None:
            move = json.loads(written)
            there = sum(gang_of(pod) == key_of(item) and "nodeName" in pod["spec"] for pod in pods.values())
            if there >= move["size"] or key_of(item) in robbed:
                item["metadata"]["annotations"][MOVED] = json.dumps(move | {"places": []})
    for move in found["moves"]:
        by_gang.setdefault(gang_of(pods[move["pod"]]), []).append(move)
    for item in objects:
        if item["kind"] in ("PodGroup", "ElasticJob") and key_of(item) in by_gang:
            places = [_place(pods[move["pod"]], move["to"]) for move in by_gang[key_of(item)]]
            size = sum(gang_of(pod) == key_of(item) and "nodeName" in pod["spec"] for pod in pods.values())
            noted = json.dumps({"at": time, "size": size, "places": places})
            item["metadata"].setdefault("annotations", {})[MOVED] = noted


def _place(pod: Table, node: str) -> Table:
    (container,) = pod["spec"]["containers"]
    role = pod["metadata"]["labels"].get(ROLE, "")
    return {"node": node, "role": role, "pods": 1, "requests": container["resources"]["requests"]}


def _is_stuck(pod: Table, time: str) -> bool:
    ends, now = (datetime.fromisoformat(text) for text in (pod["metadata"]["deletionTimestamp"], time))
    return (now - ends).total_seconds() > 60


def leaving(found: Table) -> list[Table]:
    """Every pod that leaves in a round, with the reason: evicted, or given up by a job that shrinks."""
    given_up = [{**leaver, "reason": "Shrunk"} for resize in found["resizes"] for leaver in resize.get("leaves", [])]
    return [*found["evictions"], *given_up]


def _role(pod: Table) -> tuple[str, str]:
    return gang_of(pod), pod["metadata"]["labels"].get(ROLE, "")


def _index(pod: Table) -> int:
    return int(pod["metadata"]["labels"].get(INDEX, -1))


def _replicas(job: Table, time: str) -> Iterator[Table]:
    """All possible pods of the job, as its controller would create them."""
    meta = job["metadata"]
    for role in job["spec"]["roles"]:
        template = copy.deepcopy(role["template"])
        spec = template["spec"]
        if "priorityClassName" in job["spec"]:
            spec.setdefault("priorityClassName", job["spec"]["priorityClassName"])
        for index in range(role["max"]):
            own = {JOB: meta["name"], ROLE: role["name"], INDEX: str(index)}
            yield {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"{meta['name']}-{role['name']}-{index}",
                    "namespace": meta["namespace"],
                    "labels": {**template["metadata"]["labels"], **own},
                    "annotations": dict(template["metadata"]["annotations"]),
                    "creationTimestamp": time,
                },
                "spec": copy.deepcopy(spec),
                "status": {"phase": "Pending"},
            }
