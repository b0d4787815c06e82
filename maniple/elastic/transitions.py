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
    effect: Callable[[Step], None]
    description: str


_MAY_FAIL: tuple[Phase, ...] = (*WAITING, *ACTIVE)

TRANSITIONS: tuple[Transition, ...] = (
    Transition("new", ("",), "Pending", guards.always, effects.begin, "the job is new"),
    Transition("late", LIVE, "Failed", guards.is_late, effects.expire, "`activeDeadlineSeconds` are over"),
    Transition(
        "refused",
        LIVE,
        "Failed",
        guards.is_refused,
        effects.refuse,
        "the API server refuses its pods",
    ),
    Transition(
        "done",
        ("Starting", *ACTIVE, "Restarting"),
        "Succeeded",
        guards.is_done,
        effects.succeed,
        "its work is done",
    ),
    Transition("suspend", LIVE, "Suspended", guards.is_suspended, effects.suspend, "`suspend` is set"),
    Transition(
        "resume",
        ("Suspended",),
        "Pending",
        guards.may_resume,
        effects.resume,
        "`suspend` is unset, all pods are gone",
    ),
    Transition(
        "idle",
        ACTIVE,
        "Pending",
        guards.has_no_generation,
        effects.nothing,
        "no member is left: some are lost and the others have succeeded, or the phase was overwritten",
    ),
    # A failure is counted before anything that follows from it.
    Transition(
        "fail",
        _MAY_FAIL,
        "Failed",
        guards.has_failed_for_good,
        effects.fail,
        "a failure that is not tried again",
    ),
    Transition(
        "crash",
        ACTIVE,
        "Restarting",
        guards.has_crashed,
        effects.crash,
        "workers failed, their pods are there",
    ),
    Transition(
        "fail-smaller",
        ACTIVE,
        "Running",
        guards.has_failed_above_minimum,
        effects.fail_above_minimum,
        "a replica failed, the minimum is there",
    ),
    Transition(
        "fail-rest",
        WAITING,
        "Pending",
        guards.has_failed_beside_done,
        effects.fail_beside_done,
        "a replica failed or did not start, the minimum has succeeded",
    ),
    Transition(
        "fail-gang",
        _MAY_FAIL,
        "Restarting",
        guards.has_failed,
        effects.fail_as_a_gang,
        "a replica failed or did not start, and the minimum with it",
    ),
    Transition(
        "fall",
        ACTIVE,
        "Restarting",
        guards.has_lost_too_many,
        effects.fall_below,
        "lost replicas, below the minimum",
    ),
    Transition(
        "lose",
        ACTIVE,
        "Running",
        guards.has_lost_some,
        effects.go_on_smaller,
        "lost replicas, the minimum is there",
    ),
    Transition(
        "bound",
        ("Pending",),
        "Starting",
        guards.is_bound,
        effects.nothing,
        "the minimum has nodes",
    ),
    Transition(
        "unbound",
        ("Starting",),
        "Pending",
        guards.is_unbound,
        effects.nothing,
        "the minimum has lost a node",
    ),
    Transition("run", ("Starting",), "Running", guards.is_ready, effects.run, "the minimum is ready"),
    Transition(
        "shrink",
        ("Running", "Growing"),
        "Shrinking",
        guards.has_surplus,
        effects.shrink,
        "it must become smaller",
    ),
    Transition(
        "shrink-more",
        ("Shrinking",),
        "Shrinking",
        guards.must_shrink_more,
        effects.shrink,
        "it must become smaller still",
    ),
    Transition(
        "shrunk",
        ("Shrinking",),
        "Running",
        guards.has_shrunk,
        effects.nothing,
        "the leaving replicas are gone",
    ),
    Transition(
        "grow",
        ("Running",),
        "Growing",
        guards.must_grow,
        effects.nothing,
        "it should become larger",
    ),
    Transition(
        "give-back",
        ("Growing",),
        "Running",
        guards.has_stuck_newcomers,
        effects.give_back,
        "newcomers do not start",
    ),
    Transition("join", ("Growing",), "Running", guards.may_join, effects.join, "newcomers are ready"),
    Transition("grown", ("Growing",), "Running", guards.has_grown, effects.nothing, "it has its size"),
    Transition(
        "again",
        ("Restarting",),
        "Pending",
        guards.may_start_over,
        effects.nothing,
        "all pods are gone, the pause is over",
    ),
    Transition(
        "give-up",
        ("Restarting",),
        "Restarting",
        guards.cannot_go_on_in_place,
        effects.give_up_in_place,
        "lost replicas, below the minimum",
    ),
    Transition(
        "in-place",
        ("Restarting",),
        "Running",
        guards.may_go_on_in_place,
        effects.go_on_in_place,
        "the pause is over, its pods are there",
    ),
)
