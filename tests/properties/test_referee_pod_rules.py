"""The referee on rules between pods: for each form of a rule a pod that breaks it, beside one that keeps it."""

from __future__ import annotations

import pytest

from properties.raw_objects import Object
from properties.referee import judge
from properties.replay_rounds import Promise
from properties.test_referee import ZONE, bind, broken, evict, node, nominate, plan_of, pod, round_of, wait

HOST = "kubernetes.io/hostname"
EXISTS: Object = {"matchExpressions": [{"key": "app", "operator": "Exists"}]}


def term(selector: Object, key: str = HOST, **more: object) -> Object:
    return {"labelSelector": selector, "topologyKey": key, **more}


def app(*names: str) -> Object:
    return {"matchExpressions": [{"key": "app", "operator": "In", "values": list(names)}]}


def affinity(kind: str, *terms: Object) -> Object:
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def in_team(item: Object) -> Object:
    metadata = item["metadata"]
    assert isinstance(metadata, dict)
    metadata["namespace"] = "team"
    return item


TEAM: Object = {"kind": "Namespace", "metadata": {"name": "team", "labels": {"area": "north"}}}
NORTH: Object = {"matchLabels": {"area": "north"}}
SOUTH: Object = {"matchLabels": {"area": "south"}}


@pytest.mark.parametrize(
    ("wanted", "keeps_away"),
    [
        (term(app("old")), True),
        (term(app("other")), False),
        (term({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["old", "new"]}]}), False),
        (term({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}), True),
        (term({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}), False),
        (term({}), True),
        (term(app("old"), matchLabelKeys=["app"]), False),
        (term({}, mismatchLabelKeys=["app"]), True),
        (term(EXISTS, mismatchLabelKeys=["tier"]), True),
        (term(app("far"), namespaces=["team"]), True),
        (term(app("far")), False),
        (term(app("far"), namespaceSelector={}), True),
        (term(app("far"), namespaceSelector=NORTH), True),
        (term(app("far"), namespaceSelector=SOUTH), False),
        (term(app("far"), namespaces=["team"], namespaceSelector=SOUTH), True),
        (term(app("old"), namespaces=["team"]), False),
    ],
)
def test_a_term_selects_pods_by_labels_and_namespaces(wanted: Object, keeps_away: bool) -> None:
    """An anti-affinity that selects a pod there is broken, and an affinity is kept."""
    there = [pod("old", on="n1", ids="0"), in_team(pod("far", on="n1", ids="1"))]
    for kind, is_broken in (("podAntiAffinity", keeps_away), ("podAffinity", not keeps_away)):
        new = pod("new", affinity=affinity(kind, wanted))
        found = broken([TEAM, node("n1"), *there, new], round_of(binds=[bind("new", "n1", "2")]))
        assert found == ({Promise.BINDS} if is_broken else set()), kind


def test_each_of_several_anti_affinities_holds() -> None:
    objects = [node("n1"), node("n2"), pod("a", on="n1", ids="0"), pod("b", on="n2", ids="0")]
    new = pod("new", affinity=affinity("podAntiAffinity", term(app("a")), term(app("b"), ZONE)))
    assert broken([*objects, new], round_of(binds=[bind("new", "n1", "1")])) == {Promise.BINDS}
    assert broken([*objects, new], round_of(binds=[bind("new", "n2", "1")])) == {Promise.BINDS}
    far = [node("n3", zone="b"), new]
    assert not broken([*objects, *far], round_of(binds=[bind("new", "n3", "0")]))


def test_company_is_a_pod_that_every_term_selects() -> None:
    """As in kube-scheduler: one pod for each term is not enough, and one in each domain is."""
    nodes = [node("n1"), node("n2")]
    new = pod("new", affinity=affinity("podAffinity", term(app("a", "x")), term(app("b", "x"), ZONE)))
    each = [pod("a", on="n1", ids="0"), pod("b", on="n1", ids="1")]
    go = round_of(binds=[bind("new", "n1", "2")])
    assert broken([*nodes, *each, new], go) == {Promise.BINDS}
    assert not broken([*nodes, pod("x", on="n1", ids="0"), new], go)
    assert broken([*nodes, pod("x", on="n2", ids="0"), new], go) == {Promise.BINDS}


def test_pods_on_nodes_without_the_label_are_no_company() -> None:
    """Nor do they keep a pod from being the first of its kind."""
    bare = node("bare")
    bare["metadata"] = {"name": "bare", "labels": {}}
    own = affinity("podAffinity", term(app("new"), ZONE))
    objects = [node("n1"), bare, pod("old", app="new", on="bare", ids="0"), pod("new", affinity=own)]
    assert not broken(objects, round_of(binds=[bind("new", "n1", "0")]))
    labelled = [node("n1"), node("bare", zone="b"), *objects[2:]]
    assert broken(labelled, round_of(binds=[bind("new", "n1", "0")])) == {Promise.BINDS}


