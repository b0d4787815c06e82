"""Suggestions for a word that is not known."""

import pytest

from maniple.api.errors import did_you_mean


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("pln", ["plan", "jobs"], "plan"),
        ("PLAN", ["plan", "PLAN1"], "plan"),  # only the case differs: nearer than one more letter
        ("default/A", ["default/a", "default/b"], "default/a"),
        ("default/x", ["default/a", "default/b"], None),  # the namespace alone is no similarity
        ("default/x", [], None),
        ("default/pear", ["default/pair", "default/b"], "default/pair"),
        ("defalt/a", ["default/a", "default/b"], "default/a"),
        ("default/train", ["default/serve", "ml/train"], "ml/train"),
        ("gpu", ["cpu", "memory", "nvidia.com/gpu"], "nvidia.com/gpu"),  # without its domain, and no misspelling of cpu
        ("GPU", ["cpu", "nvidia.com/gpu"], "nvidia.com/gpu"),
        ("gpu", ["cpu", "memory"], "cpu"),
        ("cpu", ["cpu", "example.com/cpu"], "cpu"),
        ("example.com/gpu", ["cpu", "nvidia.com/gpu"], "nvidia.com/gpu"),
        ("xyzzy", ["plan", "jobs"], None),
    ],
)
def test_the_name_that_was_meant_is_suggested_or_none(word: str, known: list[str], meant: str | None) -> None:
    assert did_you_mean(word, known) == (f"; did you mean {meant!r}?" if meant else "")
