"""When a gang that lacks pods is warned of it."""

from __future__ import annotations

import time

import pytest

from maniple.api import kubernetes, types
from maniple.api.meta import ObjectMeta
from maniple.api.timestamps import from_seconds
from maniple.kube.serve.status_writer import _is_being_made


@pytest.mark.parametrize(
    ("group_age_s", "pod_ages_s", "is_being_made"),
    [
        (1, (), True),
        (600, (), False),
        (600, (500, 2), True),  # its controller creates pods one after another
        (600, (500, 400), False),
        (-3600, (), False),  # our clock is an hour behind the server's
    ],
)
def test_pods_may_still_come_while_the_group_or_a_pod_is_new(
    group_age_s: float, pod_ages_s: tuple[float, ...], is_being_made: bool
) -> None:
    now = time.time()
    group = types.PodGroup(metadata=ObjectMeta(name="g", creation_timestamp=from_seconds(now - group_age_s)))
    pods = [
        kubernetes.Pod(metadata=ObjectMeta(name=f"p{number}", creation_timestamp=from_seconds(now - age_s)))
        for number, age_s in enumerate(pod_ages_s)
    ]
    assert _is_being_made(group, pods) is is_being_made
