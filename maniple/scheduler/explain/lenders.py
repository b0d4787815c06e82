"""What queues may take from each other, in words: the queues that may lose something to a gang, or why none may."""

from collections.abc import Set

import numpy as np

from maniple.model.job import Job
from maniple.scheduler.eviction.claim_outcome import Claim
from maniple.scheduler.explain.running_pods import Holders
from maniple.scheduler.explain.words import listed
from maniple.scheduler.framework.due_rules import EPSILON


def no_claim(holders: Holders, job: Job) -> str:
    """Why its queue may take nothing of others; empty if it may of some."""
    session, due, claims = holders.session, holders.session.due, holders.kept.claims
    if due is None or claims is None or next(claims.possible(job), None) is not None:
        return ""
    need = claims.need(job)
    queue = session.queue_of(job)
    held, deserved = due.accounting.queue_held[queue.index], due.deserved[queue.index]
    over = due.scarce[queue.index] & (need > 0) & (held + need > deserved + EPSILON)
    row = int(np.flatnonzero(over)[0])
    axis = session.snapshot.axis
    return (
        f"queue {queue.name!r} has its due: it deserves {axis.amount(row, deserved[row])} {axis.names[row]}, "
        f"holds {axis.amount(row, held[row])}, and this needs {axis.amount(row, need[row])}"
    )


def lenders(holders: Holders, job: Job, queues: Set[int]) -> list[int] | str:
    """Those of the queues that may lose something to the gang; or why there are none."""
    session, claims, is_above_share = holders.session, holders.kept.claims, holders.kept.is_above_share
    if claims is None:
        return "no plugin of the policy says what queues deserve"
    own = session.queue_of(job)
    possible = list(claims.possible(job))
    able: list[int] = []
    refusals: list[str] = []
    known: dict[tuple[int, bool], list[Claim]] = {}
    for queue in sorted(queues, key=lambda queue: (claims.meeting(own.index, queue)[0], queue)):
        level, below = claims.meeting(own.index, queue)
        # What nearer queues give back may give its own queues a claim that they do not have yet.
        is_nearer = bool(able) and claims.meeting(own.index, able[0])[0] < level
        if (level, is_nearer) not in known:
            known[level, is_nearer] = [claim for claim in possible if is_nearer or claims.may_claim(claim, job, level)]
        claimed = known[level, is_nearer]
        is_rich = all(map(is_above_share, below))
        if not claims.are_reclaimable(below):
            why = "may not lose it (reclaimable: false)"
        elif not claimed:
            why = f"a queue above {own.name!r} has its due already"
        elif is_rich or claimed != [Claim.STRICT]:
            able.append(queue)
            continue
        else:
            why = "the queue above it does not"
        if is_above_share(queue):
            refusals.append(f"queue {session.snapshot.queues[queue].name!r} holds more than it deserves, but {why}")
    return able or listed(refusals) or "no other queue holds more than it deserves"
