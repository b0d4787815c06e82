"""The attempts of a gang that takes from other queues, and perhaps from its own: one for each claim that it has."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from maniple.model.job import Job
from maniple.model.resources import BoolArray, FloatArray
from maniple.scheduler.actions.common.contend import Attempt
from maniple.scheduler.eviction.claim_outcome import Claim
from maniple.scheduler.eviction.queue_claims import QueueClaims
from maniple.scheduler.eviction.trial import ReasonOf
from maniple.scheduler.eviction.unit_table import UnitTable
from maniple.scheduler.framework.hooks import VictimRule

Mask = Callable[[UnitTable], BoolArray]


def claim_attempts(
    claims: QueueClaims,
    claimant: Job,
    reason_of: ReasonOf,
    rules: Sequence[VictimRule] = (),
    *,
    own: Mask | None = None,
    others: Mask | None = None,
    given_back: FloatArray | None = None,
    only_for_room: Callable[[UnitTable], BoolArray | None] = lambda _: None,
    is_last: bool = True,
) -> Iterator[Attempt]:
    """`own`: units of its own queue that it may take without a claim, which hold `given_back` together or less.

    `others`: units of other queues that it may claim, if not all of the table. `only_for_room`: see Terms.
    `is_last`: whether the claims that are a last resort come, too.
    """
    is_first = True
    for claim in claims.possible(claimant, given_back, is_last=is_last):
        if is_first and own is not None and claim != Claim.STRICT:
            yield Attempt(None, reason_of, own, rules)  # no due is touched if its own queue has enough
        is_first = False
        yield Attempt(
            claim,
            reason_of,
            partial(_offered, claims, claim, claimant, own, others),
            [*rules, claims.rule(claim)],
            partial(claims.distance, claimant),
            partial(claims.entitlement, claim, claimant),
            rules,
            only_for_room,
            partial(claims.reservations_below, claim),
            partial(claims.stand_ins, claim, claimant),
        )
    if is_first and own is not None:
        yield Attempt(None, reason_of, own, rules)


def _offered(
    claims: QueueClaims, claim: Claim, claimant: Job, own: Mask | None, others: Mask | None, table: UnitTable
) -> BoolArray:
    offered = claims.offered(claim, claimant, table)
    if others is not None:
        offered = offered & others(table)
    return offered if own is None else offered | own(table)
