"""`python -m benchmarks.mixes` and `python -m benchmarks settled`, with mixes that take no time."""

import json
from pathlib import Path

import pytest

from benchmarks import growth_of_mixes, measured_mixes, mixes, settled
from benchmarks.generated_mixes import Mix, cluster, drawn, fixed, quick
from maniple.scheduler.framework.policy import default_policy

ROOT = Path(__file__).parent.parent.parent
TINY = Mix(nodes=6, queues=2)


@pytest.fixture(autouse=True)
def few_cycles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured_mixes, "MOST_CYCLES", measured_mixes.LEAST_CYCLES)


def test_the_fixed_mixes_are_forty_different_ones_and_drawn_ones_follow_from_their_seed() -> None:
    assert len({mix.name for mix in fixed()}) == 40
    assert len({mix.name for mix in quick()}) == 8
    assert drawn(3, 7) == drawn(3, 7) != drawn(3, 8)
    assert cluster(TINY, 1) == cluster(TINY, 1) != cluster(TINY, 2)


@pytest.mark.parametrize(
    "mix",
    [
        Mix(nodes=6, queues=2, is_old=True),
        Mix(nodes=6, queues=4, depth=2, sizes="one", elastic=1.0, is_close=True),
        Mix(nodes=6, queues=2, sizes="ten", shapes=9, policy="kube-batch"),
        Mix(nodes=6, queues=4, gangs=9, busy_queues=2, settled=3),
    ],
    ids=lambda mix: mix.name,
)
def test_every_kind_of_mix_is_planned(mix: Mix) -> None:
    figures = measured_mixes.measure(mix)
    assert figures.pods > 0
    assert figures.rate > 0
    assert len(figures.cycles_s) == measured_mixes.LEAST_CYCLES


def test_new_gangs_are_younger_than_the_patience_in_all_cycles_and_old_ones_older() -> None:
    for is_old in (False, True):
        play = measured_mixes.Play(Mix(nodes=6, queues=2, gangs=1_000, is_old=is_old))
        play.cycle()
        patience = default_policy().session(play.snapshot).patience_s
        assert patience is not None
        ages = [play.now - job.created for job in play.snapshot.waiting]
        if is_old:
            assert min(ages) > patience
        else:
            assert max(ages) + 0.1 * 200 < patience


def test_elastic_jobs_wait_with_as_many_pods_as_they_must_have() -> None:
    play = measured_mixes.Play(Mix(nodes=6, queues=2, sizes="ten", running=0, gangs=4, elastic=1.0))
    play.cycle()
    assert [(job.waiting_pods, job.elastic is not None) for job in play.snapshot.waiting] == [(5, True)] * 4


def test_p99_is_the_longest_of_less_than_a_hundred_cycles() -> None:
    few = measured_mixes.Figures("few", 1, 0, 1.0, None, [number / 1e3 for number in range(1, 13)])
    many = measured_mixes.Figures("many", 1, 0, 1.0, None, [number / 1e3 for number in range(1, 201)])
    assert (few.p50_ms, few.p99_ms, many.p99_ms) == pytest.approx((6.5, 12, 198))


def test_all_columns_are_reported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(mixes, "fixed", lambda: [TINY])
    mixes.main([])
    head, _, row, *rest = capsys.readouterr().out.splitlines()
    assert row.startswith(f"| {TINY.name} | ")
    assert row.count("|") == head.count("|")
    assert [line.split(" | ")[0] for line in rest[3:]] == ["| pods decided/s", "| p50 of a cycle", "| p99 of a cycle"]
    mixes.main(["--json"])
    (found,) = json.loads(capsys.readouterr().out)
    assert vars(TINY).items() <= found.items()
    columns = {"name", "pods", "bound", "first_s", "explained_s", "cycles_s", "rate", "p50_ms", "p99_ms"}
    assert columns <= found.keys()


def test_a_tree_is_compared_with_itself(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(mixes, "fixed", lambda: [TINY])
    mixes.main(["--against", str(ROOT)])
    head, _, row, *rest = capsys.readouterr().out.splitlines()
    assert row.count("|") == head.count("|")
    assert row.startswith(f"| {TINY.name} | ")
    assert {"before:", "after:"} <= set(rest)


def test_growth_has_a_row_for_each_dimension(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(growth_of_mixes, "BASE", Mix(nodes=4, queues=2, gangs=4))
    monkeypatch.setattr(growth_of_mixes, "CYCLES", 1)
    mixes.main(["--growth"])
    rows = capsys.readouterr().out.splitlines()[2:]
    assert len(rows) == len(growth_of_mixes.dimensions(TINY))


def test_calls_grow_with_the_work_and_are_the_same_in_each_run() -> None:
    def work(count: int) -> float:
        return growth_of_mixes.calls(lambda: [abs(number) for number in range(count)])

    few, again, many = work(3), work(3), work(7)
    assert few == again
    assert many == few + 4


def test_cycles_are_measured_after_a_pod_has_ended_and_after_nothing() -> None:
    ended_s, nothing_s = settled.measure(Mix(nodes=6, queues=2, running=1.0, gangs=9, is_even=True), 2)
    assert len(ended_s) == len(nothing_s) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--against", "/proc"], "it has no folder 'maniple'; give the root of a worktree"),
        (["--growth", "--against", "."], "--growth and --against do not go together"),
        (["--only", "nothing"], "no mix has 'nothing' in its name"),
    ],
)
def test_what_cannot_be_measured_is_an_error(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        mixes.main(arguments)
    assert message in capsys.readouterr().err
