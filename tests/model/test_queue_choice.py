"""A pod without a gang names its queue, a namespace names one for all that name none, and nothing of it is ignored."""

from __future__ import annotations

from typing import Any

import pytest
from cluster.planning import plan_objects
from cluster.test_cache_behaviour import NOW, typed
from scheduler.small_clusters import Object, group, node, pod, queue

from maniple.api.errors import InputError
from maniple.cluster.cache import Cache

KEY = "maniple.dev/queue"


def namespace(**meta: Any) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", **meta}}


def member(of: str, index: int) -> Object:
    return pod(f"{of}-{index}", labels={"maniple.dev/pod-group": of})


def with_meta(item: Object, **meta: Any) -> Object:
    return {**item, "metadata": {**item["metadata"], **meta}}


def queues_of(*objects: Object) -> dict[str, str]:
    """Where the waiting gangs wait. No node: all of them wait."""
    planned = plan_objects([queue("a"), queue("b"), *objects])
    return {entry["group"].removeprefix("default/"): entry["queue"] for entry in planned["rounds"][0]["waiting"]}


@pytest.mark.parametrize("kind", ["labels", "annotations"])
def test_a_pod_names_its_queue(kind: str) -> None:
    assert queues_of(with_meta(pod("p"), **{kind: {KEY: "a"}}), pod("q")) == {"p": "a", "q": "default"}


@pytest.mark.parametrize("kind", ["labels", "annotations"])
def test_a_namespace_names_the_queue_of_all_that_name_none(kind: str) -> None:
    found = queues_of(
        namespace(**{kind: {KEY: "b"}}),
        pod("p"),
        with_meta(pod("own"), labels={KEY: "a"}),
        group("g", 1),
        member("g", 0),
        group("h", 1, queue="a"),
        member("h", 0),
        with_meta(group("i", 1), labels={KEY: "a"}),
        member("i", 0),
        member("nobody", 0),
    )
    assert found == {"p": "b", "own": "a", "g": "b", "h": "a", "i": "a", "nobody": "b"}


def test_a_gang_of_another_system_without_a_queue_field_names_it_by_label() -> None:
    item = {**group("g", 1), "apiVersion": "scheduling.x-k8s.io/v1alpha1", "spec": {"minMember": 1}}
    assert queues_of(with_meta(item, labels={KEY: "a"}), member("g", 0)) == {"g": "a"}


def test_a_pod_of_a_gang_may_name_the_gangs_queue() -> None:
    labels = {**member("g", 0)["metadata"]["labels"], KEY: "a"}
    assert queues_of(group("g", 1, queue="a"), with_meta(member("g", 0), labels=labels)) == {"g": "a"}


def test_a_running_pod_is_counted_in_its_queue() -> None:
    running = with_meta(pod("p", nodeName="n0"), labels={KEY: "a"})
    planned = plan_objects([queue("a"), node("n0"), running])
    held = {entry["name"]: entry["allocated"] for entry in planned["queues"]}
    assert held["a"]
    assert not held["default"]


@pytest.mark.parametrize(
    ("objects", "says"),
    [
        ([with_meta(pod("p"), labels={KEY: "aa"})], "Pod default/p: metadata.labels[maniple.dev/queue]: unknown queue"),
        ([with_meta(pod("p"), labels={KEY: ""})], "expected the name of a queue, found ''"),
        ([with_meta(pod("p"), labels={KEY: "a"}, annotations={KEY: "b"})], "as the label says, found 'b'"),
        ([with_meta(pod("p"), labels={KEY: "top"})], "queue 'top' has queues below it; name one of those: below"),
        ([namespace(labels={KEY: "aa"}), pod("p"), pod("q")], "Namespace default: metadata.labels[maniple.dev/queue]"),
        ([namespace(labels={"maniple.dev/que": "a"})], "metadata.labels[maniple.dev/que]: unknown label; did you mean"),
        ([with_meta(group("g", 1, queue="b"), labels={KEY: "a"})], "expected 'b', as spec.queue says, or none"),
        (
            [group("g", 1, queue="b"), with_meta(member("g", 0), labels={"maniple.dev/pod-group": "g", KEY: "a"})],
            "its PodGroup default/g is in queue 'b'; expected that queue or none, found 'a'",
        ),
    ],
)
def test_a_queue_that_cannot_be_is_an_error_that_names_the_object(objects: list[Object], says: str) -> None:
    with pytest.raises(InputError) as refused:
        plan_objects([queue("a"), queue("b"), queue("top"), queue("below", parent="top"), *objects])
    assert [message for message in refused.value.messages if says in message] == refused.value.messages


def test_an_unknown_key_of_ours_on_a_live_object_is_a_note() -> None:
    from maniple.api.decode.decode import decode
    from maniple.api.decode.server_objects import read_live
    from maniple.api.kubernetes import Pod

    raw = b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"x","uid":"1","labels":%s},"spec":{}}'
    raw %= b'{"maniple.dev/queu":"a"}'
    note = "metadata.labels[maniple.dev/queu]: unknown label; did you mean 'maniple.dev/queue'?; it is not read"
    assert read_live(raw, Pod).notes == (note,)
    text = raw.replace(b'"spec":{}', b'"spec":{"containers":[{"name":"main"}]}')
    assert decode([("f", text)]).notes == [f"f: Pod x/p: {note}"]


def test_the_cache_follows_the_queue_of_pods_and_namespaces() -> None:
    cache = Cache()

    def put(raw: Object, **meta: Any) -> None:
        item = typed(raw, **meta)
        cache.put(item)

    def where() -> dict[str, str]:
        snapshot = cache.snapshot(NOW)
        return {job.name.removeprefix("default/"): snapshot.queues[job.queue].name for job in snapshot.waiting}

    put(queue("a"))
    put(queue("b"))
    put(group("g", 1))
    put(member("g", 0))
    put(pod("p"))
    put(pod("own"), labels={KEY: "a"})
    assert where() == {"g": "default", "p": "default", "own": "a"}
    cache.put(typed(namespace(labels={KEY: "b"}), namespace=""))
    assert where() == {"g": "b", "p": "b", "own": "a"}
    put(pod("own"), labels={KEY: "c"})
    assert where() == {"g": "b", "p": "b"}
    assert [str(problem) for problem in cache.problems().values()] == [
        "[\"metadata.labels[maniple.dev/queue]: unknown queue 'c'; known: a, b, default\"]"
    ]
    put(queue("c"))
    assert where() == {"g": "b", "p": "b", "own": "c"}
    cache.put(typed(namespace(labels={KEY: "none"}), namespace=""))
    assert where() == {"own": "c", "g": "default"}  # g waits too: its group is set aside
    assert len(cache.problems()) == 3
    cache.put(typed(namespace(), namespace=""))
    assert where() == {"g": "default", "p": "default", "own": "c"}
    put(group("g", 1, queue="a"))
    put(member("g", 0), labels={"maniple.dev/pod-group": "g", KEY: "b"})
    assert next(iter(cache.problems()))[1:] == ("default", "g-0")
    put(group("g", 1, queue="b"))
    assert where()["g"] == "b"
    assert not cache.problems()
