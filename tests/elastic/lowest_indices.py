"""Lower indices first, as docs/elastic.md says, computed independently of the machine."""

from collections.abc import Mapping

from maniple.api import types
from maniple.elastic.events import Replica

MANY = 1_000_000


def reach(
    role: str, status: types.ElasticJobStatus, spec: types.ElasticJobSpec, heard: Mapping[tuple[str, int], Replica]
) -> int:
    """Below which index a running job may create replicas of a role.

    There is no limit unless a replica that the job had is missing, or its first. `heard`: its pods as the machine knows
    them.
    """
    members = [(one.role, one.index) for one in status.generation.members]
    target = {one.role: one.replicas for one in status.target}
    first = next(role for role in spec.roles if role.min)
    gaps = []
    for known in spec.roles:
        ends = max((index for name, index in members if name == known.name), default=-1) + 1
        low, high = (known.min, known.max) if known.pin is None else (known.pin, known.pin)
        size = max(low, min(high, target.get(known.name, ends)))
        places = {*range(ends), 0} if known is first else {*range(ends)}
        gaps += [(known.name, index) for index in places if index < size and (known.name, index) not in members]
    over = {place for place, one in heard.items() if one.stage == "succeeded" and spec.restart_policy != "Always"}
    if not members or set(gaps) <= over:
        return MANY
    there = [index for name, index in members if name == role]
    there += [one.index for one in heard.values() if one.role == role and one.stage in ("ready", "succeeded")]
    return max([index + 1 for index in there] + [1 if role == first.name else 0])
