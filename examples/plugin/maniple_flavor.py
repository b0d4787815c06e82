"""flavor: a pod with the label example.com/flavor goes to nodes with the same label and value, other pods anywhere.

| argument | default | |
| label | example.com/flavor | of pods and nodes |
"""

import numpy as np

from maniple.model.job import TaskGroup
from maniple.model.plugin_reads import Reads
from maniple.scheduler.framework.hooks import Check, Hooks, nothing_else
from maniple.scheduler.framework.plugin_arguments import Arguments
from maniple.scheduler.framework.session import Session


class Flavor:
    def __init__(self, arguments: Arguments) -> None:
        self.label = arguments.word("label", "example.com/flavor")
        self.reads = Reads(pod_labels=(self.label,))  # groups of waiting pods carry these labels and no others

    def open(self, session: Session) -> Hooks:
        nodes = session.snapshot.nodes

        def predicate(group: TaskGroup) -> list[Check]:
            flavor = group.labels.get(self.label)
            passes = np.ones(len(nodes), dtype=bool) if flavor is None else nodes.labelled(self.label, flavor)
            return [Check(f"node is not of flavor {flavor}", passes)]

        # It looks at nothing but the label that it declares to read.
        return Hooks(predicate=predicate, group_kind=nothing_else)
