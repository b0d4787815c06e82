"""Runs of many rounds: what is kept of each, and how long time may go on."""

from __future__ import annotations

import gc
import weakref

import pytest
from cli.run_maniple import EXAMPLES

from maniple.api.decode.decode import decode
from maniple.api.errors import InputError
from maniple.api.timestamps import format_timestamp
from maniple.cluster import in_memory_cluster
from maniple.cluster.in_memory_cluster import MemoryCluster, run_rounds
from maniple.model.building.input_objects import sort_objects
from maniple.model.snapshot import Snapshot

ELASTIC = EXAMPLES / "07-elastic.yaml"


class Watched(MemoryCluster):
    """Remembers which of its snapshots are still in memory."""

    alive: weakref.WeakSet[Snapshot]

    def snapshot(self) -> Snapshot:
        if not hasattr(self, "alive"):
            self.alive = weakref.WeakSet()
        made = super().snapshot()
        self.alive.add(made)
        return made


def cluster(step_s: float | None = None) -> Watched:
    decoded = decode([("f", ELASTIC.read_bytes())])
    return Watched(sort_objects(decoded, scheduler_name="maniple"), step_s=step_s)


def test_no_round_keeps_its_snapshot() -> None:
    made = cluster()
    outcome = run_rounds(made, None, 30)
    gc.collect()
    assert len(outcome.rounds) == 30
    assert len(made.alive) <= 1


def test_memory_is_given_back_where_automatic_collection_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in `maniple plan`, which turns it off."""
    monkeypatch.setattr(in_memory_cluster, "_MOST_UNCOLLECTED", 1000)
    made = cluster()
    gc.collect()
    gc.disable()
    try:
        run_rounds(made, None, 40)
        assert len(made.alive) <= 10
    finally:
        gc.enable()


def test_rounds_that_decide_the_same_share_what_they_decided() -> None:
    rounds = run_rounds(cluster(), None, 30).rounds
    assert rounds[-1].plan.queues is rounds[-2].plan.queues
    assert rounds[-1].plan.waiting is rounds[-2].plan.waiting


@pytest.mark.parametrize(("step_s", "rounds"), [(1e9, 300), (1e8, 100_000)])
def test_rounds_that_would_outlast_the_calendar_are_refused_before_the_first(step_s: float, rounds: int) -> None:
    with pytest.raises(InputError, match=r"--rounds: with 1e\+0[89] seconds a round, round \d+ would be in"):
        run_rounds(cluster(step_s), None, rounds)


def test_the_number_of_rounds_that_the_error_names_is_possible() -> None:
    with pytest.raises(InputError) as error:
        run_rounds(cluster(1e9), None, 300)
    most = int(error.value.messages[0].partition("at most --rounds ")[2].partition(",")[0])
    assert len(run_rounds(cluster(1e9), None, most).rounds) == most


@pytest.mark.parametrize("step_s", [0.0, 5e-324, 1e-9])
def test_a_step_of_no_time_ends_never(step_s: float) -> None:
    assert len(run_rounds(cluster(step_s), None, 5).rounds) == 5


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1e15, "9999-12-31T23:59:59Z"), (float("inf"), "9999-12-31T23:59:59Z"), (-1e15, "0001-01-01T00:00:00Z")],
)
def test_a_time_beyond_the_calendar_is_written_as_its_end(seconds: float, text: str) -> None:
    assert format_timestamp(seconds) == text
