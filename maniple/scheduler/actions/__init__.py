"""The built-in actions by their names in a policy file. A new one is one file here, an import and an entry below.

Actions of other packages are entry points of the group `maniple.actions`.
"""

from maniple.scheduler.actions.allocate import Allocate
from maniple.scheduler.actions.backfill import Backfill
from maniple.scheduler.actions.consolidate import Consolidate
from maniple.scheduler.actions.grow import Grow
from maniple.scheduler.actions.preempt import Preempt
from maniple.scheduler.actions.reclaim import Reclaim
from maniple.scheduler.actions.release import Release
from maniple.scheduler.actions.shrink import Shrink
from maniple.scheduler.framework.action import Action
from maniple.scheduler.framework.registry import Registry

ACTIONS: dict[str, type[Action]] = {
    "allocate": Allocate,
    "shrink": Shrink,
    "reclaim": Reclaim,
    "preempt": Preempt,
    "consolidate": Consolidate,
    "backfill": Backfill,
    "release": Release,
    "grow": Grow,
}
REGISTRY: Registry[Action] = Registry("action", "maniple.actions", ACTIONS)
