"""What we know of the objects: the newest counts, one of several of a name counts, and what is wrong is told."""

import asyncio
import json
import threading
from typing import Any

from maniple.api import kubernetes, types
from maniple.api.decode.server_objects import Live, read_live
from maniple.cluster.cache import Cache
from maniple.cluster.shared_cache import SharedCache
from maniple.kube.serve.gang_index import Gangs
from maniple.kube.transport.mirror import Mirror
from maniple.kube.transport.resource_kinds import NODES, PODS, QUEUES, RESOURCES, Resource
from maniple.model.pods_we_schedule import Ours
from maniple.model.snapshot import Snapshot

OUR_GROUPS, *FOREIGN_GROUPS = (one for one in RESOURCES if one.read_as is types.PodGroup)


def live(resource: Resource, name: str, version: int, uid: str = "u1", **rest: Any) -> Live:
    meta = {"name": name, "uid": uid, "resourceVersion": str(version), **rest.pop("metadata", {})}
    return read_live(json.dumps({"metadata": meta, **rest}).encode(), resource.struct)


def pod(name: str, version: int, uid: str = "u1", node: str = "", **meta: Any) -> Live:
    spec = {"containers": [{"name": "c"}], "schedulerName": "maniple", **({"nodeName": node} if node else {})}
    return live(PODS, name, version, uid, metadata={"namespace": "ns", **meta}, spec=spec)


def mirror() -> Mirror:
    return Mirror(SharedCache(Cache(Ours())))


def test_an_older_version_changes_nothing() -> None:
    known = mirror()
    assert known.put(PODS, pod("a", 7, node="n1"))
    assert not known.put(PODS, pod("a", 5))
    found = known.find(kubernetes.Pod, ("ns", "a"))
    assert found is not None
    assert isinstance(found.item, kubernetes.Pod)
    assert found.item.spec.node_name == "n1"


def test_a_pod_made_anew_under_the_same_name_counts() -> None:
    known = mirror()
    known.put(PODS, pod("a", 7, uid="old", node="n1"))
    assert known.put(PODS, pod("a", 9, uid="new"))
    known.remove(PODS, ("ns", "a"), 8)  # the end of the old one, told late
    found = known.find(kubernetes.Pod, ("ns", "a"))
    assert found is not None
    assert found.uid == "new"


def test_the_answer_to_a_write_that_comes_after_the_end_of_its_object_brings_nothing_back() -> None:
    known = mirror()
    known.put(PODS, pod("a", 7))
    known.remove(PODS, ("ns", "a"), 9)
    assert not known.put(PODS, pod("a", 8, node="n1"))
    assert not known.seen(PODS)
    assert known.put(PODS, pod("a", 12, uid="new"))
    assert not known.put(PODS, pod("a", 8, node="n1"))
    assert [seen.uid for seen in known.seen(PODS).values()] == ["new"]


def test_what_was_answered_late_does_not_take_the_place_of_a_pod_made_anew_whose_end_is_yet_to_be_told() -> None:
    known = mirror()
    known.put(PODS, pod("a", 7, uid="old"))
    known.put(PODS, pod("a", 12, uid="new"))
    assert not known.put(PODS, pod("a", 8, uid="old", node="n1"))
    assert [seen.uid for seen in known.seen(PODS).values()] == ["new"]


def test_a_kind_that_was_away_comes_back_as_it_was() -> None:
    known = mirror()
    known.put(OUR_GROUPS, live(OUR_GROUPS, "g", 7, metadata={"namespace": "ns"}, spec={"minMember": 1}))
    known.clear(OUR_GROUPS)
    assert known.put(OUR_GROUPS, live(OUR_GROUPS, "g", 7, metadata={"namespace": "ns"}, spec={"minMember": 1}))


def test_a_heartbeat_is_no_change() -> None:
    known = mirror()
    known.put(NODES, live(NODES, "n", 1, status={"conditions": [{"type": "Ready", "status": "True"}]}))
    before = known.changes
    beat = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}
    assert known.put(NODES, live(NODES, "n", 2, status={"conditions": [beat]}))
    assert known.changes == before


def test_a_list_keeps_what_was_written_after_it() -> None:
    known = mirror()
    known.put(PODS, pod("old", 3))
    known.put(PODS, pod("new", 12))
    asyncio.run(known.replace(PODS, [pod("listed", 9)], 10))
    assert {key[1] for key in known.seen(PODS)} == {"listed", "new"}


def test_of_two_groups_of_one_name_ours_counts_and_the_other_when_ours_goes() -> None:
    known = mirror()
    theirs = FOREIGN_GROUPS[0]
    known.put(theirs, live(theirs, "g", 4, metadata={"namespace": "ns"}, spec={"minMember": 2}))
    known.put(OUR_GROUPS, live(OUR_GROUPS, "g", 5, metadata={"namespace": "ns"}, spec={"minMember": 3}))

    def minimum() -> int:
        (group,) = known.objects().pod_groups
        return group.spec.min_member

    assert minimum() == 3
    known.remove(OUR_GROUPS, ("ns", "g"), 6)
    assert minimum() == 2


def test_what_cannot_be_read_is_told_and_set_aside_until_it_can() -> None:
    known = mirror()
    known.put(QUEUES, live(QUEUES, "q", 1, spec={"weight": "heavy"}))
    ((ref, why),) = known.rejected.items()
    assert ref == (QUEUES, ("", "q"))
    assert "spec.weight" in why[0]
    assert known.objects().queues == []
    known.put(QUEUES, live(QUEUES, "q", 2, spec={"weight": 2}))
    assert list(known.rejected) == []
    assert [queue.metadata.name for queue in known.objects().queues] == ["q"]


def test_gangs_know_their_pods() -> None:
    known = mirror()
    gangs = Gangs(known, Ours())
    label = {"maniple.dev/pod-group": "g"}
    known.put(PODS, pod("a", 1, labels=label))
    known.put(PODS, pod("b", 2, labels=label))
    assert {one.metadata.name for one in gangs.members(("ns", "g"))} == {"a", "b"}
    known.put(PODS, pod("b", 3))
    known.remove(PODS, ("ns", "a"), 4)
    assert gangs.members(("ns", "g")) == []
    asyncio.run(known.replace(PODS, [pod("c", 5, labels=label)], 6))
    assert {one.metadata.name for one in gangs.members(("ns", "g"))} == {"c"}


def test_what_happens_while_a_look_for_drift_waits_for_a_snapshot_is_not_undone_by_it() -> None:
    begun, may_end = threading.Event(), threading.Event()

    class SlowCache(Cache):
        def snapshot(self, now: float) -> Snapshot:
            begun.set()
            assert may_end.wait(30)
            return super().snapshot(now)

    cache = SlowCache(Ours())
    known = Mirror(SharedCache(cache))
    known.put(PODS, pod("a", 7))

    async def look() -> list[str]:
        made = asyncio.create_task(known.cache.snapshot(0.0))
        await asyncio.to_thread(begun.wait, 30)
        drift = asyncio.create_task(known.cache.drift(known.objects))
        await asyncio.sleep(0)
        known.remove(PODS, ("ns", "a"), 9)
        known.put(PODS, pod("b", 10, uid="u2"))
        may_end.set()
        await made
        return await drift

    assert asyncio.run(look()) == []
    assert cache.pod("ns/a") is None
    assert cache.pod("ns/b") is not None
