"""kube-batch's own configuration loads unchanged, and each of its switches turns off what it names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from maniple.api.errors import InputError
from maniple.cluster.in_memory_cluster import MemoryCluster
from maniple.model.building.input_objects import Objects
from maniple.scheduler import Policy, default_policy, load_policy
from maniple.scheduler.framework.policy import SWITCHES
from maniple.scheduler.framework.session import Session
from scheduler.small_clusters import Object, binds, group, member, node, plan, pod, queue

SHIPPED = Path(__file__).parents[3] / "examples/policies/kube-batch.yaml"
# As kube-batch ships it, https://github.com/kubernetes-sigs/kube-batch: config/kube-batch-conf.yaml.
WORD_FOR_WORD = """actions: "reclaim, allocate, backfill, preempt"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
"""


def order_of(policy: Policy) -> tuple[list[str], list[list[str]]]:
    return [name for name, _ in policy.actions], [[choice.name for choice in tier] for tier in policy.tiers]


def with_plugin(name: str, actions: str = "allocate, backfill", **settings: Any) -> Object:
    """All plugins as kube-batch has them, one of them with settings."""
    given: Object = yaml.safe_load(WORD_FOR_WORD)
    given["actions"] = actions
    for tier in given["tiers"]:
        tier["plugins"] = [entry | settings if entry["name"] == name else entry for entry in tier["plugins"]]
    return given


def only(name: str, **settings: Any) -> Object:
    return {"actions": "allocate", "tiers": [{"plugins": [{"name": name, **settings}]}]}


def test_the_example_is_what_kube_batch_ships() -> None:
    assert yaml.safe_load(SHIPPED.read_bytes()) == yaml.safe_load(WORD_FOR_WORD)


def test_the_shipped_configuration_loads_with_actions_plugins_and_tiers_in_order() -> None:
    assert order_of(load_policy(SHIPPED.read_bytes(), "kube-batch.yaml")) == (
        ["reclaim", "allocate", "backfill", "preempt"],
        [["priority", "gang", "conformance"], ["drf", "predicates", "proportion", "nodeorder"]],
    )


def test_every_order_of_actions_and_plugins_is_kept() -> None:
    text = """{"actions": "preempt,  backfill ,allocate", "tiers": [{"plugins": [{"name": "nodeorder"}]},
               {"plugins": [{"name": "gang"}, {"name": "drf"}]}]}"""
    assert order_of(load_policy(text.encode(), "p")) == (
        ["preempt", "backfill", "allocate"],
        [["nodeorder"], ["gang", "drf"]],
    )


def test_without_a_policy_file_there_is_a_default_one() -> None:
    assert order_of(default_policy())[0] == ["allocate", "shrink", "reclaim", "preempt", "backfill", "release", "grow"]


# -- switches


def open_hooks(policy: Object) -> dict[str, Any]:
    """The callbacks that the first plugin of a policy gives to a session."""
    loaded = load_policy(yaml.safe_dump(policy).encode(), "p")
    session = Session(MemoryCluster(Objects()).snapshot(), [])
    hooks = loaded.tiers[0][0].open(session)
    return {name: getattr(hooks, name) for name in hooks.__dataclass_fields__}


@pytest.mark.parametrize("name", ["priority", "gang", "conformance", "drf", "predicates", "proportion", "nodeorder"])
@pytest.mark.parametrize("switch", sorted(SWITCHES))
def test_a_switch_turns_off_its_callbacks_and_no_others(name: str, switch: str) -> None:
    before, after = open_hooks(only(name)), open_hooks(only(name, **{switch: False}))
    given = {kind for kind, callback in before.items() if callback is not None}
    left = {kind for kind, callback in after.items() if callback is not None}
    assert left == given - set(SWITCHES[switch])


def test_kube_batch_has_nine_switches_and_we_have_the_same() -> None:
    assert set(SWITCHES) == {
        *("enableJobOrder", "enableJobReady", "enableJobPipelined", "enableTaskOrder", "enablePreemptable"),
        *("enableReclaimable", "enableQueueOrder", "enablePredicate", "enableNodeOrder"),
    }


@pytest.mark.parametrize(("is_on", "first"), [(True, "important"), (False, "old")])
def test_enable_job_order(is_on: bool, first: str) -> None:
    """Room for one pod: the one that matters more goes first; without that order the one that is older."""
    objects = [
        node("n1", allocatable={"cpu": "1", "memory": "4Gi"}),
        pod("old", metadata={"creationTimestamp": "2026-01-01T00:00:00Z"}, priority=0),
        pod("important", metadata={"creationTimestamp": "2026-01-02T00:00:00Z"}, priority=10),
    ]
    assert set(binds(objects, with_plugin("priority", enableJobOrder=is_on))) == {first}


@pytest.mark.parametrize(("is_on", "first"), [(True, "b"), (False, "a")])
def test_enable_task_order(is_on: bool, first: str) -> None:
    """Room for one of a gang's pods: the one that matters more; without that order the one whose name comes first."""
    objects = [
        node("n1", allocatable={"cpu": "1", "memory": "4Gi"}),
        group("g", 1),
        pod("a", labels=member("g"), priority=0),
        pod("b", labels=member("g"), priority=10),
    ]
    assert set(binds(objects, with_plugin("priority", enableTaskOrder=is_on))) == {first}


