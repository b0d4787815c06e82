"""Documents to typed objects, with errors that name file, document, object and field, and say what is expected.

Only the fields that scheduling reads are decoded (about 100,000 pods a second). Unknown fields are found by a second,
cheaper decode into a strict twin of the type, which is made here from the type itself. Objects with a `metadata.uid`
skip it: they come from an API server, which keeps only fields that it knows.
"""

import difflib
import re
import types
import typing
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache, partial

import msgspec

from maniple.api import kubernetes
from maniple.api import types as ours
from maniple.api.compat import other_schedulers, upstream_podgroup
from maniple.api.decode import documents
from maniple.api.decode.known_fields import OTHER_FIELDS
from maniple.api.decode.known_values import OTHER_VALUES
from maniple.api.decode.msgspec_errors import explain
from maniple.api.decode.notes import Notes
from maniple.api.decode.set_aside import salvage
from maniple.api.decode.wrong_fields import FieldProblem, all_problems
from maniple.api.errors import InputError, Problem, nearest, shown
from maniple.api.keys import join_key
from maniple.api.meta import Struct
from maniple.api.validate.ours import problems
from maniple.api.validate.own_keys import own_key_notes
from maniple.api.validate.workloads import own_keys_on_workload, workload_problems
from maniple.api.workloads.common import Closed, Lenient, Workload
from maniple.api.workloads.kinds import WORKLOADS, misspelt_fields, near_kind

Object = (
    kubernetes.Node
    | kubernetes.Pod
    | kubernetes.PriorityClass
    | kubernetes.PodDisruptionBudget
    | kubernetes.PersistentVolume
    | kubernetes.PersistentVolumeClaim
    | kubernetes.StorageClass
    | kubernetes.CSINode
    | kubernetes.Namespace
    | ours.Queue
    | ours.PodGroup
    | ours.ElasticJob
    | ours.Topology
)

KINDS: dict[tuple[str, str], type[Struct]] = {
    ("v1", "Node"): kubernetes.Node,
    ("v1", "Pod"): kubernetes.Pod,
    ("v1", "Namespace"): kubernetes.Namespace,
    ("v1", "PersistentVolume"): kubernetes.PersistentVolume,
    ("v1", "PersistentVolumeClaim"): kubernetes.PersistentVolumeClaim,
    ("storage.k8s.io/v1", "StorageClass"): kubernetes.StorageClass,
    ("storage.k8s.io/v1", "CSINode"): kubernetes.CSINode,
    ("scheduling.k8s.io/v1", "PriorityClass"): kubernetes.PriorityClass,
    ("policy/v1", "PodDisruptionBudget"): kubernetes.PodDisruptionBudget,
    (ours.API_VERSION, "Queue"): ours.Queue,
    (ours.API_VERSION, "PodGroup"): ours.PodGroup,
    (ours.API_VERSION, "ElasticJob"): ours.ElasticJob,
    (ours.API_VERSION, "Topology"): ours.Topology,
    ("scheduling.incubator.k8s.io/v1alpha1", "PodGroup"): other_schedulers.KubeBatchPodGroup,
    ("scheduling.incubator.k8s.io/v1alpha1", "Queue"): other_schedulers.KubeBatchQueue,
    ("scheduling.sigs.dev/v1alpha2", "PodGroup"): other_schedulers.KubeBatchPodGroup,
    ("scheduling.sigs.dev/v1alpha2", "Queue"): other_schedulers.KubeBatchQueue,
    ("scheduling.volcano.sh/v1beta1", "PodGroup"): other_schedulers.VolcanoPodGroup,
    ("scheduling.volcano.sh/v1beta1", "Queue"): other_schedulers.VolcanoQueue,
    ("scheduling.x-k8s.io/v1alpha1", "PodGroup"): other_schedulers.CoschedulingPodGroup,
    (upstream_podgroup.API_VERSION, "PodGroup"): upstream_podgroup.UpstreamPodGroup,
}
# Kinds that are only checked for typing errors.
_CHECKED: dict[tuple[str, str], type[Struct]] = {
    (upstream_podgroup.API_VERSION, "Workload"): upstream_podgroup.Workload
}
CLUSTER_SCOPED = (
    kubernetes.Node,
    kubernetes.Namespace,
    kubernetes.PersistentVolume,
    kubernetes.StorageClass,
    kubernetes.CSINode,
    kubernetes.PriorityClass,
    ours.Queue,
    ours.Topology,
)

