"""What all workloads have in common: sets of like pods from a template, and the gang that these form."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, ClassVar

from msgspec import Meta
from msgspec.structs import replace

from maniple.api.errors import Problem
from maniple.api.meta import ObjectMeta, Struct
from maniple.api.types import PodGroup, PodGroupRole, PodGroupSpec, PodTemplate

Replicas = Annotated[int, Meta(ge=0, le=100_000)]
Size = Annotated[int, Meta(ge=1, le=100_000)]


class Lenient(Struct, frozen=True):
    """A part of a workload outside of its pod templates. Only fields that decide about pods are declared.

    Other fields are skipped, unless they look like a declared one that is misspelt.
    """


class Closed(Lenient, frozen=True):
    """The same, but all of its fields are declared: any other is an error."""


class PodSet(Struct, frozen=True):
    """Pods of a workload that are made from one template."""

    prefix: str  # pods are named <prefix>-<index>
    count: int
    template: PodTemplate
    path: str  # of the template
    labels: Mapping[str, str] = {}  # that the controller adds
    known_by: tuple[str, ...] = ()  # which of them tell the set's existing pods from the workload's others
    role: str = ""  # in the gang
    first: int = 0  # the first index
    priority_class_name: str = ""  # of pods whose template names none
    replaces_finished: bool = False  # whether the controller makes a new pod for one that has ended
    copies: int = 1  # how many such sets there are
    copy_label: str = ""  # the label that tells them apart; empty: there is one

    @property
    def total(self) -> int:
        return self.count * self.copies

    def each(self) -> Iterator["PodSet"]:
        """The copies, numbered, without those that have no pods."""
        if not self.copy_label:
            yield self
            return
        for number in range(self.copies if self.count else 0):
            labels = {**self.labels, self.copy_label: str(number)}
            known_by = (*self.known_by, self.copy_label)
            yield replace(self, prefix=f"{self.prefix}-{number}", labels=labels, known_by=known_by, copy_label="")


class Workload(Lenient, frozen=True, kw_only=True):
    """Something whose controller makes pods."""

    SETS: ClassVar[str] = "spec"  # where its sets of pods are

    metadata: ObjectMeta

    def wrong(self) -> Sequence[Problem]:
        """What is wrong beyond the types."""
        return ()

    def pod_sets(self) -> Sequence[PodSet]:
        """The pods that it should have now."""
        raise NotImplementedError

    def gang(self) -> PodGroup | None:
        """The PodGroup that its controller would make, unless the templates name one themselves."""
        return None

    def why_none(self) -> str:
        """Why it makes no pods now; empty if it may."""
        return ""

    def is_over(self) -> bool:
        """Whether it has ended and makes no pods any more."""
        return False

    def unread(self) -> Sequence[str]:
        """What is set, decides about pods, and has no counterpart here."""
        return ()

    def remarks(self) -> Sequence[str]:
        """What else somebody who plans it should know."""
        return ()

    def scheduler_name(self) -> str:
        """The scheduler of pods whose template names none."""
        return ""


def gang_of(
    meta: ObjectMeta, name: str, least: int, queue: str = "", priority: str = "", roles: Sequence[PodGroupRole] = ()
) -> PodGroup:
    """The PodGroup that a controller makes for its workload."""
    created = meta.creation_timestamp
    metadata = ObjectMeta(name=name, namespace=meta.namespace, uid=meta.uid, creation_timestamp=created)
    spec = PodGroupSpec(max(1, least), queue=queue, priority_class_name=priority, roles=tuple(roles))
    return PodGroup(metadata, spec)


def too_many(path: str, found: int, most: int) -> Problem:
    return Problem(path, f"expected at most {most}, the number of pods, found {found}")


def is_true(conditions: Sequence["WorkloadCondition"], *types: str) -> bool:
    return any(condition.type in types and condition.status == "True" for condition in conditions)


class WorkloadCondition(Lenient, frozen=True):
    type: str = ""
    status: str = ""
