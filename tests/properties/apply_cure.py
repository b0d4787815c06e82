"""Changes a cluster as `wouldStartIf` says, word by word, to check whether the gang then starts.

It must never import anything of maniple: the meaning of a sentence is decided here, from its text alone.
A sentence that is not exact enough (it says how much is missing, but not where) is left alone.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator

from properties.cluster_facts import gang_of
from properties.gpu_facts import GPU
from properties.raw_objects import Object, at, key_of, quantity, rows, strings, table, text

_ALTERNATIVES = re.compile(r", or (?:its limit were so much higher|spec\.\w+ (?:were true|named a wider level))")
_BASE = (
    r"(?:room for [\d,]+ more came free(?: (?:in|on) \S+(?: [\w./-]+)?)?"
    r"(?: and the cluster were larger by [\d,]+ pods?)?"
    r"|the cluster had room for [\d,]+(?: more)?"
    r"|an? \w+ were large enough)"
)
_AMOUNTS = r"(?:\S+ \S+|room for \d+ pods?)(?:(?:, | and )(?:\S+ \S+|room for \d+ pods?))*?"
_NAMES = r"(?:node (?P<name>[\w.-]+)|nodes (?P<names>[\w.-]+(?:, [\w.-]+)* and [\w.-]+) each)"
_REFUSALS = r"did not refuse it \((?P<refusals>(?:[^()]|\([^()]*\))*)\)"
_GPUS = r"had (?P<gpus>\d+) more GPU(?:s, each)? with (?:all|[\d.]+) of it free"
_NODE = re.compile(
    rf"{_NAMES}(?: (?:and )?{_REFUSALS})?(?: (?:and )?had (?P<amounts>{_AMOUNTS}) more)?(?: (?:and )?{_GPUS})?"
)
_LIMIT = re.compile(r"(?:the limit|that) of queue '(?P<queue>\w+)' were at least (?P<amount>\S+) (?P<resource>\S+)")
_GIVES = re.compile(r"queue '(?P<queue>\w+)' gave back (?P<amount>\S+) (?P<resource>\S+)")
_GATES = re.compile(r"(?:its scheduling|the) gates are removed")
_PODS = re.compile(r"the missing pods are created")
_SUSPENDED = re.compile(r"spec\.suspend is set to false")


def cured(objects: list[Object], group: str, would: str) -> list[Object] | None:
    """The cluster after the change that `would` names for the gang; None if the sentence is not exact enough."""
    cure = _Cure(copy.deepcopy(objects), group)
    rest = re.sub(rf"{_BASE}, such as if ", "", _ALTERNATIVES.sub("", would))
    while rest:
        done = next((length for length in cure.do(rest) if length), 0)
        if not done:
            return None
        rest = re.sub(r"^ and ", "", rest[done:])
    return cure.objects


class _Cure:
    def __init__(self, objects: list[Object], group: str) -> None:
        self.objects = objects
        self.group = group

    def do(self, rest: str) -> Iterator[int]:
        """Makes the change at the beginning of the sentence. Returns the length of that part, 0 if it is unknown."""
        for pattern, act in (
            (_NODE, self.change_nodes),
            (_LIMIT, self.raise_limit),
            (_GIVES, self.raise_limit),
            (_GATES, self.open_gates),
            (_PODS, self.create_pods),
            (_SUSPENDED, self.resume),
        ):
            match = pattern.match(rest)
            yield match.end() if match and act(match) else 0

    def find(self, kind: str, name: str) -> Object:
        return next(item for item in self.objects if item["kind"] == kind and text(item, "metadata", "name") == name)

    def edit(self, item: Object, *path: str) -> Object:
        """The map at the path, made where there is none."""
        for key in path:
            if not isinstance(item.get(key), dict):
                item[key] = {}
            item = item[key]  # type: ignore[assignment]
        return item

    # Nodes.

    def change_nodes(self, match: re.Match[str]) -> bool:
        if not (match["refusals"] or match["amounts"] or match["gpus"]):
            return False
        names = [match["name"]] if match["name"] else re.split(", | and ", match["names"])
        refusals = match["refusals"].split("; ") if match["refusals"] else []
        amounts = re.split(", | and ", match["amounts"]) if match["amounts"] else []
        amounts += [f"{match['gpus']} {GPU}"] if match["gpus"] else []
        nodes = [self.find("Node", name) for name in names]
        return all(self.please(node, reason) for node in nodes for reason in refusals) and all(
            self.enlarge(node, amount) for node in nodes for amount in amounts
        )

    def enlarge(self, node: Object, written: str) -> bool:
        if "maniple.dev/gpu-topology" in strings(node, "metadata", "annotations"):
            return False  # another GPU would need a place among the links
        amount, resource = (written.split()[2], "pods") if written.startswith("room for ") else written.split()
        has = self.edit(node, "status", "allocatable")
        total = quantity(has.get(resource, 0)) + quantity(amount)
        has[resource] = f"{total * 1000}m" if (total * 1000).denominator == 1 else f"{float(total):f}"
        return True

    def please(self, node: Object, reason: str) -> bool:
        """Removes from the node the reason why it refused the pods."""
        spec, labels = self.edit(node, "spec"), self.edit(node, "metadata", "labels")
        if match := re.fullmatch(r"taint (\S+):(\w+) is not tolerated", reason):
            key, _, value = match[1].partition("=")
            taint = (key, value, match[2])
            kept = [row for row in rows(spec, "taints") if _taint(row) != taint]
            spec["taints"] = kept
        elif match := re.fullmatch(r"node lacks label (\S+)=(\S*)", reason):
            labels[match[1]] = match[2]
        elif reason == "node is cordoned":
            spec["unschedulable"] = False
        elif reason == "node is not ready" or reason.endswith("pressure"):
            self.edit(node, "status")["conditions"] = []
        else:
            return False
        return True

    # Queues.

    def raise_limit(self, match: re.Match[str]) -> bool:
        limit = self.edit(self.find("Queue", match["queue"]), "spec", "limit")
        had = quantity(limit[match["resource"]])
        amount = quantity(match["amount"])
        total = max(had, amount) if "at least" in match[0] else had + amount
        limit[match["resource"]] = f"{total * 1000}m"
        return True

    # The gang itself.

    def open_gates(self, match: re.Match[str]) -> bool:
        """Fails if the shape of the gated pods is unknown."""
        del match
        specs = [{**table(pod, "spec"), "schedulingGates": None} for pod in self.pods()]
        is_closed = all(rows(pod, "spec", "schedulingGates") for pod in self.pods())
        if is_closed or any(spec != specs[0] for spec in specs):
            return False
        for pod in self.pods():
            self.edit(pod, "spec").pop("schedulingGates", None)
        return True

    def create_pods(self, match: re.Match[str]) -> bool:
        """As many as the minimum, if their shape is known."""
        del match
        pods = self.pods()
        groups = [item for item in self.objects if item["kind"] == "PodGroup" and key_of(item) == self.group]
        if not pods or not groups or rows(groups[0], "spec", "roles"):
            return False
        if any(table(pod, "spec") != table(pods[-1], "spec") for pod in pods):
            return False
        minimum = quantity(at(groups[0], "spec", "minMember") or 1)
        for number in range(max(0, int(minimum) - len(pods))):
            made = copy.deepcopy(pods[-1])
            self.edit(made, "metadata")["name"] = f"{text(made, 'metadata', 'name')}-new-{number}"
            self.objects.append(made)
        return True

    def resume(self, match: re.Match[str]) -> bool:
        del match
        (job,) = [item for item in self.objects if item["kind"] == "ElasticJob" and key_of(item) == self.group]
        self.edit(job, "spec")["suspend"] = False
        return True

    def pods(self) -> list[Object]:
        """The gang's pods that have not ended."""
        over = ("Succeeded", "Failed")
        mine = [item for item in self.objects if item["kind"] == "Pod" and gang_of(item) == self.group]
        return [pod for pod in mine if text(pod, "status", "phase") not in over]


def _taint(row: object) -> tuple[str, str, str]:
    return text(row, "key"), text(row, "value"), text(row, "effect")


def alone(objects: list[Object], group: str) -> list[Object]:
    """The cluster without other waiting gangs: the order of gangs is not judged here."""

    def waits(item: Object) -> bool:
        return item["kind"] == "Pod" and not text(item, "spec", "nodeName") and gang_of(item) != group

    runs = {gang_of(item) for item in objects if item["kind"] == "Pod" and text(item, "spec", "nodeName")}
    kept: Callable[[Object], bool] = lambda item: (  # noqa: E731
        item["kind"] != "ElasticJob" or key_of(item) == group or (key_of(item) in runs and not _has_target(item))
    )
    return [item for item in objects if not waits(item) and kept(item)]


def _has_target(item: Object) -> bool:
    return bool(table(item, "status").get("target"))
