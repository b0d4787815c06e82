"""The Cache in the cases that a cluster has every day, and in those that it should never have."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from scheduler.small_clusters import Object, group, member, node, pod, queue

from cluster.test_cache_equals_rebuild import Model
from maniple.api import kubernetes, types
from maniple.api.decode.decode import KINDS
from maniple.api.labels import MOVED_ANNOTATION
from maniple.api.moves import Place, format_move
from maniple.cluster.cache import Cache
from maniple.model.building.from_scratch import build_snapshot
from maniple.model.building.input_objects import Objects
from maniple.scheduler import schedule
from maniple.scheduler.framework.plan import Bind

NOW = 1_767_300_000.0
HOSTNAME = "kubernetes.io/hostname"


def typed(raw: Object, **meta: Any) -> Any:
    """As the API server's answer is read: typed, but looked at by nobody."""
    raw = {**raw, "metadata": {**raw["metadata"], **meta}}
    if raw["kind"] not in ("Node", "Queue", "Topology"):
        raw["metadata"].setdefault("namespace", "default")
    return msgspec.convert(raw, KINDS[raw["apiVersion"], raw["kind"]])


def cache_of(*objects: Object) -> Cache:
    cache = Cache()
    for raw in objects:
        cache.put(typed(raw))
    return cache


def binds(cache: Cache) -> dict[str, str]:
    return {bind.pod.removeprefix("default/"): bind.node for bind in schedule(cache.snapshot(NOW)).binds}


def free_cpu(cache: Cache, at: int = 0) -> float:
    return float(cache.snapshot(NOW).free[0, at]) / 1000


def placed(cache: Cache) -> dict[str, int]:
    return {pod.pod: pod.node for job in cache.snapshot(NOW).jobs for pod in job.placed}


def said(cache: Cache) -> dict[str, str]:
    return {f"{kind.__name__} {name}": " ".join(texts) for (kind, _, name), texts in cache.problems().items()}


# What matters, and what does not.


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"name": "n0", "labels": {}, "annotations": {"example.com/seen": "now"}}},
        {
            "status": {
                "allocatable": {"cpu": "4", "memory": "4Gi", "pods": "110"},
                "conditions": [{"type": "Odd", "status": "True"}],
            }
        },
        {"status": {"allocatable": {"cpu": "4", "memory": "4Gi", "pods": "110"}, "capacity": {"cpu": "5"}}},
    ],
    ids=["annotation", "condition", "capacity"],
)
def test_a_heartbeat_is_no_change(change: Object) -> None:
    cache = cache_of(node("n0"), pod("p"))
    before = cache.snapshot(NOW)
    cache.put(typed({**node("n0"), **change}))
    assert not cache.changed()
    assert cache.snapshot(NOW + 1).nodes is before.nodes


def test_a_cordoned_node_takes_nobody_and_leaves_all_else_as_it_was() -> None:
    cache = cache_of(node("n0"), node("n1"), group("g", 1), pod("p", labels=member("g")))
    before = cache.snapshot(NOW)
    cache.put(typed(node("n0", spec={"unschedulable": True})))
    assert cache.changed()
    after = cache.snapshot(NOW)
    assert after.axis is before.axis
    assert after.jobs[0] is before.jobs[0]
    assert binds(cache) == {"p": "n1"}


