"""What is wrong with a policy file is said with its place and the nearest valid name; nothing is ever ignored."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from maniple.api.errors import InputError
from maniple.scheduler import load_policy
from maniple.scheduler.actions import REGISTRY as ACTIONS
from maniple.scheduler.framework.action import Ability
from maniple.scheduler.framework.session import Session
from maniple.scheduler.plugins import PLUGINS

GOOD = """actions: "allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enableJobOrder: true
- plugins:
  - name: predicates
    arguments: {predicate.DiskPressureEnable: "true"}
  - name: nodeorder
    arguments: {leastrequested.weight: 2}
  - name: proportion
    arguments: {borrow: "true"}
"""


NUMBER = "expected a number from 0 to 1000000000"
WHOLE_NUMBER = "expected a whole number from 0 to 1000000000"


def errors(text: str | bytes) -> list[str]:
    with pytest.raises(InputError) as error:
        load_policy(text.encode() if isinstance(text, str) else text, "p.yaml")
    return error.value.messages


def plugin(name: str, **settings: Any) -> str:
    return yaml.safe_dump({"actions": "allocate", "tiers": [{"plugins": [{"name": name, **settings}]}]})


def argument(name: str, key: str, value: object) -> str:
    return plugin(name, arguments={key: value})


def without(action: str) -> str:
    return f"it has no effect without the action {action}; add {action} to actions, or remove it"


AT = "p.yaml: tiers[0].plugins[0]"
KNOWN_ACTIONS = "known: allocate, backfill, consolidate, grow, preempt, reclaim, release, shrink"

WRONG: list[tuple[str, list[str]]] = [
    # unknown names
    (
        GOOD.replace("backfill", "backfil"),
        [f"p.yaml: actions: unknown action 'backfil'; did you mean 'backfill'? {KNOWN_ACTIONS}"],
    ),
    (
        GOOD.replace("backfill", "dequeue"),
        [f"p.yaml: actions: unknown action 'dequeue'; {KNOWN_ACTIONS}"],
    ),
    (GOOD.replace("backfill", "grow, backfill"), ["p.yaml: actions: grow must be the last action"]),
    (
        GOOD.replace("backfill", "allocate, backfill"),
        ["p.yaml: actions: 'allocate' stands twice in a row; expected it once"],
    ),
    (
        GOOD.replace("backfill", "Allocate"),
        [f"p.yaml: actions: unknown action 'Allocate'; did you mean 'allocate'? {KNOWN_ACTIONS}"],
    ),
    (
        GOOD.replace("priority", "priorty"),
        [f"{AT}: unknown plugin 'priorty'; did you mean 'priority'? known: {', '.join(sorted(PLUGINS))}"],
    ),
    (
        GOOD.replace("enableJobOrder", "enableJobOrdr"),
        [
            "p.yaml: tiers[0].plugins[1] (gang): unknown setting 'enableJobOrdr'; did you mean 'enableJobOrder'?",
        ],
    ),
    (
        GOOD.replace("arguments: {lea", "argument: {lea"),
        ["p.yaml: tiers[1].plugins[1] (nodeorder): unknown setting 'argument'; did you mean 'arguments'?"],
    ),
    (
        argument("nodeorder", "leastrequested.wieght", 2),
        [f"{AT}: plugin nodeorder: unknown argument 'leastrequested.wieght'; did you mean 'leastrequested.weight'?"],
    ),
    (
        argument("predicates", "predicate.MemoryPressureEnabled", True),
        [
            f"{AT}: plugin predicates: unknown argument 'predicate.MemoryPressureEnabled'; "
            "did you mean 'predicate.MemoryPressureEnable'?"
        ],
    ),
    (argument("conformance", "x", 1), [f"{AT}: plugin conformance: unknown argument 'x'; it takes none"]),
    (GOOD.replace("actions:", "action:"), ["p.yaml: unknown setting 'action'; did you mean 'actions'?"]),
    (
        GOOD + "queues: []\nteirs: []\n",
        [
            "p.yaml: unknown setting 'queues'; known: actions, tiers",
            "p.yaml: unknown setting 'teirs'; did you mean 'tiers'?",
        ],
    ),
    (
        "actions: allocate\ntiers: [{plugins: [], plugin: []}]",
        ["p.yaml: tiers[0]: unknown setting 'plugin'; did you mean 'plugins'?"],
    ),
    # wrong values
    (
        argument("nodeorder", "podaffinity.weight", "heavy"),
        [f"{AT}: plugin nodeorder: argument podaffinity.weight: {NUMBER}, got 'heavy'"],
    ),
    *(
        (
            argument("nodeorder", "podaffinity.weight", value),
            [f"{AT}: plugin nodeorder: argument podaffinity.weight: {NUMBER}, got {shown!r}"],
        )
        for value, shown in (
            (-1, "-1"),
            ("nan", "nan"),
            ("inf", "inf"),
            (True, "true"),
            ("", ""),
            (10**10, f"{10**10}"),
        )
    ),
    *(
        (
            argument("consolidation", "movesPerHour", value),
            [f"{AT}: plugin consolidation: argument movesPerHour: {WHOLE_NUMBER}, got {value!r}"],
        )
        for value in ("1e300", "1.5", "-1", "nan", "many")
    ),
    *(
        (
            argument("nodeorder", "mostrequested.resources", value),
            [f"{AT}: plugin nodeorder: argument mostrequested.resources: {message}"],
        )
        for value, message in (
            ("extendd", "unknown resource 'extendd'; did you mean 'extended'?"),
            ("cpu,Memory", "unknown resource 'Memory'; did you mean 'memory'?"),
            (
                "gpu",
                "unknown resource 'gpu'; "
                "expected a resource such as nvidia.com/gpu, or 'extended' for all of that form",
            ),
            (" , ", "expected at least one resource, found none"),
        )
    ),
    *(
        (
            argument("proportion", "borrow", value),
            [f"{AT}: plugin proportion: argument borrow: expected true or false, got {str(value)!r}"],
        )
        for value in ("maybe", 1, "")
    ),
    (
        plugin("gang", enableJobOrder="false"),
        [f"{AT} (gang): enableJobOrder: expected true or false, got 'false'"],
    ),
    (plugin("gang", enableJobReady=0), [f"{AT} (gang): enableJobReady: expected true or false, got 0"]),
    (
        plugin("gang", arguments=["a"]),
        [f"{AT} (gang): arguments: expected a map of names to simple values"],
    ),
    (
        argument("nodeorder", "leastrequested.weight", [1]),
        [f"{AT} (nodeorder): arguments: expected a map of names to simple values"],
    ),
    # arguments without effect
    (
        argument("priority", "surplus.preempts", "true"),
        [f"{AT}: plugin priority: argument surplus.preempts: {without('preempt')}"],
    ),
    (
        plugin("consolidation", arguments={"consolidate.idle": True, "idle.worth": 1}),
        [
            f"{AT}: plugin consolidation: argument consolidate.idle: {without('consolidate')}",
            f"{AT}: plugin consolidation: argument idle.worth: {without('consolidate')}",
        ],
    ),
    (
        argument("consolidation", "idle.worth", "0.1").replace("allocate", "allocate, consolidate"),
        [
            f"{AT}: plugin consolidation: argument idle.worth: it has no effect without consolidate.idle; "
            'add consolidate.idle: "true", or remove it'
        ],
    ),
    (
        argument("nodeorder", "mostrequested.resources", "cpu"),
        [
            f"{AT}: plugin nodeorder: argument mostrequested.resources: it has no effect without "
            'mostrequested.weight; add mostrequested.weight: "1", or remove it'
        ],
    ),
    # wrong forms
    *((text, ["p.yaml: expected one YAML document, found 0"]) for text in ("", "# nothing\n", "---\n")),
    (f"{GOOD}---\n{GOOD}", ["p.yaml: expected one YAML document, found 2"]),
    *((text, ["p.yaml: expected a map with 'actions' and 'tiers'"]) for text in ("[]", "allocate", "42")),
    *(
        (text, ['p.yaml: actions: expected names separated by commas, such as "allocate, backfill"'])
        for text in ("{}", "tiers: []", "actions: ''", "actions: [allocate]", "actions: 1")
    ),
    ("actions: allocate\ntiers: {}", ["p.yaml: tiers: expected a list, each with 'plugins'"]),
    *(
        (f"actions: allocate\ntiers: [{tier}]", ["p.yaml: tiers[0]: expected a map with a list 'plugins'"])
        for tier in ("gang", "{}", "{plugins: gang}", "{plugins: {name: gang}}")
    ),
    *(
        (f"actions: allocate\ntiers: [{{plugins: [{entry}]}}]", [f"{AT}: expected a map with the plugin's 'name'"])
        for entry in ("gang", "{}", "{name: 3}", "[]")
    ),
    (
        GOOD.replace("proportion", "gang").replace('    arguments: {borrow: "true"}\n', ""),
        ["p.yaml: plugin 'gang' stands twice; it can be in one tier only"],
    ),
    (
        GOOD.replace("name: gang", "name: gang\n    name: drf"),
        ["p.yaml: line 6, column 5: not valid YAML: the key 'name' stands twice in one map"],
    ),
    ("actions: [", ["p.yaml: line 2, column 1: not valid YAML: did not find expected node content"]),
]


def test_without_the_error_it_is_right() -> None:
    assert [name for name, _ in load_policy(GOOD.encode(), "p.yaml").actions] == ["allocate", "backfill"]


@pytest.mark.parametrize(
    "text",
    [
        argument("priority", "surplus.preempts", "false"),
        argument("priority", "surplus.preempts", "true").replace("allocate", "allocate, preempt"),
        argument("consolidation", "consolidate.idle", False),
        argument("consolidation", "horizon", 60),
        plugin("consolidation"),
        plugin("elastic"),
        argument("reservation", "patience", "60"),
        argument("elastic", "crossing", "0"),
        argument("gang", "evict.whole", "true"),
        plugin("consolidation", arguments={"consolidate.idle": True, "idle.worth": 1}).replace(
            "allocate", "allocate, consolidate"
        ),
        plugin("nodeorder", arguments={"mostrequested.weight": 1, "mostrequested.resources": "cpu"}),
        argument("proportion", "preemptable.guarantee", "true"),
    ],
)
def test_an_argument_that_is_used_or_off_and_a_plugin_without_arguments_are_right(text: str) -> None:
    assert load_policy(text.encode(), "p.yaml").tiers


def test_an_action_of_any_name_with_the_ability_uses_the_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ours:
        abilities = frozenset((Ability.PREEMPT,))

        def execute(self, session: Session) -> None:
            del session

    monkeypatch.setattr(ACTIONS, "_built_in", {"allocate": Ours})
    assert load_policy(argument("priority", "surplus.preempts", "true").encode(), "p.yaml").tiers


def test_arguments_translated_from_the_file_of_volcano_need_no_action() -> None:
    theirs = {"actions": "enqueue, allocate", "tiers": [{"plugins": [{"name": "gang"}, {"name": "priority"}]}]}
    assert load_policy(yaml.safe_dump(theirs).encode(), "p.yaml").tiers


@pytest.mark.parametrize(("text", "messages"), WRONG, ids=[messages[0][:70] for _, messages in WRONG])
def test_the_error_says_where_what_and_what_to_write(text: str, messages: list[str]) -> None:
    assert errors(text) == messages


def test_a_name_that_is_only_written_in_other_letters_is_recognised() -> None:
    (message,) = errors(plugin("gang", ENABLEJOBORDER=False))
    assert message.endswith("did you mean 'enableJobOrder'?")


@settings(max_examples=800, deadline=None)
@given(st.integers(0, 2**32))
def test_a_mutated_policy_file_is_loaded_or_refused_in_one_line(seed: int) -> None:
    random = Random(seed)
    text = GOOD.encode()
    for _ in range(random.randrange(1, 5)):
        start = random.randrange(len(text))
        end = start + random.choice([0, 1, 3, 20])
        part = random.choice(
            [b"", b"{", b"]", b": ", b"\n", b"- ", b"null", b"!!bool ", b"&a ", b"*a", random.randbytes(2)]
        )
        text = text[:start] + part + text[end:]
    messages = ["fine"]
    try:
        load_policy(text, "p.yaml")
    except InputError as error:
        messages = error.messages
    assert messages
    assert all(message.isprintable() for message in messages)


@pytest.mark.parametrize("name", [["gang"], {"a": 1}, [], 5, True])
@pytest.mark.parametrize("more", [{}, {"configurations": [{"name": "x"}]}])
def test_a_name_of_a_plugin_that_is_no_text_is_refused(name: object, more: dict[str, object]) -> None:
    policy = {"actions": "allocate", "tiers": [{"plugins": [{"name": "gang"}, {"name": name}]}], **more}
    assert any("tiers[0].plugins[1]" in message for message in errors(yaml.safe_dump(policy)))
