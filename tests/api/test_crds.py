"""The CRDs in deploy/crds are those of the types, and are what an API server accepts."""

import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from maniple.api import types
from maniple.api.crds import COLUMNS, KINDS, QUANTITY_PATTERN, Kind, Schema, crds
from maniple.api.kubernetes import PodSpec
from maniple.api.meta import ObjectMeta
from maniple.api.quantity import QuantityError, parse_quantity
from maniple.cli.commands.crds import files
from maniple.cli.main import group

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "crds"
CRDS: dict[str, Schema] = {crd["spec"]["names"]["kind"]: crd for crd in crds()}
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.type.__name__)

JOB = {"roles": [{"name": "worker", "min": 1, "max": 4, "template": {"spec": {}}}], "elastic": {}}
SMALLEST: dict[str, dict[str, Any]] = {
    "Queue": {},
    "PodGroup": {},
    "ElasticJob": {"spec": JOB},
    "Topology": {"spec": {"levels": [{"name": "rack", "nodeLabel": "example.com/rack"}]}},
}


def schema_of(name: str) -> Schema:
    schema: Schema = CRDS[name]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def nodes(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        yield from nodes(schema["additionalProperties"], f"{path}{{}}")


def schema_at(name: str, path: str) -> Schema:
    return dict(nodes(schema_of(name)))[path]


def fill(schema: Schema, value: Any) -> Any:
    """What the API server makes of `value`: defaults from the outside in."""
    if isinstance(value, dict) and "properties" in schema:
        value = dict(value)
        for name, child in schema["properties"].items():
            if name not in value and "default" in child:
                value[name] = child["default"]
            if name in value:
                value[name] = fill(child, value[name])
    if isinstance(value, list):
        value = [fill(schema["items"], item) for item in value]
    return value


def test_the_committed_files_are_those_of_the_types() -> None:
    committed = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.yaml")}
    assert committed == files(), "deploy/crds is not what the types say: run `make crds` and commit the outcome"


@every_kind
def test_every_part_of_a_schema_has_a_type(kind: Kind) -> None:
    types_known = {"object", "array", "string", "integer", "number", "boolean"}
    for path, schema in nodes(schema_of(kind.type.__name__)):
        assert "$ref" not in schema, path
        if schema.get("x-kubernetes-int-or-string"):
            assert "type" not in schema, path
        else:
            assert schema["type"] in types_known, path
        assert not ("properties" in schema and "additionalProperties" in schema), path
        assert set(schema.get("required", ())) <= set(schema.get("properties", ())), path
        if schema.get("type") == "array":
            assert schema["x-kubernetes-list-type"] in {"map", "atomic"}, path
            for key in schema.get("x-kubernetes-list-map-keys", ()):
                assert key in schema["items"]["required"], path


@every_kind
def test_a_schema_has_the_fields_of_its_type(kind: Kind) -> None:
    def compare(cls: type[msgspec.Struct], schema: Schema, path: str) -> None:
        own = set(cls.__struct_encode_fields__) | ({"apiVersion", "kind"} if not path else set())
        assert set(schema["properties"]) == own, path
        hints = typing.get_type_hints(cls)
        for name, encoded in zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True):
            child = schema["properties"][encoded]
            for inner in structs(hints[name]):
                compare(inner, child.get("items", child), f"{path}.{encoded}")

    def structs(hint: Any) -> list[type[msgspec.Struct]]:
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            return [] if hint in (ObjectMeta, PodSpec) else [hint]
        return [struct for argument in typing.get_args(hint) for struct in structs(argument)]

    compare(kind.type, schema_of(kind.type.__name__), "")


@every_kind
def test_defaults_are_those_of_the_type(kind: Kind) -> None:
    name = kind.type.__name__
    written = {"metadata": {"name": "x"}, **SMALLEST[name]}
    filled = fill(schema_of(name), written)
    decoded = msgspec.convert(written, kind.type)
    assert msgspec.convert(filled, kind.type) == decoded
    read_back = msgspec.to_builtins(decoded)
    assert without_empty(filled["spec"]) == without_empty(read_back["spec"])


def without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        # A pod template gets its defaults from Kubernetes, when the pods are made.
        inner = {key: without_empty(item) for key, item in value.items() if key != "template"}
        return {key: item for key, item in inner.items() if item not in (None, "", (), [], {})}
    return [without_empty(item) for item in value] if isinstance(value, list | tuple) else value


