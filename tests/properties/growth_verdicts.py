"""Verdicts on growth: the replicas that a job was given find room in the next round.

Judged where nothing else interferes: one job grows, no pod leaves, and none is nominated.
"""

from __future__ import annotations

from properties.cluster_facts import Facts, read_facts
from properties.raw_objects import Object, rows
from properties.replay_rounds import Round, State, after, read_round, read_state


def grown_in_vain(objects: list[Object], plan: Object) -> list[str]:
    facts = read_facts(objects)
    state = read_state(facts, objects)
    sentences: list[str] = []
    grown: tuple[str, int] | None = None  # the job that grew in the round before, and its size
    for index, written in enumerate(rows(plan, "rounds"), 1):
        played = read_round(facts, state, written)
        next_ = after(facts, state, played)
        if grown is not None and not played.evicted and not played.nominations:
            job, size = grown
            there = sum(next_.pods[key].gang == job for key in next_.where)
            if there < size:
                sentences.append(f"round {index}: {job} was to have {size} replicas, and only {there} find room")
        grown = grower(facts, state, played)
        state = next_
    return sentences


def grower(facts: Facts, state: State, played: Round) -> tuple[str, int] | None:
    jobs = {resize.job for resize in played.resizes}
    is_quiet = not (state.leaving - state.stuck or played.evicted or played.nominations or played.reserved)
    if len(jobs) != 1 or not is_quiet or any(resize.new < resize.old for resize in played.resizes):
        return None
    (job,) = jobs
    more = sum(resize.new - resize.old for resize in played.resizes)
    return job, sum(state.size(facts, job, role) for role in facts.jobs[job].elastic.roles) + more
