"""What an action is. Mechanism lives in actions, policy in plugins.

Other modules must ask what an action does (its abilities), never for its name: it may be registered under any name.
"""

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from maniple.scheduler.framework.session import Session


class Ability(StrEnum):
    """What an action does for waiting jobs."""

    ALLOCATE = "allocate"  # gives free resources to jobs in line
    SHRINK = "shrink"  # evicts surplus for a blocked gang
    RECLAIM = "reclaim"  # evicts what other queues hold above their due
    PREEMPT = "preempt"  # evicts lower priorities of the same queue
    CONSOLIDATE = "consolidate"  # moves pods to places elsewhere to mend fragmentation
    BACKFILL = "backfill"  # gives what is left to best-effort pods and to jobs put aside, and reserved room
    RELEASE = "release"  # evicts gangs that stay below their minimum
    GROW = "grow"  # raises sizes without taking the room, so it must be the last action


class Action(Protocol):
    """A step of the cycle that helps waiting jobs. It must change a session through statements only.

    The class attribute `abilities` says what it does; an action without it has none.
    """

    def execute(self, session: "Session") -> None: ...


def abilities_of(action: Action) -> frozenset[Ability]:
    abilities: frozenset[Ability] = getattr(action, "abilities", frozenset())
    return abilities


def is_last_with(session: "Session", abilities: frozenset[Ability]) -> bool:
    """Whether the running action is the last of the policy with one of the abilities."""
    able = [name for name, own in zip(session.actions, session.abilities, strict=True) if own & abilities]
    return able[-1:] == [session.action]