@every_kind
def test_defaults_are_valid_under_their_own_schema(kind: Kind) -> None:
    python = {"object": dict, "string": str, "integer": int, "boolean": bool, "number": float}
    for path, schema in nodes(schema_of(kind.type.__name__)):
        if "default" in schema:
            value = fill(schema, schema["default"])
            assert type(value) is python[schema["type"]], path
            assert value in schema.get("enum", [value]), path
            assert schema["type"] != "integer" or schema["minimum"] <= value <= schema["maximum"], path
            assert not set(schema.get("required", ())) - set(value if isinstance(value, dict) else ()), path
            assert not path.startswith(".status"), "a status holds what somebody has seen"


def test_nested_defaults_start_from_an_empty_object() -> None:
    assert fill(schema_of("Queue"), {}) == {"spec": {"weight": 1, "reclaimable": True, "priority": 0}}
    assert schema_at("ElasticJob", ".spec.elastic")["default"] == {}
    filled = fill(schema_of("ElasticJob"), {"spec": {"roles": []}})
    assert filled["spec"]["elastic"] == {"cooldownSeconds": 60, "graceSeconds": 30, "restartSeconds": 30}


def test_spec_is_required_where_the_type_requires_it() -> None:
    assert {name: schema_of(name).get("required", []) for name in CRDS} == {
        "Queue": [],
        "PodGroup": [],
        "ElasticJob": ["spec"],
        "Topology": ["spec"],
    }


def test_bounds_patterns_enumerations_and_descriptions_come_from_the_types() -> None:
    weight = schema_at("Queue", ".spec.weight")
    assert (weight["minimum"], weight["maximum"], weight["format"]) == (0, 1_000_000, "int32")
    of_one = schema_at("Queue", ".spec.weights")["additionalProperties"]
    assert of_one == {key: weight[key] for key in ("type", "format", "minimum", "maximum")}
    assert weight["description"].startswith("Share of what is left")
    assert schema_at("ElasticJob", ".spec.roles[].name")["pattern"] == "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
    assert set(schema_at("ElasticJob", ".spec.framework")["enum"]) == {"torch", "torchrun", "horovod", "none"}
    assert schema_at("ElasticJob", ".spec.elastic.speedup[].speedup")["exclusiveMinimum"] is True
    assert schema_at("ElasticJob", ".spec.activeDeadlineSeconds")["nullable"] is True
    assert schema_at("ElasticJob", ".spec.roles[].template.spec")["x-kubernetes-preserve-unknown-fields"] is True
    assert schema_at("Topology", "")["description"] == types.Topology.__doc__


def test_resource_lists_hold_numbers_or_quantities() -> None:
    limit = schema_at("Queue", ".spec.limit")
    assert limit["maxProperties"] == 64
    assert limit["additionalProperties"]["x-kubernetes-int-or-string"] is True
    assert limit["additionalProperties"]["pattern"] == QUANTITY_PATTERN
    for text in ("2", "500m", "1.5", "16Gi", "1e3", "1E", ".5"):
        assert re.search(QUANTITY_PATTERN, text), text
    for text in ("", "-1", "1 Gi", "1GB", "Gi", "0x10"):
        assert not re.search(QUANTITY_PATTERN, text), text


@given(st.from_regex(QUANTITY_PATTERN, fullmatch=True).filter(lambda text: len(text) <= 64))
def test_every_quantity_that_the_crd_accepts_can_be_parsed(text: str) -> None:
    refused = ""
    try:
        assert parse_quantity(text) >= 0
    except QuantityError as error:
        refused = str(error)
    assert not refused or "larger than" in refused  # a pattern cannot count


@every_kind
def test_names_scope_and_status(kind: Kind) -> None:
    spec = CRDS[kind.type.__name__]["spec"]
    assert spec["scope"] == ("Cluster" if kind.type in (types.Queue, types.Topology) else "Namespaced")
    assert spec["names"]["categories"] == ["maniple"]
    # Volcano and kube-batch have these.
    assert not {"q", "pg", "vj", "podgroup-v1beta1", "queue-v1beta1"} & set(spec["names"]["shortNames"])
    has_status = "status" in schema_of(kind.type.__name__)["properties"]
    assert ("subresources" in spec["versions"][0]) == has_status


