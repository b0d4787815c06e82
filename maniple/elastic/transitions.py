"""The transitions of an elastic job: from which phase to which it goes, when, and what it does then.

They are tried from top to bottom. The first whose guard is true is taken, then again from the top, until none is. A
step forms at most one generation. The diagram in docs/objects/elasticjob.md is made from this table
(transition_diagram.py), and the tests take every transition.
"""

from collections.abc import Callable
from dataclasses import dataclass

from maniple.elastic import transition_effects as effects
from maniple.elastic import transition_guards as guards
from maniple.elastic.machine_step import Step
from maniple.elastic.state import ACTIVE, LIVE, WAITING, Phase


@dataclass(frozen=True, slots=True)
class Transition:
    name: str
    sources: tuple[Phase, ...]
    target: Phase
    guard: Callable[[Step], bool]
    description: str
    effect: Callable[[Step], None] = lambda _step: None


def _unless(guard: Callable[[Step], bool]) -> Callable[[Step], bool]:
    return lambda step: not guard(step)


_MAY_FAIL: tuple[Phase, ...] = (*WAITING, *ACTIVE)

TRANSITIONS: tuple[Transition, ...] = (
    Transition("new", ("",), "Pending", lambda _step: True, "the job is new", effects.begin),
    Transition("late", LIVE, "Failed", guards.is_late, "`activeDeadlineSeconds` are over", effects.expire),
    Transition("refused", LIVE, "Failed", guards.is_refused, "the API server refuses its pods", effects.refuse),
    Transition(
        "done", ("Starting", *ACTIVE, "Restarting"), "Succeeded", guards.is_done, "its work is done", effects.succeed
    ),
    Transition("suspend", LIVE, "Suspended", guards.is_suspended, "`suspend` is set", effects.suspend),
    Transition(
        "resume", ("Suspended",), "Pending", guards.may_resume, "`suspend` is unset, all pods are gone", effects.resume
    ),
    Transition(
        "idle",
        ACTIVE,
        "Pending",
        guards.has_no_generation,
        "no member is left: some are lost and the others have succeeded, or the phase was overwritten",
    ),
    # A failure is counted before anything that follows from it.
    Transition(
        "fail", _MAY_FAIL, "Failed", guards.has_failed_for_good, "a failure that is not tried again", effects.fail
    ),
    Transition(
        "crash", ACTIVE, "Restarting", guards.has_crashed, "workers failed, their pods are there", effects.crash
    ),
    Transition(
        "fail-smaller",
        ACTIVE,
        "Running",
        guards.has_failed_above_minimum,
        "a replica failed, the minimum is there",
        effects.fail_above_minimum,
    ),
    Transition(
        "fail-rest",
        WAITING,
        "Pending",
        guards.has_failed_beside_done,
        "a replica failed or did not start, the minimum has succeeded",
        effects.fail_beside_done,
    ),
    Transition(
        "fail-gang",
        _MAY_FAIL,
        "Restarting",
        guards.has_failed,
        "a replica failed or did not start, and the minimum with it",
        effects.fail_as_a_gang,
    ),
    Transition(
        "fall", ACTIVE, "Restarting", guards.has_lost_too_many, "lost replicas, below the minimum", effects.fall_below
    ),
    Transition(
        "lose", ACTIVE, "Running", guards.has_lost_some, "lost replicas, the minimum is there", effects.go_on_smaller
    ),
    Transition("bound", ("Pending",), "Starting", guards.is_bound, "the minimum has nodes"),
    Transition("unbound", ("Starting",), "Pending", _unless(guards.is_bound), "the minimum has lost a node"),
    Transition("run", ("Starting",), "Running", guards.is_ready, "the minimum is ready", effects.run),
    Transition(
        "shrink", ("Running", "Growing"), "Shrinking", guards.has_surplus, "it must become smaller", effects.shrink
    ),
    Transition(
        "shrink-more",
        ("Shrinking",),
        "Shrinking",
        guards.must_shrink_more,
        "it must become smaller still",
        effects.shrink,
    ),
    Transition("shrunk", ("Shrinking",), "Running", _unless(guards.has_surplus), "the leaving replicas are gone"),
    Transition("grow", ("Running",), "Growing", guards.must_grow, "it should become larger"),
    Transition(
        "give-back", ("Growing",), "Running", guards.has_stuck_newcomers, "newcomers do not start", effects.give_back
    ),
    Transition("join", ("Growing",), "Running", guards.may_join, "newcomers are ready", effects.join),
    Transition("grown", ("Growing",), "Running", _unless(guards.has_newcomers), "it has its size"),
    Transition("again", ("Restarting",), "Pending", guards.may_start_over, "all pods are gone, the pause is over"),
    Transition(
        "give-up",
        ("Restarting",),
        "Restarting",
        guards.cannot_go_on_in_place,
        "lost replicas, below the minimum",
        Step.start_over,
    ),
    Transition(
        "in-place",
        ("Restarting",),
        "Running",
        guards.may_go_on_in_place,
        "the pause is over, its pods are there",
        effects.go_on_in_place,
    ),
)
