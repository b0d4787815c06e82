"""Plugins and actions of other packages: found by entry point, loaded if a policy uses them, never in silence wrong."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest
from cli.run_maniple import run_here

from maniple.api.errors import InputError
from maniple.scheduler import load_policy
from maniple.scheduler.actions import REGISTRY as ACTIONS
from maniple.scheduler.actions.preempt import Preempt
from maniple.scheduler.framework.hooks import Hooks, Need
from maniple.scheduler.framework.plugin_arguments import Arguments
from maniple.scheduler.framework.session import Session
from maniple.scheduler.plugins import REGISTRY as PLUGINS
from scheduler.small_clusters import Object, node, plan, pod


class Quiet:
    def __init__(self, arguments: Arguments) -> None:
        del arguments

    def open(self, session: Session) -> Hooks:
        del session
        return Hooks()


class Patient(Quiet):
    def open(self, session: Session) -> Hooks:
        del session
        return Hooks(patience_s=1.0, job_need=lambda job: Need({}, job.min_member))


class OneWord(Quiet):
    def __init__(self, arguments: Arguments) -> None:
        self.label = arguments.word("label", "a")


class Seize(Preempt):
    """An action of ours under another name."""


@pytest.fixture
def offers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[EntryPoint]]:
    """The entry points of installed packages."""
    entries: list[EntryPoint] = []

    def forget() -> None:
        for registry in (PLUGINS, ACTIONS):
            vars(registry).pop("_offers", None)

    monkeypatch.setattr("maniple.scheduler.framework.registry.installed", lambda: EntryPoints(entries))
    forget()
    yield entries
    forget()


def offer(name: str, value: str, group: str = "maniple.plugins") -> EntryPoint:
    return EntryPoint(name, f"{__name__}:{value}" if ":" not in value else value, group)


def policy(*plugins: str, actions: str = "allocate") -> bytes:
    names = ", ".join(f"{{name: {name}}}" for name in plugins)
    return f'actions: "{actions}"\ntiers: [{{plugins: [{names}]}}]'.encode()


def problems(text: bytes) -> list[str]:
    with pytest.raises(InputError) as caught:
        load_policy(text, "p.yaml")
    return caught.value.messages


def test_a_plugin_of_another_package_is_used_by_its_name(offers: list[EntryPoint]) -> None:
    offers.append(offer("quiet", "Quiet"))
    chosen = load_policy(policy("gang", "quiet"), "p.yaml")
    assert isinstance(chosen.tiers[0][1].plugin, Quiet)


@pytest.mark.parametrize(
    ("text", "word"), [("b", "b"), (" b ", "b"), ("", None), (",", None), ("b,c", None), ("b c", None)]
)
def test_an_argument_of_one_word_takes_no_other_number_of_words(
    offers: list[EntryPoint], text: str, word: str | None
) -> None:
    offers.append(offer("one", "OneWord"))
    given = policy("one").replace(b"name: one", f"name: one, arguments: {{label: {text!r}}}".encode())
    if word is None:
        wrong = f"p.yaml: tiers[0].plugins[0]: plugin one: argument label: expected one word, got {text!r}"
        assert problems(given) == [wrong]
    else:
        plugin = load_policy(given, "p.yaml").tiers[0][0].plugin
        assert isinstance(plugin, OneWord)
        assert plugin.label == word


def test_a_name_that_is_offered_twice_is_an_error_that_names_both(offers: list[EntryPoint]) -> None:
    offers += [offer("gang", "Quiet"), offer("quiet", "Quiet"), offer("quiet", "Patient")]
    assert problems(policy("gang")) == [
        "p.yaml: tiers[0].plugins[0]: plugin 'gang' is offered by the built-in plugin and "
        f"a package (maniple.plugins: gang = {__name__}:Quiet); rename or uninstall one"
    ]
    (message,) = problems(policy("quiet"))
    assert f"quiet = {__name__}:Quiet) and a package (maniple.plugins: quiet = {__name__}:Patient)" in message
    assert load_policy(policy("priority"), "p.yaml")  # a policy that uses neither is not concerned


def test_a_package_found_twice_is_one(offers: list[EntryPoint]) -> None:
    offers += [offer("quiet", "Quiet"), offer("quiet", "Quiet")]
    assert load_policy(policy("quiet"), "p.yaml")


def test_a_plugin_that_cannot_be_imported_is_an_error_only_if_it_is_used(offers: list[EntryPoint]) -> None:
    offers += [offer("broken", "no_such_module:Plugin"), offer("value", "AT")]
    assert load_policy(policy("gang"), "p.yaml")
    (message,) = problems(policy("broken"))
    assert message.startswith("p.yaml: tiers[0].plugins[0]: plugin 'broken' of a package (maniple.plugins: broken = ")
    assert message.endswith("ModuleNotFoundError: No module named 'no_such_module'")
    assert problems(policy("value"))[0].endswith("is not a class")


AT = "no class"


def test_unknown_names_say_which_exist_also_of_other_packages(offers: list[EntryPoint]) -> None:
    offers.append(offer("quiet", "Quiet"))
    (message,) = problems(policy("quit"))
    assert "unknown plugin 'quit'; did you mean 'quiet'? known: conformance, consolidation, drf, " in message
    assert ", quiet, " in message


@pytest.mark.parametrize(
    ("plugin", "claim"), [("reservation", "how long a gang waits for a reservation"), ("gang", "what a gang needs")]
)
def test_two_plugins_that_claim_the_same_are_an_error_that_names_both(
    offers: list[EntryPoint], plugin: str, claim: str
) -> None:
    offers.append(offer("patient", "Patient"))
    (message,) = problems(policy("patient", plugin))
    assert message.startswith(f"p.yaml: plugins 'patient' and '{plugin}' both say {claim}")
    assert message.endswith("; remove one of them")


def test_the_program_says_so_and_plans_nothing(offers: list[EntryPoint], tmp_path: Path) -> None:
    offers.append(offer("patient", "Patient"))
    (tmp_path / "p.yaml").write_bytes(policy("patient", "reservation"))
    (tmp_path / "c.yaml").write_text("{apiVersion: v1, kind: Node, metadata: {name: n1}}")
    result = run_here("plan", "-f", tmp_path / "c.yaml", "--policy", tmp_path / "p.yaml")
    assert (result.returncode, result.stdout) == (2, "")
    assert "plugins 'patient' and 'reservation' both say" in result.stderr


class Fussy(Quiet):
    def open(self, session: Session) -> Hooks:
        raise ZeroDivisionError(f"no node of {len(session.snapshot.nodes)}")


def test_a_plugin_that_cannot_be_opened_is_an_input_error(offers: list[EntryPoint]) -> None:
    offers.append(offer("fussy", "Fussy"))
    assert problems(policy("fussy")) == [
        "p.yaml: plugin 'fussy' cannot be opened on an empty cluster: ZeroDivisionError: no node of 0"
    ]


def test_an_action_under_another_name_does_what_it_does(offers: list[EntryPoint]) -> None:
    """A low pod does not get the room for which a blocked gang is going to preempt, by whatever name."""
    offers.append(offer("seize", "Seize", "maniple.actions"))
    objects = [
        node("n1"),
        *(pod(f"low-{index}", nodeName="n1", priority=-1) for index in range(3)),
        pod("high", "4", priority=5),
        pod("late", priority=-1),
    ]
    plugins: Any = [{"name": name} for name in ("gang", "priority", "predicates", "nodeorder")]

    def plan_with(action: str) -> Object:
        return plan(objects, {"actions": f"allocate, {action}, backfill", "tiers": [{"plugins": plugins}]})

    ours, theirs = plan_with("preempt"), plan_with("seize")
    assert ours["evictions"]
    assert ours["binds"] == []
    for part in ("binds", "evictions", "nominations"):
        assert theirs[part] == ours[part]


class Fragile(Quiet):
    def __init__(self, arguments: Arguments) -> None:
        raise RuntimeError(f"no licence for {arguments}")


def test_a_plugin_that_cannot_be_created_is_an_input_error(offers: list[EntryPoint]) -> None:
    offers.append(offer("fragile", "Fragile"))
    (problem,) = problems(policy("fragile"))
    assert "(fragile): the plugin cannot be created from its arguments: RuntimeError: no licence" in problem
