"""The table of transitions: when a job goes from which state to which, and what it does then.

Rows are looked at from top to bottom, and the first whose question is answered with yes is taken; then again from the
top, until none is. A step makes one generation at most. The diagram in docs/objects/elasticjob.md is made from this
table (diagram.py), and tests take every row.
"""

from collections.abc import Callable
from dataclasses import dataclass

from maniple.elastic import effects, guards
from maniple.elastic.state import ACTIVE, LIVE, WAITING, Phase
from maniple.elastic.step import Turn


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    sources: tuple[Phase, ...]
    target: Phase
    when: Callable[[Turn], bool]
    do: Callable[[Turn], None]
    words: str


_MAY_FAIL: tuple[Phase, ...] = (*WAITING, *ACTIVE)

TABLE: tuple[Row, ...] = (
    Row("new", ("",), "Pending", guards.always, effects.begin, "the job is new"),
    Row("late", LIVE, "Failed", guards.is_late, effects.expire, "`activeDeadlineSeconds` are over"),
    Row("refused", LIVE, "Failed", guards.is_refused, effects.refuse, "the API server refuses its pods"),
    Row("done", ("Starting", *ACTIVE, "Restarting"), "Succeeded", guards.is_done, effects.succeed, "its work is done"),
    Row("suspend", LIVE, "Suspended", guards.is_suspended, effects.suspend, "`suspend` is set"),
    Row(
        "resume", ("Suspended",), "Pending", guards.may_resume, effects.resume, "`suspend` is unset, all pods are gone"
    ),
    Row(
        "idle",
        ACTIVE,
        "Pending",
        guards.has_no_generation,
        effects.nothing,
        "nobody runs: those that did are lost, and the rest have ended well; or somebody wrote that it runs",
    ),
    # What has failed is counted before anything that follows from it.
    Row("fail", _MAY_FAIL, "Failed", guards.has_failed_for_good, effects.fail, "a failure that is not tried again"),
    Row("crash", ACTIVE, "Restarting", guards.has_crashed, effects.crash, "workers failed, their pods are there"),
    Row(
        "fail-smaller",
        ACTIVE,
        "Running",
        guards.has_failed_above_minimum,
        effects.fail_above_minimum,
        "a replica failed, the minimum is there",
    ),
    Row(
        "fail-rest",
        WAITING,
        "Pending",
        guards.has_failed_beside_done,
        effects.fail_beside_done,
        "a replica failed or did not start, the minimum has ended well",
    ),
    Row(
        "fail-gang",
        _MAY_FAIL,
        "Restarting",
        guards.has_failed,
        effects.fail_as_a_gang,
        "a replica failed or did not start, and the minimum with it",
    ),
    Row("fall", ACTIVE, "Restarting", guards.has_lost_too_many, effects.fall_below, "lost replicas, below the minimum"),
    Row("lose", ACTIVE, "Running", guards.has_lost_some, effects.go_on_smaller, "lost replicas, the minimum is there"),
    Row("bound", ("Pending",), "Starting", guards.is_bound, effects.nothing, "the minimum has nodes"),
    Row("unbound", ("Starting",), "Pending", guards.is_unbound, effects.nothing, "the minimum has lost a node"),
    Row("run", ("Starting",), "Running", guards.is_ready, effects.run, "the minimum is ready"),
    Row("shrink", ("Running", "Growing"), "Shrinking", guards.has_surplus, effects.shrink, "it is to be smaller"),
    Row(
        "shrink-more", ("Shrinking",), "Shrinking", guards.must_shrink_more, effects.shrink, "it is to be smaller still"
    ),
    Row("shrunk", ("Shrinking",), "Running", guards.has_shrunk, effects.nothing, "those that leave are gone"),
    Row("grow", ("Running",), "Growing", guards.must_grow, effects.nothing, "it is to be larger"),
    Row("give-back", ("Growing",), "Running", guards.has_stuck_newcomers, effects.give_back, "newcomers do not start"),
    Row("join", ("Growing",), "Running", guards.may_join, effects.join, "newcomers are ready"),
    Row("grown", ("Growing",), "Running", guards.has_grown, effects.nothing, "it is to be no larger any more"),
    Row(
        "again",
        ("Restarting",),
        "Pending",
        guards.may_start_over,
        effects.nothing,
        "all pods are gone, the pause is over",
    ),
    Row(
        "give-up",
        ("Restarting",),
        "Restarting",
        guards.cannot_go_on_in_place,
        effects.give_up_in_place,
        "lost replicas, below the minimum",
    ),
    Row(
        "in-place",
        ("Restarting",),
        "Running",
        guards.may_go_on_in_place,
        effects.go_on_in_place,
        "the pause is over, its pods are there",
    ),
)
