"""The short run of chaos.py: after random kills no work is lost or doubled. And a test of its watcher."""

from pathlib import Path
from typing import Any

import pytest

from e2e import chaos
from e2e.clusters_of_this_run import NewCluster
from e2e.independent_watcher import over_committed


def test_no_work_is_lost_or_doubled_when_components_are_killed(new_cluster: NewCluster, tmp_path: Path) -> None:
    story = chaos.Story(new_cluster(nodes=chaos.NODES, gpus=chaos.GPUS), seed=3, folder=tmp_path)
    wrong = story.run(45, least_blows=3)
    logs = "\n".join((tmp_path / f"{replica.name}.log").read_text()[-3000:] for replica in story.replicas)
    assert wrong == [], f"{story.summary()}\n{logs}"
    assert story.made > 10
    assert story.blows.total() >= 3
    assert story.watcher.looks > 30


def pod(name: str, gpus: int, ids: str, node: str = "n") -> dict[str, Any]:
    container = {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}, "requests": {"cpu": "1"}}}
    return {
        "metadata": {"name": name, "annotations": {"maniple.dev/gpus": ids}},
        "spec": {"nodeName": node, "containers": [container]},
        "status": {"phase": "Running"},
    }


@pytest.mark.parametrize(
    ("pods", "is_wrong"),
    [
        ([pod("a", 1, "0"), pod("b", 1, "1")], False),
        ([pod("a", 1, "0"), pod("b", 1, "0")], True),
        ([pod("a", 2, "0,1"), pod("b", 1, "2")], True),
        ([pod("a", 1, "0"), pod("b", 1, "")], True),
        ([pod("a", 2, "0,1"), pod("b", 2, "0,1", node="m")], False),
    ],
)
def test_the_watcher_notices_over_commitment(pods: list[dict[str, Any]], is_wrong: bool) -> None:
    found = over_committed(pods, gpus={"n": 2, "m": 2}, cpus={"n": 8, "m": 8})
    assert bool(found) == is_wrong
