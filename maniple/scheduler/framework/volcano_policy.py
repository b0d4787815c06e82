"""Volcano's configuration file: kube-batch's format with more actions, plugins and switches.

What means the same here is translated into a policy of ours. Everything else that is known is left out, and a note says
so and why: nothing is dropped in silence. A name that Volcano does not have either is an error later.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from maniple.api.errors import InputError, did_you_mean
from maniple.scheduler.plugins.predicates import CHECKS

Entry = dict[str, Any]
IsOurs = Callable[[str], bool]


class Note(NamedTuple):
    """What a file says that is not as it was meant there."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


# A plugin that is left out. The entries after it keep their numbers, which errors name.
OMITTED: Entry = {}

ACTIONS_LEFT_OUT = {
    "enqueue": "a gang that does not fit holds nothing here, so nothing is held back before allocate",
    "elect": "the plugin reservation chooses the gang that room is kept for",
    "reserve": "the plugin reservation says when room is kept",
    "shuffle": "the action consolidate moves running pods, so that a gang starts",
}
ACTIONS_READ_AS = {"gangpreempt": "preempt", "gangreclaim": "reclaim"}
PLUGINS_LEFT_OUT = {
    "overcommit": "it only widens enqueue, which is not run here",
    "resource-strategy-fit": "nodeorder packs by mostrequested.resources, and spreads by leastrequested.weight",
    "task-topology": "write pod affinity, or roles in one level of a Topology",
    "numaaware": "the kubelet chooses CPUs; GPUs are chosen by their links with any policy",
    "network-topology-aware": "a PodGroup names a level of a Topology, with any policy; HyperNodes are not read",
    "deviceshare": "a pod asks for a share of a GPU by annotations of maniple.dev, with any policy",
    "tdm": "nodes have no time zones; use taints, or node affinity",
    "nodegroup": "a queue has no node groups; use node affinity, or taints",
    "usage": "placement counts requests, not measured use",
    "rescheduling": "the action consolidate moves running pods, so that a gang starts",
    "cdp": "write minRuntimeSeconds in the PodGroup, and cooldownSeconds in an ElasticJob",
    "pdb": "PodDisruptionBudgets are always kept",
    "resourcequota": "the API server refuses pods above a ResourceQuota",
    "extender": "no server is asked; a Python package can offer a plugin",
    "crossquota": "a queue's limit caps what its jobs hold",
    "dynamicresources": "pods with resourceClaims are not placed",
    "fairshare": "drf orders the jobs of a queue, and proportion the queues",
}
# Names of the same plugins in other releases.
PLUGINS_LEFT_OUT |= {
    "numa-aware": PLUGINS_LEFT_OUT["numaaware"],
    "networktopologyaware": PLUGINS_LEFT_OUT["network-topology-aware"],
    "capacity-card": "a queue's limit counts GPUs of all models together",
}
PLUGINS_READ_AS = {"binpack": "nodeorder", "capacity": "proportion", "sla": "reservation"}
SWITCHES_LEFT_OUT = {
    "enableHierarchy": "queues always form the tree that their parent fields say",
    "enabledHierarchy": "queues always form the tree that their parent fields say",
    "enableNamespaceOrder": "namespaces have no order; give each a queue",
    "enableJobEnqueued": "enqueue is not run here",
    "enableJobStarving": "every gang that has not started may take from others",
    "enablePreemptive": "every gang that has not started may take from others",
    "enabledVictim": "there is no shuffle",
    "enableBestNode": "the best node is the one with the highest score",
    "enableTargetJob": "the plugin reservation has no parts that can be switched off",
    "enableReservedNodes": "the plugin reservation has no parts that can be switched off",
    "enabledOverused": "proportion's argument borrow says whether a queue may hold more than it deserves",
    "enabledAllocatable": "a queue's limit always holds",
    "enabledClusterOrder": "there is one cluster",
    "EnabledClusterOrder": "there is one cluster",
    "enabledHyperNodeOrder": "the smallest domain that holds the gang is taken",
    "enabledHyperNodeGradient": "the smallest domain that holds the gang is taken",
    "enabledSubJobReady": "a gang has roles, and no gangs within",
    "enabledSubJobPipelined": "a gang has roles, and no gangs within",
    "enabledSubJobOrder": "a gang has roles, and no gangs within",
}
_HIERARCHY = ("enableHierarchy", "enabledHierarchy")  # true means the same here
# Volcano's weights where they differ from kube-batch's, which are the defaults of nodeorder here.
NODEORDER_WEIGHTS = {
    "nodeaffinity.weight": "2",
    "podaffinity.weight": "2",
    "tainttoleration.weight": "3",
    "imagelocality.weight": "1",
}
# Switches of predicates, and the checks that they turn off.
PREDICATE_SWITCHES = {
    "predicate.NodeAffinityEnable": ("nodeselector",),
    "predicate.NodePortsEnable": ("hostports",),
    "predicate.TaintTolerationEnable": ("taints", "noexecute"),
    "predicate.PodAffinityEnable": ("podaffinity",),
    "predicate.VolumeZoneEnable": ("volumezones",),
    "predicate.PodTopologySpreadEnable": ("topologyspread",),
    "predicate.VolumeBindingEnable": ("volumes",),
    "predicate.NodeVolumeLimitsEnable": ("volumelimits",),
}
# Other arguments of predicates: the value that means the same here (none: any does), and what differs with another.
PREDICATE_ARGUMENTS: dict[str, tuple[str | None, str]] = {
    "predicate.CacheEnable": (None, ""),
    "predicate.DynamicResourceAllocationEnable": ("false", "pods with resourceClaims are not placed"),
    "predicate.ProportionalEnable": (
        "false",
        "no CPU is kept for idle GPUs; the plugin fragmentation avoids such nodes",
    ),
    "predicate.GPUSharingEnable": ("false", "a pod asks for a share of a GPU by annotations of maniple.dev"),
    "predicate.GPUNumberEnable": ("false", "GPUs are always counted and chosen"),
}
_SETTINGS = ("configurations", "metrics")
_UNITS_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}


