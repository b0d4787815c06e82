"""Documents to typed objects, with errors that name file, document, object and field, and say what is expected.

Decoding is typed (only the fields that scheduling reads, about 100,000 pods a second). Unknown fields are found by a
second, even cheaper decode into a strict twin of the type, made here from the type itself; objects that carry a
`metadata.uid` skip it, because they come from an API server, which keeps only fields that it knows.
"""

import re
import types
import typing
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache, partial

import msgspec

from maniple.api import kubernetes
from maniple.api import types as ours
from maniple.api.compat import other_schedulers, upstream_podgroup
from maniple.api.decode import documents
from maniple.api.decode.field_errors import Mistake, every_mistake
from maniple.api.decode.known_fields import OTHER_FIELDS
from maniple.api.errors import InputError, Problem, nearest
from maniple.api.meta import Struct
from maniple.api.validate.ours import problems

Object = (
    kubernetes.Node
    | kubernetes.Pod
    | kubernetes.PriorityClass
    | kubernetes.PodDisruptionBudget
    | kubernetes.PersistentVolume
    | kubernetes.PersistentVolumeClaim
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
# Kinds that are read for their typing errors alone.
_CHECKED: dict[tuple[str, str], type[Struct]] = {
    (upstream_podgroup.API_VERSION, "Workload"): upstream_podgroup.Workload
}
CLUSTER_SCOPED = (
    kubernetes.Node,
    kubernetes.Namespace,
    kubernetes.PersistentVolume,
    kubernetes.PriorityClass,
    ours.Queue,
    ours.Topology,
)

# Kinds that a dump may hold and scheduling does not read; any other kind of these versions is a typing error.
_SKIPPED = {
    "v1": frozenset(
        {
            *("ConfigMap", "Secret", "Service", "ServiceAccount", "Endpoints", "Event", "LimitRange", "ResourceQuota"),
            *("ReplicationController", "PodTemplate", "ComponentStatus", "Binding"),
        }
    ),
    "scheduling.x-k8s.io/v1alpha1": frozenset({"ElasticQuota"}),
}
_OUR_GROUPS = {ours.GROUP}
_MOST_MESSAGES = 50

T = typing.TypeVar("T")


class _Identity(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""


class _Header(msgspec.Struct, frozen=True):
    api_version: str = msgspec.field(name="apiVersion", default="")
    kind: str = ""
    metadata: _Identity = _Identity()


@dataclass
class Decoded:
    """The objects of some input, in order, and notes about what was skipped or read differently."""

    objects: list[Object] = field(default_factory=list)
    where: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def decode(sources: Iterable[tuple[str, bytes]]) -> Decoded:
    """All objects of all (name, bytes) sources. InputError with every problem found if there is any."""
    decoded = Decoded()
    errors: list[str] = []
    skipped: dict[str, int] = {}
    for source, data in sources:
        try:
            for document in documents.split(data, source):
                _decode_one(document, decoded, errors, skipped)
        except InputError as error:
            errors.extend(error.messages)
    if errors:
        rest = len(errors) - _MOST_MESSAGES
        raise InputError(errors[:_MOST_MESSAGES] + ([f"… and {rest} more"] if rest > 0 else []))
    if skipped:
        counted = ", ".join(f"{count} {kind}" for kind, count in sorted(skipped.items()))
        decoded.notes.append(f"skipped, because scheduling does not read them: {counted}")
    return decoded


def _decode_one(document: documents.Document, decoded: Decoded, errors: list[str], skipped: dict[str, int]) -> None:
    where, raw = document.where, document.raw
    of = _peek(raw) or document.of  # an item may say what it is, whatever its list says
    if of is None:
        try:
            header = _decoder(_Header).decode(raw)
        except msgspec.ValidationError as error:
            # A list, a number, or metadata that is no map: say which, as for any other field.
            errors.append(f"{where}: {_explain(error, _Header).problem}")
            return
        except (ValueError, RecursionError) as error:  # DecodeError, UnicodeDecodeError
            errors.append(f"{where}: not valid JSON: {error}")
            return
        of = (header.api_version, header.kind)
    struct = KINDS.get(of) or _CHECKED.get(of)
    if struct is None:
        problem = _unknown_kind(*of)
        if problem:
            errors.append(f"{where}: {problem}")
        else:
            skipped[of[1]] = skipped.get(of[1], 0) + 1
        return
    try:
        found = typed(raw, struct)
    except FieldError as error:
        errors.extend(f"{where}: {of[1]} {_name(raw)}: {problem}" for problem in error.problems)
        return
    if of in _CHECKED:
        skipped[of[1]] = skipped.get(of[1], 0) + 1
        return
    if isinstance(found, other_schedulers.ForeignObject):
        what = f"{where}: {of[1]} {_name(raw)}"
        decoded.notes.extend(f"{what}: {name} has no counterpart here and is not read" for name in found.unread())
        found = found.ours()
    item = typing.cast(Object, found)
    wrong = problems(item)
    if wrong:
        errors.extend(f"{where}: {of[1]} {_name(raw)}: {problem}" for problem in wrong)
        return
    if not item.metadata.namespace and not isinstance(item, CLUSTER_SCOPED):
        metadata = msgspec.structs.replace(item.metadata, namespace="default")
        item = msgspec.structs.replace(item, metadata=metadata)
    decoded.objects.append(item)
    decoded.where.append(where)


# How the API server and kubectl begin an object: most need no decoding just to learn what they are.
_BEGINNING = re.compile(rb'\{\s*"apiVersion"\s*:\s*"([\w./-]+)"\s*,\s*"kind"\s*:\s*"(\w+)"')


def _peek(raw: bytes | msgspec.Raw) -> tuple[str, str] | None:
    match = _BEGINNING.match(bytes(memoryview(raw)[:200]))
    return (match[1].decode(), match[2].decode()) if match else None


def _name(raw: bytes | msgspec.Raw) -> str:
    """Namespace and name of an object that may have much else wrong with it."""
    identity = _identity(raw)
    return f"{identity.namespace}/{identity.name}" if identity.namespace else identity.name or "(no name)"


def _identity(raw: bytes | msgspec.Raw) -> _Identity:
    try:
        return typing.cast(_Header, _decoder(_Header).decode(raw)).metadata
    except (ValueError, RecursionError):
        return _Identity()


class FieldError(Exception):
    """An object that is not of its type: all that is wrong with it."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems


def typed(raw: bytes | msgspec.Raw, struct: type[Struct], *, strictly: bool = True, may_strip: bool = True) -> Struct:
    """One object; FieldError if it is none of this type, or strictly, if it has a field that the type has not."""
    try:
        return _read(raw, struct, strictly=strictly)
    except (ValueError, RecursionError) as error:  # DecodeError, UnicodeDecodeError
        text = bytes(raw)
        if may_strip and b"null" in text and isinstance(error, msgspec.ValidationError):
            try:
                text = documents.without_nulls(text)
            except (ValueError, RecursionError) as worse:
                raise FieldError([_explain(worse, struct).problem]) from None
            return typed(text, struct, strictly=strictly, may_strip=False)
        may_be_strict = strictly and (struct not in (kubernetes.Pod, kubernetes.Node) or not _identity(text).uid)
        decoders = (_decoder(struct), *([_decoder(_strict(struct))] if may_be_strict else []))
        readers = [partial(_first_mistake, struct, decoder) for decoder in decoders]
        raise FieldError(every_mistake(text, _explain(error, struct), *readers)) from None


def _first_mistake(struct: type[Struct], decoder: msgspec.json.Decoder[Struct], text: bytes) -> Mistake | None:
    try:
        decoder.decode(text)
    except (ValueError, RecursionError) as error:
        return _explain(error, struct)
    return None


def _read(raw: bytes | msgspec.Raw, struct: type[Struct], *, strictly: bool) -> Struct:
    found = typing.cast(Struct, _decoder(struct).decode(raw))
    # Only pods and nodes are many; where there are few, a second look at all of them costs nothing.
    if strictly and (struct not in (kubernetes.Pod, kubernetes.Node) or not typing.cast(Object, found).metadata.uid):
        _decoder(_strict(struct)).decode(raw)
    return found


def _unknown_kind(api_version: str, kind: str) -> str | None:
    """What is wrong with this kind, or None if it is somebody else's and may be skipped."""
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
    group = _group(api_version)
    known = {name for version, name in KINDS if version == api_version}
    versions = sorted({version for version, name in KINDS if name == kind})
    # An old PodDisruptionBudget (policy/v1beta1) is no stranger: to skip it would be to break it.
    if known or group in _OUR_GROUPS or any(_group(version) == group for version in versions):
        hint = f"; {kind} is known as {', '.join(versions)}" if versions else nearest(kind, known)
        return f"kind {kind!r} of {api_version} is not known{hint}"
    return None


def _group(api_version: str) -> str:
    """`apps` of apps/v1; nothing of v1, the core's."""
    return api_version.rpartition("/")[0]


@cache
def _decoder(struct: type[T]) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(struct)


@cache
def _strict(struct: type[Struct]) -> type[Struct]:
    """`struct` with its leaves left undecoded, Kubernetes' other fields allowed, and any further one an error."""
    fields: list[tuple[str, object, object]] = []
    renamed: dict[str, str] = {}
    for info in msgspec.structs.fields(struct):
        fields.append((info.name, _twin(info.type), msgspec.UNSET))
        renamed[info.name] = info.encode_name
    others = set(OTHER_FIELDS.get(struct.__name__, ()))
    if struct in KINDS.values() or struct in _CHECKED.values():
        others |= {"apiVersion", "kind"}
    for number, name in enumerate(sorted(others - set(renamed.values()))):
        fields.append((f"other_{number}", msgspec.Raw, msgspec.UNSET))
        renamed[f"other_{number}"] = name
    made = msgspec.defstruct(
        struct.__name__,
        typing.cast(
            typing.Any,
            [(name, kind | msgspec.UnsetType, default) for name, kind, default in fields],
        ),
        rename=renamed,
        forbid_unknown_fields=True,
        gc=False,
    )
    return typing.cast(type[Struct], made)


def _twin(kind: typing.Any) -> typing.Any:
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        return _twin(typing.get_args(kind)[0])
    if origin is tuple:
        inner = _twin(typing.get_args(kind)[0])
        return msgspec.Raw if inner is msgspec.Raw else list[inner]  # type: ignore[valid-type]  # made at run time
    if origin in (types.UnionType, typing.Union):
        structs = [arg for arg in typing.get_args(kind) if isinstance(arg, type) and issubclass(arg, msgspec.Struct)]
        return _strict(structs[0]) if structs else msgspec.Raw
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _strict(kind)
    return msgspec.Raw


_AT = re.compile(r"^(?P<said>.*?)(?: - at `(?P<path>[^`]*)`)?$", re.DOTALL)
_MISSING = re.compile(r"^Object missing required field `([^`]*)`$")
_UNKNOWN = re.compile(r"^Object contains unknown field `([^`]*)`$", re.DOTALL)
_NOT_AMONG = re.compile(r"^Invalid enum value (.*)$", re.DOTALL)
_SAYINGS = {
    "Invalid RFC3339 encoded datetime": "expected a time such as 2026-01-31T12:00:00Z",
    "Integer value out of range": "expected a whole number of at most 64 bits",
    "Number out of range": "expected a number of at most 64 bits",
}
_WORDS = {
    "int": "a whole number",
    "str": "a string",
    "bool": "true or false",
    "float": "a number",
    "object": "a map",
    "array": "a list",
    "null": "null",
    "datetime": "a time such as 2026-01-31T12:00:00Z",
}
_TYPES = re.compile(r"`([a-z]+(?: \| [a-z]+)*)`")


def _explain(error: Exception, struct: type[msgspec.Struct]) -> Mistake:
    """msgspec's message in our words, with the path as the user would write it."""
    if isinstance(error, RecursionError):
        return _mistake("", "nested too deeply")
    if isinstance(error, UnicodeDecodeError):
        return _mistake("", "not valid UTF-8")
    match = _AT.match(str(error))
    said, path = (match["said"], match["path"] or "") if match else (str(error), "")
    place = path.removeprefix("$").removeprefix(".")
    if missing := _MISSING.match(said):
        field = _join(place, missing[1])
        return Mistake(Problem(field, "is required"), field, is_missing=True)
    if unknown := _UNKNOWN.match(said):
        shown = unknown[1] if len(unknown[1]) <= 80 else unknown[1][:77] + "…"
        known = _names_at(struct, place)
        problem = Problem(place, f"unknown field {shown!r}{nearest(unknown[1][:80], known)}")
        return Mistake(problem, _join(place, unknown[1]), is_missing=False)
    if wrong := _NOT_AMONG.match(said):
        allowed = _literals(_type_at(struct, place))
        if allowed:
            return _mistake(place, f"expected {', '.join(allowed[:-1])} or {allowed[-1]}, found {wrong[1]}")
    said = _SAYINGS.get(said, said)
    said = _TYPES.sub(_in_words, said)
    said = said.replace("Expected ", "expected ").replace(" matching regex ", " matching ")
    return _mistake(place, said)


def _mistake(place: str, message: str) -> Mistake:
    return Mistake(Problem(place, message), place, is_missing=False)


def _in_words(types_: re.Match[str]) -> str:
    """`int | null`, as msgspec has it, in words. Nobody is told to write null."""
    names = types_[1].split(" | ")
    return " or ".join(_WORDS.get(name, name) for name in names if name != "null" or len(names) == 1)


def _join(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _names_at(struct: type[msgspec.Struct], place: str) -> set[str]:
    """The field names that are allowed at `place`, for suggestions."""
    at = _struct_in(_type_at(struct, place))
    if at is None:
        return set()
    return {info.encode_name for info in msgspec.structs.fields(at)} | set(OTHER_FIELDS.get(at.__name__, ()))


def _type_at(struct: type[msgspec.Struct], place: str) -> typing.Any:
    """The type of the field at `place`; None where there is none."""
    at: typing.Any = struct
    for token in [part for part in re.sub(r"\[[^\]]*\]", "", place).split(".") if part]:
        owner = _struct_in(at)
        if owner is None:
            return None
        at = {info.encode_name: info.type for info in msgspec.structs.fields(owner)}.get(token)
    return at


def _literals(kind: typing.Any) -> list[str]:
    """The words that a field of this type may hold."""
    if typing.get_origin(kind) is typing.Literal:
        return [word for word in typing.get_args(kind) if word]
    return [word for arg in typing.get_args(kind) for word in _literals(arg)]


def _struct_in(kind: typing.Any) -> type[msgspec.Struct] | None:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    for arg in typing.get_args(kind):
        found = _struct_in(arg)
        if found is not None:
            return found
    return None