def spread(selector: Object, skew: int = 1, key: str = HOST, **more: object) -> Object:
    rule: Object = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
    return rule | {"labelSelector": selector, **more}


@pytest.mark.parametrize(
    ("rules", "is_fine"),
    [
        ([spread(app("new", "old"))], False),
        ([spread(app("new", "old"), 2)], True),
        ([spread(app("new"))], True),
        ([spread({})], True),  # an empty selector counts nobody
        ([spread({}, matchLabelKeys=["app"])], True),
        ([spread(app("new", "old"), matchLabelKeys=["app"])], True),
        ([spread(app("new", "old"), 2, minDomains=3)], True),
        ([spread(app("new", "old"), 1, ZONE)], True),
        ([spread(app("new", "old"), 1, ZONE, minDomains=2)], False),
        ([spread(app("new", "old"), nodeTaintsPolicy="Honor")], True),  # the empty node does not count
        ([spread(app("new", "old"), 1, ZONE), spread(app("new", "old"))], False),
        ([spread(app("new", "old")) | {"whenUnsatisfiable": "ScheduleAnyway"}], True),
    ],
)
def test_every_field_of_a_spread_counts(rules: list[Object], is_fine: bool) -> None:
    taint = {"key": "k", "effect": "NoSchedule"}
    nodes = [node("n1"), node("n2", taints=[taint])]
    new = pod("new", topologySpreadConstraints=rules)
    found = broken([*nodes, pod("old", on="n1", ids="0"), new], round_of(binds=[bind("new", "n1", "1")]))
    assert found == (set() if is_fine else {Promise.BINDS})


def test_nodes_that_a_pod_does_not_want_count_only_if_asked() -> None:
    nodes, old = [node("n1"), node("n2", zone="b")], pod("old", on="n1", ids="0")
    for policy, is_fine in (("Honor", True), ("Ignore", False)):
        rule = spread(app("new", "old"), nodeAffinityPolicy=policy)
        new = pod("new", topologySpreadConstraints=[rule], nodeSelector={ZONE: "a"})
        found = broken([*nodes, old, new], round_of(binds=[bind("new", "n1", "1")]))
        assert found == (set() if is_fine else {Promise.BINDS}), policy


@pytest.mark.parametrize(("one", "other", "is_fine"), [(False, True, False), (True, True, True), (False, None, True)])
def test_a_disk_is_shared_only_by_readers(one: bool, other: bool | None, is_fine: bool) -> None:
    def with_disk(reads: bool | None) -> list[Object]:
        disk = {"pdName": "d", "readOnly": bool(reads)} if reads is not None else {"pdName": "e"}
        return [{"name": "disk", "gcePersistentDisk": disk}]

    objects = [node("n1"), node("n2"), pod("old", on="n1", ids="0", volumes=with_disk(one))]
    new = pod("new", volumes=with_disk(other))
    found = broken([*objects, new], round_of(binds=[bind("new", "n1", "1")]))
    assert found == (set() if is_fine else {Promise.BINDS})
    assert not broken([*objects, new], round_of(binds=[bind("new", "n2", "0")]))


@pytest.mark.parametrize(("mode", "is_fine"), [("ReadWriteOncePod", False), ("ReadWriteOnce", True)])
def test_a_claim_of_one_pod_is_used_once_in_the_whole_cluster(mode: str, is_fine: bool) -> None:
    spec = {"accessModes": [mode], "volumeName": "v"}
    claim: Object = {"kind": "PersistentVolumeClaim", "metadata": {"name": "c", "namespace": "default"}, "spec": spec}
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]
    objects = [claim, node("n1"), node("n2"), pod("old", on="n1", ids="0", volumes=volumes)]
    found = broken([*objects, pod("new", volumes=volumes)], round_of(binds=[bind("new", "n2", "0")]))
    assert found == (set() if is_fine else {Promise.BINDS})
    assert not broken([*objects, pod("new")], round_of(binds=[bind("new", "n2", "0")]))


def test_victims_that_take_several_rounds_to_leave_are_still_owed() -> None:
    """The gang starts in the round in which they are gone, not before and not later."""
    old = pod("old", on="n1", ids="0")
    objects = [node("n1", gpus=1), old, pod("new", priority=10)]
    promised = [nominate("new", "n1")]
    leaves = round_of(evictions=[evict("old", "new")], nominations=promised, waiting=[wait("new")])
    still = round_of(nominations=promised, waiting=[wait("new")])
    starts = round_of(binds=[bind("new", "n1", "0")], waiting=[wait("old")])
    rests = round_of(waiting=[wait("new"), wait("old")])

    def promises(*rounds: Object) -> set[Promise]:
        return {breach.promise for breach in judge(objects, plan_of(*rounds), grace=3)}

    assert not promises(leaves, still, still, starts)
    assert Promise.VICTIMS in promises(leaves, still, still, rests)
    assert Promise.CAPACITY in promises(leaves, still, starts)
    assert not promises(leaves, still, still)
