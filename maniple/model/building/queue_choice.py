"""The queue that a gang or a pod is in: the one that it names, else that of its namespace, else `default`."""

from collections.abc import Iterable, Mapping, Sequence

from maniple.api import kubernetes
from maniple.api.errors import Problem, nearest
from maniple.api.meta import ObjectMeta
from maniple.api.queue_names import queue_name, queue_name_problem, queue_path
from maniple.api.types import DEFAULT_QUEUE
from maniple.model.job import Queue

_NONE = ("", None)


class QueueChoice:
    """`wrong`: namespaces whose queue cannot be used, and why. What names no queue there waits."""

    def __init__(
        self, queues: Sequence[Queue], index: Mapping[str, int], namespaces: Iterable[kubernetes.Namespace]
    ) -> None:
        self._queues = queues
        self._index = index
        self._of_namespace: dict[str, int] = {}
        self.wrong: dict[str, str] = {}
        for namespace in namespaces:
            meta = namespace.metadata
            name, problem = queue_name(meta), queue_name_problem(meta)
            why = str(problem) if problem is not None else name and self._problem(queue_path(meta), name)
            if why:
                self.wrong[meta.name] = why
            elif name:
                self._of_namespace[meta.name] = index[name]

    def find(self, meta: ObjectMeta, own: str = "") -> tuple[int, str]:
        """The queue's index, and why it cannot be in the queue that it or its namespace names; empty if it can.

        `own`: the queue that its spec names.
        """
        name = own or queue_name(meta)
        if name:
            path = "spec.queue" if own else queue_path(meta)
            return self._index.get(name, self._default), self._problem(path, name)
        if why := self.wrong.get(meta.namespace):
            return self._default, f"its namespace {meta.namespace}: {why}"
        return self._of_namespace.get(meta.namespace, self._default), ""

    def has_choice(self, meta: ObjectMeta) -> bool:
        """Whether it or its namespace names a queue. Most pods have no choice, and need no check."""
        return bool(queue_name(meta)) or meta.namespace in self.wrong

    @property
    def _default(self) -> int:
        return self._index[DEFAULT_QUEUE]

    def _problem(self, path: str, name: str) -> str:
        index = self._index.get(name)
        if index is None:
            return f"{path}: unknown queue {name!r}{nearest(name, self._index)}"
        queue = self._queues[index]
        if queue.children:
            below = ", ".join(self._queues[child].name for child in queue.children)
            return f"{path}: queue {name!r} has queues below it; name one of those: {below}"
        return ""

    def disagreement(self, meta: ObjectMeta, queue: int, gang: str) -> str:
        """Why a pod that names a queue cannot be in a gang of this queue; empty if it can, or names none."""
        name = queue_name(meta)
        if not name or self._index.get(name) == queue:
            return ""
        return (
            f"{queue_path(meta)}: its {gang} is in queue {self._queues[queue].name!r}; "
            f"expected that queue or none, found {name!r}"
        )


def has_same_queue(before: kubernetes.Namespace | None, after: kubernetes.Namespace | None) -> bool:
    """Whether a namespace had and has the same queue, or none. None: there is no such namespace."""
    queues = [None if item is None else _named(item.metadata) for item in (before, after)]
    return (queues[0] or _NONE) == (queues[1] or _NONE)


def _named(meta: ObjectMeta) -> tuple[str, Problem | None]:
    return queue_name(meta), queue_name_problem(meta)
