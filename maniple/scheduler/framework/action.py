"""What an action is. Mechanism lives in actions, policy in plugins.

Others ask what an action does, never what it is called: an action registered under another name counts like ours.
"""

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from maniple.scheduler.framework.session import Session


class Ability(StrEnum):
    """What an action does for jobs that wait."""

    ALLOCATE = "allocate"  # gives free room to jobs in line
    SHRINK = "shrink"  # takes surplus for a blocked gang
    RECLAIM = "reclaim"  # takes what other queues hold above their due
    PREEMPT = "preempt"  # takes what has a lower priority in the same queue
    BACKFILL = "backfill"  # gives what is left: to best-effort pods, to jobs put aside, and reserved room
    GROW = "grow"  # hands out room without taking it, so it must be the last action


class Action(Protocol):
    """One way of helping jobs that wait. Changes a session through statements only.

    An action says what it does in a class attribute `abilities`; one without it does nothing that others reckon with.
    """

    def execute(self, session: "Session") -> None: ...


def abilities_of(action: Action) -> frozenset[Ability]:
    abilities: frozenset[Ability] = getattr(action, "abilities", frozenset())
    return abilities
