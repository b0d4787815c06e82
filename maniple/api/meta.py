"""The parts that all Kubernetes objects share, and the base of our structs."""

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

Labels = dict[str, str]
# Kubernetes writes quantities as strings, people also as numbers.
ResourceList = dict[str, str | int | float]
# Bounded as in Kubernetes: JSON allows numbers of any size.
Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Text = Annotated[str, Meta(min_length=1, max_length=253)]


class Struct(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Immutable, camelCase in JSON. `gc=False`: objects are trees, and there are a hundred thousand of them."""


class OwnerReference(Struct, frozen=True):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: Labels = {}
    annotations: Labels = {}
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    owner_references: tuple[OwnerReference, ...] = ()
    generation: int = 0


class LabelRequirement(Struct, frozen=True):
    """One `matchExpressions` entry: In, NotIn, Exists, DoesNotExist; in node selectors also Gt and Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(Struct, frozen=True):
    match_labels: Labels = {}
    match_expressions: tuple[LabelRequirement, ...] = ()
