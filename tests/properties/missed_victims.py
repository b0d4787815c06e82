"""Victims that the plan missed: gangs that wait although other pods could go so that they start.

Every set of victims is tried with every place of the gang's pods. That is for tiny clusters: one gang waits, and all
pods that run have a lower priority in its queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, islice, product

from properties.cluster_facts import Facts, Node, Pod, read_facts
from properties.kubernetes_rules import Site, objections_between, objections_of_company, objections_of_node
from properties.raw_objects import Object, rows
from properties.referee import excess
from properties.replay_rounds import State, read_round, read_state, sites


def missed_victims(objects: list[Object], plan: Object) -> list[str]:
    """The first set of victims with which the gang could have started, if it waits after the first round."""
    facts = read_facts(objects)
    state = read_state(facts, objects)
    played = read_round(facts, state, rows(plan, "rounds")[0])
    if played.binds or played.nominations:
        return []
    gang = [state.pods[key] for key in sorted(state.pending)]
    return [
        f"{', '.join(pod.key for pod in gang)} wait; if {', '.join(gone) or 'nobody'} left, they could go to "
        f"{', '.join(node.name for node in nodes)}"
        for gone, nodes in islice(ways_to_start(facts, state, gang), 1)
    ]


def ways_to_start(facts: Facts, state: State, gang: list[Pod]) -> Iterator[tuple[list[str], tuple[Node, ...]]]:
    """Sets of victims and the nodes of the gang's pods, the smallest sets first."""
    running = sorted(state.where)
    open_to = [[node for node in facts.nodes.values() if not any(objections_of_node(facts, pod, node))] for pod in gang]
    for count in range(len(running) + 1):
        for gone in combinations(running, count):
            staying = [key for key in running if key not in gone]
            for nodes in product(*open_to):
                if can_start(facts, state, staying, list(zip(gang, nodes, strict=True))):
                    yield list(gone), nodes


def can_start(facts: Facts, state: State, staying: list[str], places: list[tuple[Pod, Node]]) -> bool:
    for node in {node.name: node for _, node in places}.values():
        here = [state.pods[key] for key in staying if state.where[key] == node.name]
        if any(excess(node, here, [pod for pod, where in places if where is node])):
            return False
    stays, comes = sites(facts, state, staying), [Site(pod, node) for pod, node in places]
    return not any(objections_between(facts, comes, stays)) and not any(
        objections_of_company(facts, comes, stays, [], [])
    )
