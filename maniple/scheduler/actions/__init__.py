"""The actions by the name they have in a policy file. A new action is one file here and one line below."""

from typing import Protocol

from maniple.scheduler.actions.allocate import Allocate
from maniple.scheduler.actions.backfill import Backfill
from maniple.scheduler.actions.grow import Grow
from maniple.scheduler.actions.preempt import Preempt
from maniple.scheduler.actions.reclaim import Reclaim
from maniple.scheduler.actions.shrink import Shrink
from maniple.scheduler.framework.session import Session


class Action(Protocol):
    """Mechanism: one way of helping jobs that wait. Changes a session through statements only."""

    def execute(self, session: Session) -> None: ...


ACTIONS: dict[str, type[Action]] = {
    "allocate": Allocate,
    "shrink": Shrink,
    "reclaim": Reclaim,
    "preempt": Preempt,
    "backfill": Backfill,
    "grow": Grow,
}