@pytest.mark.parametrize(
    "raw",
    [
        pod("x", schedulerName="default-scheduler"),
        {**pod("x", nodeName="n0"), "status": {"phase": "Succeeded"}},
        {**pod("x", nodeName="n0", schedulerName="default-scheduler"), "status": {"phase": "Failed"}},
        pod("x", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
    ],
    ids=["waits for another scheduler", "has succeeded", "has failed", "leaves before it came"],
)
def test_a_pod_that_makes_no_difference_is_not_held(raw: Object) -> None:
    cache = cache_of(node("n0"))
    cache.snapshot(NOW)
    cache.put(typed(raw))
    assert not cache.changed()
    assert cache.pod("default/x") is None


def test_a_pod_that_ends_frees_its_node() -> None:
    cache = cache_of(node("n0"), pod("p", nodeName="n0"))
    assert free_cpu(cache) == 3
    cache.put(typed({**pod("p", nodeName="n0"), "status": {"phase": "Succeeded"}}))
    assert free_cpu(cache) == 4


def test_other_gangs_stay_the_same_objects() -> None:
    gangs = [item for name in "ab" for item in (group(name, 1), pod(f"{name}-0", labels=member(name)))]
    cache = cache_of(node("n0"), *gangs)
    before = cache.snapshot(NOW)
    cache.put(typed(pod("a-1", labels=member("a"))))
    after = cache.snapshot(NOW)
    assert [one is other for one, other in zip(before.jobs, after.jobs, strict=True)] == [False, True]


# Assumptions.


def test_a_bind_counts_at_once_and_a_late_report_does_not_undo_it() -> None:
    cache = cache_of(node("n0"), pod("p"))
    cache.assume_bind("default/p", Bind("default/p", "n0"))
    cache.put(typed(pod("p", labels={"seen": "late"})))
    cache.replace(kubernetes.Pod, [typed(pod("p", labels={"seen": "listed"}))])
    assert free_cpu(cache) == 3
    assert binds(cache) == {}
    assert list(cache.assumed()) == ["default/p"]


def test_a_bind_is_confirmed_by_the_report_of_it() -> None:
    cache = cache_of(node("n0"), pod("p"))
    cache.assume_bind("default/p", Bind("default/p", "n0"))
    cache.put(typed(pod("p", nodeName="n0")))
    assert not cache.assumed()
    assert placed(cache) == {"default/p": 0}


def test_a_pod_that_went_elsewhere_is_where_it_is() -> None:
    cache = cache_of(node("n0"), node("n1"), pod("p"))
    cache.assume_bind("default/p", Bind("default/p", "n0"))
    cache.put(typed(pod("p", nodeName="n1")))
    assert not cache.assumed()
    assert (free_cpu(cache, 0), free_cpu(cache, 1)) == (4, 3)


def test_a_bind_that_failed_is_forgotten() -> None:
    cache = cache_of(node("n0"), pod("p"))
    cache.assume_bind("default/p", Bind("default/p", "n0"))
    cache.snapshot(NOW)
    cache.forget("default/p")
    assert free_cpu(cache) == 4
    assert binds(cache) == {"p": "n0"}


@pytest.mark.parametrize("how", ["removed", "listed", "made anew"])
def test_a_pod_that_is_gone_takes_its_assumption_with_it(how: str) -> None:
    cache = cache_of(node("n0"))
    cache.put(typed(pod("p"), uid="first"))
    cache.assume_bind("default/p", Bind("default/p", "n0"))
    if how == "removed":
        cache.remove(kubernetes.Pod, "default", "p")
    elif how == "listed":
        cache.replace(kubernetes.Pod, [])
    else:
        cache.put(typed(pod("p"), uid="second"))
    assert not cache.assumed()
    assert free_cpu(cache) == 4


def test_nothing_is_assumed_of_a_pod_that_is_not_there() -> None:
    cache = cache_of(node("n0"))
    cache.assume_bind("default/p", Bind("default/p", "n0"))
    cache.assume_eviction("default/p", "default/g")
    assert not cache.assumed()


def test_an_evicted_pod_counts_as_leaving() -> None:
    cache = cache_of(node("n0"), pod("p", nodeName="n0"))
    cache.assume_eviction("default/p", "default/g")
    snapshot = cache.snapshot(NOW)
    assert (snapshot.free[0, 0], snapshot.releasing[0, 0]) == (3000, 1000)
    assert snapshot.leaving_for["default/g"][0][0] == 1000
    cache.forget("default/p")
    assert cache.snapshot(NOW).releasing[0, 0] == 0
    assert not cache.snapshot(NOW).leaving_for


def test_the_gang_that_a_pod_leaves_for_is_known_until_the_pod_is_gone() -> None:
    cache = cache_of(node("n0"), pod("p", nodeName="n0"))
    cache.assume_eviction("default/p", "default/g")
    cache.put(typed(pod("p", nodeName="n0"), deletionTimestamp="2026-01-02T00:00:00Z"))
    assert not cache.assumed()
    assert cache.snapshot(NOW).leaving_for["default/g"][0][0] == 1000
    cache.remove(kubernetes.Pod, "default", "p")
    assert not cache.snapshot(NOW).leaving_for


ENDS = 1_767_312_000.0  # 2026-01-02T00:00:00Z


@pytest.mark.parametrize(("passed_s", "is_stuck"), [(0, False), (60, False), (60.5, True), (7200, True)])
def test_a_pod_becomes_stuck_by_time_alone(passed_s: float, is_stuck: bool) -> None:
    cache = cache_of(node("n0"), pod("p", nodeName="n0"))
    cache.assume_eviction("default/p", "default/g")
    cache.put(typed(pod("p", nodeName="n0"), deletionTimestamp="2026-01-02T00:00:00Z"))
    assert cache.snapshot(ENDS).releasing[0, 0] == 1000
    snapshot = cache.snapshot(ENDS + passed_s)
    assert snapshot.free[0, 0] == 3000
    assert snapshot.releasing[0, 0] == (0 if is_stuck else 1000)
    assert bool(snapshot.leaving_for) is not is_stuck
    assert [pod.pod for pods in snapshot.stuck.values() for pod in pods] == ["default/p"] * is_stuck
    assert cache.snapshot(ENDS).releasing[0, 0] == 1000  # the clock was set back
    cache.remove(kubernetes.Pod, "default", "p")
    gone = cache.snapshot(ENDS + passed_s)
    assert (gone.free[0, 0], gone.releasing[0, 0], dict(gone.stuck)) == (4000, 0, {})


def test_a_pod_that_we_evicted_is_not_stuck_before_its_deletion_is_reported() -> None:
    cache = cache_of(node("n0"), pod("p", nodeName="n0"))
    cache.assume_eviction("default/p", "default/g")
    assert cache.snapshot(ENDS + 7200).releasing[0, 0] == 1000


def test_the_gpus_and_the_backfill_of_a_bind_are_known() -> None:
    gpus = {"cpu": "4", "memory": "4Gi", "nvidia.com/gpu": "2"}
    wants = [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]
    cache = cache_of(node("n0", allocatable=gpus), pod("p", containers=wants))
    cache.assume_bind("default/p", Bind("default/p", "n0", ("1",), backfill="default/big"))
    snapshot = cache.snapshot(NOW)
    row = snapshot.axis.gpu_rows[0]
    assert snapshot.gpus_free[row].tolist() == [[1000, 0]]
    assert snapshot.jobs[0].placed[0].makes_way_for == "default/big"


def elastic(size: int | None = None) -> Object:
    role = {"name": "worker", "min": 1, "max": 4, "template": {"spec": {"containers": [{"name": "main"}]}}}
    status = {} if size is None else {"target": [{"role": "worker", "replicas": size}]}
    return {
        "apiVersion": "maniple.dev/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": "j"},
        "spec": {"roles": [role]},
        "status": status,
    }


