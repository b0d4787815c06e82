"""The annotation of a moved gang: what is written is read again, and what is wrong with it is said."""

import pytest

from maniple.api import types
from maniple.api.labels import MOVED_ANNOTATION
from maniple.api.meta import ObjectMeta
from maniple.api.moves import KEPT_S, Place, format_move, move_problems, read_move, without_places
from maniple.api.timestamps import to_seconds
from maniple.api.validate.ours import problems


def test_what_is_written_is_read() -> None:
    places = (Place("n1", 2, {"cpu": "1", "nvidia.com/gpu": "1"}, "worker"), Place("n2", 1, {"cpu": "2"}))
    annotations = {MOVED_ANNOTATION: format_move(1767225600.0, 4, places)}
    move = read_move(annotations)
    assert move is not None
    assert (to_seconds(move.at), move.size, move.places) == (1767225600.0, 4, places)
    assert move_problems(annotations) == []


def test_when_the_places_are_taken_out_the_time_of_the_move_stays() -> None:
    """Cool-downs and the moves of an hour are counted by it. Nothing is written twice, nor when the places are over."""
    annotations = {MOVED_ANNOTATION: format_move(1767225600.0, 4, [Place("n1", 1, {"cpu": "1"})])}
    ended = without_places(annotations, 1767225600.0 + KEPT_S - 1)
    assert ended == format_move(1767225600.0, 4, [])
    assert without_places({MOVED_ANNOTATION: ended}, 1767225601.0) is None
    assert without_places(annotations, 1767225600.0 + KEPT_S) is None
    assert without_places({}, 1767225601.0) is None


def test_places_are_kept_until_the_pods_must_be_gone_and_five_minutes_more() -> None:
    at, places = 1767225600.0, [Place("n1", 1, {"cpu": "1"})]
    for leaving_s in (0.0, 30.0, 1200.0):
        move = read_move({MOVED_ANNOTATION: format_move(at, 4, places, leaving_s=leaving_s)})
        assert move is not None
        assert move.keeps_places(at + leaving_s + KEPT_S - 1)
        assert not move.keeps_places(at + leaving_s + KEPT_S)


def test_earlier_moves_of_a_gang_are_counted_and_outlive_its_places() -> None:
    at, places = 1767225600.0, [Place("n1", 1, {"cpu": "1"})]
    text = format_move(at, 4, places, earlier=[at - 60, at - 1800])
    for value in (text, without_places({MOVED_ANNOTATION: text}, at)):
        move = read_move({MOVED_ANNOTATION: value or ""})
        assert move is not None
        assert move.times_since(at - 3600) == [at, at - 60, at - 1800]
        assert move.times_since(at - 60) == [at]


def test_a_gang_without_the_annotation_was_not_moved() -> None:
    assert read_move({}) is None
    assert move_problems({}) == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("yes", "JSON is malformed"),
        ('{"at":"2026-01-01T00:00:00Z","places":[]}', "missing required field `size`"),
        ('{"at":"2026-01-01T00:00:00","size":1,"places":[]}', "at: expected a time with a time zone"),
        (
            '{"at":"2026-01-01T00:00:00Z","size":1,"places":[],"until":"2026-01-01T00:00:00"}',
            "until: expected a time with a time zone",
        ),
        ('{"at":"2026-01-01T00:00:00Z","size":1,"places":[{"node":"n","pods":1,"requests":{"cpu":"x"}}]}', "'x'"),
        ('{"at":"2026-01-01T00:00:00Z","size":1,"places":[{"node":"n","pods":0,"requests":{}}]}', "`int` >= 1"),
    ],
)
def test_what_is_wrong_is_said_and_counts_for_nothing(text: str, what: str) -> None:
    annotations = {MOVED_ANNOTATION: text}
    assert read_move(annotations) is None
    meta = ObjectMeta(name="g", namespace="ns", annotations=annotations)
    (problem,) = problems(types.PodGroup(metadata=meta))
    assert str(problem).startswith(f"metadata.annotations[{MOVED_ANNOTATION}]: expected JSON such as")
    assert what in str(problem)
