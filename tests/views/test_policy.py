"""A policy is explained: each built-in action, plugin and argument in words."""

from __future__ import annotations

import re
from pathlib import Path

from maniple.scheduler import default_policy, load_policy
from maniple.scheduler.actions import ACTIONS
from maniple.scheduler.framework.plugin_arguments import Arguments
from maniple.scheduler.plugins import PLUGINS
from maniple.views.policy import ACTION_WORDS, ARGUMENT_WORDS, PLUGIN_WORDS, policy_view

INDEX = Path(__file__).parents[2] / "docs" / "index.md"


def test_every_built_in_action_plugin_and_argument_has_words() -> None:
    assert ACTION_WORDS.keys() == ACTIONS.keys()
    assert PLUGIN_WORDS.keys() == PLUGINS.keys()
    known = set()
    for name, plugin in PLUGINS.items():
        arguments = Arguments(name, {}, "test")
        plugin(arguments)
        known |= {(name, argument) for argument in arguments.values}
    assert ARGUMENT_WORDS.keys() == known


def test_the_words_are_those_of_the_index() -> None:
    rows = dict(re.findall(r"^\| \[(\w+)\]\((?:actions|plugins)/\w+\.md\) \| (.*) \|$", INDEX.read_text(), re.M))
    assert rows == ACTION_WORDS | PLUGIN_WORDS


def test_the_built_in_policy_uses_every_action_but_consolidate_and_says_which_values_it_sets() -> None:
    view = policy_view(default_policy(), "built-in")
    assert (view.unused_actions, view.notes) == (("consolidate",), ())
    (gang,) = (plugin for plugin in view.plugins if plugin.name == "gang")
    assert [(argument.name, argument.value, argument.is_default) for argument in gang.arguments] == [
        ("evict.whole", "true", False)
    ]


def test_what_is_not_used_and_switched_off_is_listed() -> None:
    text = b"actions: allocate\ntiers: [{plugins: [{name: gang, disableJobOrder: true}]}]"
    view = policy_view(load_policy(text, "p"), "p")
    assert view.unused_actions == ("shrink", "reclaim", "preempt", "consolidate", "backfill", "release", "grow")
    assert "gang" not in view.unused_plugins
    assert view.plugins[0].off == ("enableJobOrder",)
