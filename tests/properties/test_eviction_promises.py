"""The promises in full clusters: surplus makes way, gangs leave whole or stay, no victim is needless, none starves."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from properties.elastic_clusters import claimed_worlds, elastic_ruled_worlds, elastic_worlds, growing_worlds
from properties.growth_verdicts import grown_in_vain
from properties.guarantee_verdicts import lost_guarantees, unfair_claims
from properties.job_stream import Setting, Stream
from properties.missed_victims import missed_victims
from properties.needless_victims import could_have_stayed
from properties.plan_adapter import plan
from properties.raw_objects import Object
from properties.referee import violations
from properties.replay_rounds import Promise
from properties.test_promises import KUBE_BATCH, broken, moves, promised
from properties.tight_clusters import tight_worlds

many = settings(promised, max_examples=70)
some = settings(promised, max_examples=40)
few = settings(promised, max_examples=12)


@many
@given(elastic_worlds() | claimed_worlds())
def test_only_allowed_victims_are_evicted_and_only_for_a_gang_that_starts(objects: list[Object]) -> None:
    """Surplus from the highest index, or whole gangs. In the next round the gang they were evicted for is bound."""
    assert broken(objects, Promise.VICTIMS) == []


@many
@given(elastic_worlds() | claimed_worlds())
def test_a_gang_loses_surplus_or_everything(objects: list[Object]) -> None:
    assert broken(objects, Promise.GANGS) == []


@many
@given(elastic_worlds() | growing_worlds())
def test_sizes_change_within_bounds_in_steps_and_not_too_often(objects: list[Object]) -> None:
    assert broken(objects, Promise.SIZES) == []


@many
@given(claimed_worlds() | elastic_worlds())
def test_no_step_pod_or_gang_could_have_stayed(objects: list[Object]) -> None:
    assert could_have_stayed(objects, plan(objects, rounds=2)) == []


@settings(promised, max_examples=400)
@given(tight_worlds())
def test_a_gang_waits_only_if_no_victims_would_let_it_start(objects: list[Object]) -> None:
    """Whatever rules the pods have about each other: every set of victims is tried with every place."""
    assert missed_victims(objects, plan(objects)) == []


@many
@given(elastic_worlds() | claimed_worlds())
def test_shrinking_and_reclaiming_are_fair_between_queues(objects: list[Object]) -> None:
    """The outcome is strictly fairer, or a guarantee demands it; nothing inside another guarantee goes."""
    planned = plan(objects, rounds=3)
    assert lost_guarantees(objects, planned) == []
    assert unfair_claims(objects, planned) == []


@many
@given(growing_worlds())
def test_a_job_grows_only_where_its_replicas_find_room(objects: list[Object]) -> None:
    assert grown_in_vain(objects, plan(objects, rounds=4)) == []


@some
@given(growing_worlds() | elastic_worlds(limits_one_in=2))
def test_elastic_jobs_keep_every_promise(objects: list[Object]) -> None:
    """Limits, required domains and devices among them, over rounds in which jobs grow and shrink."""
    assert violations(objects, plan(objects, rounds=4)) == []


@some
@given(elastic_ruled_worlds())
def test_elastic_jobs_keep_every_promise_where_pods_have_rules_about_each_other(objects: list[Object]) -> None:
    assert violations(objects, plan(objects, rounds=4)) == []


@some
@given(elastic_worlds())
def test_elastic_jobs_keep_every_promise_with_the_policy_of_kube_batch(objects: list[Object]) -> None:
    assert violations(objects, plan(objects, KUBE_BATCH, rounds=3)) == []


@some
@given(elastic_worlds() | growing_worlds())
def test_a_settled_cluster_with_elastic_jobs_stays_settled(objects: list[Object]) -> None:
    """It settles at the latest when every gang has had a turn, and five rounds later nothing has moved."""
    moved = moves(plan(objects, rounds=16))
    rests = next((index for index, has_moved in enumerate(moved) if index and not has_moved), len(moved))
    assert rests <= 11, moved
    assert not any(moved[rests:]), moved


@st.composite
def settings_of_streams(draw: st.DrawFn, undeclared_one_in: int = 0) -> Setting:
    nodes, gpus = draw(st.integers(2, 5)), draw(st.sampled_from((2, 4)))
    each = draw(st.sampled_from((1, 2)))
    return Setting(
        nodes=nodes,
        gpus=gpus,
        members=draw(st.integers(1 + nodes * gpus // each // 2, nodes * gpus // each)),
        gpus_each=each,
        tick_s=60,
        backlog=draw(st.integers(1, 6)),
        longest_s=draw(st.sampled_from((120, 600, 900))),
        undeclared_one_in=undeclared_one_in,
        firm_one_in=draw(st.sampled_from((1, 2, 4))),
        seed=draw(st.integers(0, 2**16)),
    )


@few
@given(settings_of_streams())
def test_a_large_gang_starts_within_the_bound_whatever_arrives(setting: Setting) -> None:
    """At the latest when all pods that ran on its reserved nodes have ended. GPUs elsewhere are not idle for it."""
    assert Stream(setting, plan).run(60) == []


@few
@given(settings_of_streams(undeclared_one_in=3))
def test_a_large_gang_starts_within_the_bound_beside_jobs_of_unknown_runtime(setting: Setting) -> None:
    assert Stream(setting, plan).run(60) == []
