"""Whether any queue could give something to any other: one look at all running pods as columns, instead of a search for
each gang that waits. In a cluster that has come to rest the answer is mostly no.
"""

import numpy as np

from maniple.model.running_columns import running_columns
from maniple.scheduler.eviction.claim_outcome import parts_of_due
from maniple.scheduler.framework.due_rules import EPSILON
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.share_accounting import SpeedAccounting


def give_nothing(session: Session) -> bool:
    """Whether it is certain that no claim of a queue allows even one pod of another to go, as queues stand now.

    A claim that allows a gang would allow one of its pods alone, as far as the dues of queues go: with fewer pods gone
    the victim's queue keeps more. Guarantees, trees of queues and GPUs that count by speed are not looked at: then
    nothing is certain.
    """
    due, queues = session.due, session.snapshot.queues
    columns = running_columns(session.snapshot.running)
    if due is None or isinstance(due.accounting, SpeedAccounting) or due.guaranteed.any():
        return False
    if len(columns.jobs) < len(session.snapshot.running) or any(queue.parent >= 0 for queue in queues):
        return False
    if not columns.pods:
        return True
    held = due.accounting.queue_held
    of_pod = np.repeat(columns.queues, np.diff(columns.starts))
    left = held[of_pod] - columns.requests.T
    # STRICT: the victim's queue keeps its due of what the pod holds.
    touched = due.scarce[of_pod] & (columns.requests.T > 0)
    if (~(touched & (left < due.deserved[of_pod] - EPSILON)).any(axis=1)).any():
        return False
    # FAIRER: the poorest of both queues does not get poorer.
    before = parts_of_due(due, held, np.arange(len(queues))).min(axis=1)
    after = parts_of_due(due, left, of_pod).min(axis=1)
    return bool((after < np.minimum(before.min(), before[of_pod]) - EPSILON).all())