def size_of(cache: Cache) -> int:
    job = cache.snapshot(NOW).jobs[0]
    assert job.elastic is not None
    return job.elastic.size


def test_a_decided_size_counts_until_the_job_says_it_itself() -> None:
    cache = cache_of(node("n0"), elastic())
    cache.assume_size("default/j", {"worker": 3}, NOW)
    assert size_of(cache) == 3
    cache.put(typed(elastic(1)))
    assert size_of(cache) == 3
    cache.put(typed(elastic(3)))
    cache.put(typed(elastic(2)))
    assert size_of(cache) == 2
    cache.assume_size("default/j", {"worker": 4}, NOW)
    cache.forget_size("default/j")
    assert size_of(cache) == 2


@pytest.mark.parametrize("gang", [elastic(1), group("j", 1)], ids=["ElasticJob", "PodGroup"])
def test_a_move_counts_until_the_gang_says_it_itself(gang: Object) -> None:
    """Reports that are older than the write, or of another change, do not have it yet."""

    def annotation(node: str) -> str:
        return format_move(NOW, 1, [Place(node, 1, {"cpu": "1"})])

    def report(text: str, **labels: str) -> None:
        annotations = {MOVED_ANNOTATION: text} if text else {}
        cache.put(typed(gang, labels=labels, annotations=annotations))

    def kept() -> list[str]:
        return [place.node for job in cache.snapshot(NOW).moved if job.moved is not None for place in job.moved.places]

    kind = types.PodGroup if gang["kind"] == "PodGroup" else types.ElasticJob
    cache = cache_of(node("n0"), gang)
    cache.assume_move(kind, "default/j", annotation("n1"))
    report("", team="a")
    assert kept() == ["n1"]
    report(annotation("n0"), team="a")
    assert kept() == ["n1"]
    report(annotation("n1"), team="a")
    report("", team="b")
    assert kept() == []
    cache.assume_move(kind, "default/j", annotation("n1"))
    cache.forget_move(kind, "default/j")
    assert kept() == []
    cache.assume_move(kind, "default/j", annotation("n1"))
    cache.remove(kind, "default", "j")
    report("")
    assert kept() == []


