"""`maniple policy` prints the built-in policy, and explains a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.run_maniple import EXAMPLES, ROOT, run_here
from maniple.scheduler import default_policy, load_policy

VOLCANO = EXAMPLES / "policies" / "volcano.yaml"
DEFAULT = ROOT / "maniple" / "scheduler" / "default_policy.yaml"


def test_the_built_in_policy_is_printed_as_a_file_that_can_be_used() -> None:
    done = run_here("policy")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == DEFAULT.read_text(encoding="utf-8")
    as_json = run_here("policy", "-o", "json").stdout
    for text in (done.stdout, as_json):
        names = [name for name, _ in load_policy(text.encode(), "p").actions]
        assert names == [name for name, _ in default_policy().actions]


@pytest.mark.parametrize("file", sorted((EXAMPLES / "policies").iterdir()), ids=lambda path: path.name)
def test_every_example_is_explained(file: Path) -> None:
    done = run_here("policy", "check", file)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Actions of {file} (")
    explained = json.loads(run_here("policy", "check", file, "-o", "json").stdout)
    policy = load_policy(file.read_bytes(), file.name)
    assert [entry["name"] for entry in explained["actions"]] == [name for name, _ in policy.actions]
    assert [entry["name"] for entry in explained["plugins"]] == [c.name for tier in policy.tiers for c in tier]
    assert all(entry["does"] for entry in explained["actions"])


def test_what_is_not_read_as_it_was_meant_is_listed_and_strict_makes_it_an_error() -> None:
    done = run_here("policy", "check", VOLCANO)
    assert "Not as in that file" in done.stdout
    assert "enqueue is left out: " in done.stdout
    strict = run_here("policy", "check", VOLCANO, "--strict")
    assert (strict.returncode, strict.stdout) == (2, "")
    assert len(strict.stderr.splitlines()) == 3
    assert all(line.startswith(f"error: {VOLCANO}: ") for line in strict.stderr.splitlines())
    assert run_here("policy", "check", DEFAULT, "--strict").returncode == 0


def test_plan_notes_the_same_differences() -> None:
    done = run_here("plan", EXAMPLES / "01-small-behind-large.yaml", "--policy", VOLCANO)
    assert done.returncode == 0
    assert [line.partition(": ")[0] for line in done.stderr.splitlines()] == ["note"] * 3


def test_standard_input_is_read() -> None:
    done = run_here("policy", "check", "-", stdin=VOLCANO.read_text(encoding="utf-8"))
    assert done.returncode == 0
    assert done.stdout.startswith("Actions of <stdin> (Volcano's configuration)")


def test_everything_that_is_wrong_is_named_at_once(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("actions: alocate\ntiers: [{plugins: [{name: gagn}, {name: gang, arguments: {evict.hole: 1}}]}]")
    done = run_here("policy", "check", file)
    assert (done.returncode, done.stdout) == (2, "")
    assert [line.split("'")[1] for line in done.stderr.splitlines()] == ["alocate", "gagn", "evict.hole"]


@pytest.mark.parametrize("arguments", [["nosuch.yaml"], [EXAMPLES], []])
def test_a_file_that_is_none_is_an_error(arguments: list[Path]) -> None:
    done = run_here("policy", "check", *arguments)
    assert (done.returncode, done.stdout) == (2, "")


def test_many_differences_are_one_note_of_a_plan(tmp_path: Path) -> None:
    plugins = [{"name": name} for name in ("gang", "overcommit", "tdm", "usage", "extender")]
    file = tmp_path / "volcano.yaml"
    file.write_text(json.dumps({"actions": "allocate", "tiers": [{"plugins": plugins}]}))
    told = run_here("plan", "-f", str(EXAMPLES / "01-small-behind-large.yaml"), "--policy", str(file)).stderr
    assert told == f"note: {file}: 4 settings are left out or differ here: `maniple policy check {file}`\n"
    file.write_text(json.dumps({"actions": "allocate", "tiers": [{"plugins": plugins[:4]}]}))
    told = run_here("plan", "-f", str(EXAMPLES / "01-small-behind-large.yaml"), "--policy", str(file)).stderr
    assert len(told.splitlines()) == 3
