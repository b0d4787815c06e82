"""kube-scheduler's `kind: Policy` files select the same checks and weights here, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from maniple.api.errors import InputError
from maniple.scheduler import load_policy
from maniple.scheduler.framework.kube_policy import PREDICATES, translate
from maniple.scheduler.plugins.predicates import CHECKS
from scheduler.small_clusters import Object, binds, group, member, node, pod

# The file that every tutorial has, tabs and all.
CLASSIC = """{
"kind" : "Policy",
"apiVersion" : "v1",
"predicates" : [
\t{"name" : "PodFitsHostPorts"},
\t{"name" : "PodFitsResources"},
\t{"name" : "NoDiskConflict"},
\t{"name" : "NoVolumeZoneConflict"},
\t{"name" : "MatchNodeSelector"},
\t{"name" : "HostName"}
\t],
"priorities" : [
\t{"name" : "LeastRequestedPriority", "weight" : 1},
\t{"name" : "BalancedResourceAllocation", "weight" : 1},
\t{"name" : "ServiceSpreadingPriority", "weight" : 1},
\t{"name" : "EqualPriority", "weight" : 1}
\t],
"hardPodAffinitySymmetricWeight" : 10,
"alwaysCheckAllPredicates" : false
}
"""
NO_WEIGHTS = {
    "leastrequested.weight": "0",
    "mostrequested.weight": "0",
    "balancedresource.weight": "0",
    "nodeaffinity.weight": "0",
    "podaffinity.weight": "0",
    "topologyspread.weight": "0",
    "tainttoleration.weight": "0",
    "imagelocality.weight": "0",
    "selectorspread.weight": "0",
    "podaffinity.symmetric": "1",
}


def file(predicates: list[str] | None = None, priorities: dict[str, int] | None = None, **more: Any) -> Object:
    policy: Object = {"kind": "Policy", "apiVersion": "v1", **more}
    if predicates is not None:
        policy["predicates"] = [{"name": name} for name in predicates]
    if priorities is not None:
        policy["priorities"] = [{"name": name, "weight": weight} for name, weight in priorities.items()]
    return policy


def arguments(policy: Object, plugin: str) -> dict[str, str]:
    translated: Any = translate(policy, "p")
    (entry,) = [entry for tier in translated["tiers"] for entry in tier["plugins"] if entry["name"] == plugin]
    given: dict[str, str] = entry["arguments"]
    return given


def errors(policy: Object) -> list[str]:
    with pytest.raises(InputError) as error:
        load_policy(json.dumps(policy).encode(), "p.json")
    return error.value.messages


# -- the classic file


@pytest.mark.parametrize(
    "text",
    [CLASSIC, yaml.safe_dump(json.loads(CLASSIC)), "\ufeff" + CLASSIC, CLASSIC.replace("v1", "v\\u0031")],
    ids=["json", "yaml", "json with a byte order mark", "json with an escape"],
)
def test_the_classic_file_loads_and_plans(text: str) -> None:
    assert binds([node("n1"), pod("p")], text) == {"p": "n1"}


def test_the_classic_file_selects_its_checks_and_weights() -> None:
    policy = json.loads(CLASSIC)
    assert set(arguments(policy, "predicates")["checks"].split(",")) == {
        *("hostports", "disks", "claimsharing", "volumezones", "nodeselector", "nodename"),
    }
    assert arguments(policy, "nodeorder") == NO_WEIGHTS | {
        "leastrequested.weight": "1",
        "balancedresource.weight": "1",
        "selectorspread.weight": "1",
        "podaffinity.symmetric": "10",
    }


def test_gangs_stay_whole_under_a_policy_file() -> None:
    gang = [group("g", 3), *(pod(f"p{number}", "2", labels=member("g")) for number in range(3))]
    assert binds([node("n1"), *gang], CLASSIC) == {}
    assert len(binds([node("n1"), node("n2"), *gang], CLASSIC)) == 3


@pytest.mark.parametrize(("written", "meant"), [(None, "1"), (0, "1"), (1, "1"), (10, "10"), (100, "100")])
def test_no_symmetric_weight_is_a_weight_of_one(written: int | None, meant: str) -> None:
    """kube-scheduler took 0 for "not given", and then its own default."""
    given = {} if written is None else {"hardPodAffinitySymmetricWeight": written}
    assert arguments(file([], {}, **given), "nodeorder")["podaffinity.symmetric"] == meant


def test_a_list_that_is_missing_means_the_defaults_and_an_empty_one_means_nothing() -> None:
    assert arguments(file(priorities={}), "predicates") == {}  # all of them
    assert arguments(file([]), "predicates") == {"checks": ""}
    assert arguments(file([], {}), "nodeorder") == NO_WEIGHTS
    weights = arguments(file([]), "nodeorder")
    assert weights == dict.fromkeys(NO_WEIGHTS, "1") | {"mostrequested.weight": "0", "topologyspread.weight": "0"}


def test_a_priority_given_twice_under_two_names_weighs_the_sum() -> None:
    weights = arguments(file([], {"SelectorSpreadPriority": 2, "ServiceSpreadingPriority": 3}), "nodeorder")
    assert weights["selectorspread.weight"] == "5"


# -- predicates: what is listed is checked, what is not listed is not


def taint(effect: str) -> Object:
    return {"taints": [{"key": "gpu", "effect": effect}]}


def condition(kind: str, status: str) -> list[Object]:
    return [{"type": kind, "status": status}]


def claim(volume: Object) -> list[Object]:
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data"},
            "spec": {"volumeName": "disk"},
        },
        {"apiVersion": "v1", "kind": "PersistentVolume", **volume},
    ]


DISK = [{"name": "d", "gcePersistentDisk": {"pdName": "d"}}]
PORT = [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}]
CLAIM = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
ELSEWHERE = {
    "nodeAffinity": {
        "required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}]}
    }
}
ZONE = "topology.kubernetes.io/zone"
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"}}}
        ]
    }
}
EVEN = {
    "maxSkew": 1,
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "a"}},
    "minDomains": 2,
}
HOST = {"kubernetes.io/hostname": "n1"}

# For each predicate a cluster whose only node does not pass it: with it p waits, without it p starts.
REFUSED: dict[str, list[Object]] = {
    "PodFitsHostPorts": [node("n1"), pod("there", containers=PORT, nodeName="n1"), pod("p", containers=PORT)],
    "NoDiskConflict": [node("n1"), pod("there", volumes=DISK, nodeName="n1"), pod("p", volumes=DISK)],
    "NoVolumeZoneConflict": [
        node("n1", labels={ZONE: "a"}),
        *claim({"metadata": {"name": "disk", "labels": {ZONE: "b"}}}),
        pod("p", volumes=CLAIM),
    ],
    "NoVolumeNodeConflict": [
        node("n1", labels={"zone": "a"}),
        *claim({"metadata": {"name": "disk"}, "spec": ELSEWHERE}),
        pod("p", volumes=CLAIM),
    ],
    "MaxCSIVolumeCountPred": [
        node("n1"),
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": {"name": "n1"},
            "spec": {"drivers": [{"name": "disks", "nodeID": "n1", "allocatable": {"count": 0}}]},
        },
        *claim({"metadata": {"name": "disk"}, "spec": {"csi": {"driver": "disks", "volumeHandle": "disk"}}}),
        pod("p", volumes=CLAIM),
    ],
    "MatchNodeSelector": [node("n1"), pod("p", nodeSelector={"zone": "b"})],
    "PodToleratesNodeTaints": [node("n1", spec=taint("NoSchedule")), pod("p")],
    "PodToleratesNodeNoExecuteTaints": [node("n1", spec=taint("NoExecute")), pod("p")],
    "CheckNodeUnschedulable": [node("n1", spec={"unschedulable": True}), pod("p")],
    "CheckNodeCondition": [node("n1", conditions=condition("Ready", "False")), pod("p")],
    "CheckNodeMemoryPressure": [node("n1", conditions=condition("MemoryPressure", "True")), pod("p", "")],
    "CheckNodeDiskPressure": [node("n1", conditions=condition("DiskPressure", "True")), pod("p")],
    "CheckNodePIDPressure": [node("n1", conditions=condition("PIDPressure", "True")), pod("p")],
    "MatchInterPodAffinity": [
        node("n1", labels=HOST),
        pod("there", labels={"app": "a"}, nodeName="n1"),
        pod("p", labels={"app": "a"}, affinity=APART),
    ],
    "EvenPodsSpread": [
        node("n1", labels=HOST),
        pod("there", labels={"app": "a"}, nodeName="n1"),
        pod("p", labels={"app": "a"}, topologySpreadConstraints=[EVEN]),
    ],
}
ALIASES = {
    "PodFitsPorts": "PodFitsHostPorts",
    "GeneralPredicates": "MatchNodeSelector",
    "CheckVolumeBinding": "NoVolumeNodeConflict",
}
CASES = [*((name, name) for name in REFUSED), *ALIASES.items(), ("CheckNodeCondition", "CheckNodeUnschedulable")]


@pytest.mark.parametrize(("predicate", "cluster"), CASES)
def test_a_predicate_that_is_listed_is_checked(predicate: str, cluster: str) -> None:
    assert binds(REFUSED[cluster], file([predicate], {})) == {}


@pytest.mark.parametrize("cluster", sorted(REFUSED))
def test_a_predicate_that_is_not_listed_is_not_checked(cluster: str) -> None:
    same_check = {name for name, checks in PREDICATES.items() if set(checks) & set(PREDICATES[cluster])}
    others = [name for name in PREDICATES if name not in same_check]
    assert binds(REFUSED[cluster], file(others, {})) == {"p": "n1"}


def test_every_name_there_is_has_a_case_above() -> None:
    tested = {predicate for predicate, _ in CASES} | {"PodFitsResources", "PodFitsHost", "HostName"}
    assert tested == set(PREDICATES)
    assert {check for checks in PREDICATES.values() for check in checks} == set(CHECKS)


def test_resources_are_checked_whether_listed_or_not() -> None:
    objects = [node("n1"), pod("p", "5")]
    assert binds(objects, file([], {})) == {}
    assert binds(objects, file(["PodFitsResources"], {})) == {}


def test_general_predicates_are_three_of_them_and_resources() -> None:
    for cluster in ("PodFitsHostPorts", "MatchNodeSelector"):
        assert binds(REFUSED[cluster], file(["GeneralPredicates"], {})) == {}
    for cluster in ("NoDiskConflict", "PodToleratesNodeTaints", "CheckNodeDiskPressure"):
        assert binds(REFUSED[cluster], file(["GeneralPredicates"], {})) == {"p": "n1"}


# -- priorities: weights decide


PREFERS_N2 = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": {"matchExpressions": [{"key": "good", "operator": "Exists"}]}}
        ]
    }
}
# 10 CPU and 10 Gi each. n1 is empty, n2 half full and the one that the pod prefers.
TEN = {"cpu": "10", "memory": "10Gi"}
TORN = [
    node("n1", allocatable=TEN),
    node("n2", labels={"good": "yes"}, allocatable=TEN),
    pod("there", "5", nodeName="n2"),
    pod("p", affinity=PREFERS_N2),
]


@pytest.mark.parametrize(
    ("least", "wish", "chosen"),
    [
        (1, 0, "n1"),  # 9 against 4
        (0, 1, "n2"),  # 0 against 10
        (1, 1, "n2"),  # 9 against 4 + 10
        (3, 1, "n1"),  # 27 against 12 + 10
        (3, 2, "n2"),  # 27 against 12 + 20
        (2, 1, "n1"),  # 18 against 8 + 10: of equals the one whose name comes first
    ],
)
def test_the_node_with_the_highest_sum_of_weight_times_score_is_chosen(least: int, wish: int, chosen: str) -> None:
    weights = {"LeastRequestedPriority": least, "NodeAffinityPriority": wish}
    policy = file([], {name: weight for name, weight in weights.items() if weight})
    assert binds(TORN, policy) == {"p": chosen}


def test_least_requested_spreads_and_most_requested_packs() -> None:
    objects = [node("n1"), node("n2"), pod("there", nodeName="n1"), pod("p")]
    assert binds(objects, file([], {"LeastRequestedPriority": 1})) == {"p": "n2"}
    assert binds(objects, file([], {"MostRequestedPriority": 1})) == {"p": "n1"}
    assert binds(objects, file([], {"LeastRequestedPriority": 1, "MostRequestedPriority": 2})) == {"p": "n1"}


def test_service_spreading_goes_where_fewer_of_the_same_owner_are() -> None:
    owner = {"ownerReferences": [{"kind": "ReplicaSet", "name": "r", "uid": "u", "controller": True}]}
    objects = [node("n1"), node("n2"), pod("there", nodeName="n1", metadata=owner), pod("p", metadata=owner)]
    assert binds(objects, file([], {"ServiceSpreadingPriority": 1})) == {"p": "n2"}
    assert binds(objects, file([], {"EqualPriority": 1})) == {"p": "n1"}


def test_the_symmetric_weight_pulls_pods_to_those_that_need_them() -> None:
    """`there` requires to be with pods of app a, which says nothing about where they should go, except by symmetry."""
    together = {
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "host", "labelSelector": {"matchLabels": {"app": "a"}}}
            ]
        }
    }
    there = pod("there", "0", affinity=together, nodeName="n2")
    objects = [node("n1", labels={"host": "1"}), node("n2", labels={"host": "2"}), there, pod("p", labels={"app": "a"})]
    assert binds(objects, file([], {"InterPodAffinityPriority": 1}, hardPodAffinitySymmetricWeight=10)) == {"p": "n2"}
    assert binds(objects, file([], {"EqualPriority": 1}, hardPodAffinitySymmetricWeight=10)) == {"p": "n1"}


# -- what has no counterpart


@pytest.mark.parametrize(
    "name",
    [
        *("MaxEBSVolumeCount", "MaxGCEPDVolumeCount", "MaxAzureDiskVolumeCount"),
        *("CheckServiceAffinity", "CheckNodeLabelPresence", "TestServiceAffinity", "MatchNodeSelektor"),
    ],
)
def test_a_predicate_without_counterpart_is_an_error_that_says_so(name: str) -> None:
    (message,) = errors(file(["HostName", name], {}))
    assert message.startswith(f"p.json: predicates[1]: predicate {name!r} has no counterpart here; ")


@pytest.mark.parametrize(
    "name",
    ["NodePreferAvoidPodsPriority", "RequestedToCapacityRatioPriority", "ResourceLimitsPriority", "LeastRequested"],
)
def test_a_priority_without_counterpart_is_an_error_that_says_so(name: str) -> None:
    (message,) = errors(file([], {"EqualPriority": 1, name: 1}))
    assert message.startswith(f"p.json: priorities[1]: priority {name!r} has no counterpart here; ")


def test_a_name_with_a_typing_error_gets_the_nearest() -> None:
    assert errors(file(["PodFitHostPorts"], {"LeastRequestPriority": 1})) == [
        "p.json: predicates[0]: predicate 'PodFitHostPorts' has no counterpart here; did you mean 'PodFitsHostPorts'?",
        "p.json: priorities[0]: priority 'LeastRequestPriority' has no counterpart here; "
        "did you mean 'LeastRequestedPriority'?",
    ]


ARGUMENT = {"serviceAffinity": {"labels": ["zone"]}}

WRONG: list[tuple[Object, str]] = [
    (file(extenders=[{"urlPrefix": "http://x"}]), "extenders have no counterpart here; remove them"),
    (
        file(predicates=[]) | {"predicates": [{"name": "CheckServiceAffinity", "argument": ARGUMENT}]},
        "predicates[0]: predicate 'CheckServiceAffinity' with an argument has no counterpart here; "
        "use node affinity instead",
    ),
    (
        file() | {"priorities": [{"name": "RequestedToCapacityRatioPriority", "weight": 2, "argument": {"a": {}}}]},
        "priorities[0]: priority 'RequestedToCapacityRatioPriority' with an argument has no counterpart here",
    ),
    (file(apiVersion="v2"), "apiVersion: expected v1, got 'v2'"),
    (file(priority=[]), "unknown setting 'priority'; did you mean 'priorities'?"),
    (file() | {"predicates": {"name": "HostName"}}, "predicates: expected a list"),
    (file() | {"predicates": ["HostName"]}, "predicates[0]: expected a map with a 'name'"),
    (file() | {"priorities": [{"weight": 1}]}, "priorities[0]: expected a map with a 'name'"),
    (file() | {"predicates": [{"name": "HostName", "weight": 2}]}, "predicates[0]: unknown setting 'weight'"),
    (file() | {"priorities": [{"name": "EqualPriority", "wieght": 2}]}, "priorities[0]: unknown setting 'wieght'"),
    *(
        (
            file(priorities={}) | {"priorities": [{"name": "LeastRequestedPriority", "weight": weight}]},
            f"priorities[0]: weight: expected a whole number from 1 to 1000000, got {weight!r}",
        )
        for weight in (0, -1, 1.5, "1", True, 10**7)
    ),
    *(
        (
            file(hardPodAffinitySymmetricWeight=weight),
            f"hardPodAffinitySymmetricWeight: expected a whole number from 0 to 100, got {weight!r}",
        )
        for weight in (-1, 101, "1", True, 0.5)
    ),
    (file(alwaysCheckAllPredicates="no"), "alwaysCheckAllPredicates: expected true or false"),
]


@pytest.mark.parametrize(("policy", "message"), WRONG, ids=[message[:60] for _, message in WRONG])
def test_what_is_wrong_is_said_with_its_place(policy: Object, message: str) -> None:
    assert errors(policy) == [f"p.json: {message}"]


def test_everything_that_is_wrong_is_said_at_once() -> None:
    policy = file(["A"], {"B": 1}, extenders=[{}], hardPodAffinitySymmetricWeight=-1)
    assert len(errors(policy)) == 4


def test_no_extenders_and_null_arguments_are_no_error() -> None:
    policy = file(["HostName"], {"EqualPriority": 1}, extenders=[], alwaysCheckAllPredicates=True)
    policy["predicates"][0]["argument"] = None
    assert binds([node("n1"), pod("p")], policy) == {"p": "n1"}
