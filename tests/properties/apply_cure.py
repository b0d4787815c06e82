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

_ALTERNATIVES = re.compile(
    r" \((?:or its limit were [^)]*|or spec\.preemptable were true)\)"
    r"|, or [\d,]+ pods? of \S+ moved from .*$"
    r"|, or spec\.\w+ (?:were true|named a wider level)| \(held by [^()]*\)"
)
_GPUS = r"(?:\d+ whole GPUs?|\d\S* of (?:a GPU|each of \d+ GPUs))(?: of \S+(?: or \S+)*)?"
_AMOUNT = rf"(?:\d\S* (?!of )\S+|room for \d+ pods?|{_GPUS})"
_AMOUNTS = rf"{_AMOUNT}(?:(?:, | and ){_AMOUNT})*"
_NAMES = r"[\w.-]+(?:, [\w.-]+)*(?: and (?!\d+ others? )[\w.-]+)?"
_PLACE = rf"(?P<amounts>{_AMOUNTS}) on (?:each of )?nodes? (?P<names>{_NAMES})"
_FREE = re.compile(
    rf"(?P<all>{re.sub(r'[?]P<[a-z]+>', '?:', _PLACE)}(?:(?:, | and ){re.sub(r'[?]P<[a-z]+>', '?:', _PLACE)})*)"
    r" came free(?: in \w+ [\w./-]+)?"
)
_ONE_PLACE = re.compile(_PLACE + r"(?:, | and |$)")
_TAKES = re.compile(rf"nodes? (?P<names>{_NAMES}) did not refuse it \((?P<refusals>(?:[^()]|\([^()]*\))*)\)")
_ADDED = re.compile(
    rf"(?P<count>a|[\d,]+) nodes? like (?P<name>[\w.-]+?)(?: but with (?P<amounts>{_AMOUNTS}))?"
    r"(?: that did not refuse it \((?P<refusals>(?:[^()]|\([^()]*\))*)\))? were added(?: in \w+ [\w./-]+)?"
)
_LARGER = re.compile(rf"node (?P<name>[\w.-]+) had (?P<amounts>{_AMOUNTS}) in all")
_LIMIT = re.compile(
    r"(?:the limit|that) of queue '(?P<queue>\w+)' were at least (?P<amounts>\S+ [^\s,]+(?:, \S+ [^\s,]+)*)"
)
_GIVES = re.compile(r"queue '(?P<queue>\w+)' gave back (?P<amounts>\S+ \S+)")
_GUARANTEE = re.compile(
    r"the guarantee of queue '(?P<queue>\w+)' were at least (?P<amounts>\S+ [^\s,]+(?:, \S+ [^\s,]+)*)"
)
_GATES = re.compile(r"its scheduling gates were removed")
_PODS = re.compile(r"the missing pods were created")
_SUSPENDED = re.compile(r"spec\.suspend were false")


def cured(objects: list[Object], group: str, would: str) -> list[Object] | None:
    """The cluster after the change that `would` names for the gang; None if the sentence is not exact enough."""
    cure = _Cure(copy.deepcopy(objects), group)
    rest = _ALTERNATIVES.sub("", would)
    while rest:
        done = next((length for length in cure.do(rest) if length), 0)
        if not done:
            return None
        rest = re.sub(r"^ and ", "", rest[done:])
    return cure.objects


def without_room(would: str) -> str:
    """The conditions before the one about room on nodes; empty if there are none, or if room is asked for in parts."""
    text = _ALTERNATIVES.sub("", would)
    rest = next((text[: match.start()] for match in re.finditer(" and ", text) if _is_room(text[match.end() :])), "")
    return "" if re.search("came free|were added|refuse", rest) else rest


def _is_room(sentence: str) -> bool:
    patterns = (_FREE, _TAKES, _ADDED, _LARGER)
    return any((match := pattern.match(sentence)) and match.end() == len(sentence) for pattern in patterns)


