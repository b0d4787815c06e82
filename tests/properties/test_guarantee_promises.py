"""The promises between queues with guarantees: who loses what to whom, who waits, and that all of it comes to rest."""

from __future__ import annotations

from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from scenarios.later_rounds import after_rounds, leaving
from scenarios.shorthand import START

from properties.elastic_job_facts import newest
from properties.guarantee_clusters import arrivals, guarantee_worlds, lone_claim_worlds, tiny_guarantee_worlds
from properties.guarantee_verdicts import lost_guarantees, unfair_claims
from properties.many_clusters import cluster_with_guarantees, verdict_on_guarantees
from properties.missed_claims import kept_waiting, needlessly_lost
from properties.plan_adapter import plan, plan_until_settled
from properties.raw_objects import Object, key_of, rows, text
from properties.referee import violations
from properties.test_promises import KUBE_BATCH, moves, promised
from properties.turn_verdicts import overtaken

some = settings(promised, max_examples=40)
few = settings(promised, max_examples=20)
# By seeds many more are drawn in the same time, and nothing is shrunk: `many_clusters --show` prints the cluster.
many = settings(promised, max_examples=300, phases=[Phase.generate])
MOST_ROUNDS, MOST_MOVING = 25, 15


@promised
@given(guarantee_worlds())
def test_a_queue_never_loses_its_guarantee(objects: list[Object]) -> None:
    assert lost_guarantees(objects, plan(objects, rounds=4)) == []


@some
@given(guarantee_worlds())
def test_a_queue_never_loses_its_guarantee_with_the_policy_of_kube_batch(objects: list[Object]) -> None:
    assert lost_guarantees(objects, plan(objects, KUBE_BATCH, rounds=3)) == []


@promised
@given(tiny_guarantee_worlds())
def test_a_queue_below_its_guarantee_does_not_wait_where_victims_exist(objects: list[Object]) -> None:
    """Every set of victims is tried, once the cluster is at rest."""
    assert kept_waiting(objects, settled(objects)) == []


@promised
@given(guarantee_worlds())
def test_every_claim_on_other_queues_makes_the_level_strictly_fairer_or_is_guaranteed(objects: list[Object]) -> None:
    assert unfair_claims(objects, plan(objects, rounds=4)) == []


@promised
@given(lone_claim_worlds())
def test_no_due_is_lost_where_other_victims_would_leave_every_queue_its_own(objects: list[Object]) -> None:
    assert needlessly_lost(objects, plan(objects, rounds=2)) == []


@promised
@given(guarantee_worlds())
def test_whoever_stays_within_its_due_is_served_before_others_go_above_theirs(objects: list[Object]) -> None:
    assert overtaken(objects, plan(objects, rounds=3)) == []


@many
@given(st.integers(1, 10**8))
def test_whoever_is_within_its_guarantee_is_served_first_also_if_only_its_queue_waits(number: int) -> None:
    objects = cluster_with_guarantees(10 * number + 9)
    assert overtaken(objects, plan(objects, rounds=2)) == []


@some
@given(guarantee_worlds())
def test_queues_with_guarantees_keep_every_promise(objects: list[Object]) -> None:
    assert violations(objects, plan(objects, rounds=3)) == []


@few
@given(arrivals())
def test_evictions_end_after_the_last_arrival_and_nobody_alternates(
    story: tuple[list[Object], list[list[Object]]],
) -> None:
    """Gangs arrive after the first and the second round. Later, nobody is evicted twice for the same gang, or for one
    that has been evicted for it.
    """
    objects, later = story
    for arriving in later:
        # A round takes a second, and what has started in it is the newest.
        done = rows(plan(objects), "rounds")
        objects = [*after_rounds(objects, done, newest(objects) - START.timestamp()), *arriving]  # type: ignore[arg-type]
    done = rows(plan(objects, rounds=MOST_ROUNDS), "rounds")
    taken = [(text(entry, "pod"), text(entry, "for")) for played in done for entry in leaving(played)]  # type: ignore[arg-type]
    assert len(taken) == len(set(taken)), taken
    gangs = {(gang_of_pod(objects, pod), claimant) for pod, claimant in taken}
    assert not [pair for pair in gangs if pair[::-1] in gangs], taken
    assert not any(leaving(played) for played in done[MOST_MOVING:]), taken  # type: ignore[arg-type]


def gang_of_pod(objects: list[Object], pod: str) -> str:
    """Also of a replica that has not been created yet."""
    gangs = {key_of(item) for item in objects if item["kind"] in {"PodGroup", "ElasticJob"}}
    return max((gang for gang in gangs if pod.startswith(f"{gang}-")), key=len)


@many
@given(st.integers(1, 10**9))
def test_many_clusters_with_guarantees_keep_every_promise(seed: int) -> None:
    """`python -m properties.many_clusters --kind guarantees --clusters 1 --seed S` in tests/ judges one of them."""
    assert verdict_on_guarantees(seed)[1] == []


def settled(objects: list[Object]) -> Object:
    planned = plan_until_settled(objects, None, MOST_ROUNDS, has_reasons=False)
    assert not moves(planned)[-1], moves(planned)
    return planned
