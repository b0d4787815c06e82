"""The policy file, in kube-batch's format: which actions in which order, which plugins in which tiers.

kube-batch's own configuration loads unchanged. Anything unknown (action, plugin, argument, switch) is an error that
names the nearest valid word, and so is an argument that has no effect with the policy's actions; nothing is ignored.
kube-scheduler's older `kind: Policy` files load too (kube_policy.py), and Volcano's configuration, with a note for each
difference (volcano_policy.py).
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache, cached_property, reduce
from importlib.resources import files
from itertools import pairwise
from operator import or_

from maniple.api.decode.documents import load_one
from maniple.api.errors import InputError, nearest
from maniple.model.building.from_scratch import build_snapshot
from maniple.model.building.input_objects import Objects
from maniple.model.plugin_reads import Reads
from maniple.model.snapshot import Snapshot
from maniple.scheduler.actions import REGISTRY as ACTIONS
from maniple.scheduler.framework.action import Ability, Action, abilities_of
from maniple.scheduler.framework.hooks import Hooks
from maniple.scheduler.framework.plugin_arguments import Arguments
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.volcano_policy import OMITTED, Note, is_volcano
from maniple.scheduler.framework.volcano_policy import translate as translate_volcano
from maniple.scheduler.plugins import REGISTRY as PLUGINS
from maniple.scheduler.plugins import Plugin

# kube-batch's switches, and the callbacks that each of them turns off.
SWITCHES: dict[str, tuple[str, ...]] = {
    "enableJobOrder": ("job_order",),
    "enableJobReady": ("job_ready", "job_need"),
    "enableJobPipelined": ("job_pipelined",),
    "enableTaskOrder": ("task_order",),
    "enablePreemptable": ("preemptable", "protects"),
    "enableReclaimable": ("reclaimable", "protects"),
    "enableQueueOrder": ("queue_order", "queue_standing"),
    "enablePredicate": ("predicate", "pod_predicate"),
    "enableNodeOrder": ("node_order", "batch_node_order", "is_placed_singly", "device_worth"),
}
# Older files of kube-batch say disableJobOrder: true for enableJobOrder: false.
_OPPOSITES = {switch: switch.replace("enable", "disable", 1) for switch in SWITCHES}
_VOLCANO_KEY = "volcano-scheduler.conf"  # in the ConfigMap of Volcano's scheduler


class Format(StrEnum):
    """Whose file it is."""

    POLICY = "policy file"
    VOLCANO = "Volcano's configuration"
    KUBE_SCHEDULER = "kube-scheduler's Policy"


@dataclass(frozen=True)
class PluginChoice:
    """A plugin with its arguments read, and the callbacks that are switched off."""

    name: str
    plugin: Plugin
    off: frozenset[str] = frozenset()
    switched_off: tuple[str, ...] = ()  # the switches that say so
    values: Mapping[str, object] = field(default_factory=dict)  # of its arguments, defaults included
    given: frozenset[str] = frozenset()  # the arguments that the file has

    def open(self, session: Session) -> Hooks:
        try:
            hooks = self.plugin.open(session)
            return replace(hooks, **dict.fromkeys(self.off)) if self.off else hooks
        except Exception as error:
            error.add_note(f"plugin {self.name!r}")
            raise


@dataclass(frozen=True)
class Policy:
    actions: tuple[tuple[str, Action], ...]
    tiers: tuple[tuple[PluginChoice, ...], ...]
    format: Format = Format.POLICY
    notes: tuple[Note, ...] = ()  # what another system's file says that is not as it was meant there

    @cached_property
    def reads(self) -> Reads:
        """Labels and annotations that its plugins read. Snapshots for this policy must carry them."""
        declared = [getattr(choice.plugin, "reads", Reads()) for tier in self.tiers for choice in tier]
        return reduce(or_, declared, Reads())

    def has_action(self, ability: Ability) -> bool:
        """Whether one of its actions has the ability."""
        return any(ability in abilities_of(action) for _, action in self.actions)

    def session(self, snapshot: Snapshot) -> Session:
        """A new session with this policy, before any action has run."""
        return Session(snapshot, self.tiers, self.actions, self.reads)


@cache
def default_policy() -> Policy:
    """maniple/scheduler/default_policy.yaml."""
    return load_policy(default_policy_text(), "default policy")


def default_policy_text() -> bytes:
    return files("maniple.scheduler").joinpath("default_policy.yaml").read_bytes()


def load_policy(data: bytes, source: str) -> Policy:
    """Reads the policy in `data`. An InputError says what is wrong, where, and what to write instead."""
    given = load_one(data, source)
    if not isinstance(given, dict):
        raise InputError([f"{source}: expected a map with 'actions' and 'tiers'"])
    if given.get("kind") == "Policy":
        from maniple.scheduler.framework.kube_policy import translate

        return _read(translate(given, source), source, Format.KUBE_SCHEDULER)
    theirs = False
    if given.get("kind") == "ConfigMap":
        theirs, given, source = _in_config_map(given, source)
    if not theirs and not is_volcano(given, ACTIONS.has, PLUGINS.has):
        return _read(given, source, Format.POLICY)
    translated, notes = translate_volcano(given, source, ACTIONS.has, PLUGINS.has)
    return _read(translated, source, Format.VOLCANO, tuple(notes))


def _in_config_map(config_map: Mapping[str, object], source: str) -> tuple[bool, dict[str, object], str]:
    """Whether it is Volcano's, the file in it, and its place."""
    data = config_map.get("data")
    entries = data if isinstance(data, dict) else {}
    key = _VOLCANO_KEY if _VOLCANO_KEY in entries else next(iter(entries), "")
    if not isinstance(entries.get(key), str) or (key != _VOLCANO_KEY and len(entries) != 1):
        raise InputError([f"{source}: data: expected one entry that is a policy file, such as {_VOLCANO_KEY}"])
    place = f"{source}: data[{key}]"
    given = load_one(entries[key].encode(), place)
    if not isinstance(given, dict):
        raise InputError([f"{place}: expected a map with 'actions' and 'tiers'"])
    return key == _VOLCANO_KEY, given, place


