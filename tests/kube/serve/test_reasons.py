"""Gangs that wait are explained in turn, and never while something else is to be done."""

from collections.abc import Iterable, Mapping

import pytest

from maniple.kube.serve import reasons as reasons_module
from maniple.kube.serve.reasons import Reasons
from maniple.model.pod_identity import JobKey
from maniple.scheduler.framework.hooks import Reason
from maniple.scheduler.framework.plan import Explanations, Glance, Waiting

TAKES_S = 0.01  # an explanation


class Source:
    """Explains gangs, in a time that a clock shows, and remembers which."""

    def __init__(self, names: Iterable[str], changed: Iterable[str] = ()) -> None:
        self.gangs: Mapping[JobKey, Glance] = {
            (f"ns/{name}", "PodGroup"): Glance(promised=int(name in set(changed))) for name in names
        }

    def explain_all(self) -> Iterable[Waiting]:
        raise AssertionError("all are never explained at once")

    def explain(self, gang: JobKey, *, is_thorough: bool = False) -> Waiting | None:
        raise AssertionError(f"{gang}: the reason is enough, {is_thorough=}")

    def reason(self, gang: JobKey) -> Reason | None:
        asked.append(gang[0].removeprefix("ns/"))
        clock[0] += TAKES_S
        return Reason("Reason", f"it was asked {asked.count(asked[-1])} times")

    def line(self, queue: str) -> int:
        raise AssertionError(f"nobody asks for the line of {queue}")


clock = [0.0]
asked: list[str] = []


@pytest.fixture(autouse=True)
def fresh_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    clock[0] = 1000.0
    asked.clear()
    monkeypatch.setattr("time.monotonic", lambda: clock[0])


def renew(reasons: Reasons, *names: str, changed: Iterable[str] = (), urgent_after: int | None = None) -> list[str]:
    """The gangs that were explained; after so many of them something else is to be done."""
    del asked[:]
    plan = Explanations(Source(names, changed))
    reasons.renew(plan, lambda: urgent_after is not None and len(asked) >= urgent_after)
    return list(asked)


def test_all_are_explained_where_there_is_time() -> None:
    reasons = Reasons()
    assert renew(reasons, "a", "b", "c") == ["a", "b", "c"]
    why = reasons.of(("ns", "b"))
    assert why is not None
    assert why.message == "it was asked 1 times"
    assert reasons.take_fresh() == {(f"ns/{name}", "PodGroup") for name in "abc"}
    assert reasons.take_fresh() == set()


def test_explaining_stops_as_soon_as_something_is_reported_and_goes_on_with_those_that_were_never_explained() -> None:
    reasons = Reasons()
    assert renew(reasons, "a", "b", "c", "d", urgent_after=2) == ["a", "b"]
    assert reasons.of(("ns", "c")) is None
    assert reasons.waits(("ns", "c"))
    clock[0] += 1
    assert renew(reasons, "a", "b", "c", "d", urgent_after=3) == ["c", "d", "a"]


def test_under_a_load_that_never_ends_explanations_take_a_tenth_of_the_time() -> None:
    reasons, names = Reasons(), [f"g{number}" for number in range(100)]
    begun, known = clock[0], 0
    while known < 100:
        known += len(renew(reasons, *names, urgent_after=0))
        clock[0] += 0.005
    assert 0.08 < 100 * TAKES_S / (clock[0] - begun) < 0.12


def test_no_cycle_explains_for_long() -> None:
    reasons, names = Reasons(), [f"g{number}" for number in range(100)]
    assert TAKES_S * len(renew(reasons, *names)) <= reasons_module._MOST_S + 2 * TAKES_S


def test_one_cycle_alone_explains_all() -> None:
    reasons, names = Reasons(), [f"g{number}" for number in range(100)]
    reasons.renew(Explanations(Source(names)), most_s=float("inf"))
    assert all(reasons.of(("ns", name)) for name in names)


def test_those_of_which_something_has_changed_come_before_the_others_but_nobody_waits_for_ever() -> None:
    reasons, names = Reasons(), ["a", "b", "c", "d"]
    renew(reasons, *names)
    clock[0] += 1
    assert renew(reasons, *names, changed=["c"]) == ["c", "a", "b", "d"]
    clock[0] += 31
    assert renew(reasons, *names, changed=["d"], urgent_after=2) == ["c", "a"]


def test_what_is_new_is_explained_at_once_and_what_is_known_in_a_tenth_of_the_time() -> None:
    reasons = Reasons()
    renew(reasons, "a", "b")
    assert renew(reasons, "a", "b", "new", changed=["b"]) == ["new", "b"]


def test_a_gang_that_does_not_wait_any_longer_is_forgotten() -> None:
    reasons = Reasons()
    renew(reasons, "a", "b")
    clock[0] += 1
    renew(reasons, "b")
    assert reasons.of(("ns", "a")) is None
    assert not reasons.waits(("ns", "a"))
    assert reasons.take_fresh() == {("ns/b", "PodGroup")}
