"""Builds the queue tree from Queue objects. Reports all problems of the tree at once: unknown parents, loops."""

from collections.abc import Mapping, Sequence

import numpy as np

from maniple.api import types
from maniple.api.errors import nearest
from maniple.api.meta import ObjectMeta
from maniple.model.job import Queue
from maniple.model.pod_requests import amounts
from maniple.model.resources import Axis, FloatArray

MAX_LEVELS = 100  # of the tree; what a queue holds is counted in every queue above it
_IN_LOOP = -1
_MOST_NAMED = 20  # queues of a loop
_MOST_HINTS = 50  # problems for which the nearest name is looked for: that takes long if there are many queues
_DEFAULT = types.Queue(metadata=ObjectMeta(name=types.DEFAULT_QUEUE))


def with_default(queues: Sequence[types.Queue]) -> list[types.Queue]:
    """The queues, sorted by name. The queue `default` is added if there is no such object."""
    has_default = any(queue.metadata.name == types.DEFAULT_QUEUE for queue in queues)
    return sorted([*queues, *([] if has_default else [_DEFAULT])], key=lambda queue: queue.metadata.name)


def tree_problems(queues: Sequence[types.Queue]) -> list[tuple[types.Queue, str]]:
    by_name = {queue.metadata.name: queue for queue in queues}
    levels = _levels(by_name)
    problems = []
    for queue in queues:
        name, parent = queue.metadata.name, queue.spec.parent
        if parent == types.DEFAULT_QUEUE:
            problems.append((queue, "spec.parent: 'default' is for pods that name no queue and has no child queues"))
        elif parent and parent not in by_name:
            hint = nearest(parent, by_name) if len(problems) < _MOST_HINTS else ""
            problems.append((queue, f"spec.parent: unknown queue {parent!r}{hint}"))
        elif levels[name] == _IN_LOOP:
            problems.append((queue, f"spec.parent: the parents form a loop: {_loop(by_name, name)}"))
        elif levels[name] > MAX_LEVELS:
            expected = f"a parent at most {MAX_LEVELS - 1} levels deep"
            problems.append((queue, f"spec.parent: expected {expected}, found {parent!r} at level {levels[name] - 1}"))
    return problems


def _levels(by_name: Mapping[str, types.Queue]) -> dict[str, int]:
    """The level of each queue: 1 for a root, _IN_LOOP for those that form a loop, 1 below something wrong."""
    levels: dict[str, int] = {}
    for start in by_name:
        path: dict[str, int] = {}  # from this queue up, with the position of each
        name = start
        while name in by_name and name not in levels and name not in path:
            path[name] = len(path)
            name = by_name[name].spec.parent
        names = list(path)
        if name in path:
            levels.update(dict.fromkeys(names[path[name] :], _IN_LOOP))
            names = names[: path[name]]
        level = max(levels.get(name, 0), 0)
        for below in reversed(names):
            level += 1
            levels[below] = level
    return levels


def _loop(by_name: Mapping[str, types.Queue], first: str) -> str:
    """`a -> b -> a`, shortened if it is long."""
    names, name = [first], by_name[first].spec.parent
    while name != first and len(names) < _MOST_NAMED:
        names.append(name)
        name = by_name[name].spec.parent
    return " -> ".join([*names, *([] if name == first else ["…"]), first])


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


def _weights(spec: types.QueueSpec, axis: Axis) -> FloatArray:
    weights = np.full(len(axis), float(spec.weight))
    for name, weight in spec.weights.items():
        if name in axis.index:  # nobody has or asks for the others
            weights[axis.index[name]] = weight
    return weights


def build_queues(queues: Sequence[types.Queue], axis: Axis) -> tuple[list[Queue], Mapping[str, int]]:
    """The queues of the snapshot in the given order, and their index by name. The queues must form a tree."""
    index = {queue.metadata.name: number for number, queue in enumerate(queues)}
    by_name = {queue.metadata.name: queue for queue in queues}
    children: dict[str, list[int]] = {}
    for number, queue in enumerate(queues):
        children.setdefault(queue.spec.parent, []).append(number)
    tree = [
        Queue(
            name=queue.metadata.name,
            index=number,
            parent=index.get(queue.spec.parent, -1),
            children=tuple(children.get(queue.metadata.name, ())),
            weights=_weights(queue.spec, axis),
            guaranteed=axis.vector(amounts(queue.spec.guaranteed)),
            limit=axis.vector(amounts(queue.spec.limit), missing=np.inf),
            reclaimable=queue.spec.reclaimable,
            priority=queue.spec.priority,
            min_runtime_s=_min_runtime_s(queue, by_name),
        )
        for number, queue in enumerate(queues)
    ]
    return tree, index


def _min_runtime_s(queue: types.Queue, by_name: Mapping[str, types.Queue]) -> float:
    """That of the nearest queue that names one, from the queue upwards; 0 if none does."""
    above: types.Queue | None = queue
    for _ in range(MAX_LEVELS):
        if above is None:
            break
        if above.spec.min_runtime_seconds is not None:
            return float(above.spec.min_runtime_seconds)
        above = by_name.get(above.spec.parent)
    return 0.0
