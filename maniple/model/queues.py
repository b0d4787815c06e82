"""Builds the queue tree from Queue objects. Reports all problems of the tree at once: unknown parents, loops."""

from collections.abc import Mapping, Sequence

import numpy as np

from maniple.api import types
from maniple.api.errors import nearest
from maniple.api.meta import ObjectMeta
from maniple.model.job import Queue
from maniple.model.resources import Axis, amounts

_DEFAULT = types.Queue(metadata=ObjectMeta(name=types.DEFAULT_QUEUE))


def with_default(queues: Sequence[types.Queue]) -> list[types.Queue]:
    """The queues, sorted by name. The queue `default` is added if there is no such object."""
    has_default = any(queue.metadata.name == types.DEFAULT_QUEUE for queue in queues)
    return sorted([*queues, *([] if has_default else [_DEFAULT])], key=lambda queue: queue.metadata.name)


def tree_problems(queues: Sequence[types.Queue]) -> list[tuple[types.Queue, str]]:
    by_name = {queue.metadata.name: queue for queue in queues}
    problems = []
    for queue in queues:
        parent = queue.spec.parent
        if parent == types.DEFAULT_QUEUE:
            problems.append((queue, "spec.parent: 'default' is for pods that name no queue and has no child queues"))
            continue
        if parent and parent not in by_name:
            problems.append((queue, f"spec.parent: unknown queue {parent!r}{nearest(parent, by_name)}"))
            continue
        path = [queue.metadata.name]
        while parent and parent in by_name:
            path.append(parent)
            if parent == queue.metadata.name:
                problems.append((queue, f"spec.parent: the parents form a loop: {' -> '.join(path)}"))
                break
            if parent in path[:-1]:
                break  # a loop further up is reported for the queues in it
            parent = by_name[parent].spec.parent
    return problems


def sound_queues(queues: Sequence[types.Queue]) -> tuple[list[types.Queue], dict[str, list[str]]]:
    """The queues that form a tree, sorted by name and with `default`, and the problems of all other queues.

    A queue below one that is left out is left out too, because there is nothing that it could have a share of.
    """
    sound, wrong = with_default(queues), dict[str, list[str]]()
    while problems := tree_problems(sound):
        for queue, text in problems:
            parent = queue.spec.parent
            left_out = f"spec.parent: queue {parent!r} is left out, because something is wrong with it"
            wrong.setdefault(queue.metadata.name, []).append(left_out if parent in wrong else text)
        sound = with_default([queue for queue in sound if queue.metadata.name not in wrong])
    return sound, wrong


def build_queues(queues: Sequence[types.Queue], axis: Axis) -> tuple[list[Queue], Mapping[str, int]]:
    """The queues of the snapshot in the given order, and their index by name. The queues must form a tree."""
    index = {queue.metadata.name: number for number, queue in enumerate(queues)}
    children: dict[str, list[int]] = {}
    for number, queue in enumerate(queues):
        children.setdefault(queue.spec.parent, []).append(number)
    tree = [
        Queue(
            name=queue.metadata.name,
            index=number,
            parent=index.get(queue.spec.parent, -1),
            children=tuple(children.get(queue.metadata.name, ())),
            weight=float(queue.spec.weight),
            guaranteed=axis.vector(amounts(queue.spec.guaranteed)),
            limit=axis.vector(amounts(queue.spec.limit), missing=np.inf),
            reclaimable=queue.spec.reclaimable,
            priority=queue.spec.priority,
        )
        for number, queue in enumerate(queues)
    ]
    return tree, index
