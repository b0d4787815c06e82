"""The only connection of the property tests to the scheduler: objects in, the JSON of the plan out.

Run as a program, it plans each cluster of the JSON list on standard input and prints one plan a line, so
that a test can compare processes.
"""

from __future__ import annotations

import json
import sys


def plan(objects: list[dict[str, object]], policy: str | None = None, rounds: int = 1) -> dict[str, object]:
    """What `maniple plan -o json` would print. Imported late: testing the referee needs no scheduler."""
    from cluster.planning import plan_objects

    return plan_objects(objects, policy=policy, rounds=rounds)


def plan_until_settled(
    objects: list[dict[str, object]], policy: str | None, rounds: int, has_reasons: bool, grace: int = 1, rests: int = 1
) -> dict[str, object]:
    """At most `rounds`, until `rests` of them change nothing; pods take `grace` of them to leave. Without `has_reasons`
    nobody is told why they wait.
    """
    from cluster import planning

    return planning.plan_until_settled(objects, policy, rounds, has_reasons, grace, rests)


if __name__ == "__main__":
    print("\n".join(json.dumps(plan(world, rounds=2)) for world in json.load(sys.stdin)))
