"""Generations: who takes part, in which order, and where they meet; and the notice that tells of it."""

import zlib
from collections.abc import Iterable
from datetime import datetime

import msgspec

from maniple.api import types
from maniple.elastic.events import Replica
from maniple.elastic.job import Job

FIRST_PORT, PORTS = 20000, 20000


def next_generation(last: int, job: Job, replicas: Iterable[Replica], time: datetime) -> types.JobGeneration:
    """The one after number `last`, with these members; with nobody it says stop."""
    slots = {role.name: role.slots for role in job.roles}
    members = tuple(
        types.GenerationMember(
            pod=job.pod(replica.place),
            uid=replica.uid,
            role=replica.role,
            index=replica.index,
            address=replica.address,
            slots=slots[replica.role],
        )
        for replica in _in_order(job, list(replicas))
    )
    number = last + 1
    return types.JobGeneration(
        number=number,
        members=members,
        coordinator=members[0].address if members else "",
        # A worker of the last generation may still hold its port.
        port=FIRST_PORT + (number * 7 + zlib.crc32(job.uid.encode())) % PORTS if members else 0,
        stop=not members,
        time=time,
    )


def _in_order(job: Job, replicas: list[Replica]) -> list[Replica]:
    """The meeting point first, then those near it, then the rest with neighbours side by side."""
    if not replicas:
        return []
    order = {role.name: number for number, role in enumerate(job.roles)}
    # A role that the job can be without may stand before the lead: who meets there could be shrunk away.
    first = min(replicas, key=lambda one: (one.role != job.lead, order[one.role], one.index))

    def key(one: Replica) -> tuple[object, ...]:
        where = one.domains or (one.node,)
        return one is not first, -_shared(where, first.domains or (first.node,)), where, order[one.role], one.index

    return sorted(replicas, key=key)


def _shared(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """How many domains, from the widest on, both are in."""
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def notice(job: Job, generation: types.JobGeneration) -> bytes:
    """What replicas read, at the endpoint and in the file that their annotation becomes."""
    members = [
        {name: getattr(member, name) for name in ("pod", "uid", "role", "index", "address", "slots")}
        for member in generation.members
    ]
    said = {
        "job": f"{job.namespace}/{job.name}",
        "generation": generation.number,
        "members": members,
        "port": generation.port,
        "graceSeconds": int(job.grace_s),
        "sent": generation.time,
        **({"stop": True} if generation.stop else {}),
    }
    return msgspec.json.encode(said)
