"""What is new is written at once, the same in other words seldom, and the very same perhaps never."""

import pytest

from maniple.kube.serve.skip_repeated_writes import Throttle


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("maniple.kube.serve.skip_repeated_writes.time.monotonic", lambda: now[0])
    return now


def test_what_is_new_is_written_at_once_and_the_same_never_again(clock: list[float]) -> None:
    written: Throttle[str] = Throttle()
    assert written.admit("a", "NoRoom", "lacks 1")
    assert written.is_same("a", "NoRoom", "lacks 1")
    clock[0] += 1e6
    assert not written.admit("a", "NoRoom", "lacks 1")
    assert written.admit("a", "OverLimit", "lacks 1")
    assert written.admit("b", "NoRoom", "lacks 1"), "another key"


def test_other_words_and_repetitions_wait_for_their_time(clock: list[float]) -> None:
    written: Throttle[str] = Throttle()
    assert written.admit("a", "NoRoom", "lacks 1", reword_s=10, repeat_s=60)
    clock[0] += 9
    assert not written.admit("a", "NoRoom", "lacks 2", reword_s=10, repeat_s=60)
    assert written.is_same("a", "NoRoom", "lacks 1"), "what was not written is not remembered"
    clock[0] += 1
    assert written.admit("a", "NoRoom", "lacks 2", reword_s=10, repeat_s=60)
    clock[0] += 59
    assert not written.admit("a", "NoRoom", "lacks 2", reword_s=10, repeat_s=60)
    clock[0] += 1
    assert written.admit("a", "NoRoom", "lacks 2", reword_s=10, repeat_s=60)


def test_what_is_forgotten_is_new_again(clock: list[float]) -> None:
    written: Throttle[str] = Throttle()
    written.note("a")
    assert written.is_recent("a", 5)
    clock[0] += 5
    assert not written.is_recent("a", 5)
    assert not written.admit("a", None)
    written.keep(lambda key: key != "a")
    assert written.admit("a", None)
    written.forget("a")
    assert len(written) == 0
