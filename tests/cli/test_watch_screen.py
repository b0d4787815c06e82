"""The live view and its lines as text, without a cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from views.objects import NOW, view_of

from maniple.api.keys import Key
from maniple.cli.support.watch_screen import change_lines, frame, sparkline
from maniple.views.cluster import ClusterView
from maniple.views.jobs import JobView, ProgressView, SizeHistory, changed_jobs
from maniple.views.nodes import NodeView
from maniple.views.queues import QueueView


def changes(before: Mapping[Key, JobView], after: Mapping[Key, JobView]) -> list[str]:
    return change_lines(changed_jobs(before, after), NOW)


def cluster(*jobs: JobView) -> ClusterView:
    return ClusterView((), (), jobs)


@pytest.mark.parametrize(
    ("sizes", "most", "line"),
    [
        ([0, 1, 2, 4, 8], 8, " ▁▂▄█"),
        ([4, 4, 8, 8], 8, "▄▄██"),
        ([1], 1000, "▁"),
        ([9], 8, "█"),
        ([1], 0, ""),
    ],
)
def test_sizes_over_time_are_bars(sizes: list[int], most: int, line: str) -> None:
    assert sparkline(sizes, most) == line


def test_a_frame_has_gpus_queues_and_jobs_and_fits_the_screen() -> None:
    history = SizeHistory(30)
    history.sample([view_of(running=4)])
    history.sample([view_of(running=8)])
    queue = QueueView("research", {"nvidia.com/gpu": "8"}, {}, 1, 0)
    nodes = (NodeView("n1", 8.0, 8.0), NodeView("n2", 8.0, 0.0))
    job = view_of(running=8, target=8, progress=ProgressView(1200, 5000, None, NOW))
    lines = frame(ClusterView(nodes, (queue,), (job,)), history, "ml", NOW, 120)
    assert "GPUs: 8 of 16 used, 8 idle  ██████████░░░░░░░░░░" in lines[0]
    assert lines[3].split() == ["research", "8", "0", "1", "0"]
    assert lines[-1].split() == ["bert", "research", "Running", "8", "4:8", "▄█", "8", "24%", "-"]
    many = [view_of(name=f"job-{index}") for index in range(100)]
    small = frame(cluster(*many), history, "ml", NOW, 40, 10)
    assert len(small) == 10
    assert max(map(len, small)) <= 40
    assert small[-1] == "… and 94 more"


NAMES = ("bert", "a-very-long-name-of-a-job-that-somebody-has-made-up-for-us-1")
ALL = ["JOB", "QUEUE", "PHASE", "SIZE", "RANGE", "OVER TIME", "GPUS", "PROGRESS", "AGE", "REASON"]


def without(*names: str) -> list[str]:
    return [name for name in ALL if name not in names]


@pytest.mark.parametrize(
    ("width", "header", "name"),
    [
        (160, ALL, "a-very-long-name-of-a-job-that-somebody-has-made-up-for-…"),
        (120, ALL, "a-very-long-name-of-a-job-that-someb…"),
        (80, without("OVER TIME", "QUEUE"), "a-very-long-name-o…"),
        (60, without("OVER TIME", "QUEUE", "AGE", "RANGE", "GPUS"), "a-very-long-name…"),
    ],
)
def test_a_narrow_screen_clips_names_and_drops_columns_but_keeps_the_reason(
    width: int, header: list[str], name: str
) -> None:
    far = ProgressView(1200, 5000, None, NOW)
    jobs = [
        view_of(name=job, running=0, phase="Pending", reason="InsufficientGPUs", progress=far) for job in sorted(NAMES)
    ]
    *_, head, long, short = frame(cluster(*jobs), SizeHistory(30), "ml", NOW, width)
    assert re.split(r" {2,}", head) == header
    assert (long.split()[0], short.split()[0]) == (name, "bert")
    for line in (long, short):
        assert len(line) <= width
        assert line[head.index("PROGRESS") :].split()[0] == "24%"
        assert line[head.index("REASON") :] == "InsufficientGPUs"


@pytest.mark.parametrize("width", [60, 80, 120, 160])
def test_a_reason_that_is_cut_ends_in_an_ellipsis(width: int) -> None:
    reason = "AReasonThatIsLongerThanTheScreen" * 5
    (line,) = frame(cluster(view_of(phase="Pending", reason=reason)), SizeHistory(30), "ml", NOW, width)[-1:]
    assert len(line) == width
    assert "AReasonThatIs" in line
    assert line.endswith("…")


@pytest.mark.parametrize("width", [60, 80, 120, 160])
def test_the_namespace_is_shown_if_there_are_several(width: int) -> None:
    for namespace, name in (("ml", "bert"), (None, "ml/bert")):
        lines = frame(cluster(view_of()), SizeHistory(30), namespace, NOW, width)
        assert lines[-1].split()[0] == name


def test_a_pipe_gets_one_line_for_each_change() -> None:
    first = {("ml", "bert"): view_of()}
    assert changes({}, first) == ["2026-01-01T10:00:00Z ml/bert Running, size 4 of 4:8, 4 GPUs, queue research"]
    assert changes(first, dict(first)) == []
    grows = {("ml", "bert"): view_of(target=8, phase="Growing")}
    assert [line.split(" ", 2)[2] for line in changes(first, grows)] == [
        "Growing, size 4→8 of 4:8, 4 GPUs, queue research"
    ]
    waits = {("ml", "bert"): view_of(running=0, phase="Pending", reason="QuotaExceeded")}
    assert "Pending: QuotaExceeded, size 0→4" in changes(first, waits)[0]
    assert changes(first, {}) == ["2026-01-01T10:00:00Z ml/bert deleted"]


def test_an_outdated_view_says_so_and_keeps_its_size() -> None:
    usual = frame(cluster(view_of()), SizeHistory(30), "ml", NOW, 60)
    lines = frame(cluster(view_of()), SizeHistory(30), "ml", NOW, 60, trouble="GET https://server: refused\x1b[2J")
    assert (usual[1], lines[1]) == ("", "The API server does not answer, this view is out of date: GE")
    assert lines[2:] == usual[2:]
    wide = frame(cluster(view_of()), SizeHistory(30), "ml", NOW, 200, trouble="GET https://server: refused\x1b[2J")
    assert "\x1b" not in wide[1]
