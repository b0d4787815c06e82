"""Which units the rules on victims allow to be evicted for a claimant, all counted together. Evicts nothing.

At most _MOST_ASKED rounds, each of which asks every rule once about all units.
"""

from collections.abc import Hashable, Sequence
from operator import is_

from maniple.model.job import Job
from maniple.scheduler.eviction.units import Unit
from maniple.scheduler.framework.hooks import Victim, VictimRule
from maniple.scheduler.framework.session import Session

_MOST_ASKED = 16  # rounds; units that are still in doubt then stay


def allowed_units(session: Session, claimant: Job, units: Sequence[Unit], rules: Sequence[VictimRule]) -> list[Unit]:
    """Returns the units of which every rule allows every pod, counting the units before it.

    Rules count: a queue can spare a certain amount. A unit that one rule allows and another refuses must not use up
    that amount: the first such unit is removed, with those of its kind behind it, and the rules are asked again.
    """

    def kind_of(unit: Unit) -> Hashable:
        return session.demands.of_victims(unit.job, unit.pods)

    asked = [lambda _, candidates: within_budgets(session, candidates), *rules]
    pool = list(units)
    allowed: list[Unit] = []
    for _ in range(_MOST_ASKED):
        allowed, spoiler = _ask(claimant, pool, asked)
        if spoiler is None:
            break
        kind = kind_of(pool[spoiler])
        pool = [unit for number, unit in enumerate(pool) if number < spoiler or kind_of(unit) != kind]
    return allowed


def _ask(claimant: Job, pool: Sequence[Unit], rules: Sequence[VictimRule]) -> tuple[list[Unit], int | None]:
    """Returns the units that all rules allow, and the number of the first refused unit that may block another."""
    unit_of = {Victim(unit.job, pod): number for number, unit in enumerate(pool) for pod in unit.pods}
    left: Sequence[Victim] = list(unit_of)
    all_refused: set[int] = set()
    suspects: set[int] = set()
    for rule in rules:
        allowed = _candidates_in(rule(claimant, left), left)
        if len(allowed) < len(left):
            refused = {unit_of[victim] for victim in set(left).difference(allowed)}
            all_refused |= refused
            # A unit that this rule allows, and another refuses, used up what this rule refused to a unit behind it.
            suspects.update(number for number in map(unit_of.__getitem__, allowed) if number < max(refused))
        left = allowed
    spoilers = suspects & all_refused
    return [unit for number, unit in enumerate(pool) if number not in all_refused], min(spoilers, default=None)


def _candidates_in(answer: Sequence[Victim], candidates: Sequence[Victim]) -> Sequence[Victim]:
    """Returns the candidates that a rule's answer names. The rule may be a plugin's: nothing else may be evicted."""
    if len(answer) == len(candidates) and all(map(is_, answer, candidates)):  # the common case: all of them
        return candidates
    named = set(answer)
    for stranger in named.difference(candidates):
        raise TypeError(f"a victim rule returned {stranger!r}, which is not one of the candidates that it was given")
    return [victim for victim in candidates if victim in named]


def within_budgets(session: Session, candidates: Sequence[Victim]) -> Sequence[Victim]:
    """Returns the candidates that break no PodDisruptionBudget, counting this cycle's victims and those before."""
    cover = session.budget_cover
    if not cover.budgets:
        return candidates
    used = cover.count((done.pod.pod, done.pod.labels) for done in session.evicted)
    left = [budget.allowed - number for budget, number in zip(cover.budgets, used, strict=True)]
    allowed = []
    for victim in candidates:
        covering = cover.of(victim.pod.pod, victim.pod.labels)
        if all(left[number] > 0 for number in covering):
            for number in covering:
                left[number] -= 1
            allowed.append(victim)
    return allowed