def is_volcano(given: Mapping[str, Any], is_our_action: IsOurs, is_our_plugin: IsOurs) -> bool:
    """Whether the file uses something that Volcano has, and neither kube-batch nor an installed package."""
    if any(name in given for name in _SETTINGS):
        return True
    words = given.get("actions")
    actions = [word.strip() for word in words.split(",")] if isinstance(words, str) else []
    theirs = {*ACTIONS_LEFT_OUT, *ACTIONS_READ_AS}
    if any(name in theirs and not is_our_action(name) for name in actions):
        return True
    plugins = {*PLUGINS_LEFT_OUT, *PLUGINS_READ_AS}
    arguments = {*PREDICATE_SWITCHES, *PREDICATE_ARGUMENTS, "podtopologyspread.weight"}
    return any(
        (str(entry.get("name")) in plugins and not is_our_plugin(str(entry["name"])))
        or not SWITCHES_LEFT_OUT.keys().isdisjoint(entry)
        or not arguments.isdisjoint(_arguments(entry))
        for _, entry in _entries(given)
    )


def translate(
    given: Mapping[str, Any], source: str, is_our_action: IsOurs, is_our_plugin: IsOurs
) -> tuple[dict[str, Any], list[Note]]:
    """The file as a policy of ours, and what it says that has no counterpart, or another one, here."""
    translation = _Translation(source, is_our_action, is_our_plugin)
    return translation.of(given), translation.notes