class _Cure:
    def __init__(self, objects: list[Object], group: str) -> None:
        self.objects = objects
        self.group = group

    def do(self, rest: str) -> Iterator[int]:
        """Makes the change at the beginning of the sentence. Returns the length of that part, 0 if it is unknown."""
        for pattern, act in (
            (_FREE, self.free),
            (_TAKES, self.open_nodes),
            (_ADDED, self.add_nodes),
            (_LARGER, self.replace_node),
            (_LIMIT, self.raise_limit),
            (_GIVES, self.raise_limit),
            (_GUARANTEE, self.raise_guarantee),
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

    def free(self, match: re.Match[str]) -> bool:
        """What comes free is added: who would have to leave for it is not judged here."""
        places = list(_ONE_PLACE.finditer(match["all"]))
        if "".join(place[0] for place in places) != match["all"]:
            return False
        return all(
            self.enlarge(self.find("Node", name), amount)
            for place in places
            for name in _split(place["names"])
            for amount in _split(place["amounts"])
        )

    def open_nodes(self, match: re.Match[str]) -> bool:
        nodes = [self.find("Node", name) for name in _split(match["names"])]
        return all(self.please(node, reason) for node in nodes for reason in match["refusals"].split("; "))

    def add_nodes(self, match: re.Match[str]) -> bool:
        """Copies of the node, empty and under names of their own."""
        count = 1 if match["count"] == "a" else int(match["count"].replace(",", ""))
        for number in range(count):
            node = copy.deepcopy(self.find("Node", match["name"]))
            name = f"{match['name']}-new-{len(self.objects)}-{number}"
            self.edit(node, "metadata")["name"] = name
            labels = self.edit(node, "metadata", "labels")
            if "kubernetes.io/hostname" in labels:
                labels["kubernetes.io/hostname"] = name
            amounts = _split(match["amounts"]) if match["amounts"] else []
            refusals = match["refusals"].split("; ") if match["refusals"] else []
            if not all(self.enlarge(node, amount, in_all=True) for amount in amounts):
                return False
            if not all(self.please(node, reason) for reason in refusals):
                return False
            self.objects.append(node)
        return True

    def replace_node(self, match: re.Match[str]) -> bool:
        node = self.find("Node", match["name"])
        return all(self.enlarge(node, amount, in_all=True) for amount in _split(match["amounts"]))

    def enlarge(self, node: Object, written: str, *, in_all: bool = False) -> bool:
        if "maniple.dev/gpu-topology" in strings(node, "metadata", "annotations"):
            return False  # another GPU would need a place among the links
        words = written.split()
        if "GPU" in written:  # a part of a GPU comes with a GPU
            words = [next((word for word in reversed(words) if word.isdecimal()), "1"), GPU]
            if " of a GPU" in written:
                words[0] = "1"
        amount, resource = (words[2], "pods") if words[0] == "room" else words
        has = self.edit(node, "status", "allocatable")
        total = quantity(amount) if in_all else quantity(has.get(resource, 0)) + quantity(amount)
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
        for written in match["amounts"].split(", "):
            amount, resource = written.split()
            had = quantity(limit[resource])
            total = max(had, quantity(amount)) if "at least" in match[0] else had + quantity(amount)
            limit[resource] = f"{total * 1000}m"
        return True

    def raise_guarantee(self, match: re.Match[str]) -> bool:
        """A limit below the guarantee would be an error: it is raised, too."""
        if not any(
            item["kind"] == "Queue" and text(item, "metadata", "name") == match["queue"] for item in self.objects
        ):
            api = "maniple.dev/v1alpha1"
            self.objects.append({"apiVersion": api, "kind": "Queue", "metadata": {"name": match["queue"]}})
        spec = self.edit(self.find("Queue", match["queue"]), "spec")
        for written in match["amounts"].split(", "):
            amount, resource = written.split()
            for field in ("guaranteed", "limit"):
                has = self.edit(spec, field) if field == "guaranteed" or resource in table(spec, field) else {}
                has[resource] = f"{max(quantity(has.get(resource, 0)), quantity(amount)) * 1000}m"
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


def _split(written: str) -> list[str]:
    return re.split(", | and ", written)


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