# Kinds that a dump may contain and scheduling does not read. Any other kind of these versions is a typing error.
_SKIPPED = {
    "v1": frozenset(
        {
            *("ConfigMap", "Secret", "Service", "ServiceAccount", "Endpoints", "Event", "LimitRange", "ResourceQuota"),
            *("ReplicationController", "PodTemplate", "ComponentStatus", "Binding"),
        }
    ),
    "scheduling.x-k8s.io/v1alpha1": frozenset({"ElasticQuota"}),
    "storage.k8s.io/v1": frozenset({"CSIDriver", "CSIStorageCapacity", "VolumeAttachment", "VolumeAttributesClass"}),
}
_MOST_KINDS = 50  # that a note names
_ONLY_OURS = ("ElasticJob",)  # kinds that no other system has
_OUR_NAME = ours.GROUP.partition(".")[0]  # no part of another system's group
_ALIKE = 0.8  # of two names of groups that differ by a typing error
_KUBELET_PODS = "110"  # a kubelet's default

T = typing.TypeVar("T")


class _Identity(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    generate_name: str = msgspec.field(name="generateName", default="")


class _Header(msgspec.Struct, frozen=True):
    api_version: str = msgspec.field(name="apiVersion", default="")
    kind: str = ""
    metadata: _Identity = _Identity()


class _LooseHeader(msgspec.Struct, frozen=True):
    metadata: typing.Any = None


@dataclass
class Decoded:
    """The objects of some input, in order, and notes about what was skipped or read differently."""

    objects: list[Object] = field(default_factory=list)
    where: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    workloads: list[tuple[Workload, str]] = field(default_factory=list)  # each with its place


def decode(sources: Iterable[tuple[str, bytes]], *, strict: bool = True) -> Decoded:
    """All objects of all (name, bytes) sources. Raises InputError with every problem.

    Unless `strict`, an object of a real cluster that is wrong is set aside, with a note.
    """
    decoded = Decoded()
    errors: list[str] = []
    skipped: Counter[str] = Counter()
    notes = Notes()
    for source, data in sources:
        try:
            for document in documents.split(data, source):
                wrong = _decode_one(document, decoded, skipped, notes)
                if wrong and (strict or not is_from_cluster(document)):
                    errors += [f"{wrong.what}: {problem}" for problem in wrong.problems]
                elif wrong:
                    _set_aside(document, wrong, decoded, notes)
        except InputError as error:
            errors.extend(error.messages)
    if errors:
        raise InputError(errors)
    decoded.notes += notes.lines()
    if skipped:
        kinds = [f"{count} {kind}" for kind, count in sorted(skipped.items())]
        rest = [f"and {len(kinds) - _MOST_KINDS} more kinds"] if len(kinds) > _MOST_KINDS else []
        counted = ", ".join(kinds[:_MOST_KINDS] + rest)
        decoded.notes.append(f"skipped, because scheduling does not read them: {counted}")
    return decoded


class _Wrong(typing.NamedTuple):
    what: str  # the object, with its place
    kind: str
    problems: list[str]


def _decode_one(document: documents.Document, decoded: Decoded, skipped: Counter[str], notes: Notes) -> _Wrong | None:
    """Adds the object to `decoded`, or returns what is wrong with it."""
    where, raw = document.where, document.raw
    kind = _peek(raw) or document.kind  # an item's own kind counts more than that of its list
    if kind is None:
        try:
            header = _decoder(_Header).decode(raw)
        except msgspec.ValidationError as error:
            return _Wrong(where, "", [str(explain(error, _Header).problem)])
        except (ValueError, RecursionError) as error:  # DecodeError, UnicodeDecodeError
            return _Wrong(where, "", [f"not valid JSON: {error}"])
        kind = (header.api_version, header.kind)
    if kind in WORKLOADS:
        return _decode_workload(document, kind, decoded, notes)
    struct = KINDS.get(kind) or _CHECKED.get(kind)
    if struct is None and (problem := _unknown_kind(*kind)):
        return _Wrong(where, kind[1], [problem])
    try:
        source = None if struct is None else typed(raw, struct)
    except FieldError as error:
        return _Wrong(f"{where}: {kind[1]} {_name(raw)}", kind[1], list(map(str, error.problems)))
    if source is None or kind in _CHECKED:
        # A kind of the same name in another group is read: the group says which is not.
        is_read_elsewhere = any(name == kind[1] for _, name in (*KINDS, *WORKLOADS))
        skipped[f"{kind[1]} ({kind[0]})" if is_read_elsewhere else kind[1]] += 1
        return None
    if isinstance(source, other_schedulers.ForeignObject):
        for name in source.unread():
            what = f"{where}: {kind[1]} {_name(raw)}"
            notes.add((kind[1], name), f"{what}: {name} has no counterpart here and is not read")
        if isinstance(source, other_schedulers.VolcanoQueue) and source.is_cluster:
            return None
        source = source.ours()
    item = typing.cast(Object, source)
    for note in own_key_notes(item):
        notes.add((kind[1], note), f"{where}: {kind[1]} {_name(raw)}: {note}")
    if wrong := problems(item):
        return _Wrong(f"{where}: {kind[1]} {_name(raw)}", kind[1], list(map(str, wrong)))
    if isinstance(item, kubernetes.Node) and "pods" not in (item.status.allocatable or item.status.capacity):
        item = _without_pods(item, where, notes)
    _add(item, where, decoded)
    return None


def _without_pods(node: kubernetes.Node, where: str, notes: Notes) -> kubernetes.Node:
    """A node of a cluster that does not say how many pods it takes takes none. In a person's file it is left out."""
    if node.metadata.uid:
        notes.add("no pods", f"{where}: Node {node.metadata.name}: takes no pods: status.allocatable has no pods")
        return node
    resources = {**(node.status.allocatable or node.status.capacity), "pods": _KUBELET_PODS}
    return msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, allocatable=resources))


