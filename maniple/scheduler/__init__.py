"""The decision: `schedule(snapshot, policy) -> Plan`. Pure: no network, no clock, no random number.

The same snapshot and policy give the same plan, byte for byte.
"""

from maniple.model.snapshot import Snapshot
from maniple.scheduler.framework.make_plan import make_plan
from maniple.scheduler.framework.plan import Plan
from maniple.scheduler.framework.policy import Policy, default_policy, load_policy

__all__ = ["Plan", "Policy", "default_policy", "load_policy", "schedule"]


def schedule(snapshot: Snapshot, policy: Policy | None = None, thorough: str = "") -> Plan:
    """One cycle: open a session, let the policy's actions run in their order, report.

    `thorough`: the name of a job whose wait is explained in full, whatever that costs.
    """
    policy = policy or default_policy()
    session = policy.session(snapshot)
    for _, action in policy.actions:
        action.execute(session)
    return make_plan(session, thorough)