def test_who_has_a_reservation_is_known_before_it_is_reported() -> None:
    cache = cache_of(node("n0"), group("g", 1), pod("g-0", labels=member("g")), pod("p"))
    for holders in (["default/g"], ["default/p"], []):
        cache.mark_reserved(holders)
        found = [job.name for job in cache.snapshot(NOW).jobs if job.holds_reservation]
        assert found == holders


def test_who_was_promised_a_node_is_known_before_it_is_reported() -> None:
    waiting = {**pod("q"), "status": {"phase": "Pending", "nominatedNodeName": "n0"}}
    cache = cache_of(node("n0"), pod("p"), waiting)

    def promised() -> list[str]:
        return [job.name for job in cache.snapshot(NOW).jobs if job.nominated]

    assert promised() == ["default/q"]
    cache.promise({"default/p": "n0"})
    assert promised() == ["default/p"]
    cache.promise(None)
    assert promised() == ["default/q"]


def test_it_is_known_for_whose_promise_pods_were_evicted() -> None:
    cache = cache_of(node("n0"), pod("p"), pod("q"))

    def claimants() -> list[str]:
        return [job.name for job in cache.snapshot(NOW).jobs if job.has_evicted]

    both = {"default/p": "n0", "default/q": "n0"}
    cache.promise(both, ["default/p"])
    assert claimants() == ["default/p"]
    cache.promise(both, ["default/q"])
    assert claimants() == ["default/q"]
    cache.promise(None)
    assert not claimants()


# Who belongs to whom.


def test_pods_of_another_scheduler_count_for_a_group_as_soon_as_it_is_written() -> None:
    stranger = pod("g-0", labels=member("g"), schedulerName="default-scheduler", nodeName="n0")
    cache = cache_of(node("n0"), stranger)
    assert cache.snapshot(NOW).jobs == []
    cache.put(typed(group("g", 1)))
    assert [len(job.placed) for job in cache.snapshot(NOW).jobs] == [1]
    cache.remove(types.PodGroup, "default", "g")
    assert cache.snapshot(NOW).jobs == []


def test_pods_of_another_scheduler_count_for_a_group_that_nobody_wrote_if_one_of_ours_does() -> None:
    stranger = pod("g-0", labels=member("g"), schedulerName="default-scheduler", nodeName="n0")
    cache = cache_of(node("n0"), stranger)
    cache.snapshot(NOW)
    cache.put(typed(pod("g-1", labels=member("g"))))
    [job] = cache.snapshot(NOW).jobs
    assert (job.exists, len(job.placed), job.waiting_pods) == (False, 1, 1)
    cache.remove(kubernetes.Pod, "default", "g-1")
    assert cache.snapshot(NOW).jobs == []


