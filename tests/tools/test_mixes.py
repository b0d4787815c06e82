"""`python -m benchmarks.mixes`, with mixes that take no time."""

import pytest

from benchmarks import mixes


def test_the_fixed_mixes_are_forty_different_ones_and_drawn_ones_follow_from_their_seed() -> None:
    assert len({mix.name for mix in mixes.fixed()}) == 40
    assert mixes.drawn(3, 7) == mixes.drawn(3, 7) != mixes.drawn(3, 8)


@pytest.mark.parametrize(
    "mix",
    [
        mixes.Mix(nodes=6, queues=2, is_old=True),
        mixes.Mix(nodes=6, queues=4, depth=2, sizes="one", elastic=1.0, is_close=True),
        mixes.Mix(nodes=6, queues=2, sizes="ten", shapes=9, policy="kube-batch"),
    ],
    ids=lambda mix: mix.name,
)
def test_every_kind_of_mix_is_planned(mix: mixes.Mix) -> None:
    figures = mixes.measure(mix)
    assert figures.pods > 0
    assert figures.rate > 0
    assert len(figures.cycles_s) == mixes.CYCLES
