"""The promises about the exact place of a gang: which GPUs, which model, how close together."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given, settings

from properties.cluster_facts import read_facts
from properties.deserved_shares import TOLERANCE, held_by_queue, is_charged
from properties.lone_gang_verdicts import slower_links, slower_models, spread_in_vain
from properties.missed_room import missed_opportunities
from properties.plan_adapter import plan
from properties.raw_objects import Object, rows, table, text
from properties.referee import violations
from properties.replay_rounds import Promise, after, read_round, read_state
from properties.test_promises import KUBE_BATCH, broken, promised
from properties.test_queue_promises import _amount
from properties.topology_clusters import Theme, close_worlds, full_close_worlds, lone_worlds

closely = settings(promised, max_examples=60)
alone = settings(promised, max_examples=80)


@closely
@given(close_worlds() | full_close_worlds())
def test_no_gpu_is_over_committed(objects: list[Object]) -> None:
    assert broken(objects, Promise.GPUS) == []


@closely
@given(close_worlds() | full_close_worlds())
def test_a_required_domain_holds_the_whole_gang(objects: list[Object]) -> None:
    assert broken(objects, Promise.DOMAINS) == []


@closely
@given(close_worlds() | full_close_worlds())
def test_a_gang_is_on_one_model_that_it_allows(objects: list[Object]) -> None:
    assert broken(objects, Promise.MODELS) == []


@closely
@given(full_close_worlds())
def test_victims_are_evicted_only_for_gangs_that_will_be_close(objects: list[Object]) -> None:
    assert violations(objects, plan(objects, KUBE_BATCH, rounds=3)) == []


@closely
@given(close_worlds(has_queues=False) | lone_worlds())
def test_a_gang_that_fits_one_domain_and_one_model_does_not_wait(objects: list[Object]) -> None:
    assert missed_opportunities(objects, plan(objects)) == []


@alone
@given(lone_worlds(Theme.DOMAINS))
def test_a_gang_is_as_close_as_room_allows(objects: list[Object]) -> None:
    assert spread_in_vain(objects, plan(objects)) == []


@alone
@given(lone_worlds(Theme.MODELS))
def test_the_first_model_with_room_is_taken(objects: list[Object]) -> None:
    assert slower_models(objects, plan(objects)) == []


@alone
@given(lone_worlds(Theme.LINKS))
def test_the_best_linked_gpus_are_taken(objects: list[Object]) -> None:
    assert slower_links(objects, plan(objects)) == []


@closely
@given(close_worlds())
def test_queues_are_charged_for_their_gpu_shares(objects: list[Object]) -> None:
    """What queues hold at the end of a round is what their pods have of each GPU, and no more."""
    facts = read_facts(objects)
    state = read_state(facts, objects)
    planned = plan(objects)
    played = read_round(facts, state, rows(planned, "rounds")[0])
    if played.nominations or played.evicted:
        return
    state = after(facts, state, played)
    held = held_by_queue(facts, state, [key for key in state.where if is_charged(facts, state, key)])
    for queue in rows(planned, "queues"):
        shown = {name: _amount(written) for name, written in table(queue, "allocated").items()}
        expected = held.get(text(queue, "name"), {})
        for resource in shown | expected:
            difference = shown.get(resource, Fraction(0)) - expected.get(resource, Fraction(0))
            assert abs(difference) <= TOLERANCE, f"{text(queue, 'name')} {resource}: {shown} for {expected}"
