"""Queues as people read them."""

from __future__ import annotations

import pytest

from maniple.api import types
from maniple.api.meta import ObjectMeta, ResourceList
from maniple.views.queues import queue_views


@pytest.mark.parametrize(
    ("deserved", "shown"),
    [
        ({"nvidia.com/gpu": "434500m"}, "434.5"),
        ({"nvidia.com/gpu": "8"}, "8"),
        ({"nvidia.com/gpu": "1k"}, "1000"),
        ({"nvidia.com/gpu": 8}, "8"),
        ({"nvidia.com/gpu": "333m", "amd.com/gpu": "4"}, "0.33+4"),
        ({"cpu": "500m"}, "0"),
        ({"nvidia.com/gpu": "many"}, "many"),
    ],
)
def test_gpus_are_counted_in_gpus(deserved: ResourceList, shown: str) -> None:
    status = types.QueueStatus(deserved=deserved)
    (view,) = queue_views([types.Queue(metadata=ObjectMeta(name="q"), status=status)])
    assert view.deserved_gpus == shown
