"""Thousands of different rules about nodes and pods: time grows with their number, not with its square."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np
import pytest
from cluster.planning import plan_objects
from scheduler.small_clusters import Object, node, pod

from maniple.api.kubernetes import Node
from maniple.api.meta import ObjectMeta
from maniple.model.nodes import NodeTable
from maniple.model.pod_affinity import AffinityCounts, AffinityInfo, Term
from maniple.model.resources import Axis

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
HOST = "kubernetes.io/hostname"


def first_round(*objects: Object) -> dict[str, Any]:
    plan: dict[str, Any] = plan_objects(list(objects))["rounds"][0]
    return plan


def taint(key: str, effect: str = "NoSchedule") -> Object:
    return {"key": key, "effect": effect}


def hosts(count: int, **more: Any) -> list[Object]:
    return [node(f"n{number}", labels={HOST: f"n{number}"}, **more) for number in range(count)]


@pytest.mark.parametrize("count", [3, 150])
def test_a_pod_goes_where_it_tolerates_every_taint(count: int) -> None:
    """Also where there are so many taints that they are one check."""
    taints = [taint(f"t{number}", ("NoSchedule", "NoExecute")[number % 2]) for number in range(count)]
    nodes = [node(f"n{number}", spec={"taints": [each]}) for number, each in enumerate(taints)]
    both = node("both", spec={"taints": [taint("t0"), taint("t1", "NoExecute")]})
    some = pod("p", tolerations=[{"key": "t2", "operator": "Exists"}, {"key": "t1", "effect": "NoSchedule"}])
    every = [pod(f"q{number}", tolerations=[{"operator": "Exists"}]) for number in range(8)]
    plan = first_round(both, *nodes, some, pod("none"), *every)
    placed = {bind["pod"]: bind["node"] for bind in plan["binds"]}
    assert placed["default/p"] == "n2"
    assert len(placed) == 9
    (waiting,) = plan["waiting"]
    assert "taint" in str(waiting["nodes"])
    assert "not tolerated" in str(waiting["nodes"])
    assert sum(entry["count"] for entry in waiting["nodes"]) == count + 1


def test_thousands_of_taints_and_tolerations_are_judged_in_seconds() -> None:
    nodes = [node(f"n{i}", spec={"taints": [taint(f"t{i}-{j}") for j in range(20)]}) for i in range(150)]
    pods = [
        pod(f"p{i}", tolerations=[{"key": f"t{i}-{j}", "operator": "Exists"} for j in range(10)]) for i in range(150)
    ]
    start = time.process_time()
    assert len(first_round(*nodes, *pods)["waiting"]) == 150
    assert time.process_time() - start < 10


def test_thousands_of_spread_constraints_of_one_pod_are_judged_in_seconds() -> None:
    keys = [f"k{number}" for number in range(1000)]
    nodes = [node(f"n{number}", labels=dict.fromkeys(keys, f"v{number}")) for number in range(3)]
    rules = [
        {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {}}}
        for key in keys
    ]
    start = time.process_time()
    assert len(first_round(*nodes, pod("p", topologySpreadConstraints=rules))["binds"]) == 1
    assert time.process_time() - start < 10


def test_pods_with_thousands_of_host_ports_are_compared_by_port() -> None:
    def with_ports(name: str, first: int, last: int) -> Object:
        ports = [{"containerPort": port, "hostPort": port} for port in range(first, last)]
        return pod(name, containers=[{"name": "c", "image": "i", "ports": ports}])

    start = time.process_time()
    plan = first_round(node("n0"), *(with_ports(f"p{k}", 1 + 1000 * k, 1002 + 1000 * k) for k in range(5)))
    assert [bind["pod"] for bind in plan["binds"]] == ["default/p0", "default/p2", "default/p4"]  # each clashes by one
    assert time.process_time() - start < 10


def test_a_thousand_apps_that_keep_away_from_themselves_are_placed_in_seconds() -> None:
    pods = [
        pod(
            f"p{number}",
            cpu="",
            labels={"app": f"a{number // 2}"},
            affinity={
                "podAntiAffinity": {
                    REQUIRED: [{"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": f"a{number // 2}"}}}]
                }
            },
        )
        for number in range(1000)
    ]
    start = time.process_time()
    binds = first_round(*hosts(20), *pods)["binds"]
    assert time.process_time() - start < 20
    where = {bind["pod"].removeprefix("default/p"): bind["node"] for bind in binds}
    assert len(where) == 1000
    assert all(where[str(number)] != where[str(number + 1)] for number in range(0, 1000, 2))


# -- the index of terms gives what comparing each with each gives


def some_term(rng: random.Random) -> Term:
    values = frozenset(rng.sample(["1", "2", "3"], k=rng.choice([1, 1, 2])))
    forms = [("In", values), ("NotIn", values), ("Exists", frozenset()), ("DoesNotExist", frozenset())]
    requirements = tuple(
        (operator, rng.choice("abc"), found) for operator, found in rng.choices(forms, k=rng.randrange(3))
    )
    namespaces = rng.choice([None, frozenset(["x"]), frozenset(["x", "y"])])
    return Term(namespaces, rng.choice([requirements, requirements, requirements, None]), rng.choice(["host", "zone"]))


def some_pod(rng: random.Random) -> AffinityInfo:
    labels = {key: rng.choice("123") for key in "abc" if rng.random() < 0.6}
    return AffinityInfo(
        namespace=rng.choice("xy"),
        labels=tuple(sorted(labels.items())),
        affinity=tuple(some_term(rng) for _ in range(rng.randrange(2))),
        anti_affinity=tuple(some_term(rng) for _ in range(rng.randrange(3))),
        preferred=tuple((float(rng.randint(-3, 3)), some_term(rng)) for _ in range(rng.randrange(2))),
    )


@pytest.mark.parametrize("seed", range(20))
def test_counts_of_pods_are_those_of_comparing_each_pod_with_each_term(seed: int) -> None:
    rng = random.Random(seed)
    nodes = NodeTable(
        [Node(ObjectMeta(name=f"n{n}", labels={"host": f"n{n}", "zone": str(n % 2)})) for n in range(4)], Axis([])
    )
    zone = np.array([0, 1, 0, 1])
    pods = [(some_pod(rng), rng.randrange(4)) for _ in range(12)]
    counts = AffinityCounts(nodes, {pods[0]: 1, pods[1]: 2})
    placed = [pods[0], pods[1], pods[1]]
    for info, where in pods[2:]:
        term, stranger = some_term(rng), some_pod(rng)
        counts.matching(term)  # from here on it is kept up to date
        counts.add(info, where, 1)
        placed.append((info, where))
        if rng.random() < 0.2:
            gone = placed.pop(rng.randrange(len(placed)))
            counts.add(*gone, -1)
        expected = np.bincount([at for other, at in placed if other.match(term)], minlength=4)
        assert counts.matching(term).tolist() == expected.tolist()

        def domain(key: str, at: int) -> set[int]:
            return {at} if key == "host" else {n for n in range(4) if zone[n] == zone[at]}

        banned = {
            n for o, at in placed for t in o.anti_affinity if stranger.match(t) for n in domain(t.topology_key, at)
        }
        mask = counts.repelled(stranger)
        assert ({int(n) for n in np.flatnonzero(mask)} if mask is not None else set()) == banned
        pull = np.zeros(4)
        for other, at in placed:
            for weight, wish in (*other.preferred, *((2.0, each) for each in other.affinity)):
                if stranger.match(wish):
                    pull[sorted(domain(wish.topology_key, at))] += weight
        attracted = counts.attracted(stranger, 2.0)
        assert (attracted.tolist() if attracted is not None else [0.0] * 4) == pull.tolist()
