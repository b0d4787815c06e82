"""The referee is judged first: for each promise a plan that breaks it, beside one that keeps it."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings

from properties.cluster_facts import read_facts, requests_of
from properties.gpu_facts import GPU
from properties.missed_room import missed_opportunities
from properties.random_clusters import contended_worlds, worlds
from properties.raw_objects import Object, quantity
from properties.referee import judge, violations
from properties.replay_rounds import Promise, read_state

HERE, THERE = "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"
ZONE = "topology.kubernetes.io/zone"


def node(name: str, gpus: int = 4, pods: int = 110, **spec: object) -> Object:
    labels = {"kubernetes.io/hostname": name, ZONE: str(spec.pop("zone", "a"))}
    ready = {"type": "Ready", "status": str(spec.pop("ready", "True"))}
    allocatable: Object = {"cpu": "4", "memory": "8Gi", GPU: gpus, "pods": pods}
    status = {"allocatable": allocatable, "conditions": [ready]}
    return {"kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}


def pod(name: str, gpus: int = 1, on: str = "", group: str = "", **more: object) -> Object:
    """`more`: cpu, role, app, ids, leaves, scheduler, phase; the rest goes into the spec."""
    labels = {"app": str(more.pop("app", name))}
    if group:
        labels["maniple.dev/pod-group"] = group
    if "role" in more:
        labels["maniple.dev/role"] = str(more.pop("role"))
    metadata: Object = {"name": name, "namespace": "default", "labels": labels, "creationTimestamp": HERE}
    if "ids" in more:
        metadata["annotations"] = {"maniple.dev/gpus": more.pop("ids")}
    if more.pop("leaves", False):
        metadata["deletionTimestamp"] = THERE
    limits = {GPU: gpus, "cpu": more.pop("cpu", "100m")} if gpus else {}
    phase = more.pop("phase", "Running" if on else "Pending")
    spec: Object = {
        "schedulerName": more.pop("scheduler", "maniple"),
        "containers": [{"name": "main", "resources": {"limits": limits}, "ports": more.pop("ports", [])}],
    }
    if on:
        spec["nodeName"] = on
    return {"kind": "Pod", "metadata": metadata, "spec": spec | more, "status": {"phase": phase}}


def group(name: str, least: int, **spec: object) -> Object:
    metadata = {"name": name, "namespace": "default"}
    return {"kind": "PodGroup", "metadata": metadata, "spec": {"minMember": least} | spec}


def queue(name: str, **spec: object) -> Object:
    return {"kind": "Queue", "metadata": {"name": name}, "spec": spec}


def bind(name: str, to: str, *gpus: str) -> Object:
    return {"pod": f"default/{name}", "node": to, "gpus": list(gpus)}


def nominate(name: str, to: str) -> Object:
    return {"pod": f"default/{name}", "node": to}


def evict(name: str, beneficiary: str) -> Object:
    return {"pod": f"default/{name}", "reason": "Preempted", "for": f"default/{beneficiary}"}


def wait(name: str, queue: str = "default", message: str = "0 of 1 nodes fit") -> Object:
    return {"group": f"default/{name}", "queue": queue, "reason": "InsufficientResources", "message": message}


def round_of(**parts: list[Object]) -> Object:
    empty: Object = {"binds": [], "evictions": [], "nominations": [], "resizes": [], "waiting": []}
    return empty | parts


def plan_of(*rounds: Object) -> Object:
    return {"rounds": list(rounds), "queues": []}


def broken(objects: list[Object], *rounds: Object) -> set[Promise]:
    return {breach.promise for breach in judge(objects, plan_of(*rounds))}


def anti_affinity(app: str, key: str = "kubernetes.io/hostname", kind: str = "podAntiAffinity") -> Object:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def spread(app: str) -> list[Object]:
    selector = {"matchLabels": {"app": app}}
    rule: Object = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    return [rule | {"labelSelector": selector}]


@pytest.mark.parametrize(
    ("written", "exactly"),
    [
        ("1", 1),
        ("0.1", Fraction(1, 10)),
        ("1500m", Fraction(3, 2)),
        ("3n", Fraction(3, 10**9)),
        ("2Ki", 2048),
        ("1.5Gi", 3 * 2**29),
        ("1E", 10**18),
        ("1E3", 1000),
        ("1e-3", Fraction(1, 1000)),
        ("5k", 5000),
        (".5", Fraction(1, 2)),
        (4, 4),
    ],
)
def test_quantities_are_exact(written: object, exactly: Fraction) -> None:
    assert quantity(written) == exactly


@pytest.mark.parametrize("written", ["", "1KiB", "one", "1 Gi", "--1", "1mm"])
def test_an_invalid_quantity_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        quantity(written)


def test_requests_count_sidecars_init_containers_overhead_and_lone_limits() -> None:
    def container(**wanted: object) -> Object:
        return {"resources": {"requests": wanted}}

    spec = {
        "containers": [
            {"resources": {"limits": {"cpu": "1", GPU: 1}, "requests": {"cpu": "500m"}}},
            container(cpu="250m"),
        ],
        "initContainers": [
            container(cpu="100m", memory="1Gi"),
            container(cpu="100m") | {"restartPolicy": "Always"},
            container(cpu="2"),
        ],
        "overhead": {"cpu": "10m"},
    }
    assert requests_of(spec) == {"cpu": Fraction(211, 100), "memory": 2**30, GPU: 1}
    spec["initContainers"] = [container(cpu="100m") | {"restartPolicy": "Always"}]
    assert requests_of(spec) == {"cpu": Fraction(86, 100), GPU: 1}


def test_a_plan_that_keeps_all_promises_passes() -> None:
    objects = [
        node("n1"),
        node("n2"),
        group("g", 2),
        pod("g-0", 2, group="g"),
        pod("g-1", 2, group="g"),
        pod("old", 1, on="n1", ids="3"),
        pod("late", 4),
    ]
    done = round_of(binds=[bind("g-0", "n1", "0", "1"), bind("g-1", "n2", "0", "1")], waiting=[wait("late")])
    assert violations(objects, plan_of(done)) == []


def test_a_plan_without_rounds_is_no_plan() -> None:
    assert broken([node("n1")]) == {Promise.ORDER}


def test_over_commitment_is_caught() -> None:
    objects = [node("n1"), pod("a", 1, cpu="3"), pod("b", 1, cpu="2")]
    both = round_of(binds=[bind("a", "n1", "0"), bind("b", "n1", "1")])
    assert violations(objects, plan_of(both)) == ["round 1: node n1 would hold 5 cpu and has 4"]
    assert broken(objects, round_of(binds=[bind("a", "n1", "0")]), round_of(binds=[bind("b", "n1", "1")])) == {
        Promise.CAPACITY,
        Promise.WAITING,
    }


def test_the_limit_of_pods_counts_pods_without_requests() -> None:
    objects = [node("n1", pods=1), pod("a", 0, on="n1"), pod("b", 0)]
    assert broken(objects, round_of(binds=[bind("b", "n1")])) == {Promise.CAPACITY}
    assert not broken([node("n1"), *objects[1:]], round_of(binds=[bind("b", "n1")]))


def test_room_of_a_leaving_pod_may_be_nominated_but_not_bound() -> None:
    objects = [node("n1"), pod("old", 4, on="n1", leaves=True), pod("new", 4)]
    use_now = round_of(binds=[bind("new", "n1", "0", "1", "2", "3")])
    promise = round_of(nominations=[nominate("new", "n1")])
    assert Promise.CAPACITY in broken(objects, use_now)
    assert not broken(objects, promise, use_now)


def test_room_of_a_stuck_pod_is_neither_there_nor_coming() -> None:
    """Its grace ended more than a minute before the newest time that the objects mention."""
    stuck = pod("old", 4, on="n1", leaves=True)
    later = pod("clock", 0, on="n2")
    promise = round_of(nominations=[nominate("new", "n1")])
    for moment, is_stuck in (("2026-01-01T01:01:00Z", False), ("2026-01-01T01:01:01Z", True)):
        clock = later | {"metadata": later["metadata"] | {"creationTimestamp": moment}}  # type: ignore[operator]
        objects = [node("n1"), node("n2"), stuck, clock, pod("new", 4)]
        assert (Promise.CAPACITY in broken(objects, promise)) is is_stuck
        use_then = round_of(binds=[bind("new", "n1", "0", "1", "2", "3")])
        assert (Promise.CAPACITY in broken(objects, round_of(waiting=[wait("new")]), use_then)) is is_stuck


def test_a_stuck_pod_keeps_its_host_port() -> None:
    port = [{"containerPort": 80, "hostPort": 80}]
    clock = pod("clock", 0, on="n2")
    clock |= {"metadata": clock["metadata"] | {"creationTimestamp": "2026-01-01T02:00:00Z"}}  # type: ignore[operator]
    objects = [node("n1"), node("n2"), clock, pod("a", 0, on="n1", ports=port, leaves=True), pod("b", 0, ports=port)]
    assert broken(objects, round_of(nominations=[nominate("b", "n1")])) == {Promise.BINDS}


def test_nominations_that_do_not_fit_together_are_caught() -> None:
    objects = [node("n1"), pod("old", 4, on="n1", leaves=True), pod("a", 2), pod("b", 3)]
    both = round_of(nominations=[nominate("a", "n1"), nominate("b", "n1")])
    assert broken(objects, both) == {Promise.CAPACITY}


def test_a_plan_is_not_blamed_for_a_node_over_committed_before() -> None:
    objects = [node("n1"), pod("a", 1, on="n1", cpu="3"), pod("b", 1, on="n1", cpu="3"), pod("c", 0)]
    assert not broken(objects, round_of(binds=[bind("c", "n1")]))


@pytest.mark.parametrize(
    "target",
    [
        pod("a", scheduler="default-scheduler"),
        pod("a", on="n1"),
        pod("a", phase="Succeeded"),
        pod("a", leaves=True),
        pod("a", schedulingGates=[{"name": "example.com/wait"}]),
        pod("other"),
    ],
    ids=["another scheduler's", "running", "succeeded", "leaving", "gated", "unknown"],
)
def test_a_bind_of_a_pod_that_is_not_ours_to_bind_is_caught(target: Object) -> None:
    found = broken([node("n1"), target], round_of(binds=[bind("a", "n1", "0")]))
    assert Promise.BINDS in found


def test_a_bind_to_nowhere_or_twice_is_caught() -> None:
    objects = [node("n1"), node("n2"), pod("a")]
    assert Promise.BINDS in broken(objects, round_of(binds=[bind("a", "n9", "0")]))
    assert Promise.BINDS in broken(objects, round_of(binds=[bind("a", "n1", "0"), bind("a", "n2", "0")]))
    assert Promise.BINDS in broken(objects, round_of(binds=[bind("a", "n1", "0")], nominations=[nominate("a", "n2")]))
    assert Promise.BINDS in broken(objects, *[round_of(binds=[bind("a", "n1", "0")])] * 2)


def required_nodes(*terms: Object) -> Object:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def zone_in(*values: str, operator: str = "In") -> Object:
    return {"matchExpressions": [{"key": ZONE, "operator": operator, "values": list(values)}]}


TAINT = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("place", "newcomer", "is_fine"),
    [
        (node("n1"), pod("a", nodeSelector={ZONE: "b"}), False),
        (node("n1"), pod("a", nodeSelector={ZONE: "a"}), True),
        (node("n1"), pod("a", affinity=required_nodes(zone_in("b"))), False),
        (node("n1"), pod("a", affinity=required_nodes(zone_in("b"), zone_in("a"))), True),
        (node("n1"), pod("a", affinity=required_nodes(zone_in("a", operator="NotIn"))), False),
        (node("n1"), pod("a", affinity=required_nodes({})), False),
        (node("n1", taints=[TAINT]), pod("a"), False),
        (node("n1", taints=[TAINT | {"effect": "NoExecute"}]), pod("a"), False),
        (node("n1", taints=[TAINT | {"effect": "PreferNoSchedule"}]), pod("a"), True),
        (node("n1", taints=[TAINT]), pod("a", tolerations=[{"key": "dedicated", "value": "y"}]), False),
        (node("n1", taints=[TAINT]), pod("a", tolerations=[{"key": "dedicated", "value": "x"}]), True),
        (node("n1", taints=[TAINT]), pod("a", tolerations=[{"operator": "Exists"}]), True),
        (node("n1", unschedulable=True), pod("a"), False),
        (node("n1", ready="False"), pod("a"), False),
        (node("n1", ready="Unknown"), pod("a"), False),
    ],
)
def test_a_node_that_must_not_take_the_pod_is_caught(place: Object, newcomer: Object, is_fine: bool) -> None:
    for moves in (round_of(binds=[bind("a", "n1", "0")]), round_of(nominations=[nominate("a", "n1")])):
        assert broken([place, newcomer], moves) == (set() if is_fine else {Promise.BINDS})


def test_a_volume_out_of_reach_is_caught() -> None:
    terms = {"required": {"nodeSelectorTerms": [zone_in("b")]}}
    volume: Object = {"kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": {"nodeAffinity": terms}}
    metadata = {"name": "c", "namespace": "default"}
    claim: Object = {"kind": "PersistentVolumeClaim", "metadata": metadata, "spec": {"volumeName": "v"}}
    user = pod("a", volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}])
    objects = [node("n1"), node("n2", zone="b"), volume, claim, user]
    assert broken(objects, round_of(binds=[bind("a", "n1", "0")])) == {Promise.BINDS}
    assert not broken(objects, round_of(binds=[bind("a", "n2", "0")]))


def test_a_host_port_is_taken_once() -> None:
    port = [{"containerPort": 80, "hostPort": 80}]
    udp = [{"containerPort": 80, "hostPort": 80, "protocol": "UDP"}]
    objects = [node("n1"), pod("a", 0, on="n1", ports=port, leaves=True), pod("b", 0, ports=port)]
    assert broken(objects, round_of(binds=[bind("b", "n1")])) == {Promise.BINDS}
    assert not broken(objects, round_of(nominations=[nominate("b", "n1")]))
    assert not broken([*objects[:2], pod("b", 0, ports=udp)], round_of(binds=[bind("b", "n1")]))


def test_anti_affinity_holds_in_both_directions() -> None:
    shy = pod("shy", on="n1", ids="0", affinity=anti_affinity("a"))
    go = round_of(binds=[bind("a", "n1", "1")])
    assert broken([node("n1"), shy, pod("a")], go) == {Promise.BINDS}
    picky = pod("a", affinity=anti_affinity("old"))
    assert broken([node("n1"), pod("old", on="n1", ids="0"), picky], go) == {Promise.BINDS}
    assert not broken([node("n1"), node("n2"), pod("old", on="n2", ids="0"), picky], go)
    zone = pod("a", affinity=anti_affinity("old", ZONE))
    assert broken([node("n1"), node("n2"), pod("old", on="n2", ids="0"), zone], go) == {Promise.BINDS}


def test_affinity_needs_a_matching_pod_except_for_the_first() -> None:
    def together(name: str) -> Object:
        return pod(name, app="team", affinity=anti_affinity("team", ZONE, "podAffinity"))

    nodes = [node("n1"), node("n2"), node("n3", zone="b")]
    objects = [*nodes, together("a"), together("b")]
    first_two = [bind("a", "n1", "0"), bind("b", "n2", "0")]
    assert not broken(objects, round_of(binds=first_two))
    assert broken(objects, round_of(binds=[bind("a", "n1", "0"), bind("b", "n3", "0")])) == {Promise.BINDS}
    late = pod("z", app="team")
    first = round_of(binds=[*first_two, bind("z", "n3", "0")])
    assert not broken([*objects, late], first), "z may have come after the others"
    there = pod("z", app="team", on="n3", ids="0")
    assert broken([*objects, there], round_of(binds=first_two)) == {Promise.BINDS}
    lonely = pod("c", affinity=anti_affinity("team", ZONE, "podAffinity"))
    assert broken([*nodes, lonely], round_of(binds=[bind("c", "n1", "0")])) == {Promise.BINDS}


def test_topology_spread_is_kept() -> None:
    def member(name: str) -> Object:
        return pod(name, app="team", topologySpreadConstraints=spread("team"))

    nodes = [node("n1"), node("n2"), node("n3", zone="b")]
    objects = [*nodes, member("a"), member("b"), member("c")]
    uneven = [bind("a", "n1", "0"), bind("b", "n2", "0")]
    assert broken(objects[:-1], round_of(binds=uneven)) == {Promise.BINDS}
    assert not broken(objects, round_of(binds=[*uneven, bind("c", "n3", "0")]))


def test_company_that_leaves_is_company_now_but_not_later() -> None:
    close = pod("a", affinity=anti_affinity("team", ZONE, "podAffinity"))
    nodes = [node("n1"), node("n2")]
    leaves, stays = (pod("old", app="team", on="n2", ids="0", leaves=leaving) for leaving in (True, False))
    assert not broken([*nodes, leaves, close], round_of(binds=[bind("a", "n1", "0")]))
    assert broken([*nodes, leaves, close], round_of(nominations=[nominate("a", "n1")])) == {Promise.BINDS}
    assert not broken([*nodes, stays, close], round_of(nominations=[nominate("a", "n1")]))


def test_the_company_of_a_claimant_is_not_its_victim() -> None:
    nodes = [node("n1", gpus=1), node("n2", gpus=1)]
    claimant = pod("a", affinity=anti_affinity("team", ZONE, "podAffinity"), priority=10)
    objects = [*nodes, pod("old", app="team", on="n1", ids="0"), pod("other", on="n2", ids="0"), claimant]
    needed = round_of(evictions=[evict("old", "a")], nominations=[nominate("a", "n1")])
    assert broken(objects, needed) == {Promise.BINDS}
    assert not broken(objects, round_of(evictions=[evict("other", "a")], nominations=[nominate("a", "n2")]))


def test_pods_that_leave_count_in_no_spread() -> None:
    member = pod("a", app="team", topologySpreadConstraints=spread("team"))
    nodes = [node("n1"), node("n2", zone="b")]
    here = pod("here", app="team", on="n1", ids="0")
    leaves, stays = (pod("old", app="team", on="n2", ids="0", leaves=leaving) for leaving in (True, False))
    for moved in (round_of(binds=[bind("a", "n1", "1")]), round_of(nominations=[nominate("a", "n1")])):
        assert broken([*nodes, here, leaves, member], moved) == {Promise.BINDS}
        assert not broken([*nodes, here, stays, member], moved)


def test_a_bind_does_not_break_the_spread_of_a_promise() -> None:
    nodes = [node("n1"), node("n2", zone="b")]
    objects = [*nodes, pod("x", app="team"), pod("a", app="team", topologySpreadConstraints=spread("team"))]
    bound = [bind("x", "n1", "0")]
    assert broken(objects, round_of(binds=bound, nominations=[nominate("a", "n1")])) == {Promise.BINDS}
    assert not broken(objects, round_of(binds=bound, nominations=[nominate("a", "n2")]))


@pytest.mark.parametrize(
    ("gpus", "is_fine"),
    [
        (["0", "1"], True),
        (["0"], False),
        (["0", "0"], False),
        (["0", "4"], False),
        (["0", "2"], False),
        (["0", "1", "3"], False),
        ([], False),
    ],
)
def test_gpu_ids_are_distinct_existing_free_and_as_many_as_requested(gpus: list[str], is_fine: bool) -> None:
    objects = [node("n1"), pod("old", 1, on="n1", ids="2"), pod("a", 2)]
    assert broken(objects, round_of(binds=[bind("a", "n1", *gpus)])) == (set() if is_fine else {Promise.GPUS})


def test_two_binds_share_no_gpu_across_rounds() -> None:
    objects = [node("n1"), pod("a"), pod("b")]
    both = [bind("a", "n1", "0"), bind("b", "n1", "0")]
    assert broken(objects, round_of(binds=both)) == {Promise.GPUS}
    assert broken(objects, round_of(binds=both[:1], waiting=[wait("b")]), round_of(binds=both[1:])) == {Promise.GPUS}


def test_running_pods_without_ids_keep_their_number_of_gpus() -> None:
    objects = [
        node("n1"),
        pod("old", 2, on="n1", scheduler="default-scheduler"),
        pod("mine", 1, on="n1", ids="0"),
        pod("a", 1),
    ]
    assert not broken(objects, round_of(binds=[bind("a", "n1", "3")]))
    assert Promise.GPUS in broken([*objects[:-1], pod("a", 2)], round_of(binds=[bind("a", "n1", "2", "3")]))


def test_part_of_a_gang_is_caught() -> None:
    objects = [node("n1"), group("g", 2), pod("g-0", group="g"), pod("g-1", group="g")]
    assert broken(objects, round_of(binds=[bind("g-0", "n1", "0")])) == {Promise.GANGS}
    assert broken(objects, round_of(nominations=[nominate("g-0", "n1")])) == {Promise.GANGS}
    assert not broken(objects, round_of(binds=[bind("g-0", "n1", "0"), bind("g-1", "n1", "1")]))
    mixed = round_of(binds=[bind("g-0", "n1", "0")], nominations=[nominate("g-1", "n1")])
    assert broken(objects, mixed) == {Promise.GANGS}


@pytest.mark.parametrize("key", ["scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name"])
def test_gangs_of_other_systems_are_gangs(key: str) -> None:
    pods = [pod("g-0"), pod("g-1")]
    for item in pods:
        assert isinstance(item["metadata"], dict)
        item["metadata"]["annotations"] = {key: "g"}
    assert broken([node("n1"), group("g", 2), *pods], round_of(binds=[bind("g-0", "n1", "0")])) == {Promise.GANGS}


def test_each_role_has_its_minimum() -> None:
    roles = [{"name": "head", "minMember": 1}, {"name": "worker", "minMember": 1}]
    pods = [
        pod("g-0", group="g", role="head"),
        pod("g-1", group="g", role="worker"),
        pod("g-2", group="g", role="worker"),
    ]
    objects = [node("n1"), group("g", 2, roles=roles), *pods]
    assert broken(objects, round_of(binds=[bind("g-1", "n1", "0"), bind("g-2", "n1", "1")])) == {Promise.GANGS}
    assert not broken(objects, round_of(binds=[bind("g-0", "n1", "0"), bind("g-2", "n1", "1")]))


def test_surplus_may_join_and_finished_members_count() -> None:
    first = [pod("g-0", on="n1", group="g", ids="0"), pod("g-1", group="g", on="n1", phase="Succeeded")]
    objects = [node("n1"), group("g", 2), *first, pod("g-2", group="g")]
    assert not broken(objects, round_of(binds=[bind("g-2", "n1", "1")]))


def test_a_plan_is_not_blamed_for_members_lost_before_the_round() -> None:
    objects = [node("n1"), group("g", 3), pod("g-0", on="n1", group="g"), pod("g-1", group="g")]
    assert not broken(objects, round_of(waiting=[wait("g")]))
    assert broken(objects, round_of(binds=[bind("g-1", "n1", "1")])) == {Promise.GANGS}


def test_a_job_without_pods_has_its_first_pods_pending() -> None:
    role = {"name": "worker", "min": 2, "max": 4, "template": {"spec": pod("x")["spec"]}}
    metadata = {"name": "j", "namespace": "default"}
    job: Object = {"kind": "ElasticJob", "metadata": metadata, "spec": {"roles": [role]}}
    first, second = bind("j-worker-0", "n1", "0"), bind("j-worker-1", "n1", "1")
    assert not broken([node("n1"), job], round_of(binds=[first, second]), round_of())
    assert broken([node("n1"), job], round_of(binds=[first])) == {Promise.GANGS}
    assert broken([node("n1"), job], round_of()) == {Promise.WAITING}
    third = bind("j-worker-2", "n1", "2")
    assert broken([node("n1"), job], round_of(binds=[first, second, third])) == {Promise.BINDS}


FULL = [
    node("n1", gpus=2),
    group("old", 2),
    *[pod(f"old-{i}", on="n1", group="old", ids=str(i)) for i in range(2)],
]


def test_an_eviction_for_a_gang_that_starts_is_fine_and_its_victims_come_back() -> None:
    objects = [*FULL, pod("new", 2, priority=1)]
    take = round_of(evictions=[evict("old-0", "new"), evict("old-1", "new")], nominations=[nominate("new", "n1")])
    use = round_of(binds=[bind("new", "n1", "0", "1")], waiting=[wait("old")])
    assert not broken(objects, take, use)
    assert broken(objects, take, round_of(binds=[bind("new", "n1", "0", "1")])) == {Promise.WAITING}


def test_a_victim_for_a_gang_that_does_not_start_is_caught() -> None:
    objects = [*FULL, group("new", 2), pod("new-0", 1, group="new"), pod("new-1", 2, group="new")]
    victims = [evict("old-0", "new"), evict("old-1", "new")]
    assert broken(objects, round_of(evictions=victims, waiting=[wait("new")])) == {Promise.VICTIMS}
    part = round_of(evictions=victims, nominations=[nominate("new-0", "n1")])
    assert broken(objects, part) == {Promise.VICTIMS, Promise.GANGS}
    nobody: Object = {"pod": "default/old-0", "reason": "Preempted"}
    assert Promise.VICTIMS in broken(objects, round_of(evictions=[nobody], waiting=[wait("new")]))


def test_victims_leave_no_gang_below_its_minimum() -> None:
    objects = [*FULL, pod("new", 1, priority=1)]
    half = round_of(evictions=[evict("old-0", "new")], nominations=[nominate("new", "n1")])
    assert broken(objects, half) == {Promise.GANGS}


@pytest.mark.parametrize(
    "victim",
    [
        pod("old", on="n1", scheduler="default-scheduler"),
        pod("old", on="n1", leaves=True),
        pod("old"),
        pod("old", on="n1", priorityClassName="system-node-critical"),
        pod("old", on="n1", group="firm"),
    ],
    ids=["another scheduler's", "leaving", "pending", "critical", "not preemptable"],
)
def test_a_pod_that_must_not_be_evicted_is_caught(victim: Object) -> None:
    objects = [node("n1"), group("firm", 1, preemptable=False), victim, pod("new", 4)]
    found = broken(objects, round_of(evictions=[evict("old", "new")], nominations=[nominate("new", "n1")]))
    assert Promise.VICTIMS in found


def test_a_queue_over_its_limit_is_caught_up_the_tree() -> None:
    objects = [
        node("n1"),
        queue("top", limit={GPU: 2}),
        queue("leaf", parent="top"),
        group("g", 1, queue="leaf"),
        pod("g-0", 2, group="g", on="n1", ids="0,1"),
        pod("g-1", 1, group="g"),
        pod("free", 1),
    ]
    waits = [wait("free")]
    assert broken(objects, round_of(binds=[bind("g-1", "n1", "2")], waiting=waits)) == {Promise.LIMITS}
    assert broken(objects, round_of(nominations=[nominate("g-1", "n1")], waiting=waits)) == {Promise.LIMITS}
    assert not broken(objects, round_of(binds=[bind("free", "n1", "2")], waiting=[wait("g", "leaf")]))


def test_every_waiting_gang_and_no_other_needs_a_reason() -> None:
    objects = [node("n1"), pod("a", 8)]
    assert not broken(objects, round_of(waiting=[wait("a")]))
    assert broken(objects, round_of()) == {Promise.WAITING}
    assert broken(objects, round_of(waiting=[wait("a", message=" ")])) == {Promise.WAITING}
    assert broken(objects, round_of(waiting=[wait("a"), wait("a")])) == {Promise.WAITING}
    assert broken(objects, round_of(waiting=[wait("a", queue="other")])) == {Promise.WAITING}
    assert broken(objects, round_of(waiting=[wait("a"), wait("nobody")])) == {Promise.WAITING}
    starts = [node("n1"), pod("a", 1)]
    assert broken(starts, round_of(binds=[bind("a", "n1", "0")], waiting=[wait("a")])) == {Promise.WAITING}
    assert not broken([node("n1"), pod("x", 8, scheduler="default-scheduler")], round_of())


def test_a_gated_pod_may_be_listed_or_not() -> None:
    objects = [node("n1"), pod("a", schedulingGates=[{"name": "example.com/wait"}])]
    assert not broken(objects, round_of(waiting=[wait("a")]))
    assert not broken(objects, round_of())


def test_waiting_surplus_needs_a_reason_too() -> None:
    objects = [node("n1"), group("g", 1), pod("g-0", on="n1", group="g", ids="0"), pod("g-1", 8, group="g")]
    assert broken(objects, round_of()) == {Promise.WAITING}
    assert not broken(objects, round_of(waiting=[wait("g")]))


def test_output_out_of_order_is_caught() -> None:
    objects = [node("n1"), pod("a"), pod("b")]
    both = [bind("b", "n1", "0"), bind("a", "n1", "1")]
    assert broken(objects, round_of(binds=both)) == {Promise.ORDER}
    assert not broken(objects, round_of(binds=both[::-1]))
    names: list[object] = [{"name": "z"}, {"name": "a"}]
    plan = plan_of(round_of(binds=both[::-1])) | {"queues": names}
    assert violations(objects, plan) == ["queues are not sorted by name: z, a"]


def test_a_gang_that_fits_and_waits_is_a_missed_opportunity() -> None:
    gang = [group("g", 3), *[pod(f"g-{i}", 2, group="g") for i in range(3)]]
    idle = plan_of(round_of(waiting=[wait("g")]))
    assert missed_opportunities([node("n1"), node("n2"), *gang], idle) == [
        "default/g waits for 3 pods although there is room for 4"
    ]
    assert missed_opportunities([node("n1"), node("n2", gpus=3), *gang, pod("x", 2, on="n1")], idle) == []
    assert missed_opportunities([node("n1"), node("n2", unschedulable=True), *gang], idle) == []
    leaving = pod("x", 4, on="n2", leaves=True)
    assert missed_opportunities([node("n1"), node("n2"), *gang, leaving], idle) == []
    assert missed_opportunities([node("n1"), node("n2"), *gang, leaving], plan_of(round_of(), round_of())) != []


def test_missed_opportunities_are_silent_where_they_could_be_wrong() -> None:
    idle = plan_of(round_of(waiting=[wait("a")]))
    assert missed_opportunities([node("n1"), pod("a", ports=[{"containerPort": 1, "hostPort": 1}])], idle) == []
    assert missed_opportunities([node("n1"), pod("a"), queue("default", limit={"cpu": 0})], idle) == []
    several = [queue("q"), group("g", 1, queue="q"), pod("g-0", 8, group="g")]
    assert missed_opportunities([node("n1"), pod("a"), *several], idle) == []


def waiting_plan(objects: list[Object]) -> Object:
    """Nothing moves and every gang has a reason."""
    facts = read_facts(objects)
    state = read_state(facts, objects)
    gangs = sorted({state.pods[key].gang for key in state.pending if state.pods[key].is_ours})
    entries = [wait(key, facts.gang(key).queue) | {"group": key} for key in gangs]
    return plan_of(round_of(waiting=entries))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(worlds())
def test_random_clusters_break_no_promise_by_themselves(objects: list[Object]) -> None:
    assert violations(objects, waiting_plan(objects)) == []
    assert_sound(objects)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(contended_worlds())
def test_contended_clusters_break_no_promise_by_themselves(objects: list[Object]) -> None:
    assert violations(objects, waiting_plan(objects)) == []
    assert_sound(objects)


def assert_sound(objects: list[Object]) -> None:
    """Running pods fit, GPU ids agree, running gangs are whole, names are unique."""
    names = [(item["kind"], str(item["metadata"])) for item in objects]
    assert len(set(names)) == len(names)
    facts = read_facts(objects)
    state = read_state(facts, objects)
    for place in facts.nodes.values():
        here = [state.pods[key] for key, name in state.where.items() if name == place.name]
        for resource in {name for item in here for name in item.requests}:
            assert sum(item.requests.get(resource, Fraction(0)) for item in here) <= place.allocatable[resource]
        assert len(here) <= place.pod_limit
        ids = [gpu for item in here for gpu in state.gpu_ids.get(item.key, ())]
        unnamed = sum(item.gpu_count for item in here if item.key not in state.gpu_ids)
        assert len(set(ids)) == len(ids)
        assert len(ids) + unnamed <= place.gpu_count
    running: dict[str, list[str]] = {}
    for key in state.staying():
        running.setdefault(state.pods[key].gang, []).append(state.pods[key].role)
    assert not any(facts.gang(key).missing(roles) for key, roles in running.items())