def is_from_cluster(document: documents.Document) -> bool:
    """Whether an API server has written the object: only it knows a uid. Else a person has, who can correct it.

    An object of a dump whose metadata cannot be read is the server's too.
    """
    try:
        metadata = _decoder(_LooseHeader).decode(document.raw).metadata
    except (ValueError, RecursionError):
        return document.is_in_dump
    if isinstance(metadata, dict):
        is_odd = "uid" in metadata or not isinstance(metadata.get("name"), str)
        return bool(metadata.get("uid")) or (document.is_in_dump and is_odd)
    return document.is_in_dump


def _set_aside(document: documents.Document, wrong: _Wrong, decoded: Decoded, notes: Notes) -> None:
    rest, effect = salvage(bytes(document.raw), wrong.kind)
    notes.set_aside(wrong.what, wrong.kind, wrong.problems, effect)
    if rest is not None:
        _add(rest, document.where, decoded)


def _add(item: Object, where: str, decoded: Decoded) -> None:
    if not item.metadata.namespace and not isinstance(item, CLUSTER_SCOPED):
        metadata = msgspec.structs.replace(item.metadata, namespace="default")
        item = msgspec.structs.replace(item, metadata=metadata)
    decoded.objects.append(item)
    decoded.where.append(where)


def _decode_workload(
    document: documents.Document, kind: tuple[str, str], decoded: Decoded, notes: Notes
) -> _Wrong | None:
    """Adds a workload, whose pods are made later, or returns what is wrong with it."""
    raw, struct = document.raw, WORKLOADS[kind]
    what = f"{document.where}: {kind[1]} {_name(raw)}"
    try:
        item = typing.cast(Workload, typed(raw, struct))
    except FieldError as error:
        return _Wrong(what, kind[1], list(map(str, error.problems)))
    if not item.metadata.name and (made_from := _identity(raw).generate_name.rstrip("-.")):
        item = msgspec.structs.replace(item, metadata=msgspec.structs.replace(item.metadata, name=made_from))
    wrong = list(workload_problems(item))
    if not item.metadata.uid:
        try:
            wrong += misspelt_fields(msgspec.json.decode(raw), struct)
        except (ValueError, RecursionError) as error:  # in a part that the type does not read
            return _Wrong(what, kind[1], [str(explain(error, struct).problem)])
    if wrong:
        return _Wrong(what, kind[1], list(map(str, wrong)))
    for note in own_keys_on_workload(item.metadata):
        notes.add((kind[1], note), f"{what}: {note}")
    if not item.metadata.namespace:
        metadata = msgspec.structs.replace(item.metadata, namespace="default")
        item = msgspec.structs.replace(item, metadata=metadata)
    decoded.workloads.append((item, document.where))
    return None