@pytest.mark.parametrize(("is_on", "served"), [(True, "b"), (False, "a")])
def test_enable_queue_order(is_on: bool, served: str) -> None:
    """Room for one pod: the queue that has less is served; without that order the one whose name comes first."""
    objects = [
        node("n1", allocatable={"cpu": "2", "memory": "4Gi"}),
        *(queue(name) for name in "ab"),
        *(group(name, 1, queue=name) for name in "ab"),
        pod("running", labels=member("a"), nodeName="n1"),
        *(pod(name, labels=member(name)) for name in "ab"),
    ]
    policy = with_plugin("proportion", arguments={"borrow": "true"}, enableQueueOrder=is_on)
    assert set(binds(objects, policy)) == {served}


@pytest.mark.parametrize(("is_on", "expected"), [(True, {}), (False, {"p": "n1"})])
@pytest.mark.parametrize("refused", ["taint", "port"])
def test_enable_predicate(is_on: bool, expected: dict[str, str], refused: str) -> None:
    """The only node is refused, because of what it is or because of who is there; without predicates it is not."""
    taints = [{"key": "gpu", "effect": "NoSchedule"}] if refused == "taint" else []
    containers = [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}]
    ports: Object = {"containers": containers} if refused == "port" else {}
    objects = [node("n1", spec={"taints": taints}), pod("there", nodeName="n1", **ports), pod("p", **ports)]
    assert binds(objects, with_plugin("predicates", enablePredicate=is_on)) == expected


@pytest.mark.parametrize(("is_on", "expected"), [(True, "n2"), (False, "n1")])
@pytest.mark.parametrize("preferred", ["empty", "affinity"])
def test_enable_node_order(is_on: bool, expected: str, preferred: str) -> None:
    """n2 is better, being empty or being asked for; without an order all are equal and the first name is taken."""
    affinity = {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": {"matchExpressions": [{"key": "good", "operator": "Exists"}]}}
            ]
        }
    }
    wish: Object = {"affinity": affinity} if preferred == "affinity" else {}
    there = [pod("there", cpu="2", nodeName="n1")] if preferred == "empty" else []
    objects = [node("n1"), node("n2", labels={"good": "yes"}), *there, pod("p", **wish)]
    assert binds(objects, with_plugin("nodeorder", enableNodeOrder=is_on)) == {"p": expected}


@pytest.mark.parametrize(("is_on", "started"), [(True, set()), (False, {"p0", "p1"})])
def test_enable_job_ready(is_on: bool, started: set[str]) -> None:
    """A gang of three and room for two: nothing starts; where gangs need not be whole, two do."""
    objects = [
        node("n1", allocatable={"cpu": "2", "memory": "4Gi"}),
        group("g", 3),
        *(pod(f"p{number}", labels=member("g")) for number in range(3)),
    ]
    assert set(binds(objects, with_plugin("gang", enableJobReady=is_on))) == started


@pytest.mark.parametrize(("is_on", "evicted"), [(True, []), (False, ["kube-system/low"])])
def test_enable_preemptable(is_on: bool, evicted: list[str]) -> None:
    """conformance protects what is in kube-system, until it is not asked."""
    objects = [
        node("n1", allocatable={"cpu": "1", "memory": "4Gi"}),
        pod("low", nodeName="n1", priority=0, metadata={"namespace": "kube-system"}),
        pod("high", priority=10),
    ]
    planned = plan(objects, with_plugin("conformance", actions="preempt", enablePreemptable=is_on))
    assert [eviction["pod"] for eviction in planned["evictions"]] == evicted