def test_pods_that_came_before_their_elastic_job_are_its_own() -> None:
    labels = {"maniple.dev/job": "j", "maniple.dev/role": "worker", "maniple.dev/index": "0"}
    cache = cache_of(node("n0"), pod("j-worker-0", labels=labels))
    assert [job.key for job in cache.snapshot(NOW).jobs] == [("default/j", "ElasticJob")]
    assert not cache.snapshot(NOW).jobs[0].exists
    cache.put(typed(elastic()))
    assert [(job.key, job.waiting_pods) for job in cache.snapshot(NOW).jobs] == [(("default/j", "ElasticJob"), 1)]
    job = cache.job_of("default/j-worker-0")
    assert job is not None
    assert job.key == ("default/j", "ElasticJob")
    assert [one.metadata.name for one in cache.pods_of("default/j")] == ["j-worker-0"]


def test_a_pod_that_names_a_job_that_is_gone_and_a_group_is_the_groups() -> None:
    both = pod("z", labels={**member("g"), "maniple.dev/job": "j"})
    model = Model()
    for raw in (node("n0"), group("g", 1), replica("j-worker-0"), both):
        model.put(typed(raw))
    model.check()
    job = model.cache.job_of("default/z")
    assert job is not None
    assert job.key == ("default/g", "PodGroup")


def test_the_minimum_runtime_of_a_queue_reaches_the_jobs_below_it() -> None:
    model = Model()
    groups = group("own", 1, queue="a", minRuntimeSeconds=0), group("g", 1, queue="a"), group("other", 1, queue="b")
    lone = pod("p", metadata={"labels": {"maniple.dev/queue": "a"}})
    for raw in (node("n0"), queue("top"), queue("a", parent="top"), queue("b"), *groups, lone):
        model.put(typed(raw))

    def least() -> dict[str, float]:
        model.check()  # its snapshot is the one made from scratch
        return {job.name.removeprefix("default/"): job.min_runtime_s for job in model.cache.snapshot(NOW).jobs}

    assert least() == {"own": 0, "g": 0, "other": 0, "p": 0}
    model.put(typed(queue("top", minRuntimeSeconds=60)))
    assert least() == {"own": 0, "g": 60, "other": 0, "p": 60}
    model.put(typed(queue("a", parent="top", minRuntimeSeconds=30)))
    assert least() == {"own": 0, "g": 30, "other": 0, "p": 30}
    model.put(typed(queue("a", parent="top", minRuntimeSeconds=0)))
    assert least() == {"own": 0, "g": 0, "other": 0, "p": 0}
    model.put(typed(group("g", 1, queue="a", minRuntimeSeconds=5)))
    model.put(typed(group("other", 1, queue="a")))
    model.put(typed(queue("a", parent="top")))
    assert least() == {"own": 0, "g": 5, "other": 60, "p": 60}


# What is wrong.


def test_a_group_in_an_unknown_queue_is_set_aside_until_the_queue_is_there() -> None:
    cache = cache_of(node("n0"), group("g", 1, queue="prd"), pod("g-0", labels=member("g")), pod("p"))
    assert said(cache) == {"PodGroup g": "spec.queue: unknown queue 'prd'; known: default"}
    assert binds(cache) == {"p": "n0"}
    cache.put(typed(queue("prd")))
    assert said(cache) == {}
    assert binds(cache) == {"g-0": "n0", "p": "n0"}


def test_queues_in_a_loop_are_set_aside_with_all_below_them() -> None:
    queues = queue("a", parent="b"), queue("b", parent="a"), queue("c", parent="a"), queue("d")
    groups = group("in-c", 1, queue="c"), group("in-d", 1, queue="d")
    pods = pod("in-c-0", labels=member("in-c")), pod("in-d-0", labels=member("in-d"))
    cache = cache_of(node("n0"), *queues, *groups, *pods)
    found = said(cache)
    assert sorted(found) == ["PodGroup in-c", "Queue a", "Queue b", "Queue c"]
    assert "loop: a -> b -> a" in found["Queue a"]
    assert "queue 'a' is left out" in found["Queue c"]
    assert binds(cache) == {"in-d-0": "n0"}
    cache.put(typed(queue("a")))
    assert said(cache) == {}
    assert binds(cache) == {"in-c-0": "n0", "in-d-0": "n0"}


