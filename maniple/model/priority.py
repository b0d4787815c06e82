"""Priorities of pods, from PriorityClasses."""

from collections.abc import Iterable

from maniple.api.errors import nearest
from maniple.api.kubernetes import Pod, PriorityClass
from maniple.api.meta import ObjectMeta

CRITICAL_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def is_critical(pod: Pod) -> bool:
    """Whether the cluster itself depends on the pod."""
    return pod.metadata.namespace == "kube-system" or pod.spec.priority_class_name in CRITICAL_CLASSES


class Priorities:
    """Values by name. Kubernetes' two system classes always exist. The global default applies if no class is named."""

    def __init__(self, classes: Iterable[PriorityClass]) -> None:
        self._values = dict(CRITICAL_CLASSES)
        self._never_preempt: set[str] = set()
        defaults = []
        self._has_classes = False
        for priority_class in classes:
            self._has_classes = True
            self._values[priority_class.metadata.name] = priority_class.value
            if priority_class.preemption_policy == "Never":
                self._never_preempt.add(priority_class.metadata.name)
            if priority_class.global_default:
                defaults.append(priority_class.value)
        self.default = min(defaults, default=0)

    def value(self, name: str) -> int | None:
        return self._values.get(name) if name else self.default

    def unknown(self, name: str) -> str:
        known = nearest(name, self._values) if self._has_classes else "; there are no PriorityClasses in the input"
        return f"unknown PriorityClass {name!r}{known}"

    def is_left_out(self, meta: ObjectMeta) -> bool:
        """Whether classes are not known, but exist: a cluster has some, and has accepted the object."""
        return bool(meta.uid) and not self._has_classes

    def never_preempts(self, pod: Pod) -> bool:
        return pod.spec.preemption_policy == "Never" or pod.spec.priority_class_name in self._never_preempt

    def of_pod(self, pod: Pod) -> int | None:
        """The number that API servers write into the pod, else its class's. None if the class is unknown."""
        if pod.spec.priority is not None:
            return pod.spec.priority
        value = self.value(pod.spec.priority_class_name)
        return self.default if value is None and self.is_left_out(pod.metadata) else value