@dataclass
class _Translation:
    source: str
    is_our_action: IsOurs
    is_our_plugin: IsOurs
    notes: list[Note] = field(default_factory=list)
    read_as: dict[str, str] = field(default_factory=dict)  # the place of a plugin that is another one here: its name
    evicts_gangs_whole: bool | None = None  # None: the file has no action that would

    def of(self, given: Mapping[str, Any]) -> dict[str, Any]:
        policy = {name: value for name, value in given.items() if name not in _SETTINGS}
        if isinstance(given.get("actions"), str):
            policy["actions"] = self._actions(given["actions"])
        self._configurations(given.get("configurations"))
        if "metrics" in given:
            self._note("metrics", f"left out: {PLUGINS_LEFT_OUT['usage']}")
        if isinstance(given.get("tiers"), list):
            policy["tiers"] = [self._tier(tier, number) for number, tier in enumerate(given["tiers"])]
            self._merge(policy)
        return policy

    def _note(self, where: str, what: str) -> None:
        self.notes.append(Note(where, what))

    def _actions(self, text: str) -> str:
        names: list[str] = []
        for name in (word.strip() for word in text.split(",")):
            if self.is_our_action(name) or name not in {*ACTIONS_LEFT_OUT, *ACTIONS_READ_AS}:
                names.append(name)
            elif name in ACTIONS_LEFT_OUT:
                self._note("actions", f"{name} is left out: {ACTIONS_LEFT_OUT[name]}")
            else:
                ours = ACTIONS_READ_AS[name]
                self.evicts_gangs_whole = True
                self._note("actions", f"{name} is read as {ours}; gang's evict.whole says whether gangs go whole")
                names.append(ours)
        names = list(dict.fromkeys(names))  # preempt beside gangpreempt runs once
        if not names:
            raise InputError([f"{self.source}: actions: none is left that Maniple has; write one such as allocate"])
        return ", ".join(names)

    def _configurations(self, given: object) -> None:
        if given is None:
            return
        if not isinstance(given, list) or not all(isinstance(entry, dict) for entry in given):
            raise InputError([f"{self.source}: configurations: expected a list of maps with 'name' and 'arguments'"])
        for number, entry in enumerate(given):
            name, arguments = entry.get("name"), dict(_arguments(entry))
            where = f"configurations[{number}] ({name})"
            if name in ACTIONS_READ_AS and "allowWholeBundle" in arguments:
                allows = self._boolean(arguments.pop("allowWholeBundle"), f"{where}: allowWholeBundle")
                if self.evicts_gangs_whole is not None:
                    # The actions share one rule here: gangs stay whole as soon as one of them says so.
                    self.evicts_gangs_whole = self.evicts_gangs_whole and allows
            for argument in arguments:
                self._note(where, f"{argument} is left out: actions have no arguments here")

    def _tier(self, tier: object, number: int) -> object:
        if not isinstance(tier, dict) or not isinstance(tier.get("plugins"), list):
            return tier  # an error, later
        plugins = [
            self._plugin(dict(entry), f"tiers[{number}].plugins[{index}]") if isinstance(entry, dict) else entry
            for index, entry in enumerate(tier["plugins"])
        ]
        return {**tier, "plugins": plugins}

    def _plugin(self, entry: Entry, place: str) -> Entry:
        name = entry.get("name")
        where = f"{place} ({name})"
        if not isinstance(name, str) or (self.is_our_plugin(name) and name in {*PLUGINS_LEFT_OUT, *PLUGINS_READ_AS}):
            return entry  # an error later, or a plugin of an installed package
        if name in PLUGINS_LEFT_OUT:
            self._note(where, f"left out: {PLUGINS_LEFT_OUT[name]}")
            return OMITTED
        for switch in [key for key in entry if key in SWITCHES_LEFT_OUT]:
            value = entry.pop(switch)
            if name == "proportion" and switch == "enabledOverused":
                if not self._boolean(value, f"{where}: {switch}"):
                    entry["arguments"] = {"borrow": "true", **_arguments(entry)}
            elif switch not in _HIERARCHY or not self._boolean(value, f"{where}: {switch}"):
                self._note(where, f"{switch} is left out: {SWITCHES_LEFT_OUT[switch]}")
        reader = {
            "predicates": self._predicates,
            "nodeorder": self._nodeorder,
            "binpack": self._binpack,
            "capacity": self._capacity,
            "sla": self._sla,
            "reservation": self._reservation,
            "gang": self._gang,
        }.get(name)
        ours = entry if reader is None else reader(entry, where)
        if name in PLUGINS_READ_AS and ours is not OMITTED:
            self.read_as[place] = name
        return ours

    def _predicates(self, entry: Entry, where: str) -> Entry:
        arguments = dict(_arguments(entry))
        off: set[str] = set()
        for argument in list(arguments):
            if argument in PREDICATE_SWITCHES:
                if not self._boolean(arguments.pop(argument), f"{where}: {argument}"):
                    off.update(PREDICATE_SWITCHES[argument])
            elif argument in PREDICATE_ARGUMENTS:
                same, difference = PREDICATE_ARGUMENTS[argument]
                value = self._boolean(arguments.pop(argument), f"{where}: {argument}")
                if same is not None and value != (same == "true"):
                    self._note(where, f"{argument} is left out: {difference}")
            elif argument.startswith("predicate.resources"):
                del arguments[argument]  # they belong to ProportionalEnable, which has a note
        if off:
            chosen = str(arguments.get("checks", ",".join(CHECKS))).split(",")
            arguments["checks"] = ",".join(name for name in chosen if name.strip() not in off)
        return {**entry, "arguments": arguments}

    def _nodeorder(self, entry: Entry, where: str) -> Entry:
        del where
        arguments = {**NODEORDER_WEIGHTS, **_arguments(entry)}
        if "podtopologyspread.weight" in arguments:
            arguments["topologyspread.weight"] = arguments.pop("podtopologyspread.weight")
        return {**entry, "arguments": arguments}

    def _binpack(self, entry: Entry, where: str) -> Entry:
        """As nodeorder with that score alone; merged with the file's nodeorder afterwards."""
        if entry.get("enableNodeOrder") is False:
            self._note(where, "left out: it is switched off")
            return OMITTED
        arguments = {str(name): value for name, value in _arguments(entry).items()}
        named = [word.strip() for word in str(arguments.pop("binpack.resources", "")).split(",") if word.strip()]
        weights = {"cpu": arguments.pop("binpack.cpu", 1), "memory": arguments.pop("binpack.memory", 1)}
        weights |= {name: arguments.pop(f"binpack.resources.{name}", 1) for name in named}
        weight = arguments.pop("binpack.weight", 1)
        for argument in arguments:
            if not argument.startswith("binpack.resources."):  # of a resource that binpack.resources does not name
                meant = did_you_mean(argument, ("binpack.weight", "binpack.cpu", "binpack.memory", "binpack.resources"))
                raise InputError([f"{self.source}: {where}: unknown argument {argument!r}{meant}"])
        packed = [name for name, value in weights.items() if str(value).strip() != "0"]
        uneven = len({str(weights[name]).strip() for name in packed}) > 1
        equally = "; their weights count as equal" if uneven else ""
        self._note(
            where, f"read as nodeorder's mostrequested.weight, for {', '.join(packed) or 'no resource'}{equally}"
        )
        others = ("leastrequested", "balancedresource", "nodeaffinity", "podaffinity", "topologyspread")
        return {
            **entry,
            "name": "nodeorder",
            "arguments": {
                **{f"{name}.weight": "0" for name in others},
                "mostrequested.weight": weight if packed else 0,
                "mostrequested.resources": ",".join(packed) or "cpu",
            },
        }

    def _capacity(self, entry: Entry, where: str) -> Entry:
        for argument in _arguments(entry):
            self._note(where, f"{argument} is left out: proportion has no such argument")
        self._note(
            where,
            "read as proportion with borrow: a Queue gets its deserved first, as far as it asks; what is then left "
            "follows weights",
        )
        return {**entry, "name": "proportion", "arguments": {"borrow": "true"}}

    def _sla(self, entry: Entry, where: str) -> Entry:
        waiting = _arguments(entry).get("sla-waiting-time")
        if waiting is None:
            self._note(where, "left out: it names no sla-waiting-time, and annotations of jobs are not read")
            return OMITTED
        patience_s = _seconds(str(waiting))
        if patience_s is None:
            place = f"{self.source}: {where}: argument sla-waiting-time"
            raise InputError([f"{place}: expected a duration such as 1h30m, got {waiting!r}"])
        self._note(where, "read as reservation with this patience; it does not change the order of jobs")
        return {"name": "reservation", "arguments": {"patience": f"{patience_s:g}"}}

    def _reservation(self, entry: Entry, where: str) -> Entry:
        self._note(where, "keeps room for the first gang of a queue once it has waited for its patience")
        return entry

    def _gang(self, entry: Entry, where: str) -> Entry:
        del where
        if not self.evicts_gangs_whole:
            return entry
        return {**entry, "arguments": {"evict.whole": "true", **_arguments(entry)}}

    def _merge(self, policy: Mapping[str, Any]) -> None:
        """What was read as a plugin of ours joins the file's own entry of that plugin."""
        entries = dict(_entries(policy))
        own = {str(entry.get("name")): entry for place, entry in entries.items() if place not in self.read_as}
        for place, theirs in self.read_as.items():
            ours = PLUGINS_READ_AS[theirs]
            if ours not in own:
                continue
            if ours == "proportion":
                raise InputError([f"{self.source}: capacity and proportion exclude each other; remove one of them"])
            self._join(own[ours], entries[place], ours)
            number, index = map(int, re.findall(r"\d+", place))
            policy["tiers"][number]["plugins"][index] = OMITTED

    def _join(self, own: Entry, other: Entry, name: str) -> None:
        arguments, more = dict(_arguments(own)), _arguments(other)
        if name == "reservation":
            own["arguments"] = {**more, **arguments}
            return
        weight = str(arguments.get("mostrequested.weight", "0"))
        if weight.strip() not in ("0", "0.0"):
            self._note("nodeorder", "its mostrequested.weight gives way to binpack's: there is one such score")
        packing = {key: more[key] for key in ("mostrequested.weight", "mostrequested.resources")}
        own["arguments"] = {**arguments, **packing}

    def _boolean(self, value: object, where: str) -> bool:
        word = str(value).strip().lower()
        if word not in ("true", "false"):
            raise InputError([f"{self.source}: {where}: expected true or false, got {value!r}"])
        return word == "true"


def _entries(given: Mapping[str, Any]) -> list[tuple[str, Entry]]:
    """(place, plugin) of every plugin that is a map."""
    tiers = given.get("tiers")
    return [
        (f"tiers[{number}].plugins[{index}]", entry)
        for number, tier in enumerate(tiers if isinstance(tiers, list) else [])
        if isinstance(tier, dict) and isinstance(tier.get("plugins"), list)
        for index, entry in enumerate(tier["plugins"])
        if isinstance(entry, dict)
    ]


def _arguments(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Empty where they are not a map, which is an error later."""
    arguments = entry.get("arguments")
    return arguments if isinstance(arguments, dict) else {}


def _seconds(text: str) -> float | None:
    """`1h2m3s`, as Go writes durations; None if it is not one, or not above 0."""
    parts = re.findall(r"(\d+(?:\.\d*)?)(h|ms|us|µs|μs|ns|m|s)", text.strip())
    if not parts or "".join(map("".join, parts)) != text.strip():
        return None
    seconds = sum(float(number) * _UNITS_S[unit] for number, unit in parts)
    return seconds if 0 < seconds <= 1e9 else None
