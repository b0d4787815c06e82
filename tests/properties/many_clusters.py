"""Plans many random clusters and judges each plan: full ones with rules between pods or with guarantees of queues, and
ones in which running jobs are moved, for gangs that wait or for more order.

    python -m properties.many_clusters --clusters 100000 --seed 1     (in tests/; `--jobs 2` by default)
    python -m properties.many_clusters --kind guarantees --clusters 100000 --seed 1
    python -m properties.many_clusters --kind moves --clusters 10000 --seed 1

Each cluster has a seed of its own: `--seed S --clusters 1 --show` prints the objects of one that breaks a promise.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import random
import sys
import time
from collections import Counter

from hypothesis import strategies as st

from properties.elastic_clusters import ElasticWorld, nearly_full
from properties.explanation_verdicts import false_hopes
from properties.guarantee_clusters import GuaranteeWorld, guarantee_cluster, rival_cluster
from properties.guarantee_verdicts import lost_guarantees, unfair_claims
from properties.guaranteed_starts import beyond_guarantees
from properties.missed_claims import kept_waiting, needlessly_lost
from properties.object_writer import Mix, ObjectWriter, T
from properties.plan_adapter import plan_until_settled
from properties.random_clusters import World, full_cluster
from properties.raw_objects import Object, rows, text
from properties.referee import judge
from properties.scattered_worlds import ScatteredWorld
from properties.test_move_promises import ALL, FEW, IDLE, MOVES_FIRST, policy
from properties.test_promises import KUBE_BATCH, moves
from properties.topology_clusters import CloseWorld, full_close_cluster
from properties.turn_verdicts import overtaken

MOST_IMPLIED = 20  # rounds beyond one for each pod: for replicas that are not created yet
GUARANTEE_VERDICTS = (lost_guarantees, unfair_claims, kept_waiting, needlessly_lost, overtaken)
GUARANTEE_ROUNDS = 25
MOVE_ROUNDS = 60
REASONS_ONE_IN = 7  # explanations take a third of the time, and have tests of their own
RESTS = 2  # rounds in which nothing moves, before explanations are judged as those of a settled cluster


class Seeded(ObjectWriter):
    """Draws from a seeded generator: many times as fast as Hypothesis, and it does not shrink."""

    random: random.Random

    def pick(self, *choices: T) -> T:
        return choices[self.random.randrange(len(choices))]

    def between(self, least: int, most: int) -> int:
        return self.random.randint(least, most)


class SeededWorld(Seeded, World):
    pass


class SeededElasticWorld(Seeded, ElasticWorld):
    pass


class SeededCloseWorld(Seeded, CloseWorld):
    pass


class SeededGuaranteeWorld(Seeded, GuaranteeWorld):
    pass


class SeededScatteredWorld(Seeded, ScatteredWorld):
    pass


def unused(_: st.SearchStrategy[object]) -> object:
    raise AssertionError("drawn from the seeded generator only")


def cluster_with_guarantees(seed: int) -> list[Object]:
    world = SeededGuaranteeWorld(unused, Mix())
    world.random = random.Random(seed)
    if seed % 10 == 9:
        return rival_cluster(world, 2, 6)
    return guarantee_cluster(world, 3, *((6, 1), (6, 2), (8, 4))[seed % 3])


def cluster(seed: int) -> list[Object]:
    kind, limits = seed % 5, 0 if seed % 3 else 4
    mix = Mix(rules_one_in=2, limits_one_in=limits, firm_one_in=8 if seed % 7 else 2)
    # A promise of the GPU of a pod that does not name its GPUs holds only until the next round.
    names = grace_of(seed) > 1
    if kind < 2:
        world = SeededWorld(unused, mix, names_gpus=names)
        world.random = random.Random(seed)
        return full_cluster(world)
    if kind < 4:
        elastic = SeededElasticWorld(unused, mix, names_gpus=names)
        elastic.random = random.Random(seed)
        return nearly_full(elastic, most_queues=3)
    close = SeededCloseWorld(unused, mix, names_gpus=names)
    close.random = random.Random(seed)
    close.has_close_rules = True
    return full_close_cluster(close)


def grace_of(seed: int) -> int:
    """The rounds that pods take to leave."""
    return 3 if seed % 6 == 0 else 1


def has_reasons(seed: int) -> bool:
    return seed % REASONS_ONE_IN == 0


def rests(seed: int) -> int:
    return RESTS if has_reasons(seed) else 1


def hopes(planned: Object) -> list[str]:
    return [f"{false_hopes.__name__}: {sentence}" for sentence in false_hopes(planned)]


def verdict(seed: int) -> tuple[int, list[str], bool]:
    """The seed, one sentence for each broken promise, and whether anything was evicted."""
    objects = cluster(seed)
    policy = KUBE_BATCH if seed % 4 >= 2 else None
    rounds = sum(text(item, "kind") == "Pod" for item in objects) + MOST_IMPLIED
    grace = grace_of(seed)
    try:
        planned = plan_until_settled(objects, policy, rounds * grace, has_reasons(seed), grace, rests(seed))
    except Exception as error:
        return seed, [f"planning failed: {error!r}"], False
    sentences = [f"{breach.promise}: {breach.sentence}" for breach in judge(objects, planned, grace)]
    sentences += hopes(planned)
    if policy is None:
        sentences += [f"a guarantee: {sentence}" for sentence in beyond_guarantees(objects, planned)]
    if moves(planned)[-1]:
        sentences.append(f"not settled after {rounds} rounds: {moves(planned)}")
    return seed, sentences, any(rows(done, "evictions") for done in rows(planned, "rounds"))


def verdict_on_guarantees(seed: int) -> tuple[int, list[str], bool]:
    """The same of a cluster with guarantees. Every fourth is planned with kube-batch's policy, which promises less."""
    objects, is_ours = cluster_with_guarantees(seed), seed % 4 > 0
    try:
        planned = plan_until_settled(
            objects, None if is_ours else KUBE_BATCH, GUARANTEE_ROUNDS, has_reasons(seed), rests=rests(seed)
        )
    except Exception as error:
        return seed, [f"planning failed: {error!r}"], False
    sentences = [f"{breach.promise}: {breach.sentence}" for breach in judge(objects, planned)]
    sentences += hopes(planned)
    for verdict_ in GUARANTEE_VERDICTS if is_ours else GUARANTEE_VERDICTS[:2]:
        sentences += [f"{verdict_.__name__}: {sentence}" for sentence in verdict_(objects, planned)]
    if moves(planned)[-1]:
        sentences.append(f"not settled after {GUARANTEE_ROUNDS} rounds: {moves(planned)}")
    return seed, sentences, any(rows(done, "evictions") for done in rows(planned, "rounds"))