def replica(name: str, index: str = "0", role: str = "worker", **more: Any) -> Object:
    labels = {"maniple.dev/job": "j", "maniple.dev/role": role, "maniple.dev/index": index}
    return pod(name, labels=labels, **more)


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (replica("x"), "expected an index of its own among the role's replicas, found '0', which pod w has too"),
        (replica("odd", "first"), "expected a whole number of 0 or more, such as '0', found 'first'"),
        (replica("odd", "1", "wroker"), "expected a role of ElasticJob j, found 'wroker'; did you mean 'worker'?"),
    ],
)
def test_a_pod_that_contradicts_its_job_is_set_aside_and_its_job_goes_on(wrong: Object, what: str) -> None:
    name = wrong["metadata"]["name"]
    cache = cache_of(node("n0"), elastic(), replica("w"), wrong, pod("p"))
    assert list(said(cache)) == [f"Pod {name}"]
    assert what in said(cache)[f"Pod {name}"]
    assert binds(cache) == {"w": "n0", "p": "n0"}
    assert cache.job_of(f"default/{name}") is None
    # Put right, it is one more replica.
    cache.put(typed(replica(name, "1")))
    assert said(cache) == {}
    assert binds(cache) == {"w": "n0", name: "n0", "p": "n0"}


@pytest.mark.parametrize("key", ["maniple.dev/job", "maniple.dev/pod-group"])
def test_a_pod_on_a_node_that_is_set_aside_is_still_known_by_its_labels(key: str) -> None:
    wrong = replica("odd", "first", nodeName="n0")
    wrong["metadata"]["labels"] |= member("g")
    term = {"labelSelector": {"matchExpressions": [{"key": key, "operator": "Exists"}]}, "topologyKey": HOSTNAME}
    away = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    model = Model()
    for raw in (node("n0", {HOSTNAME: "n0"}), group("g", 1), elastic(), wrong, pod("p", affinity=away)):
        model.put(typed(raw))
    model.check()
    assert list(said(model.cache)) == ["Pod odd"]
    assert binds(model.cache) == {}
    # As `plan --live` gives it to the builder: it is not of its job, nor of its group.
    snapshot = build_snapshot(model.objects(model.cache.problems()), now=NOW)
    assert not schedule(snapshot).binds
    assert [len(job.placed) for job in snapshot.jobs] == [0, 0, 0]


def test_who_contradicts_its_job_on_a_node_holds_its_room_and_is_nobodys() -> None:
    cache = cache_of(node("n0"), elastic(), replica("w", nodeName="n0"), replica("double", nodeName="n0"))
    assert list(said(cache)) == ["Pod w"]  # of two that are as old the one of the later name
    assert free_cpu(cache) == 2
    assert list(placed(cache)) == ["default/double"]
    assert size_of(cache) == 1
    cache.remove(kubernetes.Pod, "default", "double")
    assert said(cache) == {}
    assert list(placed(cache)) == ["default/w"]


def test_a_newcomer_does_not_put_a_replica_in_the_wrong() -> None:
    cache = cache_of(node("n0"), elastic(), replica("w", metadata={"creationTimestamp": "2026-01-01T00:00:10Z"}))
    cache.snapshot(NOW)
    cache.put(typed(replica("a", metadata={"creationTimestamp": "2026-01-01T00:00:20Z"})))
    assert list(said(cache)) == ["Pod a"]
    cache.assume_bind("default/w", Bind("default/w", "n0"))
    cache.put(typed(replica("older", metadata={"creationTimestamp": "2026-01-01T00:00:00Z"})))
    assert list(said(cache)) == ["Pod a", "Pod older"]
    assert list(placed(cache)) == ["default/w"]


