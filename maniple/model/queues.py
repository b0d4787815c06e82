"""Queue objects to the queue tree. Says all that is wrong with the tree at once: unknown parents, loops."""

from collections.abc import Mapping, Sequence

import numpy as np

from maniple.api import types
from maniple.api.errors import nearest
from maniple.api.meta import ObjectMeta
from maniple.model.job import Queue
from maniple.model.resources import Axis, amounts

_DEFAULT = types.Queue(metadata=ObjectMeta(name=types.DEFAULT_QUEUE))


def with_default(queues: Sequence[types.Queue]) -> list[types.Queue]:
    """The queues by name; the queue `default` exists whether somebody wrote it or not."""
    written = any(queue.metadata.name == types.DEFAULT_QUEUE for queue in queues)
    return sorted([*queues, *([] if written else [_DEFAULT])], key=lambda queue: queue.metadata.name)


def tree_problems(queues: Sequence[types.Queue]) -> list[tuple[types.Queue, str]]:
    by_name = {queue.metadata.name: queue for queue in queues}
    wrong = []
    for queue in queues:
        parent = queue.spec.parent
        if parent == types.DEFAULT_QUEUE:
            wrong.append((queue, "spec.parent: 'default' takes what names no queue, so no queue can be below it"))
            continue
        if parent and parent not in by_name:
            wrong.append((queue, f"spec.parent: unknown queue {parent!r}{nearest(parent, by_name)}"))
            continue
        path = [queue.metadata.name]
        while parent and parent in by_name:
            path.append(parent)
            if parent == queue.metadata.name:
                wrong.append((queue, f"spec.parent: the parents form a loop: {' -> '.join(path)}"))
                break
            if parent in path[:-1]:
                break  # a loop further up, reported at the queues that are in it
            parent = by_name[parent].spec.parent
    return wrong


def sound_queues(queues: Sequence[types.Queue]) -> tuple[list[types.Queue], dict[str, list[str]]]:
    """The queues, by name and with the default one, that make a tree; and what is wrong with the others.

    A queue below one that is left out is left out too: its share would be of nothing.
    """
    sound, wrong = with_default(queues), dict[str, list[str]]()
    while found := tree_problems(sound):
        for queue, text in found:
            parent = queue.spec.parent
            left_out = f"spec.parent: queue {parent!r} is left out, because something is wrong with it"
            wrong.setdefault(queue.metadata.name, []).append(left_out if parent in wrong else text)
        sound = with_default([queue for queue in sound if queue.metadata.name not in wrong])
    return sound, wrong


def build_queues(queues: Sequence[types.Queue], axis: Axis) -> tuple[list[Queue], Mapping[str, int]]:
    """Queues as values, ordered by name, and their index by name. The tree must be free of problems."""
    index = {queue.metadata.name: at for at, queue in enumerate(queues)}
    children: dict[str, list[int]] = {}
    for at, queue in enumerate(queues):
        children.setdefault(queue.spec.parent, []).append(at)
    made = [
        Queue(
            name=queue.metadata.name,
            index=at,
            parent=index.get(queue.spec.parent, -1),
            children=tuple(children.get(queue.metadata.name, ())),
            weight=float(queue.spec.weight),
            guaranteed=axis.vector(amounts(queue.spec.guaranteed)),
            limit=axis.vector(amounts(queue.spec.limit), missing=np.inf),
            reclaimable=queue.spec.reclaimable,
            priority=queue.spec.priority,
        )
        for at, queue in enumerate(queues)
    ]
    return made, index
