"""The rounds of a plan, as they are shown."""

from __future__ import annotations

import json

import msgspec
import pytest
from cli.run_maniple import EXAMPLES

from maniple.api.decode.decode import decode
from maniple.cluster.in_memory_cluster import MemoryCluster, run_rounds
from maniple.model.building.input_objects import sort_objects
from maniple.scheduler.framework.plan import Bind
from maniple.views.plan import GpuSets, _gpu_sets, plan_view


@pytest.mark.parametrize(
    ("binds", "sets"),
    [
        ([Bind("a", "n", ("3", "0", "1"))], (GpuSets(1.0, None, ("0-1,3",)),)),
        ([Bind("a", "n", ("1",)), Bind("b", "n", ("0",))], (GpuSets(1.0, None, ("0-1",)),)),
        (
            [Bind("a", "n", ("2", "3"), ring_gbs=50.0), Bind("b", "n", ("0", "1"), ring_gbs=50.0)],
            (GpuSets(1.0, 50.0, ("0-1", "2-3")),),
        ),
        (
            [Bind("a", "n", ("6",), gpu_share=0.25), Bind("b", "n", ("7",))],
            (GpuSets(1.0, None, ("7",)), GpuSets(0.25, None, ("6",))),
        ),
        ([Bind("a", "n", ("10", "9", "GPU-a", "08"))], (GpuSets(1.0, None, ("9-10,08,GPU-a",)),)),
        ([Bind("a", "n")], ()),
    ],
)
def test_gpus_of_pods_on_a_node_are_sets_by_share_and_ring(binds: list[Bind], sets: tuple[GpuSets, ...]) -> None:
    assert _gpu_sets(binds) == sets


def test_a_plan_is_shown_by_gang_and_can_be_written_as_json() -> None:
    (path,) = EXAMPLES.glob("01*.yaml")
    cluster = MemoryCluster(sort_objects(decode([(path.name, path.read_bytes())]), scheduler_name="maniple"))
    outcome = run_rounds(cluster, None, 2)
    view = plan_view(outcome)
    first = view.rounds[0]
    assert sum(start.pods for start in first.starts) == len(outcome.rounds[0].plan.binds) > 0
    assert [start.gang for start in first.starts] == sorted(start.gang for start in first.starts)
    for start in first.starts:
        assert sum(node.pods for node in start.nodes) == start.pods
    assert not first.is_idle
    written = json.loads(msgspec.json.encode(view))
    assert len(written["rounds"]) == 2
    assert written["rounds"][0]["starts"][0]["gang"] == first.starts[0].gang
