"""The promises between queues: dues are exact, claims are fair, no victim is needless, no gang starves."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from properties.cluster_facts import read_facts
from properties.deserved_shares import TOLERANCE, Tree, find_dues
from properties.elastic_clusters import elastic_firm_worlds, elastic_worlds
from properties.guarantee_clusters import guarantee_worlds
from properties.guarantee_verdicts import unfair_claims
from properties.guaranteed_starts import beyond_guarantees
from properties.missed_room import missed_opportunities
from properties.plan_adapter import plan
from properties.random_clusters import contended_worlds, divided_worlds, firm_worlds, simple_worlds, worlds
from properties.raw_objects import Object, flat, key_of, rows, table, text
from properties.referee import excess
from properties.replay_rounds import after, read_round, read_state
from properties.test_promises import KUBE_BATCH, long_promised, promised
from properties.topology_clusters import close_worlds

DEFAULT = (Path(__file__).parents[2] / "maniple" / "scheduler" / "default_policy.yaml").read_text()
BY_PRIORITY = re.sub(r"(\n *)(borrow: \S+)", r'\1\2\1divide.byPriority: "true"', DEFAULT)


@pytest.mark.parametrize("policy", [DEFAULT, BY_PRIORITY], ids=["by weight", "by priority"])
@settings(promised, max_examples=160)
@given(
    st.one_of(
        worlds(),
        contended_worlds(),
        close_worlds(),
        guarantee_worlds(),
        divided_worlds(),
        divided_worlds(),
        divided_worlds(),
    )
)
def test_deserved_shares_match_an_exact_calculation(policy: str, objects: list[Object]) -> None:
    """Weights of queues and of resources, weight 0, guarantees, limits, priorities, trees, and what is indivisible."""
    facts = read_facts(objects)
    state = read_state(facts, objects)
    expected = find_dues(facts, state, Tree(objects), by_priority=policy is BY_PRIORITY).deserved
    shown = {text(queue, "name"): table(queue, "deserved") for queue in rows(plan(objects, policy), "queues")}
    assert set(shown) == set(expected)
    for queue, amounts in expected.items():
        for resource, amount in amounts.items():
            given_ = _amount(shown[queue].get(resource, "0"))
            assert abs(given_ - amount) <= TOLERANCE * max(Fraction(1), amount), (
                f"{queue} {resource}: {given_} for {amount}"
            )


def _amount(written: object) -> Fraction:
    word = str(written)
    for suffix, scale in (("Ki", 1024), ("Mi", 1024**2), ("Gi", 1024**3), ("Ti", 1024**4), ("m", Fraction(1, 1000))):
        if word.endswith(suffix):
            return Fraction(word.removesuffix(suffix)) * scale
    return Fraction(word)


@promised
@given(contended_worlds())
def test_claims_on_other_queues_are_fair_with_the_policy_of_kube_batch(objects: list[Object]) -> None:
    """If pods leave for another queue, the outcome is strictly fairer, or a guarantee demands it."""
    assert unfair_claims(objects, plan(objects, KUBE_BATCH, rounds=4)) == []


@settings(promised, max_examples=150)
@given(st.one_of(firm_worlds(), elastic_firm_worlds(), elastic_worlds(limits_one_in=2)))
def test_what_may_not_be_preempted_starts_only_within_its_queues_guarantee(objects: list[Object]) -> None:
    assert beyond_guarantees(objects, plan(objects, rounds=4)) == []


@promised
@given(contended_worlds())
def test_no_victim_could_have_stayed(objects: list[Object]) -> None:
    """If any one of them is put back beside the pods that replace it, its node is over-committed."""
    facts = read_facts(objects)
    state = read_state(facts, objects)
    for written in rows(plan(objects, KUBE_BATCH, rounds=4), "rounds"):
        played = read_round(facts, state, written)
        for victim in played.evicted:
            node = facts.nodes[state.where[victim]]
            there = [key for key in state.remaining(played.evicted) if state.where[key] == node.name]
            coming = [move.pod for move in (*played.binds, *played.nominations) if move.node is node]
            company = [*(state.pods[key] for key in there), *coming]
            assert list(excess(node, company, [state.pods[victim]])), f"{victim} could have stayed on {node.name}"
        state = after(facts, state, played)


@long_promised
@given(simple_worlds())
def test_the_oldest_gang_starts_in_bounded_time(objects: list[Object]) -> None:
    """Work ends and none arrives: a gang that fits an empty cluster starts within as many rounds as there are gangs."""
    nothing_runs = [item for item in objects if not (text(item, "kind") == "Pod" and text(item, "spec", "nodeName"))]
    gangs = {text(entry, "group") for entry in rows(_first(nothing_runs), "waiting")}
    gangs |= {_gang_of(nothing_runs, text(entry, "pod")) for entry in rows(_first(nothing_runs), "binds")}
    current = nothing_runs
    for _ in range(len(gangs) + 1):
        done = _first(current)
        if not rows(done, "binds"):
            break
        current = _ended(current, {text(entry, "pod") for entry in rows(done, "binds")})
    # The cluster is empty now and nothing more starts: a gang that is left does not fit even alone.
    assert missed_opportunities(current, plan(current)) == []


def _first(objects: list[Object]) -> object:
    return rows(plan(objects), "rounds")[0]


def _gang_of(objects: list[Object], pod: str) -> str:
    facts = read_facts(objects)
    return read_state(facts, objects).pods[pod].gang


def _ended(objects: list[Object], pods: set[str]) -> list[Object]:
    """The cluster after `pods` have run and succeeded; jobs whose pods were only implied are gone with them."""
    jobs = {pod for pod in pods if not any(text(i, "kind") == "Pod" and key_of(i) == pod for i in flat(objects))}
    made: list[Object] = []
    for item in objects:
        if text(item, "kind") == "Pod" and key_of(item) in pods:
            made.append({**item, "status": {"phase": "Succeeded"}, "spec": {**table(item, "spec"), "nodeName": "gone"}})
        elif text(item, "kind") != "ElasticJob" or not any(pod.startswith(f"{key_of(item)}-") for pod in jobs):
            made.append(item)
    return made
