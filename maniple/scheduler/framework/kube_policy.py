"""kube-scheduler's older `kind: Policy` files: predicates by name, priorities by name and weight.

Each name selects the equivalent check or score here. The final score is the sum of weight x score, as in
kube-scheduler. A name, argument or extender without a counterpart is an error. Gangs, queues and priorities work as in
the default policy: a Policy file says only where a pod may go and which node is best.
"""

from collections.abc import Mapping
from typing import TypeGuard

from maniple.api.errors import InputError, nearest

PREDICATES: dict[str, tuple[str, ...]] = {
    "GeneralPredicates": ("nodename", "hostports", "nodeselector"),
    "PodFitsResources": (),  # always checked here: a node is never over-committed
    "PodFitsHost": ("nodename",),
    "HostName": ("nodename",),
    "PodFitsHostPorts": ("hostports",),
    "PodFitsPorts": ("hostports",),
    "MatchNodeSelector": ("nodeselector",),
    "PodToleratesNodeTaints": ("taints", "noexecute"),
    "PodToleratesNodeNoExecuteTaints": ("noexecute",),
    "CheckNodeUnschedulable": ("unschedulable",),
    "CheckNodeCondition": ("ready", "unschedulable"),
    "CheckNodeMemoryPressure": ("memorypressure",),
    "CheckNodeDiskPressure": ("diskpressure",),
    "CheckNodePIDPressure": ("pidpressure",),
    "NoDiskConflict": ("disks", "claimsharing"),
    "MaxCSIVolumeCountPred": ("volumelimits",),
    "NoVolumeZoneConflict": ("volumezones",),
    "NoVolumeNodeConflict": ("volumes",),
    "CheckVolumeBinding": ("volumes",),
    "MatchInterPodAffinity": ("podaffinity",),
    "EvenPodsSpread": ("topologyspread",),
}
PRIORITIES: dict[str, str | None] = {
    "LeastRequestedPriority": "leastrequested.weight",
    "MostRequestedPriority": "mostrequested.weight",
    "BalancedResourceAllocation": "balancedresource.weight",
    "NodeAffinityPriority": "nodeaffinity.weight",
    "InterPodAffinityPriority": "podaffinity.weight",
    "EvenPodsSpreadPriority": "topologyspread.weight",
    "TaintTolerationPriority": "tainttoleration.weight",
    "ImageLocalityPriority": "imagelocality.weight",
    "SelectorSpreadPriority": "selectorspread.weight",
    "ServiceSpreadingPriority": "selectorspread.weight",
    "EqualPriority": None,  # the same for every node
}
_KNOWN = {
    "kind",
    "apiVersion",
    "predicates",
    "priorities",
    "extenders",
    "hardPodAffinitySymmetricWeight",
    "alwaysCheckAllPredicates",
}
# kube-scheduler's priorities for a file without a list.
_DEFAULT_PRIORITIES = [
    {"name": name, "weight": 1}
    for name in (
        "LeastRequestedPriority",
        "BalancedResourceAllocation",
        "SelectorSpreadPriority",
        "InterPodAffinityPriority",
        "NodeAffinityPriority",
        "TaintTolerationPriority",
        "ImageLocalityPriority",
    )
]


def translate(given: Mapping[str, object], source: str) -> dict[str, object]:
    """The Policy file as a policy in Maniple's format."""
    wrong = [f"{source}: unknown setting {name!r}{nearest(name, _KNOWN)}" for name in given if name not in _KNOWN]
    if given.get("apiVersion", "v1") != "v1":
        wrong.append(f"{source}: apiVersion: expected v1, got {given['apiVersion']!r}")
    if given.get("extenders"):
        wrong.append(f"{source}: extenders have no counterpart here; remove them")
    checks = _checks(given.get("predicates"), source, wrong)
    weights = _weights(given.get("priorities"), source, wrong)
    symmetric = given.get("hardPodAffinitySymmetricWeight", 0)
    _check_whole_number(symmetric, 0, 100, f"{source}: hardPodAffinitySymmetricWeight", wrong)
    if not isinstance(given.get("alwaysCheckAllPredicates", False), bool):
        wrong.append(f"{source}: alwaysCheckAllPredicates: expected true or false")
    if wrong:
        raise InputError(wrong)
    weights["podaffinity.symmetric"] = str(symmetric or 1)  # kube-scheduler reads 0 as the default, 1
    return {
        "actions": "allocate, backfill",
        "tiers": [
            {"plugins": [{"name": "gang"}, {"name": "priority"}, {"name": "conformance"}]},
            {
                "plugins": [
                    {"name": "drf"},
                    {"name": "predicates", "arguments": checks},
                    {"name": "proportion", "arguments": {"borrow": "true"}},
                    {"name": "nodeorder", "arguments": weights},
                ]
            },
        ],
    }


def _checks(given: object, source: str, wrong: list[str]) -> dict[str, str]:
    if given is None:
        return {}  # all of them
    chosen: set[str] = set()
    for where, name, entry in _entries(given, f"{source}: predicates", "order", wrong):
        if "argument" in entry:
            wrong.append(
                f"{where}: predicate {name!r} with an argument has no counterpart here; use node affinity instead"
            )
        elif name in PREDICATES:
            chosen.update(PREDICATES[name])
        else:
            wrong.append(f"{where}: predicate {name!r} has no counterpart here{nearest(name, PREDICATES)}")
    return {"checks": ",".join(sorted(chosen))}


def _weights(given: object, source: str, wrong: list[str]) -> dict[str, str]:
    weights = dict.fromkeys((argument for argument in PRIORITIES.values() if argument), 0)
    entries = _entries(_DEFAULT_PRIORITIES if given is None else given, f"{source}: priorities", "weight", wrong)
    for where, name, entry in entries:
        weight = entry.get("weight", 1)
        if "argument" in entry:
            wrong.append(f"{where}: priority {name!r} with an argument has no counterpart here")
        elif name not in PRIORITIES:
            wrong.append(f"{where}: priority {name!r} has no counterpart here{nearest(name, PRIORITIES)}")
        elif _check_whole_number(weight, 1, 1_000_000, f"{where}: weight", wrong) and (argument := PRIORITIES[name]):
            weights[argument] += weight
    return {name: str(weight) for name, weight in weights.items()}


def _check_whole_number(value: object, least: int, most: int, where: str, wrong: list[str]) -> TypeGuard[int]:
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return True
    wrong.append(f"{where}: expected a whole number from {least} to {most}, got {value!r}")
    return False


def _entries(given: object, where: str, own: str, wrong: list[str]) -> list[tuple[str, str, dict[str, object]]]:
    """(place, name, entry) of each entry; `own` is the setting that only these entries may have."""
    if not isinstance(given, list):
        wrong.append(f"{where}: expected a list")
        return []
    entries: list[tuple[str, str, dict[str, object]]] = []
    for number, entry in enumerate(given):
        place = f"{where}[{number}]"
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(entry, dict) or not isinstance(name, str):
            wrong.append(f"{place}: expected a map with a 'name'")
            continue
        unknown = set(entry) - {"name", "argument", own}
        wrong.extend(f"{place}: unknown setting {key!r}" for key in sorted(unknown))
        entries.append((place, name, entry))
    return entries
