"""What was tried is what actions noted: whatever their names are, and whatever notes they leave."""

from __future__ import annotations

from typing import Any

import pytest

from maniple.scheduler.actions import ACTIONS
from maniple.scheduler.actions.allocate import Allocate
from maniple.scheduler.actions.preempt import Preempt
from maniple.scheduler.explain.tried import Case, Note
from maniple.scheduler.framework.session import Session
from scheduler.small_clusters import Object, group, member, node, plan, pod

TIERS = [{"plugins": [{"name": name} for name in ("priority", "gang", "predicates")]}]


def tried(objects: list[Object], actions: str, gang: str) -> dict[str, str]:
    entries: list[Any] = plan(objects, {"actions": actions, "tiers": TIERS})["waiting"]
    (entry,) = [entry for entry in entries if entry["group"] == f"default/{gang}"]
    return {row["action"]: row["why"] for row in entry["tried"]}


CROWDED = [
    node("n1"),
    group("kept", 1, preemptable=False),
    *(pod(f"kept-{number}", nodeName="n1", priority=-1, labels=member("kept")) for number in range(4)),
    pod("want", cpu="8"),
]


def test_actions_of_other_names_are_shown_by_these_with_the_same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ACTIONS, "hand-out", Allocate)
    monkeypatch.setitem(ACTIONS, "displace", Preempt)
    usual = tried(CROWDED, "allocate, preempt", "want")
    assert list(usual) == ["allocate", "preempt"]
    assert "4 pods of lower priority in queue 'default', none of which may be taken" in usual["preempt"]
    renamed = tried(CROWDED, "hand-out, displace", "want")
    assert renamed == {"hand-out": usual["allocate"], "displace": usual["preempt"]}


class Prayed(Note):
    def describe(self, case: Case) -> str:
        return f"{case.job.name} was not heard" if case.job.priority > 0 else ""


class Pray:
    """An action with a note of its own."""

    def execute(self, session: Session) -> None:
        session.leave_note(Prayed())


def test_the_note_of_a_new_action_is_shown_to_the_gangs_it_speaks_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ACTIONS, "pray", Pray)
    objects = [node("n1"), pod("high", cpu="8", priority=1), pod("low", cpu="9")]
    assert tried(objects, "allocate, pray", "high")["pray"] == "default/high was not heard"
    assert list(tried(objects, "allocate, pray", "low")) == ["allocate"]


def test_a_note_for_one_gang_is_not_shown_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    class PrayForOne:
        def execute(self, session: Session) -> None:
            (high,) = [job for job in session.snapshot.waiting if job.priority > 1]
            session.leave_note(Prayed(), high.key)

    monkeypatch.setitem(ACTIONS, "pray", PrayForOne)
    objects = [node("n1"), pod("high", cpu="8", priority=2), pod("low", cpu="8", priority=1)]
    assert list(tried(objects, "allocate, pray", "high")) == ["allocate", "pray"]
    assert list(tried(objects, "allocate, pray", "low")) == ["allocate"]


def test_an_action_without_a_note_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent:
        def execute(self, session: Session) -> None:
            del session

    monkeypatch.setitem(ACTIONS, "silent", Silent)
    assert list(tried([node("n1"), pod("p", cpu="8")], "silent, allocate", "p")) == ["allocate"]
