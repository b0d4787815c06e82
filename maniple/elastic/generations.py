"""Generations: their members in the order of their ranks, their rendezvous, and the notice that announces them."""

import zlib
from collections.abc import Iterable
from datetime import datetime

import msgspec

from maniple.api import types
from maniple.api.keys import join_key
from maniple.elastic.events import Replica
from maniple.elastic.job_spec import JobSpec

FIRST_PORT, PORTS = 20000, 20000


def next_generation(last: int, job: JobSpec, replicas: Iterable[Replica], time: datetime) -> types.JobGeneration:
    """The generation after number `last` with these members. Without members it says stop."""
    slots = {role.name: role.slots for role in job.roles}
    members = tuple(
        types.GenerationMember(
            pod=job.pod(replica.key),
            uid=replica.uid,
            role=replica.role,
            index=replica.index,
            address=replica.address,
            slots=slots[replica.role],
        )
        for replica in _in_rank_order(job, list(replicas))
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


def _in_rank_order(job: JobSpec, replicas: list[Replica]) -> list[Replica]:
    """The coordinator first, then the replicas near it, then the others with neighbours next to each other."""
    if not replicas:
        return []
    order = {role.name: number for number, role in enumerate(job.roles)}
    # A role with a minimum of 0 may stand before the lead. The coordinator must not be shrunk away.
    first = min(replicas, key=lambda replica: (replica.role != job.spec.lead, order[replica.role], replica.index))
    first_domains = first.domains or (first.node,)

    def rank_order(replica: Replica) -> tuple[object, ...]:
        domains = replica.domains or (replica.node,)
        shared = _shared_domains(domains, first_domains)
        return replica is not first, -shared, domains, order[replica.role], replica.index

    return sorted(replicas, key=rank_order)


def _shared_domains(domains: tuple[str, ...], others: tuple[str, ...]) -> int:
    """How many domains are the same, from the widest on."""
    count = 0
    for mine, theirs in zip(domains, others, strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def notice(job: JobSpec, generation: types.JobGeneration) -> bytes:
    """The notice as JSON, as replicas read it from the controller and from the file of their annotation."""
    content = {
        "job": join_key((job.namespace, job.name)),
        "generation": generation.number,
        "members": generation.members,
        "port": generation.port,
        "graceSeconds": job.spec.elastic.grace_seconds,
        "sent": generation.time,
        **({"stop": True} if generation.stop else {}),
    }
    return msgspec.json.encode(content)