def _read(given: Mapping[str, object], source: str, format: Format, notes: tuple[Note, ...] = ()) -> Policy:
    _only(given, {"actions", "tiers"}, source)
    wrong: list[str] = []  # all that is wrong, so that a file is mended at once
    actions: tuple[tuple[str, Action], ...] = ()
    tiers: list[tuple[PluginChoice, ...]] = []
    try:
        actions = _actions(given.get("actions", ""), source)
    except InputError as error:
        wrong += error.messages
    given_tiers = given.get("tiers", [])
    if not isinstance(given_tiers, list):
        wrong.append(f"{source}: tiers: expected a list, each with 'plugins'")
    else:
        # What is translated from other systems' files may have arguments of ours that no action there uses.
        is_ours = format == Format.POLICY and bool(actions)
        abilities = frozenset().union(*(abilities_of(action) for _, action in actions)) if is_ours else None
        tiers = [_tier(tier, f"{source}: tiers[{number}]", abilities, wrong) for number, tier in enumerate(given_tiers)]
    names = [choice.name for tier in tiers for choice in tier]
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    wrong += [f"{source}: plugin {name!r} stands twice; it can be in one tier only" for name in twice]
    if wrong:
        raise InputError(wrong)
    policy = Policy(actions, tuple(tiers), format, notes)
    if not all(map(PLUGINS.is_built_in, names)):
        _try_out(policy, source)
    return policy


def _try_out(policy: Policy, source: str) -> None:
    """Opens the plugins on an empty cluster, to report conflicts between them before the first cycle."""
    try:
        policy.session(build_snapshot(Objects()))
    except InputError as error:
        raise InputError(f"{source}: {message}" for message in error.messages) from None
    except Exception as error:  # whatever a foreign plugin does
        plugin = next(iter(getattr(error, "__notes__", ())), "a plugin")
        problem = f"{type(error).__name__}: {error}"
        raise InputError([f"{source}: {plugin} cannot be opened on an empty cluster: {problem}"]) from error


