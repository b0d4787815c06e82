"""Bytes to documents: YAML or JSON; one object, a `List` or a stream. Each object becomes JSON, with its place.

YAML is converted to JSON here, so that decode.py is the only typed decoder. The YAML dialect is that of kubectl: no
timestamps, no sexagesimal numbers, no duplicate keys.
"""

import json
import math
import re
from collections.abc import Iterator

import msgspec
import yaml
from yaml.composer import Composer

from maniple.api.errors import InputError, shown
from maniple.api.repeated_keys import repeated_key

# Text without aliases and merges has at most a value for two bytes. With them it may have more; a bomb has billions.
_VALUES_PER_BYTE = 2
_FEW_VALUES = 100_000
_DEEPEST = 100
_BLANK = b"\xef\xbb\xbf \t\r\n"  # the byte order mark that Windows writes, and what JSON skips

if hasattr(yaml, "CSafeLoader"):

    class _Base(Composer, yaml.CSafeLoader):
        """Parses in C but composes in Python: deep nesting overflows the stack in C, and is an exception in Python."""

        def __init__(self, stream: bytes) -> None:
            yaml.CSafeLoader.__init__(self, stream)
            Composer.__init__(self)
else:
    _Base = yaml.SafeLoader  # type: ignore[misc, assignment]  # where PyYAML was built without libyaml