def cluster_with_moves(seed: int) -> list[Object]:
    """With gangs that wait, mostly without, or with more than there is room for."""
    mix = Mix(rules_one_in=0 if seed % 3 else 3, limits_one_in=0 if seed % 5 else 3)
    world = SeededScatteredWorld(unused, mix)
    world.random = random.Random(seed)
    if seed % 4 == 3:
        world.contend()
    else:
        world.scatter() if seed % 4 == 0 else world.idle()
    return world.objects


def verdict_on_moves(seed: int) -> tuple[int, list[str], bool]:
    """Jobs never cool down and there is no interval, so that only the measure ends it."""
    objects, grace = cluster_with_moves(seed), grace_of(seed)
    if seed % 4 == 3:
        written = policy(MOVES_FIRST, movesPerHour=1000)
    else:
        written = policy(FEW if seed % 2 else ALL, IDLE, cooldown=0, movesPerHour=1000)
    try:
        planned = plan_until_settled(objects, written, MOVE_ROUNDS * grace, has_reasons(seed), grace, rests(seed))
    except Exception as error:
        return seed, [f"planning failed: {error!r}"], False
    sentences = [f"{breach.promise}: {breach.sentence}" for breach in judge(objects, planned, grace)]
    sentences += hopes(planned)
    if moves(planned)[-1]:
        sentences.append(f"not settled after {MOVE_ROUNDS} rounds: {moves(planned)}")
    return seed, sentences, any(rows(done, "moves") for done in rows(planned, "rounds"))


KINDS = {
    "rules": (cluster, verdict),
    "guarantees": (cluster_with_guarantees, verdict_on_guarantees),
    "moves": (cluster_with_moves, verdict_on_moves),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m properties.many_clusters", description=__doc__)
    parser.add_argument("--kind", choices=KINDS, default="rules")
    parser.add_argument("--clusters", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1, help="of the first cluster; the others follow")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--show", action="store_true", help="print the clusters as JSON, and plan nothing")
    options = parser.parse_args()
    build, judge_one = KINDS[options.kind]
    seeds = range(options.seed, options.seed + options.clusters)
    if options.show:
        for seed in seeds:
            print(json.dumps({"apiVersion": "v1", "kind": "List", "items": build(seed)}))
        return
    started, broken, evicting = time.monotonic(), Counter[str](), 0
    # Few objects outlive a cluster: the collector has little to find, and looks for it often.
    with multiprocessing.get_context("spawn").Pool(options.jobs, gc.set_threshold, (50_000, 10, 10)) as pool:
        for done, (seed, sentences, has_evicted) in enumerate(pool.imap_unordered(judge_one, seeds, 50), 1):
            evicting += has_evicted
            for sentence in sentences[:1]:
                broken[sentence.split(":")[0]] += 1
                print(f"seed {seed}: {sentence}", flush=True)
            if done % 500 == 0:
                print(f"{done} clusters, {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    print(f"{len(seeds)} clusters from seed {options.seed}: {evicting} with evictions, {sum(broken.values())} broken")
    for kind, count in broken.most_common():
        print(f"  {count} {kind}")
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
