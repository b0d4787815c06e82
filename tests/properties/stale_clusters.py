"""Full clusters in which gangs have lost pods: some just now, some long ago, and some of them may give up nothing."""

from __future__ import annotations

from hypothesis import strategies as st

from properties.cluster_facts import gang_of
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
