"""Volcano's configuration loads as far as it means the same here, and each difference is a note."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from maniple.api.errors import InputError
from maniple.scheduler import Policy, load_policy
from maniple.scheduler.framework.policy import Format
from maniple.scheduler.framework.volcano_policy import (
    ACTIONS_LEFT_OUT,
    PLUGINS_LEFT_OUT,
    PREDICATE_SWITCHES,
    SWITCHES_LEFT_OUT,
)
from maniple.scheduler.plugins.predicates import CHECKS
from scheduler.small_clusters import Object, binds, node, pod

# As Volcano's chart installs it.
SHIPPED = """actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: binpack
"""


def load(given: Object) -> Policy:
    return load_policy(yaml.safe_dump(given).encode(), "v.yaml")


def with_plugins(*plugins: Object, actions: str = "enqueue, allocate", **more: Any) -> Object:
    return {"actions": actions, "tiers": [{"plugins": list(plugins)}], **more}


def plugin(name: str, **arguments: Any) -> Object:
    return {"name": name, "arguments": arguments}


def values(policy: Policy, name: str) -> dict[str, object]:
    (choice,) = (choice for tier in policy.tiers for choice in tier if choice.name == name)
    return dict(choice.values)


def names(policy: Policy) -> list[list[str]]:
    return [[choice.name for choice in tier] for tier in policy.tiers]


def refused(given: Object) -> list[str]:
    with pytest.raises(InputError) as error:
        load(given)
    return error.value.messages


def test_the_shipped_configuration_loads_and_names_three_differences() -> None:
    policy = load_policy(SHIPPED.encode(), "v.yaml")
    assert policy.format is Format.VOLCANO
    assert [name for name, _ in policy.actions] == ["allocate", "backfill"]
    assert names(policy) == [["priority", "gang", "conformance"], ["drf", "predicates", "proportion", "nodeorder"]]
    assert [note.where for note in policy.notes] == [
        "actions",
        "tiers[1].plugins[0] (overcommit)",
        "tiers[1].plugins[5] (binpack)",
    ]
    assert [choice.switched_off for choice in policy.tiers[0]] == [(), ("enablePreemptable",), ()]


def test_the_configmap_that_holds_it_loads_too() -> None:
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"volcano-scheduler.conf": SHIPPED}}
    assert names(load(config_map)) == names(load_policy(SHIPPED.encode(), "v.yaml"))
    other = {**config_map, "data": {"volcano-scheduler.conf": SHIPPED, "volcano-scheduler-ci.conf": "x"}}
    assert len(load(other).notes) == 3


@pytest.mark.parametrize("data", [None, {}, {"a": "1", "b": "2"}, {"a": "[]"}, {"a": 1}])
def test_another_configmap_is_refused(data: object) -> None:
    (message,) = refused({"kind": "ConfigMap", "data": data})
    assert message.startswith("v.yaml: data")
    assert "expected" in message


def test_a_configmap_of_kube_batch_is_no_volcano_file() -> None:
    text = 'actions: "allocate"\ntiers: [{plugins: [{name: nodeorder}]}]'
    policy = load({"kind": "ConfigMap", "data": {"kube-batch-conf.yaml": text}})
    assert (policy.format, policy.notes) == (Format.POLICY, ())
    assert values(policy, "nodeorder")["nodeaffinity.weight"] == 1


def test_a_file_that_kube_batch_could_have_is_read_as_before() -> None:
    policy = load(with_plugins(plugin("nodeorder"), actions="allocate"))
    assert (policy.format, policy.notes) == (Format.POLICY, ())


@pytest.mark.parametrize("action", sorted(ACTIONS_LEFT_OUT))
def test_an_action_that_we_do_not_have_is_left_out_with_a_note(action: str) -> None:
    policy = load(with_plugins(actions=f"{action}, allocate"))
    assert [name for name, _ in policy.actions] == ["allocate"]
    assert [str(note) for note in policy.notes] == [f"actions: {action} is left out: {ACTIONS_LEFT_OUT[action]}"]


def test_a_file_without_any_action_of_ours_is_refused() -> None:
    assert refused(with_plugins(actions="enqueue")) == [
        "v.yaml: actions: none is left that Maniple has; write one such as allocate"
    ]


@pytest.mark.parametrize("name", sorted(PLUGINS_LEFT_OUT))
def test_a_plugin_that_we_do_not_have_is_left_out_with_a_note_whatever_its_arguments(name: str) -> None:
    policy = load(with_plugins(plugin(name, anything={"nested": [1, 2]}), {"name": "gang"}, actions="allocate"))
    assert names(policy) == [["gang"]]
    assert [str(note) for note in policy.notes] == [f"tiers[0].plugins[0] ({name}): left out: {PLUGINS_LEFT_OUT[name]}"]


@pytest.mark.parametrize("switch", sorted(SWITCHES_LEFT_OUT))
def test_a_switch_that_we_do_not_have_is_left_out_with_a_note(switch: str) -> None:
    (note,) = load(with_plugins({"name": "drf", switch: "Hierarchy" not in switch}, actions="allocate")).notes
    assert str(note) == f"tiers[0].plugins[0] (drf): {switch} is left out: {SWITCHES_LEFT_OUT[switch]}"


def test_a_queue_that_may_be_overused_may_borrow() -> None:
    policy = load(with_plugins({"name": "proportion", "enabledOverused": False}))
    assert values(policy, "proportion")["borrow"] is True


def test_what_volcano_does_not_have_either_is_an_error_at_its_own_place() -> None:
    assert refused(with_plugins({"name": "overcommit"}, {"name": "gagn"}, {"name": "drf", "enableJobOrdr": 1})) == [
        "v.yaml: tiers[0].plugins[1]: unknown plugin 'gagn'; did you mean 'gang'? known: conformance, "
        "consolidation, drf, elastic, fragmentation, gang, nodeorder, predicates, priority, proportion, reservation, "
        "topology",
        "v.yaml: tiers[0].plugins[2] (drf): unknown setting 'enableJobOrdr'; did you mean 'enableJobOrder'?",
    ]


# -- arguments


def test_nodeorder_has_volcanos_weights_unless_the_file_says_otherwise() -> None:
    arguments = {"podaffinity.weight": 7, "podtopologyspread.weight": 5}
    policy = load(with_plugins(plugin("nodeorder", **arguments)))
    chosen = values(policy, "nodeorder")
    names = ("nodeaffinity", "podaffinity", "tainttoleration", "topologyspread")
    assert [chosen[f"{name}.weight"] for name in names] == [2, 7, 3, 5]
    assert [note.where for note in policy.notes] == ["actions"]


def test_binpack_packs_the_resources_that_it_names() -> None:
    arguments = {
        "binpack.weight": 10,
        "binpack.cpu": 0,
        "binpack.memory": 0,
        "binpack.resources": "nvidia.com/gpu, example.com/foo",
        "binpack.resources.nvidia.com/gpu": 2,
        "binpack.resources.example.com/foo": 3,
    }
    for own in ([], [plugin("nodeorder", **{"leastrequested.weight": 4})]):
        policy = load(with_plugins(*own, plugin("binpack", **arguments)))
        chosen = values(policy, "nodeorder")
        assert chosen["mostrequested.weight"] == 10
        assert chosen["mostrequested.resources"] == ("nvidia.com/gpu", "example.com/foo")
        assert chosen["leastrequested.weight"] == (4 if own else 0)
        assert chosen["topologyspread.weight"] == (2 if own else 0)
        assert "weights count as equal" in policy.notes[-1].what


@pytest.mark.parametrize(("plugins", "expected"), [(["nodeorder"], "n2"), (["binpack"], "n1")])
def test_binpack_chooses_the_fuller_node(plugins: list[str], expected: str) -> None:
    objects = [node("n1"), node("n2"), pod("there", cpu="2", nodeName="n1"), pod("new")]
    assert binds(objects, with_plugins(*({"name": name} for name in plugins))) == {"new": expected}


def test_binpack_that_is_switched_off_is_left_out() -> None:
    policy = load(with_plugins({"name": "binpack", "enableNodeOrder": False}))
    assert names(policy) == [[]]
    assert policy.notes[-1].what == "left out: it is switched off"


def test_an_unknown_argument_of_binpack_is_an_error() -> None:
    assert refused(with_plugins(plugin("binpack", **{"binpack.wight": 1}))) == [
        "v.yaml: tiers[0].plugins[0] (binpack): unknown argument 'binpack.wight'; did you mean 'binpack.weight'?"
    ]


@pytest.mark.parametrize("switch", sorted(PREDICATE_SWITCHES))
def test_a_switch_of_predicates_turns_off_its_checks(switch: str) -> None:
    on, off = (load(with_plugins(plugin("predicates", **{switch: value}))) for value in (True, "false"))
    assert values(on, "predicates")["checks"] == CHECKS
    assert values(off, "predicates")["checks"] == tuple(
        name for name in CHECKS if name not in PREDICATE_SWITCHES[switch]
    )


def test_arguments_of_predicates_without_a_counterpart_are_noted_unless_they_mean_the_same() -> None:
    same = {"predicate.CacheEnable": True, "predicate.GPUSharingEnable": False}
    assert [note.where for note in load(with_plugins(plugin("predicates", **same))).notes] == ["actions"]
    other = {"predicate.ProportionalEnable": True, "predicate.resources.nvidia.com/gpu.cpu": 4}
    (_, note) = load(with_plugins(plugin("predicates", **other))).notes
    assert note.what.startswith("predicate.ProportionalEnable is left out: no CPU is kept")
    assert refused(with_plugins(plugin("predicates", **{"predicate.CacheEnable": "yes"}))) == [
        "v.yaml: tiers[0].plugins[0] (predicates): predicate.CacheEnable: expected true or false, got 'yes'"
    ]


def test_capacity_is_proportion_that_borrows() -> None:
    policy = load(with_plugins({"name": "capacity", "enableHierarchy": True}))
    assert values(policy, "proportion")["borrow"] is True
    assert [note.where for note in policy.notes] == ["actions", "tiers[0].plugins[0] (capacity)"]
    assert "gets its deserved first" in policy.notes[1].what
    for switch in ("enableHierarchy", "enabledHierarchy"):
        (_, *notes) = load(with_plugins({"name": "drf", switch: False})).notes
        assert [note.what for note in notes] == [f"{switch} is left out: {SWITCHES_LEFT_OUT[switch]}"]
    assert refused(with_plugins({"name": "capacity"}, {"name": "proportion"})) == [
        "v.yaml: capacity and proportion exclude each other; remove one of them"
    ]


@pytest.mark.parametrize(("waiting", "seconds"), [("1h2m3s", 3723), ("90s", 90), ("1.5h", 5400), ("500ms", 0.5)])
def test_sla_is_a_reservation_with_its_patience(waiting: str, seconds: float) -> None:
    policy = load(with_plugins(plugin("sla", **{"sla-waiting-time": waiting})))
    assert values(policy, "reservation")["patience"] == seconds
    both = load(with_plugins({"name": "reservation"}, plugin("sla", **{"sla-waiting-time": waiting})))
    assert names(both) == [["reservation"]]
    assert values(both, "reservation")["patience"] == seconds


@pytest.mark.parametrize("waiting", ["soon", "5", "0s", "-1h", "1h 2m", ""])
def test_a_waiting_time_that_is_no_duration_is_an_error(waiting: str) -> None:
    (message,) = refused(with_plugins(plugin("sla", **{"sla-waiting-time": waiting})))
    assert message.endswith(f"argument sla-waiting-time: expected a duration such as 1h30m, got {waiting!r}")


def test_sla_without_a_waiting_time_is_left_out() -> None:
    assert names(load(with_plugins({"name": "sla"}))) == [[]]


# -- actions on gangs


@pytest.mark.parametrize(
    ("configurations", "is_whole"),
    [
        ([], True),
        ([{"name": "gangpreempt", "arguments": {"allowWholeBundle": False}}], False),
        ([{"name": "gangpreempt", "arguments": {"allowWholeBundle": "true"}}], True),
    ],
)
def test_gangpreempt_is_preempt_that_evicts_gangs_whole(configurations: list[Object], is_whole: bool) -> None:
    actions = "allocate, gangreclaim, gangpreempt, preempt"
    policy = load(with_plugins({"name": "gang"}, actions=actions, configurations=configurations))
    assert [name for name, _ in policy.actions] == ["allocate", "reclaim", "preempt"]
    assert values(policy, "gang")["evict.whole"] is is_whole


def test_other_configurations_of_actions_and_metrics_are_noted() -> None:
    more = {
        "configurations": [{"name": "allocate", "arguments": {"predicateErrorCacheEnable": True}}],
        "metrics": {"type": "prometheus"},
    }
    assert [note.where for note in load(with_plugins(actions="allocate", **more)).notes] == [
        "configurations[0] (allocate)",
        "metrics",
    ]
    assert refused(with_plugins(configurations={"a": 1})) == [
        "v.yaml: configurations: expected a list of maps with 'name' and 'arguments'"
    ]


@pytest.mark.parametrize("name", ["numaaware", "numa-aware", "networktopologyaware", "network-topology-aware"])
def test_a_plugin_is_known_by_its_name_in_every_release(name: str) -> None:
    assert [note.where for note in load(with_plugins({"name": name})).notes][1:] == [f"tiers[0].plugins[0] ({name})"]
