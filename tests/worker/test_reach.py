"""A notice reaches every replica within a second; `python -m benchmarks.agents` has the larger numbers."""

from benchmarks.agents import measure


def test_a_notice_reaches_all_of_64_agents_within_a_second() -> None:
    found = measure(64)
    assert found.met, found.figure