class _Loader(_Base):
    """The safe loader with kubectl's rules for scalars and keys."""

    yaml_implicit_resolvers = {
        first: [
            (tag, form) for tag, form in forms if not tag.endswith((":timestamp", ":int", ":float", ":merge", ":value"))
        ]
        for first, forms in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, stream: bytes) -> None:
        super().__init__(stream)
        self._merges_left = _FEW_VALUES + _VALUES_PER_BYTE * len(stream)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Merges the maps that `<<` names. The result may be merged into another map later."""
        seen: set[str] = set()
        merged: dict[object, _Entry] = {}
        own: dict[object, _Entry] = {}
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise _wrong(key, f"the key {key.value!r} stands twice in one map")
                seen.add(key.value)
            if key.tag == _MERGE:
                for source in self._merged_maps(value):
                    for entry in source.value:
                        merged.setdefault(_name(entry[0]), entry)  # of several maps, the first counts
            else:
                own[_name(key)] = (key, value)
        if merged:
            node.value = list((merged | own).values())
        elif len(own) < len(node.value):
            node.value = list(own.values())

    def _merged_maps(self, value: yaml.Node) -> Iterator[yaml.MappingNode]:
        """The maps that a `<<` names, merged themselves. Their entries are counted: a bomb merges maps of maps."""
        for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
            if not isinstance(source, yaml.MappingNode):
                raise _wrong(source, "expected a map, or a list of maps, to merge")
            self.flatten_mapping(source)
            self._merges_left -= len(source.value)
            if self._merges_left < 0:
                raise _wrong(value, "the maps that << merges have too many entries together for a file of this size")
            yield source


_MERGE = "tag:yaml.org,2002:merge"
_Entry = tuple[yaml.Node, yaml.Node]


def _name(key: yaml.Node) -> object:
    return key.value if isinstance(key, yaml.ScalarNode) else key


def _wrong(node: yaml.Node, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"[-+]?(0|[1-9]\d*|0o?[0-7]+|0x[0-9a-fA-F]+)$", re.ASCII), list("-+0123456789")
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"([-+]?\d+\.\d*|[-+]?\.\d+|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$", re.ASCII),
    list("-+.0123456789"),
)
_Loader.add_implicit_resolver("tag:yaml.org,2002:merge", re.compile(r"<<$"), ["<"])


def _construct_int(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    text = loader.construct_scalar(node)
    if len(text) > 25:
        raise yaml.MarkedYAMLError(problem="a number of more than 25 digits", problem_mark=node.start_mark)
    digits = text.lstrip("+-")
    if digits[:1] != "0":
        return int(text)
    return int(text, 8 if digits.isdecimal() else 0)  # 0400, as file modes are written; 0x1F, 0o17


_Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)


class List(msgspec.Struct):
    """A `List` (or a `PodList`, …) with undecoded items."""

    api_version: str = msgspec.field(name="apiVersion", default="")
    kind: str = ""
    items: list[msgspec.Raw] | msgspec.UnsetType | None = msgspec.UNSET


_list_decoder = msgspec.json.Decoder(List)


class Document(msgspec.Struct):
    """One object as JSON. `kind` is the (apiVersion, kind) of its typed list, for items without their own."""

    where: str
    raw: bytes | msgspec.Raw
    kind: tuple[str, str] | None = None
    is_in_dump: bool = False  # whether it is an item of a list whose items an API server has written


def split(data: bytes, source: str) -> Iterator[Document]:
    """Every object in `data`, in order. Raises InputError if `data` is neither YAML nor JSON."""
    stripped = data.lstrip(_BLANK)
    if stripped[:1] in (b"{", b"["):
        try:
            opened = _open(stripped, source)
            yield from opened if repeated_key(stripped) is None else _refuse_repeated(list(opened), stripped, source)
            return
        except msgspec.DecodeError:
            pass  # a stream of JSON objects, or YAML in flow style
        documents = _json_stream(stripped)
        if documents is not None:
            for number, raw in enumerate(documents, start=1):
                where = f"{source}, document {number}"
                try:
                    opened = _open(raw, where)
                    yield from opened if repeated_key(raw) is None else _refuse_repeated(list(opened), raw, where)
                except msgspec.DecodeError as error:  # NaN, half a surrogate pair: Python's json accepts them
                    raise InputError([f"{where}: not valid JSON: {error}"]) from None
            return
    for number, value in enumerate(_yaml_documents(data, source), start=1):
        if value is not None:
            where = f"{source}, document {number}"
            try:
                raw = msgspec.json.encode(_plain(value, where, len(data)))
            except UnicodeEncodeError:  # half a surrogate pair: libyaml refuses it, Python's parser does not
                raise InputError([f"{where}: not valid UTF-8"]) from None
            yield from _open(raw, where)


def load_one(data: bytes, source: str) -> object:
    """The single YAML or JSON value in `data`, as plain Python. For configuration files."""
    if data.lstrip(_BLANK)[:1] == b"{":
        try:
            value = msgspec.json.decode(data.lstrip(_BLANK))
        except (ValueError, RecursionError):
            pass  # YAML in flow style, or neither
        else:
            check_keys(data.lstrip(_BLANK), source)
            return _plain(value, source, len(data))
    values = [_plain(value, source, len(data)) for value in _yaml_documents(data, source) if value is not None]
    if len(values) != 1:
        raise InputError([f"{source}: expected one YAML document, found {len(values)}"])
    return values[0]


def check_keys(text: bytes, where: str) -> None:
    """Raises InputError if a key stands twice in a map of this JSON. Decoders take the last and say nothing."""
    key = repeated_key(text)
    if key is not None:
        raise InputError([f"{where}: not valid JSON: the key {shown(key)} stands twice in one map"])


def _refuse_repeated(documents: list[Document], text: bytes, where: str) -> Iterator[Document]:
    """Raises InputError, which names the objects; or the list itself, if it has a key twice."""
    wrong: list[str] = []
    for document in documents:
        try:
            check_keys(bytes(document.raw), document.where)
        except InputError as error:
            wrong += error.messages
    if wrong:
        raise InputError(wrong)
    check_keys(text, where)
    return iter(documents)


def without_nulls(raw: bytes) -> bytes:
    """The same JSON without the map entries whose value is null, which Kubernetes reads as absent."""

    def strip(value: object) -> object:
        if isinstance(value, dict):
            return {key: strip(inner) for key, inner in value.items() if inner is not None}
        return [strip(inner) for inner in value] if isinstance(value, list) else value

    return msgspec.json.encode(strip(msgspec.json.decode(raw)))


def _open(raw: bytes | msgspec.Raw, where: str, kind: tuple[str, str] | None = None) -> Iterator[Document]:
    """`raw` itself, or the items of a list, also of nested lists."""
    try:
        listed = _list_decoder.decode(raw)
    except (msgspec.ValidationError, UnicodeDecodeError):
        yield Document(where, raw, kind)  # the typed decoder has a better message
        return
    except RecursionError:
        raise InputError([f"{where}: nested too deeply"]) from None
    if listed.items is msgspec.UNSET or not listed.kind.endswith("List"):
        yield Document(where, raw, kind)
        return
    item_kind = (listed.api_version, listed.kind[:-4]) if listed.kind != "List" else None
    items = listed.items or ()
    is_dump = any(b'"uid"' in bytes(item) for item in (*items[:5], *items[-5:]))
    for number, item in enumerate(items):
        item_where = f"{where}, items[{number}]"
        if item_kind is None and b"List" in bytes(item):
            yield from _open(item, item_where, item_kind)
        else:
            yield Document(item_where, item, item_kind, is_dump)


def _json_stream(data: bytes) -> list[bytes] | None:
    """JSON objects one after another (`kubectl … -o json` twice into one file), or None if it is not that."""
    try:
        text = data.decode()
        decoder, start, documents = json.JSONDecoder(), 0, []
        while start < len(text):
            _, end = decoder.raw_decode(text, start)
            documents.append(text[start:end].encode())
            start = end
            while start < len(text) and text[start].isspace():
                start += 1
    except (ValueError, RecursionError):
        return None
    return documents


def _yaml_documents(data: bytes, source: str) -> Iterator[object]:
    try:
        yield from yaml.load_all(data, Loader=_Loader)  # _Loader is a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" line {mark.line + 1}, column {mark.column + 1}:" if mark else ""
        raise InputError([f"{source}:{place} not valid YAML: {error.problem or error.context}"]) from None
    except (yaml.YAMLError, ValueError, TypeError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError([f"{source}: not valid YAML: {first}"]) from None
    except (LookupError, AttributeError):  # raised by PyYAML for `!!bool perhaps` and `!!timestamp soon`
        raise InputError([f"{source}: not valid YAML: a value does not have the form that its tag demands"]) from None
    except RecursionError:
        raise InputError([f"{source}: not valid YAML: nested too deeply"]) from None


def _plain(value: object, where: str, size: int) -> object:
    """`value`, read from `size` bytes, as JSON: string keys, no null entries, no NaN, no alias bomb."""
    budget = _FEW_VALUES + _VALUES_PER_BYTE * size

    def walk(value: object, depth: int) -> object:
        nonlocal budget
        budget -= 1
        if budget < 0 or depth > _DEEPEST:
            raise InputError([f"{where}: the document is too large or nested too deeply (an alias loop?)"])
        if isinstance(value, dict):
            entries: dict[str, object] = {}
            for key, inner in value.items():
                if isinstance(key, bool) or not isinstance(key, str | int | float):
                    raise InputError([f"{where}: the map key {key!r} is not a string; put it in quotes"])
                if inner is not None:
                    entries[str(key)] = walk(inner, depth + 1)
                elif key == "items" and "kind" in value:
                    entries[key] = []  # how Go writes an empty list
            return entries
        if isinstance(value, list):
            return [walk(inner, depth + 1) for inner in value]
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError([f"{where}: {value} is not a number Kubernetes knows"])
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**63:
            raise InputError([f"{where}: the number {value} does not fit into 64 bits"])
        if value is None or isinstance(value, str | int | float):
            return value
        raise InputError([f"{where}: a value of type {type(value).__name__} has no JSON form; put it in quotes"])

    return walk(value, 0)
