"""The scheduler: `schedule(snapshot, policy) -> Plan`. Pure: it must never use the network, a clock or random numbers.

The same snapshot and policy give the same plan, byte for byte.
"""

from maniple.model.paused_gc import paused_gc
from maniple.model.snapshot import Snapshot
from maniple.scheduler.framework.make_plan import make_plan
from maniple.scheduler.framework.plan import Plan
from maniple.scheduler.framework.policy import Policy, default_policy, load_policy

__all__ = ["Plan", "Policy", "default_policy", "load_policy", "schedule"]


def schedule(snapshot: Snapshot, policy: Policy | None = None) -> Plan:
    """Runs one cycle: opens a session, runs the policy's actions in order, and makes the plan.

    It explains nothing: `plan.waiting` does, and `plan.explanations.of` for one gang.
    """
    policy = policy or default_policy()
    with paused_gc():
        session = policy.session(snapshot)
        for name, action in policy.actions:
            session.action = name
            action.execute(session)
        return make_plan(session)
