"""The benchmark on a real API server runs, small: its figures are for docs/performance.md, and are not judged here."""

import asyncio
from pathlib import Path

from benchmarks import live_binds
from e2e.clusters_of_this_run import NewCluster


def test_every_case_but_the_restart_gives_its_figures(new_cluster: NewCluster, tmp_path: Path) -> None:
    cases = ["rates", "alone", "backlog", "half-fit"]
    small = ["--nodes=20", "--pods=60", "--queues=5", "--seconds=1", "--settle=0.5", "--times=1"]
    options = live_binds.read_options([*small, "--only", *cases])
    results = asyncio.run(live_binds.run(new_cluster(kube_scheduler=True), options, tmp_path))
    figures = [result.figure for result in results]
    assert sum("binds/s" in figure for figure in figures) == 4
    assert sum(figure.startswith("p50 ") for figure in figures) == 4
    assert sum(figure.endswith(" s") for figure in figures) == 1
