"""What a policy does: its actions, its plugins with their arguments, what is off, and what was not read. Pure."""

import inspect
from collections.abc import Iterable, Sequence

import msgspec

from maniple.scheduler import Policy
from maniple.scheduler.actions import ACTIONS
from maniple.scheduler.framework.policy import PluginChoice
from maniple.scheduler.plugins import PLUGINS

# What each built-in action and plugin does, as docs/index.md says it.
ACTION_WORDS = {
    "allocate": "gives free resources to the next gangs",
    "shrink": "takes back the surplus of elastic jobs",
    "reclaim": "takes back from other queues what a queue deserves or is guaranteed",
    "preempt": "evicts lower-priority work in the same queue",
    "backfill": "places pods that request nothing, and fills reserved room without delaying its gang",
    "consolidate": "moves running pods so that a gang finds its room together",
    "release": "evicts gangs that stay below their minimum",
    "grow": "grows elastic jobs with what is left",
}
PLUGIN_WORDS = {
    "priority": "which job matters more",
    "gang": "when a job may start, and which of its pods may be evicted",
    "conformance": "what is never evicted",
    "drf": "which job of a queue is next",
    "predicates": "which nodes may take a pod",
    "proportion": "what each queue deserves",
    "nodeorder": "which node is best",
    "topology": "which node has well-linked GPUs",
    "fragmentation": "where a pod strands least for others",
    "elastic": "when growing a job pays off",
    "reservation": "when room is reserved for a waiting gang",
    "consolidation": "what moving running pods may cost",
}
_SPEEDS = "how much a GPU of each model counts, in shares"
# What each argument of a built-in plugin says; its page has the details.
ARGUMENT_WORDS = {
    ("priority", "surplus.preempts"): "whether surplus takes surplus of lower priority in its queue",
    ("gang", "evict.whole"): "whether a gang may be evicted whole",
    ("drf", "gpu.speeds"): _SPEEDS,
    ("proportion", "borrow"): "whether a queue may hold more than it deserves while others do not use it",
    ("proportion", "divide.byPriority"): "whether queues of a higher priority get what they ask for first",
    ("proportion", "gpu.speeds"): _SPEEDS,
    ("proportion", "preemptable.guarantee"): "whether jobs with preemptable: false start only within a guarantee",
    ("predicates", "checks"): "the checks that run",
    ("predicates", "predicate.MemoryPressureEnable"): "whether nodes with memory pressure are refused",
    ("predicates", "predicate.DiskPressureEnable"): "whether nodes with disk pressure are refused",
    ("predicates", "predicate.PIDPressureEnable"): "whether nodes with PID pressure are refused",
    ("nodeorder", "leastrequested.weight"): "spread by CPU and memory",
    ("nodeorder", "mostrequested.weight"): "pack by mostrequested.resources",
    ("nodeorder", "mostrequested.resources"): "the resources to pack by",
    ("nodeorder", "balancedresource.weight"): "use CPU and memory evenly",
    ("nodeorder", "nodeaffinity.weight"): "preferred node affinity",
    ("nodeorder", "podaffinity.weight"): "preferred pod affinity and anti-affinity",
    ("nodeorder", "podaffinity.symmetric"): "other pods' required affinity towards this one",
    ("nodeorder", "sparegpunodes.weight"): "keep pods without GPUs off GPU nodes",
    ("nodeorder", "topologyspread.weight"): "topology spread with ScheduleAnyway",
    ("nodeorder", "tainttoleration.weight"): "avoid PreferNoSchedule taints",
    ("nodeorder", "imagelocality.weight"): "prefer nodes that have the images",
    ("nodeorder", "selectorspread.weight"): "spread the pods of one controller",
    ("topology", "links.weight"): "prefer nodes where a ring over the pod's GPUs is fast",
    ("fragmentation", "weight"): "points for a tenth of a GPU that is not lost to others",
    ("elastic", "horizon"): "seconds within which a resize must pay",
    ("elastic", "crossing"): "the part of its gain that counts when a job spreads to a second node",
    ("consolidation", "movesPerHour"): "the most jobs that are moved in an hour",
    ("consolidation", "cooldown"): "seconds between two moves of a job",
    ("consolidation", "horizon"): "seconds within which a gang that starts must gain more than the moved jobs lose",
    ("consolidation", "restart"): "seconds that a PodGroup loses by a move",
    ("consolidation", "consolidate.idle"): "whether running jobs are gathered while nothing waits",
    ("consolidation", "idle.interval"): "seconds from the last move of a job until others are gathered",
    ("consolidation", "idle.worth"): "what a GPU that is gathered gains, in parts of one that starts to work",
    ("reservation", "patience"): "seconds that a gang waits before room is reserved for it",
}


class ActionView(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    does: str


class ArgumentView(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    value: str
    is_default: bool
    does: str


class PluginView(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    tier: int  # from 1
    decides: str
    arguments: tuple[ArgumentView, ...]
    off: tuple[str, ...]  # switches


class NoteView(msgspec.Struct, frozen=True, rename="camel"):
    where: str
    what: str


class PolicyView(msgspec.Struct, frozen=True, rename="camel"):
    source: str
    format: str
    actions: tuple[ActionView, ...]
    plugins: tuple[PluginView, ...]
    unused_actions: tuple[str, ...]  # built-in ones that the policy does not name
    unused_plugins: tuple[str, ...]
    notes: tuple[NoteView, ...]


def policy_view(policy: Policy, source: str) -> PolicyView:
    actions = [name for name, _ in policy.actions]
    choices = [(number, choice) for number, tier in enumerate(policy.tiers, start=1) for choice in tier]
    return PolicyView(
        source=source,
        format=str(policy.format),
        actions=tuple(ActionView(name, _words(ACTION_WORDS.get(name), action)) for name, action in policy.actions),
        plugins=tuple(_plugin(number, choice) for number, choice in choices),
        unused_actions=_missing(ACTIONS, actions),
        unused_plugins=_missing(PLUGINS, [choice.name for _, choice in choices]),
        notes=tuple(NoteView(note.where, note.what) for note in policy.notes),
    )


def _plugin(tier: int, choice: PluginChoice) -> PluginView:
    arguments = tuple(
        ArgumentView(name, _shown(value), name not in choice.given, ARGUMENT_WORDS.get((choice.name, name), ""))
        for name, value in choice.values.items()
    )
    return PluginView(
        choice.name, tier, _words(PLUGIN_WORDS.get(choice.name), choice.plugin), arguments, choice.switched_off
    )


def _words(known: str | None, thing: object) -> str:
    """The first line of its own documentation, where it is another package's."""
    if known is not None:
        return known
    text = inspect.getdoc(type(thing)) or inspect.getdoc(inspect.getmodule(type(thing))) or ""
    return text.partition("\n")[0].strip()


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple | list):
        return ", ".join(map(_shown, value)) or "none"
    return str(value)


def _missing(known: Iterable[str], used: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in known if name not in used)
