"""Full clusters in which gangs have lost pods: some just now, some long ago, and some of them may give up nothing."""

from __future__ import annotations

from hypothesis import strategies as st

from properties.cluster_facts import gang_of
from properties.gpu_facts import GPU
from properties.random_clusters import contended_ruled_worlds, contended_worlds
from properties.raw_objects import Object, key_of, table, text

LONG_AGO, JUST_NOW = "2025-12-31T12:00:00Z", "2026-01-01T00:00:00Z"


@st.composite
def stale_worlds(draw: st.DrawFn) -> list[Object]:
    objects = draw(st.one_of(contended_worlds(), contended_ruled_worlds()))
    lost: list[int] = []
    for group in [item for item in objects if item["kind"] == "PodGroup"]:
        pods = [item for item in objects if item["kind"] == "Pod" and gang_of(item) == key_of(group)]
        running = [
            pod for pod in pods if text(pod, "spec", "nodeName") and not table(pod, "metadata").get("deletionTimestamp")
        ]
        if not running or draw(st.booleans()):
            continue
        meta, spec = table(group, "metadata"), table(group, "spec")
        meta["annotations"] = {"maniple.dev/incomplete-since": draw(st.sampled_from([LONG_AGO, JUST_NOW, LONG_AGO]))}
        seconds = draw(st.sampled_from([None, 60, 0, 100_000]))
        if seconds is not None:
            spec["staleSeconds"] = seconds
        group |= {"metadata": meta, "spec": spec}
        for pod in running[: draw(st.integers(0, 2))]:
            match draw(st.sampled_from(["deleted", "failed", "waits"])):
                case "deleted":
                    lost.append(id(pod))
                case "failed":
                    pod["status"] = {"phase": "Failed"}
                case _:
                    pod["spec"] = {key: value for key, value in table(pod, "spec").items() if key != "nodeName"}
                    pod["status"] = {"phase": "Pending"}
                    annotations = table(pod, "metadata", "annotations")
                    annotations.pop("maniple.dev/gpus", None)
                    pod["metadata"] = table(pod, "metadata") | {"annotations": annotations}
    return [item for item in objects if id(item) not in lost]


@st.composite
def several_stale_worlds(draw: st.DrawFn) -> list[Object]:
    """Nodes held by gangs that stay below their minimum although all their pods exist; sometimes another waits."""
    objects: list[Object] = []
    free: list[tuple[str, int]] = []
    for index in range(draw(st.integers(1, 3))):
        gpus = draw(st.integers(1, 4))
        objects.append(_object("v1", "Node", f"n{index}", status={"allocatable": NODE | {GPU: gpus}}))
        free += [(f"n{index}", gpu) for gpu in range(gpus)]
    for name, value in (("low", -5), ("high", 5)):
        objects.append(_object("scheduling.k8s.io/v1", "PriorityClass", name, value=value))
    for number in range(draw(st.integers(2, 5))):
        running = 0 if number == 4 else draw(st.integers(1, 2))
        if running > len(free):
            break
        missing, surplus = draw(st.integers(1, 3)), draw(st.sampled_from([0, 0, 1]))
        spec: Object = {"minMember": running + missing, "staleSeconds": 60}
        priority = draw(st.sampled_from(["", "low", "high"]))
        if priority:
            spec["priorityClassName"] = priority
        note: Object = {"maniple.dev/incomplete-since": LONG_AGO} if running else {}
        objects.append(_object("maniple.dev/v1alpha1", "PodGroup", f"g{number}", {"annotations": note}, spec=spec))
        for index in range(running + missing + surplus):
            place = free.pop(draw(st.integers(0, len(free) - 1))) if index < running else None
            objects.append(_member(f"g{number}", index, place))
    return objects


NODE: Object = {"cpu": "64", "memory": "256Gi", "pods": 110}


def _object(api: str, kind: str, name: str, metadata: Object | None = None, **parts: object) -> Object:
    made: Object = {"name": name, "creationTimestamp": JUST_NOW} | (metadata or {})
    return {"apiVersion": api, "kind": kind, "metadata": made, **parts}


def _member(gang: str, index: int, place: tuple[str, int] | None) -> Object:
    """A pod that asks for one GPU, and perhaps has one."""
    container: Object = {"name": "main", "resources": {"limits": {GPU: 1}}}
    spec: Object = {"schedulerName": "maniple", "containers": [container]}
    metadata: Object = {"labels": {"maniple.dev/pod-group": gang}}
    status: Object = {}
    if place is not None:
        spec["nodeName"] = place[0]
        metadata["annotations"] = {"maniple.dev/gpus": str(place[1])}
        status = {"phase": "Running", "startTime": LONG_AGO}
    return _object("v1", "Pod", f"{gang}-{index}", metadata, spec=spec, status=status)