def _actions(text: object, source: str) -> tuple[tuple[str, Action], ...]:
    if not isinstance(text, str) or not text.strip():
        raise InputError([f'{source}: actions: expected names separated by commas, such as "allocate, backfill"'])
    names = [word.strip() for word in text.split(",")]
    for name, following in pairwise(names):
        if name == following:
            raise InputError([f"{source}: actions: {name!r} stands twice in a row; expected it once"])
    actions: list[tuple[str, Action]] = [(name, ACTIONS.find(name, f"{source}: actions")()) for name in names]
    for name, action in actions[:-1]:
        if Ability.GROW in abilities_of(action):
            # Grow does not take the room that it hands out. An action after it would hand it out again.
            raise InputError([f"{source}: actions: {name} must be the last action"])
    return tuple(actions)


def _tier(
    given: object, where: str, abilities: Collection[Ability] | None, wrong: list[str]
) -> tuple[PluginChoice, ...]:
    """`abilities`: those of the policy's actions; None: not every argument need have a use."""
    if not isinstance(given, dict) or not isinstance(given.get("plugins"), list):
        wrong.append(f"{where}: expected a map with a list 'plugins'")
        return ()
    choices = []
    wrong += [f"{where}: unknown setting {name!r}{nearest(name, ['plugins'])}" for name in given if name != "plugins"]
    for number, plugin in enumerate(given["plugins"]):
        if plugin is not OMITTED:
            try:
                choices.append(_plugin(plugin, f"{where}.plugins[{number}]", abilities))
            except InputError as error:
                wrong += error.messages
    return tuple(choices)


def _plugin(given: object, where: str, abilities: Collection[Ability] | None) -> PluginChoice:
    name = given.get("name") if isinstance(given, dict) else None
    if not isinstance(given, dict) or not isinstance(name, str):
        raise InputError([f"{where}: expected a map with the plugin's 'name'"])
    plugin_class = PLUGINS.find(name, where)
    _only(given, {"name", "arguments", *SWITCHES}, f"{where} ({name})", older=set(_OPPOSITES.values()))
    switched_off = tuple(switch for switch in SWITCHES if not _is_on(given, switch, f"{where} ({name})"))
    off = {kind for switch in switched_off for kind in SWITCHES[switch]}
    arguments = given.get("arguments", {})
    if not isinstance(arguments, dict) or any(isinstance(value, dict | list) for value in arguments.values()):
        raise InputError([f"{where} ({name}): arguments: expected a map of names to simple values"])
    texts = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in arguments.items()}
    read = Arguments(name, texts, where)
    try:
        plugin = plugin_class(read)
    except InputError:
        raise
    except Exception as error:  # whatever a foreign plugin does
        problem = f"{type(error).__name__}: {error}"
        raise InputError([f"{where} ({name}): the plugin cannot be created from its arguments: {problem}"]) from error
    read.finish()
    if abilities is not None and (unused := list(read.without_effect(abilities))):
        raise InputError(unused)
    return PluginChoice(name, plugin, frozenset(off), switched_off, read.values, frozenset(texts))


def _is_on(given: Mapping[str, object], switch: str, where: str) -> bool:
    """Whether the plugin's callbacks of this switch are used: enableX, or disableX of older files."""
    answers = {}
    for name, is_opposite in ((switch, False), (_OPPOSITES[switch], True)):
        value = given.get(name, not is_opposite)
        if not isinstance(value, bool):
            raise InputError([f"{where}: {name}: expected true or false, got {value!r}"])
        if name in given:
            answers[name] = value != is_opposite
    if len(set(answers.values())) > 1:
        raise InputError([f"{where}: {' and '.join(answers)} contradict each other; remove one of them"])
    return all(answers.values())


def _only(given: Mapping[str, object], known: Collection[str], where: str, older: Collection[str] = ()) -> None:
    """`older`: names that are valid too, and suggested only for one that looks like them."""
    unknown = [name for name in given if name not in known and name not in older]
    if unknown:
        raise InputError(
            f"{where}: unknown setting {name!r}{nearest(name, older if older and name[:3] == 'dis' else known)}"
            for name in unknown
        )