@every_kind
def test_printer_columns_show_fields_that_exist(kind: Kind) -> None:
    paths = {path: schema for path, schema in nodes(schema_of(kind.type.__name__)) if path}
    for column in COLUMNS[kind.type]:
        if column["jsonPath"] == ".metadata.creationTimestamp":
            continue
        if kind.type is types.Queue and column["jsonPath"].endswith("']"):
            shown = paths[column["jsonPath"].partition("[")[0] + "{}"]
            assert (shown["x-kubernetes-int-or-string"], column["type"]) == (True, "string"), column["jsonPath"]
            continue
        shown = paths[re.sub(r"\[[^]]*\]", "[]", column["jsonPath"])]
        assert shown["type"] == column["type"], column["jsonPath"]


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        ("Queue", "Parent Weight Deserved-GPUs Allocated-GPUs Running Pending Age"),
        ("PodGroup", "Queue Phase Min Running Pending Reason Age"),
        ("ElasticJob", "Queue Phase Min Max Target Running Pending Reason Age"),
        ("Topology", "Widest Narrowest Age"),
    ],
)
def test_the_default_table_fits_a_screen(kind: str, columns: str) -> None:
    shown = CRDS[kind]["spec"]["versions"][0]["additionalPrinterColumns"]
    assert [column["name"] for column in shown if "priority" not in column] == columns.split()


@pytest.mark.parametrize(
    ("kind", "path", "rule"),
    [
        ("Queue", "", "self.spec.?parent.orValue('') != self.metadata.name"),
        ("Queue", ".spec", "quantity("),
        ("PodGroup", ".spec", "sum() <= self.minMember"),
        ("ElasticJob", "", "self.metadata.name.size() <= 63"),
        ("ElasticJob", "", "self.metadata.name.matches("),
        ("ElasticJob", "", "string(r.max > 0 ? r.max - 1 : 0).size()"),
        ("ElasticJob", ".spec", "self.roles.exists(r, r.min >= 1)"),
        ("ElasticJob", ".spec", "self.roles.map(r, r.max).sum() <= 100000"),
        ("ElasticJob", ".spec", "oldSelf.roles.exists(o, o.name == r.name)"),
        ("ElasticJob", ".spec", "self.framework == oldSelf.framework"),
        ("ElasticJob", ".spec.roles[]", "self.min <= self.max"),
        ("ElasticJob", ".spec.roles[].template", "self == oldSelf"),
        ("Topology", ".spec", "b.name == a.name"),
        ("Topology", ".spec", "b.nodeLabel == a.nodeLabel"),
    ],
)
def test_rules_between_fields(kind: str, path: str, rule: str) -> None:
    rules = [entry for entry in schema_at(kind, path)["x-kubernetes-validations"] if rule in entry["rule"]]
    assert rules
    assert all(entry["message"] for entry in rules)


@pytest.mark.parametrize(
    ("kind", "path", "key"),
    [
        ("PodGroup", ".spec.roles", "name"),
        ("PodGroup", ".status.conditions", "type"),
        ("ElasticJob", ".spec.roles", "name"),
        ("ElasticJob", ".spec.elastic.speedup", "replicas"),
        ("ElasticJob", ".status.target", "role"),
    ],
)
def test_duplicates_are_refused_by_the_list_type(kind: str, path: str, key: str) -> None:
    assert schema_at(kind, path)["x-kubernetes-list-map-keys"] == [key]


def test_what_rules_iterate_over_is_bounded() -> None:
    for name in CRDS:
        for path, schema in nodes(schema_of(name)):
            text = " ".join(entry["rule"] for entry in schema.get("x-kubernetes-validations", ()))
            for fields in re.findall(r"self\.([\w.]+)\.(?:all|exists|map)\(", text):
                child = schema
                for field in fields.split("."):
                    child = child["properties"][field]
                assert "maxItems" in child or "maxProperties" in child, f"{name}{path}.{fields}"


def test_the_command_prints_what_it_writes(tmp_path: Path) -> None:
    printed = CliRunner().invoke(group, ["crds"])
    written = CliRunner().invoke(group, ["crds", "--write", str(tmp_path / "new")])
    assert (printed.exit_code, written.exit_code) == (0, 0)
    assert [path.name for path in sorted((tmp_path / "new").iterdir())] == sorted(files())
    assert list(yaml.safe_load_all(printed.output)) == crds()
    assert [yaml.safe_load(text) for text in files().values()] == crds()
    assert not any("&id" in text or "*id" in text for text in files().values())