def test_failed_binds_noted_on_a_pod_of_a_gang_are_an_order_that_nobody_obeys() -> None:
    failed = {"maniple.dev/bind-failures": "2", "maniple.dev/last-bind-failure": "2026-01-01T00:00:00Z"}
    noted = pod("g-0", labels=member("g"), metadata={"annotations": failed})
    cache = cache_of(node("n0"), group("g", 1), noted, pod("g-1", labels=member("g")))
    assert "expected it on PodGroup g, whose pod this is" in said(cache)["Pod g-0"]
    assert binds(cache) == {"g-1": "n0"}


def huge(name: str, **spec: Any) -> Object:
    wants = {"resources": {"requests": {"cpu": "1", "memory": "1e400"}}}
    return pod(name, containers=[{"name": "main", **wants}], **spec)


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (huge("x"), "1e400"),
        (pod("x", metadata={"annotations": {"maniple.dev/gpu-fraction": "half"}}), "gpu-fraction"),
        (pod("x", priorityClassName="nobody"), "unknown PriorityClass 'nobody'"),
    ],
    ids=["quantity", "annotation", "class"],
)
def test_a_waiting_pod_that_is_wrong_is_set_aside(wrong: Object, what: str) -> None:
    cache = cache_of(node("n0"), pod("p"), wrong)
    assert what in said(cache)["Pod x"]
    assert binds(cache) == {"p": "n0"}
    cache.remove(kubernetes.Pod, "default", "x")
    assert said(cache) == {}


def test_a_pod_on_a_node_counts_whatever_is_wrong_with_it() -> None:
    cache = cache_of(node("n0"), huge("x", nodeName="n0"))
    assert "1e400" in said(cache)["Pod x"]
    assert free_cpu(cache) == 3


def test_a_pod_that_is_being_bound_counts_even_if_it_turns_wrong_meanwhile() -> None:
    cache = cache_of(node("n0"), pod("p"))
    cache.assume_bind("default/p", Bind("default/p", "n0"))
    cache.put(typed(pod("p", metadata={"annotations": {"maniple.dev/gpu-fraction": "half"}})))
    assert list(said(cache)) == ["Pod p"]
    assert free_cpu(cache) == 3


@pytest.mark.parametrize(
    "wrong",
    [
        node("n1", allocatable={"cpu": "4", "nvidia.com/gpu": "5000"}),
        node("n1", allocatable={"cpu": "many"}),
    ],
    ids=["GPUs", "quantity"],
)
def test_a_node_that_is_wrong_takes_nobody(wrong: Object) -> None:
    cache = cache_of(node("n0"), wrong, pod("p"))
    assert list(said(cache)) == ["Node n1"]
    assert cache.snapshot(NOW).nodes.names == ("n0",)
    cache.put(typed(node("n1")))
    assert said(cache) == {}
    assert cache.snapshot(NOW).nodes.names == ("n0", "n1")


# In the long run.


def test_drift_is_told_and_repaired() -> None:
    cache = cache_of(node("n0"), node("n1"), pod("p", nodeName="n0"), pod("q"))
    fresh = Objects(
        nodes=[typed(node("n0"))],
        pods=[typed(pod("q", nodeName="n0")), typed(pod("r")), typed(pod("x", schedulerName="other"))],
    )
    assert cache.drift(fresh) == [
        "Node n1: was held, but is gone",
        "Pod default/p: was held, but is gone",
        "Pod default/q: was held as it used to be",
        "Pod default/r: is there, but was not held",
    ]
    assert cache.drift(fresh) == []
    assert placed(cache) == {"default/q": 0}


def test_what_is_numbered_does_not_grow_for_ever() -> None:
    cache = cache_of(node("n0"))
    most = 0
    for turn in range(60):
        for index in range(100):
            cache.put(typed(pod("p", cpu=f"{turn * 100 + index + 1}m", nodeSelector={"turn": f"{turn}-{index}"})))
            cache.snapshot(NOW)
        tables = cache._builder._tables
        assert tables is not None
        most = max(most, len(tables.requests.requests), len(tables.shapes))
    assert most < 1200
