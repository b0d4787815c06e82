"""A plugin's own reasons are explained truly, although explain has never heard of their codes."""

from __future__ import annotations

from typing import Any

import pytest

from maniple.model.job import Job, Queue
from maniple.model.resources import FloatArray
from maniple.scheduler.framework.hooks import Hooks, Reason
from maniple.scheduler.framework.plugin_arguments import Arguments
from maniple.scheduler.framework.session import Session
from maniple.scheduler.plugins import PLUGINS
from scheduler.small_clusters import Object, node, plan, pod

ACTIONS = "allocate, shrink, reclaim, preempt, backfill"


class Embargo:
    """Jobs called `banned` are not valid; queues may take on no more than 2 CPUs in the `curfew`."""

    def __init__(self, arguments: Arguments) -> None:
        self._says_cure = arguments.boolean("cure", default=True)
        self._curfew = arguments.boolean("curfew", default=False)
        self._overuse = arguments.boolean("overuse", default=False)
        self._final = arguments.boolean("final", default=False)
        self._ready = arguments.boolean("ready", default=True)
        self._pipelined = arguments.boolean("pipelined", default=True)

    def open(self, session: Session) -> Hooks:
        del session

        def valid(job: Job) -> Reason | None:
            if not job.name.endswith("banned"):
                return None
            return Reason("Embargo", "its team is under embargo", "the embargo ends" if self._says_cure else "")

        def refuse(queue: Queue, more: FloatArray, _: bool = False) -> Reason | None:
            del queue, more
            return Reason("Curfew", "nothing starts at night", "it were day", is_in_line=not self._final)

        return Hooks(
            job_valid=valid,
            job_ready=lambda job: self._ready or not job.name.endswith("late"),
            job_pipelined=lambda job: self._pipelined or not job.name.endswith("late"),
            admissible=refuse if self._curfew else None,
            overused=refuse if self._overuse else None,
        )


@pytest.fixture(autouse=True)
def embargo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PLUGINS, "embargo", Embargo)


def waiting(objects: list[Object], **arguments: bool) -> dict[str, Any]:
    """What the first round says of each gang that waits, by its name."""
    names = ("gang", "priority", "predicates", "embargo")
    plugins = [{"name": name, "arguments": arguments if name == "embargo" else {}} for name in names]
    entries = plan(objects, {"actions": ACTIONS, "tiers": [{"plugins": plugins}]})["waiting"]
    return {entry["group"].removeprefix("default/"): entry for entry in entries}


FULL = [node("n1"), pod("runs", "4", nodeName="n1")]


def test_a_gang_that_job_valid_refuses_is_not_in_line_and_nothing_is_tried_for_it() -> None:
    entries = waiting([*FULL, pod("banned"), pod("next")])
    banned = entries["banned"]
    assert (banned["reason"], banned["message"]) == ("Embargo", "its team is under embargo")
    assert (banned["position"], banned["tried"], banned["nearest"]) == (None, [], None)
    assert entries["next"]["position"] == 1


def test_all_that_stands_in_the_way_of_a_refused_gang_is_told() -> None:
    assert waiting([node("n1"), pod("banned")])["banned"]["wouldStartIf"] == "the embargo ends"
    both = waiting([*FULL, pod("banned")])["banned"]["wouldStartIf"]
    assert both == "the embargo ends and 1 cpu and 1Gi memory on node n1 came free (held by default/runs)"


def test_room_that_a_refused_gang_would_take_from_others_need_not_come_free() -> None:
    entry = waiting([*FULL, pod("banned", "4", priority=10)])["banned"]
    assert entry["wouldStartIf"] == "the embargo ends"


def test_a_reason_that_names_no_cure_still_says_that_it_must_go() -> None:
    assert waiting([node("n1"), pod("banned")], cure=False)["banned"]["wouldStartIf"] == "Embargo no longer applied"
    both = waiting([*FULL, pod("banned")], cure=False)["banned"]["wouldStartIf"]
    assert both == "Embargo no longer applied and 1 cpu and 1Gi memory on node n1 came free (held by default/runs)"


def test_a_limit_of_a_plugin_leaves_the_gang_in_line_and_allocate_says_it() -> None:
    entry = waiting([*FULL, pod("late")], curfew=True)["late"]
    assert (entry["reason"], entry["position"]) == ("Curfew", 1)
    assert {row["action"]: row["why"] for row in entry["tried"]}["allocate"] == "nothing starts at night"


def test_a_share_of_a_plugin_leaves_the_gang_in_line_and_nobody_leaves_for_it() -> None:
    entry = waiting([node("n1"), pod("late")], overuse=True)["late"]
    assert (entry["reason"], entry["position"]) == ("Curfew", 1)
    tried = {row["action"]: row["why"] for row in entry["tried"]}
    assert tried["allocate"] == "nothing starts at night"
    assert tried["preempt"] == "there is room without anybody leaving"


def test_a_plugin_that_holds_a_gang_back_is_named_although_there_is_room() -> None:
    entry = waiting([node("n1"), pod("late")], ready=False)["late"]
    assert (entry["reason"], entry["position"]) == ("NotReady", 1)
    assert entry["message"] == "there is room, but plugin 'embargo' does not let it start (job_ready)"
    assert entry["wouldStartIf"] == "that plugin let it start"


def test_a_plugin_that_refuses_a_promise_is_named_and_not_the_victims() -> None:
    objects = [node("n1"), pod("runs", "4", nodeName="n1"), pod("late", "4", priority=10)]
    tried = {row["action"]: row["why"] for row in waiting(objects, pipelined=False)["late"]["tried"]}
    refusal = "would make room, but plugin 'embargo' does not let it start (job_pipelined)"
    assert tried["preempt"] == f"taking all that may be taken (1 pod of default/runs) {refusal}"


def test_a_condition_is_told_once() -> None:
    would = waiting([*FULL, pod("late")], curfew=True, final=True)["late"]["wouldStartIf"]
    assert would == "it were day and 1 cpu and 1Gi memory on node n1 came free (held by default/runs)"