# How the API server and kubectl begin an object. Most need no decoding to learn their kind.
_BEGINNING = re.compile(rb'\{\s*"apiVersion"\s*:\s*"([\w./-]+)"\s*,\s*"kind"\s*:\s*"(\w+)"')


def _peek(raw: bytes | msgspec.Raw) -> tuple[str, str] | None:
    match = _BEGINNING.match(bytes(memoryview(raw)[:200]))
    return (match[1].decode(), match[2].decode()) if match else None


def _name(raw: bytes | msgspec.Raw) -> str:
    """Namespace and name, for messages. The object may have other errors."""
    identity = _identity(raw)
    return join_key((identity.namespace, identity.name)) if identity.namespace else identity.name or "(no name)"


def _identity(raw: bytes | msgspec.Raw) -> _Identity:
    try:
        return typing.cast(_Header, _decoder(_Header).decode(raw)).metadata
    except (ValueError, RecursionError):
        return _Identity()


class FieldError(Exception):
    """An object that does not match its type, with all problems."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems


def typed(raw: bytes | msgspec.Raw, struct: type[Struct], *, strictly: bool = True, may_strip: bool = True) -> Struct:
    """One object. Raises FieldError if it does not match the type or, strictly, if it has unknown fields."""
    try:
        item = typing.cast(Object, _decoder(struct).decode(raw))
        if strictly and _may_be_strict(struct, item.metadata.uid):
            _decoder(_strict(struct)).decode(raw)
        return item
    except (ValueError, RecursionError) as error:  # DecodeError, UnicodeDecodeError
        text = bytes(raw)
        if may_strip and b"null" in text and isinstance(error, msgspec.ValidationError):
            try:
                text = documents.without_nulls(text)
            except (ValueError, RecursionError) as worse:
                raise FieldError([explain(worse, struct).problem]) from None
            return typed(text, struct, strictly=strictly, may_strip=False)
        structs = [struct, _strict(struct)] if strictly and _may_be_strict(struct, _identity(text).uid) else [struct]
        checks = [partial(_first_problem, struct, _decoder(each)) for each in structs]
        raise FieldError(all_problems(text, explain(error, struct), *checks)) from None


def _first_problem(struct: type[Struct], decoder: msgspec.json.Decoder[Struct], text: bytes) -> FieldProblem | None:
    try:
        decoder.decode(text)
    except (ValueError, RecursionError) as error:
        return explain(error, struct)
    return None


def _may_be_strict(struct: type[Struct], uid: str) -> bool:
    """There are many pods and nodes only. For other kinds the second decode costs nothing."""
    return not uid or (struct not in (kubernetes.Pod, kubernetes.Node) and not issubclass(struct, Workload))


def _unknown_kind(api_version: str, kind: str) -> str | None:
    """What is wrong with this kind. None if it belongs to another system and may be skipped."""
    if not kind:
        return "kind is missing; expected an object with apiVersion, kind and metadata"
    if not api_version:
        versions = sorted({version for version, name in KINDS if name == kind})
        hint = f"; expected {' or '.join(versions)}" if versions else nearest(kind, [name for _, name in KINDS])
        return f"apiVersion is missing for kind {kind}{hint}"
    if kind == "List" or (api_version, kind.removesuffix("List")) in KINDS:
        return "items: expected a list of objects"
    if kind in _SKIPPED.get(api_version, ()):
        return None
    if workload := near_kind(api_version, kind):
        return f"unknown kind {kind!r} of {api_version}; did you mean {workload!r}?"
    group = _group(api_version)
    if meant := _misspelt_group(group, kind):
        return f"apiVersion: {kind} is not known in the group {shown(group)}; did you mean {meant!r}?"
    known = {name for version, name in KINDS if version == api_version}
    versions = sorted({version for version, name in (*KINDS, *WORKLOADS) if name == kind})
    # An old version of a kind that matters, such as policy/v1beta1 PodDisruptionBudget, must not be skipped. Nor must a
    # group that cannot be another system's, such as apps/v1 Pod: their groups have a dot.
    is_kubernetes = bool(versions) and "." not in group
    if known or group == ours.GROUP or is_kubernetes or any(_group(version) == group for version in versions):
        hint = f"; {kind} is known as {', '.join(versions)}" if versions else nearest(kind, known)
        return f"unknown kind {kind!r} of {api_version}{hint}"
    return None


def _misspelt_group(group: str, kind: str) -> str | None:
    """The apiVersion that is probably meant: the same kind in a group whose name differs by a typing error."""
    kinds = (*KINDS, *WORKLOADS)
    groups = {_group(version): version for version, name in kinds if name == kind and _group(version)}
    if group in {_group(version) for version, _ in kinds} or not groups:
        return None
    if kind in _ONLY_OURS or (ours.GROUP in groups and _OUR_NAME in group.lower().split(".")):
        return ours.API_VERSION
    close = difflib.get_close_matches(group.lower(), groups, n=1, cutoff=_ALIKE)
    return groups[close[0]] if close else None


def _group(api_version: str) -> str:
    """`apps` of apps/v1; empty for v1, the core group."""
    return api_version.rpartition("/")[0]


@cache
def _decoder(struct: type[T]) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(struct)


@cache
def _strict(struct: type[Struct]) -> type[Struct]:
    """`struct` with undecoded leaves. Kubernetes' other fields are allowed, any further field is an error."""
    others = OTHER_FIELDS.get(struct.__name__, ())
    kinds = {name: OTHER_VALUES.get((struct.__name__, name), msgspec.Raw) for name in others}
    if struct in KINDS.values() or struct in _CHECKED.values():
        kinds |= {"apiVersion": msgspec.Raw, "kind": msgspec.Raw}
    kinds |= {info.encode_name: _twin(info.type) for info in msgspec.structs.fields(struct)}
    names = {f"field_{number}": name for number, name in enumerate(kinds)}
    fields: typing.Any = [(field, kinds[name] | msgspec.UnsetType, msgspec.UNSET) for field, name in names.items()]
    is_strict = not issubclass(struct, Lenient) or issubclass(struct, Closed)
    strict = msgspec.defstruct(struct.__name__, fields, rename=names, forbid_unknown_fields=is_strict, gc=False)
    return typing.cast(type[Struct], strict)


def _twin(kind: typing.Any) -> typing.Any:
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        return _twin(typing.get_args(kind)[0])
    if origin is tuple:
        inner = _twin(typing.get_args(kind)[0])
        return msgspec.Raw if inner is msgspec.Raw else list[inner]  # type: ignore[valid-type]  # made at run time
    if origin is dict:
        inner = _twin(typing.get_args(kind)[1])
        return msgspec.Raw if inner is msgspec.Raw else dict[str, inner]  # type: ignore[valid-type]  # made at run time
    if origin in (types.UnionType, typing.Union):
        structs = [arg for arg in typing.get_args(kind) if isinstance(arg, type) and issubclass(arg, msgspec.Struct)]
        return _strict(structs[0]) if structs else msgspec.Raw
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _strict(kind)
    return msgspec.Raw
