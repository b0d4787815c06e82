"""Errors of msgspec in our words: which field of which struct, and what is expected there."""

import re
import typing

import msgspec

from maniple.api import timestamps
from maniple.api.decode.known_fields import OTHER_FIELDS
from maniple.api.decode.known_values import OTHER_VALUES
from maniple.api.decode.wrong_fields import FieldProblem
from maniple.api.errors import Problem, nearest

_MESSAGE = re.compile(r"^(?P<text>.*?)(?: - at `(?P<path>[^`]*)`)?$", re.DOTALL)
_MISSING = re.compile(r"^Object missing required field `([^`]*)`$")
_UNKNOWN = re.compile(r"^Object contains unknown field `([^`]*)`$", re.DOTALL)
_INVALID_ENUM = re.compile(r"^Invalid enum value (.*)$", re.DOTALL)
# Words of others for fields of ours.
_OTHER_WORDS = {"preemptible": "preemptable", "protectSeconds": "minRuntimeSeconds"}
_MESSAGES = {
    "Invalid RFC3339 encoded datetime": f"expected {timestamps.EXAMPLE}",
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
    "datetime": timestamps.EXAMPLE,
}
_TYPES = re.compile(r"`([a-z]+(?: \| [a-z]+)*)`")


def explain(error: Exception, struct: type[msgspec.Struct]) -> FieldProblem:
    """msgspec's message in our words, with the path as users write it."""
    if isinstance(error, RecursionError):
        return _problem_at("", "nested too deeply")
    if isinstance(error, UnicodeDecodeError):
        return _problem_at("", "not valid UTF-8")
    match = _MESSAGE.match(str(error))
    text, path = (match["text"], match["path"] or "") if match else (str(error), "")
    path = path.removeprefix("$").removeprefix(".")
    if missing := _MISSING.match(text):
        field = _join(path, missing[1])
        return FieldProblem(Problem(field, "is required"), field, is_missing=True)
    if unknown := _UNKNOWN.match(text):
        shown = unknown[1] if len(unknown[1]) <= 80 else unknown[1][:77] + "…"
        known = _names_at(struct, path)
        meant = _OTHER_WORDS.get(unknown[1], "")
        hint = f"; did you mean {meant!r}?" if meant in known else nearest(unknown[1][:80], known)
        problem = Problem(path, f"unknown field {shown!r}{hint}")
        return FieldProblem(problem, _join(path, unknown[1]), is_missing=False)
    if invalid := _INVALID_ENUM.match(text):
        allowed = _literals(_type_at(struct, path))
        if allowed:
            return _problem_at(path, f"expected {', '.join(allowed[:-1])} or {allowed[-1]}, found {invalid[1]}")
    text = _TYPES.sub(_in_words, _MESSAGES.get(text, text))
    return _problem_at(path, text.replace("Expected ", "expected ").replace(" matching regex ", " matching "))


def _problem_at(path: str, message: str) -> FieldProblem:
    return FieldProblem(Problem(path, message), path, is_missing=False)


def _in_words(match: re.Match[str]) -> str:
    """msgspec's `int | null` in words, without null: it is never a useful value."""
    names = match[1].split(" | ")
    return " or ".join(_WORDS.get(name, name) for name in names if name != "null" or len(names) == 1)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _names_at(struct: type[msgspec.Struct], path: str) -> set[str]:
    """The names of the fields that are allowed at `path`, for suggestions."""
    owner = _struct_in(_type_at(struct, path))
    if owner is None:
        return set()
    return {info.encode_name for info in msgspec.structs.fields(owner)} | set(OTHER_FIELDS.get(owner.__name__, ()))


def _type_at(struct: type[msgspec.Struct], path: str) -> typing.Any:
    """The type of the field at `path`; None if there is none."""
    kind: typing.Any = struct
    for name in [part for part in re.sub(r"\[[^\]]*\]", "", path).split(".") if part]:
        owner = _struct_in(kind)
        if owner is None:
            return None
        kinds = {info.encode_name: info.type for info in msgspec.structs.fields(owner)}
        kind = kinds.get(name) or OTHER_VALUES.get((owner.__name__, name))
    return kind


def _literals(kind: typing.Any) -> list[str]:
    """The values that a field of this type may have."""
    if typing.get_origin(kind) is typing.Literal:
        return [word for word in typing.get_args(kind) if word]
    return [word for arg in typing.get_args(kind) for word in _literals(arg)]


def _struct_in(kind: typing.Any) -> type[msgspec.Struct] | None:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    for arg in typing.get_args(kind):
        struct = _struct_in(arg)
        if struct is not None:
            return struct
    return None