@pytest.mark.parametrize(("is_on", "evicted"), [(True, 0), (False, 2)])
def test_enable_reclaimable(is_on: bool, evicted: int) -> None:
    """One queue holds all four CPUs, two of which another deserves; but its pods are in kube-system."""
    there = {"namespace": "kube-system"}
    objects = [
        node("n1"),
        queue("a"),
        queue("b"),
        group("greedy", 1, queue="a") | {"metadata": {"name": "greedy", **there}},
        *(pod(f"greedy-{index}", labels=member("greedy"), metadata=there, nodeName="n1") for index in range(4)),
        group("late", 2, queue="b"),
        *(pod(f"late-{index}", labels=member("late")) for index in range(2)),
    ]
    planned = plan(objects, with_plugin("conformance", actions="reclaim", enableReclaimable=is_on))
    assert len(planned["evictions"]) == evicted


# -- arguments


PRESSED = [node("n1", conditions=[{"type": "MemoryPressure", "status": "True"}]), pod("p", cpu="")]


@pytest.mark.parametrize("written", ["false", "False", '"false"', '"FALSE"'])
def test_an_argument_may_be_a_yaml_boolean_or_a_string(written: str) -> None:
    policy = yaml.safe_dump(with_plugin("predicates"))
    switched = policy.replace(
        "- name: predicates", f"- name: predicates\n    arguments: {{predicate.MemoryPressureEnable: {written}}}"
    )
    assert binds(PRESSED, switched) == {"p": "n1"}
    assert binds(PRESSED, switched.replace(written, "true")) == {}


@pytest.mark.parametrize("weight", [0, "0", 0.0, "0.0", "  0 "])
def test_an_argument_may_be_a_yaml_number_or_a_string(weight: object) -> None:
    """Only the wish for n2 speaks against n1, until it weighs nothing."""
    affinity = {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 1,
                    "preference": {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]},
                }
            ]
        }
    }
    objects = [node("n1"), node("n2"), pod("p", affinity=affinity)]
    assert binds(objects, with_plugin("nodeorder")) == {"p": "n2"}
    assert binds(objects, with_plugin("nodeorder", arguments={"nodeaffinity.weight": weight})) == {"p": "n1"}


def test_null_arguments_are_no_arguments() -> None:
    text = WORD_FOR_WORD.replace("- name: drf", "- name: drf\n    arguments:\n    enableJobOrder:")
    assert order_of(load_policy(text.encode(), "p")) == order_of(load_policy(WORD_FOR_WORD.encode(), "p"))


# -- older files


@pytest.mark.parametrize("switch", sorted(SWITCHES))
def test_disable_of_an_older_file_is_the_opposite_of_enable(switch: str) -> None:
    older = switch.replace("enable", "disable")
    for name in ("priority", "gang", "conformance", "drf", "predicates", "proportion", "nodeorder"):
        for is_off in (True, False):
            loaded, expected = (
                load_policy(yaml.safe_dump(only(name, **setting)).encode(), "p").tiers[0][0]
                for setting in ({older: is_off}, {switch: not is_off})
            )
            assert (loaded.off, loaded.switched_off) == (expected.off, expected.switched_off)


def test_enable_and_disable_may_agree_and_must_not_contradict_each_other() -> None:
    def load(**settings: object) -> Policy:
        return load_policy(yaml.safe_dump(only("gang", **settings)).encode(), "p")

    assert load(enableJobOrder=False, disableJobOrder=True).tiers[0][0].switched_off == ("enableJobOrder",)
    with pytest.raises(InputError) as error:
        load(enableJobOrder=True, disableJobOrder=True)
    assert error.value.messages == [
        "p: tiers[0].plugins[0] (gang): enableJobOrder and disableJobOrder contradict each other; remove one of them"
    ]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"disableJobOrdr": True}, "unknown setting 'disableJobOrdr'; did you mean 'disableJobOrder'?"),
        ({"disableJobOrder": "yes"}, "disableJobOrder: expected true or false, got 'yes'"),
    ],
)
def test_a_wrong_disable_is_answered_with_its_own_words(setting: Object, message: str) -> None:
    with pytest.raises(InputError) as error:
        load_policy(yaml.safe_dump(only("gang", **setting)).encode(), "p")
    assert error.value.messages == [f"p: tiers[0].plugins[0] (gang): {message}"]
