"""Whatever plugins, switches and actions are chosen: there is a plan, and it keeps what needs no plugin."""

from __future__ import annotations

import json
from typing import Any

from cluster.planning import plan_objects
from hypothesis import given, settings
from hypothesis import strategies as st

from maniple.scheduler.actions import ACTIONS
from maniple.scheduler.framework.policy import SWITCHES
from maniple.scheduler.plugins import PLUGINS
from scheduler.small_clusters import Object, group, member, node, plan, pod, queue


@st.composite
def plugin(draw: st.DrawFn, name: str) -> Object:
    off = draw(st.sets(st.sampled_from(sorted(SWITCHES)), max_size=2))
    arguments: Object = {}
    if name == "proportion":
        arguments["borrow"] = draw(st.booleans())
    if name == "nodeorder":
        arguments["mostrequested.weight"] = draw(st.sampled_from([0, 1, 1e9]))
    return {"name": name, "arguments": arguments, **dict.fromkeys(off, False)}


@st.composite
def policies(draw: st.DrawFn) -> Object:
    actions = draw(st.lists(st.sampled_from(sorted(ACTIONS)), min_size=1, unique=True))
    actions.sort(key=lambda name: name == "grow")  # must be the last
    chosen = draw(st.lists(st.sampled_from(sorted(PLUGINS)), unique=True))
    cut = draw(st.integers(0, len(chosen)))
    tiers = [{"plugins": [draw(plugin(name)) for name in part]} for part in (chosen[:cut], chosen[cut:])]
    return {"actions": ", ".join(actions), "tiers": tiers}


CLUSTER = [
    node("n1", labels={"zone": "a"}),
    node("n2", labels={"zone": "b"}, spec={"taints": [{"key": "x", "effect": "NoSchedule"}]}),
    queue("a", weight=2, limit={"cpu": "6"}),
    queue("b", guaranteed={"cpu": "1"}),
    group("gang", 3, queue="a"),
    *(pod(f"gang-{index}", labels=member("gang")) for index in range(4)),
    group("held", 2, queue="b", preemptable=True),
    *(pod(f"held-{index}", labels=member("held"), nodeName="n1", priority=index) for index in range(3)),
    pod("leaving", nodeName="n2", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
    pod("high", "3", priority=100),
    pod("large", "40"),
    pod("nothing", ""),
    pod("unknown", labels=member("nobody")),
]


CPUS = {
    f"default/{item['metadata']['name']}": int(item["spec"]["containers"][0]["resources"]["requests"].get("cpu", "0"))
    for item in CLUSTER
    if item["kind"] == "Pod"
}


@settings(max_examples=150, deadline=None)
@given(policies())
def test_every_choice_plans_and_over_commits_nothing(policy: Object) -> None:
    planned: Any = plan_objects(CLUSTER, policy=json.dumps(policy), rounds=3)
    assert len(planned["rounds"]) == 3
    first = planned["rounds"][0]
    for name, held in (("n1", 3), ("n2", 1)):
        assert held + sum(CPUS[bind["pod"]] for bind in first["binds"] if bind["node"] == name) <= 4
    assert all(waiting["message"] for waiting in first["waiting"])
    bound = {bind["pod"] for bind in first["binds"]}
    assert bound.isdisjoint({"default/large", "default/unknown"})


def test_a_gated_pod_waits_also_where_no_plugin_knows_of_gangs() -> None:
    gated = pod("p", schedulingGates=[{"name": "wait"}])
    planned = plan([node("n1"), gated], {"actions": "allocate", "tiers": []})
    assert [waiting["reason"] for waiting in planned["waiting"]] == ["SchedulingGated"]
