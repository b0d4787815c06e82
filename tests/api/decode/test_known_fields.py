"""known_fields.py covers every struct that a strict decoder meets, and nothing that we read ourselves."""

import inspect

import pytest

from maniple.api import kubernetes, meta, types
from maniple.api.decode.known_fields import OTHER_FIELDS

STRUCTS: dict[str, type[meta.Struct]] = {
    name: cls
    for module in (meta, kubernetes, types)
    for name, cls in inspect.getmembers(module, inspect.isclass)
    if issubclass(cls, meta.Struct) and cls is not meta.Struct
}


def test_every_struct_of_kubernetes_is_covered() -> None:
    ours = {name for name, cls in STRUCTS.items() if cls.__module__ == types.__name__}
    assert set(STRUCTS) - ours <= set(OTHER_FIELDS) <= set(STRUCTS), "run tools/write_known_fields.py"


def test_fields_that_we_read_are_not_listed() -> None:
    for name, fields in OTHER_FIELDS.items():
        assert not fields & set(STRUCTS[name].__struct_encode_fields__), f"{name}: run tools/write_known_fields.py"


@pytest.mark.parametrize(
    ("struct", "field"),
    [
        ("Pod", "apiVersion"),
        ("PodSpec", "serviceAccount"),
        ("PodSpec", "ephemeralContainers"),
        ("Container", "targetContainerName"),
        ("Container", "volumeMounts"),
        ("ObjectMeta", "managedFields"),
        ("ObjectMeta", "clusterName"),
        ("TemplateMeta", "creationTimestamp"),
        ("Toleration", "tolerationSeconds"),
    ],
)
def test_fields_that_dumps_contain_are_known(struct: str, field: str) -> None:
    assert field in OTHER_FIELDS[struct]


def test_a_typing_error_is_not_known() -> None:
    assert "nodeSelctor" not in OTHER_FIELDS["PodSpec"]
