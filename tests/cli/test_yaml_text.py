"""Printed YAML is read back unchanged, by us and by parsers with other rules for numbers."""

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from maniple.api.decode.documents import split
from maniple.cli.support.yaml_text import to_yaml

# Strings for Python's parser, but not for kubectl's.
TEXTS = [
    "1e-3",
    "1e-4",
    "08",
    "0o17",
    "0b101",
    "1_000",
    ".5e3",
    "+.5",
    "1E5",
    "y",
    "N",
    "0400",
    "12:30:45",
    "2026-01-31",
]
PLAIN = ["python", "--lr", "-c", "a: b", "yes", "null", "~", "", "train.py", "/data", "-", ".", "multi\nline"]


@pytest.mark.parametrize("text", TEXTS)
def test_ambiguous_strings_are_quoted(text: str) -> None:
    assert to_yaml({"value": text}) == f"value: '{text}'\n"


def test_plain_strings_are_not_quoted() -> None:
    assert (
        to_yaml({"command": ["python", "train.py", "--lr", "-x"]}) == "command:\n- python\n- train.py\n- --lr\n- -x\n"
    )


@given(st.lists(st.sampled_from(TEXTS + PLAIN) | st.text(st.characters(codec="utf-8"), max_size=8), max_size=6))
def test_strings_are_the_same_after_writing_and_reading(texts: list[str]) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"list": texts}}
    (document,) = split(to_yaml(body).encode(), "a.yaml")
    assert msgspec.json.decode(document.raw) == body
    assert yaml.safe_load(to_yaml(body)) == body
