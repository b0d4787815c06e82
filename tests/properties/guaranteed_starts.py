"""Gangs that may not be preempted start only within their queue's guarantee, and that of queues above that name one.

Their own queue's guarantee names every device (a resource with a `/` in its name) that they ask for.

What counts is the minimum of such a gang: its surplus is on loan. Where its pods differ, the least counts that any
minimum of them could hold, for every resource on its own. A gang that ran before the round may replace its pods.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from properties.cluster_facts import Facts, read_facts
from properties.deserved_shares import Tree
from properties.raw_objects import Object, Resources, add, rows
from properties.replay_rounds import Round, State, after, read_round, read_state
from properties.topology_verdicts import shown

Members = list[tuple[str, Resources]]  # role and requests of each pod


def beyond_guarantees(objects: list[Object], plan: Object) -> list[str]:
    """One sentence for each gang that starts, or is promised room, beyond what is guaranteed."""
    facts, tree = read_facts(objects), Tree(objects)
    state = read_state(facts, objects)
    sentences: list[str] = []
    for index, written in enumerate(rows(plan, "rounds"), 1):
        played = read_round(facts, state, written)
        sentences += [f"round {index}: {sentence}" for sentence in _started(facts, state, played, tree)]
        state = after(facts, state, played)
    return sentences


def _started(facts: Facts, state: State, played: Round, tree: Tree) -> Iterator[str]:
    ran = {state.pods[key].gang for key in state.staying()}
    members: dict[str, Members] = {}
    for key in state.staying(played.evicted):
        pod = state.pods[key]
        members.setdefault(pod.gang, []).append((pod.role, state.requests(facts, key)))
    starting: set[str] = set()
    for move in (*played.binds, *played.nominations):
        requests = move.pod.requests_at(move.node, move.gpus)
        members.setdefault(move.pod.gang, []).append((move.pod.role, requests))
        starting.add(move.pod.gang)
    firm = {key: pods for key, pods in members.items() if not facts.gang(key).is_preemptable}
    least = {key: least_minimum(facts, state, key, pods) for key, pods in firm.items()}
    held: dict[str, Resources] = {}
    for key, amounts in least.items():
        for queue in facts.queue_line(facts.gang(key).queue):
            add(held.setdefault(queue, {}), amounts)
    for key in sorted(starting & firm.keys() - ran):
        asked = {name for name, amount in least[key].items() if amount}
        if not asked:
            continue
        own, line = facts.gang(key).queue, facts.queue_line(facts.gang(key).queue)
        if not any(tree.guaranteed[own].get(name) for _, requests in firm[key] for name in requests):
            yield f"{key} starts, and queue {own} guarantees nothing of what it asks for"
        for name in sorted(asked):
            if "/" in name and not tree.guaranteed[own].get(name):
                yield f"{key} starts, and queue {own} guarantees no {name}"
        for queue in line:
            for name, written in sorted(tree.guaranteed[queue].items()):
                amount = max(written, with_children(tree, queue, name))
                if written and name in asked and held[queue][name] > amount:
                    yield (
                        f"{key} starts, and gangs that may not be preempted hold {shown(held[queue][name])} {name} "
                        f"in queue {queue}, which guarantees {shown(amount)}"
                    )


def with_children(tree: Tree, queue: str, name: str) -> Fraction:
    """What the queue's children are guaranteed together, or they say themselves."""
    own = tree.guaranteed[queue].get(name, Fraction(0))
    return max(own, sum((with_children(tree, child, name) for child in tree.children(queue)), Fraction(0)))


def least_minimum(facts: Facts, state: State, gang: str, pods: Members) -> Resources:
    """The least of each resource that a minimum of these pods could hold; of fewer pods, what all of them hold."""
    done = state.succeeded.get(gang, [])
    by_role = {role: max(0, least - done.count(role)) for role, least in facts.gang(gang).role_min.items()}
    size = max(facts.gang(gang).min_member - len(done), sum(by_role.values()))
    least: Resources = {}
    for name in {name for _, requests in pods for name in requests}:
        amounts = sorted((requests.get(name, Fraction(0)), role) for role, requests in pods)
        needed: list[Fraction] = []
        others: list[Fraction] = []
        wanted = dict(by_role)
        for amount, role in amounts:
            (needed if wanted.get(role, 0) else others).append(amount)
            wanted[role] = max(0, wanted.get(role, 0) - 1)
        least[name] = sum((needed + others)[: max(0, size)], Fraction(0))
    return least
