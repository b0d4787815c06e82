"""The best nodes by score are found without a look at all of them, however they change."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from maniple.scheduler.framework.best_nodes import BestNodes
from maniple.scheduler.framework.changed_nodes import ChangedNodes


@pytest.mark.parametrize("seed", range(30))
def test_nodes_come_in_order_of_their_scores_and_of_their_indices(seed: int) -> None:
    draw = random.Random(seed)
    count = draw.choice((1, 5, 16, 17, 100, 700))
    fits = np.array([float(draw.choice((0, 0, 1, 3))) for _ in range(count)])
    scores = np.array([float(draw.randrange(4)) for _ in range(count)])
    best = BestNodes(fits)
    assert not best.is_ranked
    best.rank(best.with_room(), scores[best.with_room()])
    for _ in range(30):
        expected = sorted(np.flatnonzero(fits).tolist(), key=lambda node: (-scores[node], node))
        assert list(best.in_order()) == expected
        assert best.first() == (expected[0] if expected else None)
        assert best.total == fits.sum()
        assert best.fits_on(expected) == fits[expected].tolist()
        assert best.scores_of(expected) == scores[expected].tolist()
        changed = draw.sample(range(count), draw.randint(1, min(count, draw.choice((1, 5, 60)))))
        for node in changed:
            fits[node], scores[node] = float(draw.choice((0, 1, 2))), float(draw.randrange(4))
        best.change_room(changed, fits[changed].tolist())
        best.change_ranks(changed, [scores[node] if fits[node] else -math.inf for node in changed])


@pytest.mark.parametrize("seed", range(10))
def test_each_changed_node_is_named_once_to_everybody_who_asks(seed: int) -> None:
    draw = random.Random(seed)
    changes, log, seen = ChangedNodes(50), list[int](), [0, 0, 0]
    for _ in range(60):
        new = [draw.randrange(50) for _ in range(draw.choice((1, 3, 200)))]
        log += new
        changes.extend(new)
        who = draw.randrange(3)
        assert sorted(changes.since(seen[who])) == sorted(set(log[seen[who] :]))
        seen[who] = len(changes)
    assert len(changes) == len(log)
