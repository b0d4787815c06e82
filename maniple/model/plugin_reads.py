"""Which labels and annotations the plugins of a policy read, beside those that the model itself reads.

Snapshots carry only the declared keys, and pods that differ in one of them are never grouped together. An undeclared
key makes no difference to any decision.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property

_NOTHING: Mapping[str, str] = {}  # shared: there may be a hundred thousand pods


@dataclass(frozen=True)
class Reads:
    """Keys, sorted. Job keys are read from the PodGroup or ElasticJob, or from a pod without a gang."""

    pod_labels: tuple[str, ...] = ()
    pod_annotations: tuple[str, ...] = ()
    job_labels: tuple[str, ...] = ()
    job_annotations: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field in fields(self):
            if isinstance(getattr(self, field.name), str):
                raise TypeError(f"Reads.{field.name}: expected a tuple of keys, got one string")
            object.__setattr__(self, field.name, tuple(sorted(set(getattr(self, field.name)))))

    def __or__(self, other: "Reads") -> "Reads":
        return Reads(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))

    @cached_property
    def annotations(self) -> frozenset[str]:
        """Annotations of pods and jobs that must be kept."""
        return frozenset(self.pod_annotations + self.job_annotations)


def pick(keys: tuple[str, ...], written: Mapping[str, str]) -> Mapping[str, str]:
    """What is written under these keys."""
    return {key: written[key] for key in keys if key in written} if keys and written else _NOTHING


def nothing() -> Mapping[str, str]:
    return _NOTHING
