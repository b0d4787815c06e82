"""Plans every scenario of the tables beside this file and compares. README.md describes how they are written.

In every scenario the referee must find no broken promise, and further planning must settle and stay settled.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml
from properties.cluster_facts import gang_of, key_of, quantity
from properties.referee import violations

from maniple.api.decode.decode import decode
from maniple.cluster.in_memory_cluster import MemoryCluster, run_rounds
from maniple.model.building.input_objects import sort_objects
from maniple.model.pods_we_schedule import Ours
from maniple.scheduler import load_policy
from scenarios.later_rounds import after_rounds, chapters, leaving, newest, with_events
from scenarios.shorthand import START, moment, objects_of, policy_of
from scenarios.strict_maps import Fields, Table, amounts, merged, unrolled

CLUSTER = (
    "nodes",
    "levels",
    "queues",
    "gangs",
    "jobs",
    "pods",
    "claims",
    "classes",
    "budgets",
    "objects",
    "policy",
    "now",
)
EXPECTED = ("expect", "then", "settled", "cure", "cured")
EVICTED = {
    "preempted": "Preempted",
    "reclaimed": "Reclaimed",
    "shrunk": "Shrunk",
    "displaced": "Displaced",
    "released": "Stale",
}
QUIET_ROUNDS = 5
MOST_ROUNDS = 100


class Loader(yaml.SafeLoader):
    """YAML in which a duplicate key of a map is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        made = super().construct_mapping(node, deep)
        if len(made) < len(node.value):
            raise ValueError(f"a key stands twice:{node.start_mark}")
        return made


def scenarios() -> Iterator[Any]:
    for path in sorted(Path(__file__).parent.glob("*.yaml")):
        file = yaml.load(path.read_text(), Loader)
        for scenario in file["scenarios"]:
            made = merged(file.get("defaults", {}), scenario)
            other = made.pop("kube-batch", None)
            yield pytest.param(made, id=f"{path.stem}: {made['name']}")
            if other is not None:
                kept = {key: value for key, value in made.items() if "expect" not in other or key not in EXPECTED}
                changed = {**kept, "policy": "kube-batch", **other}
                yield pytest.param(changed, id=f"{path.stem}: {made['name']} (kube-batch)")


@pytest.mark.parametrize("scenario", list(scenarios()))
def test_scenario(scenario: Table) -> None:
    fields = Fields("scenario", scenario)
    fields.take_some((*CLUSTER, *EXPECTED, "name"))
    fields.finish()
    assert scenario.keys() & {"expect", "settled"}, "a scenario expects something"
    objects, policy = objects_of(scenario), policy_of(scenario)
    now: float = scenario.get("now", newest(objects))
    story = chapters(scenario)
    names = Names(objects)
    before = 0
    for chapter in story:
        if chapter.events:
            now += chapter.events.get("after", 1) - 1
            objects = with_events(objects, chapter.events, now)
            names.add(objects)
        length = len(chapter.rounds)
        if chapter is story[-1]:
            made, rests = plan_to_rest(objects, policy, length, now)
        else:
            made, rests = plan(objects, policy, length, now), length
        for number, (wanted, found) in enumerate(zip(chapter.rounds, made["rounds"], strict=False), 1):
            if wanted is None:
                continue
            # The plan says once, at its end, how the queues stand.
            queues = plan(objects, policy, number, now)["queues"] if "queues" in wanted else []
            compare_round(f"round {before + number}", wanted, found, queues, names)
        # The rounds at rest are all alike: one of them is enough to judge.
        judged = {**made, "rounds": made["rounds"][: max(rests, length)]}
        preempts = "surplus.preempts: 'true'" in (policy or "")
        assert violations([*objects, clock(now)], judged, surplus_preempts=preempts) == []
        if chapter is not story[-1]:
            objects = after_rounds(objects, made["rounds"], now)
            now += length
            before += length
    if "settled" in scenario:
        compare_settled(scenario["settled"], final_places(objects, made, names), names)
    if "cure" in scenario:
        cured = merged(scenario, scenario["cure"])
        objects = objects_of(cured)
        outcome = plan(objects, policy_of(cured), 1, cured.get("now", newest(objects)))
        compare_round("cured", scenario["cured"], outcome["rounds"][0], outcome["queues"], Names(objects))


def test_every_promise_has_one_scenario() -> None:
    ids = [parameter.id for parameter in scenarios()]
    assert sorted(ids) == sorted(set(ids))


def clock(now: float) -> Table:
    """An object that only mentions the time: the referee takes the newest time as now."""
    metadata = {"name": "clock", "creationTimestamp": moment(now)}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def plan(objects: list[Table], policy: str | None, rounds: int, now: float) -> Table:
    """`maniple plan` of the objects at `now`, in seconds of the story."""
    decoded = decode([("objects", json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}).encode())])
    sorted_ = sort_objects(decoded, scheduler_name=Ours().scheduler_name)
    cluster = MemoryCluster(sorted_, now=START.timestamp() + now)
    chosen = None if policy is None else load_policy(policy.encode(), "policy")
    return run_rounds(cluster, chosen, rounds).to_json()


def plan_to_rest(objects: list[Table], policy: str | None, rounds: int, now: float) -> tuple[Table, int]:
    """A run that ends with five rounds in which nothing moves, and the number of the first of them.

    The first round never counts as rest: pods that end by themselves are gone only after it.
    """
    rounds += QUIET_ROUNDS
    while True:
        made = plan(objects, policy, rounds, now)
        moved = [any(found[kind] for kind in ("binds", "evictions", "resizes")) for found in made["rounds"]]
        rests = next((number for number, moves in enumerate(moved, 1) if number > 1 and not moves), None)
        if rests is not None:
            assert not any(moved[rests:]), f"at rest in round {rests}, and then something moved again: {moved}"
            if len(moved) - rests >= QUIET_ROUNDS - 1:
                return made, rests
        assert rounds < MOST_ROUNDS, f"still moving after {rounds} rounds"
        rounds = min(2 * rounds, MOST_ROUNDS)


class Names:
    """Pods and their gangs by the names that a scenario uses."""

    def __init__(self, objects: list[Table]) -> None:
        self.gang_of: dict[str, str] = {}
        self.add(objects)

    def add(self, objects: list[Table]) -> None:
        """Earlier pods stay known."""
        self.gang_of |= {short(key_of(item)): short(gang_of(item)) for item in objects if item["kind"] == "Pod"}
        for job in objects:
            if job["kind"] == "ElasticJob":
                for role in job["spec"]["roles"]:
                    for index in range(role["max"]):
                        name = short(key_of(job))
                        self.gang_of[f"{name}-{role['name']}-{index}"] = name
        self.gangs = set(self.gang_of.values())
        self.path_of = paths(objects)

    def check(self, name: str) -> str:
        assert name in self.gangs or name in self.gang_of, f"the scenario has no gang and no pod {name!r}"
        return name


def paths(objects: list[Table]) -> dict[str, str]:
    """Node -> its place from the widest level of the Topology down, such as b1/r2/n3."""
    keys = [level["nodeLabel"] for item in objects if item["kind"] == "Topology" for level in item["spec"]["levels"]]
    labels = {item["metadata"]["name"]: item["metadata"]["labels"] for item in objects if item["kind"] == "Node"}
    return {name: "/".join(of[key] for key in keys if key in of) for name, of in labels.items()}


def short(name: str) -> str:
    return name.removeprefix("default/")


# -- one round


@dataclass(frozen=True)
class Shown:
    """A round for the message of a test that fails; written out only then."""

    where: str
    found: Table

    def __str__(self) -> str:
        text = yaml.safe_dump(self.found, sort_keys=False, allow_unicode=True, width=200)
        return f"{self.where}: {text[:10_000]}"


def compare_round(where: str, wanted: Table, found: Table, queues: list[Table], names: Names) -> None:
    fields = Fields(where, wanted)
    shown = Shown(where, found)
    for key, kind in (("bound", "binds"), ("nominated", "nominations")):
        places = {short(entry["pod"]): entry["node"] for entry in found[kind]}
        compare_places(key, fields.take(key), places, names, shown)
    for key, reason in EVICTED.items():
        gone = {short(e["pod"]): short(e["for"]) for e in leaving(found) if e["reason"] == reason}
        compare_places(key, fields.take(key), gone, names, shown)
    compare_moves(fields.take("moved"), found, names, shown)
    purpose, moves = fields.take("tidying"), found["moves"]
    assert purpose is None or {entry["for"] for entry in moves} == {purpose}, f"tidying: {purpose}; {shown}"
    compare_resizes(fields.take("resized"), found["resizes"], names, shown)
    compare_reservations(fields.take("reserved"), found.get("reservations", []), names, shown)
    compare_devices(fields, found["binds"], names, shown)
    compare_domains(fields.take("domains"), [*found["binds"], *found["nominations"]], names, shown)
    compare_waiting(fields.take("waiting"), found["waiting"], names, shown)
    compare_queues(fields.take("queues"), queues)
    fields.finish()


def compare_places(
    kind: str, wanted: Mapping[str, Any] | None, places: Mapping[str, str], names: Names, shown: Shown
) -> None:
    """`places`: pod -> node, or for an eviction the gang it is for. All of them must be expected."""
    left = dict(places)
    for name, value in unrolled(wanted):
        if isinstance(value, str):
            assert left.pop(names.check(name), None) == value, f"{kind}: {name} -> {value} expected; {shown}"
            continue
        assert names.check(name) in names.gangs, f"the scenario has no gang {name!r}"
        of_gang = {pod: left.pop(pod) for pod in [pod for pod in left if names.gang_of[pod] == name]}
        counted = counts(of_gang.values()) if isinstance(value, dict) else len(of_gang)
        assert counted == value, f"{kind}: {name}: {value} expected, {counted} found; {shown}"
    assert not left, f"{kind}: nobody expected {left}; {shown}"


def compare_moves(wanted: Mapping[str, Any] | None, found: Table, names: Names, shown: Shown) -> None:
    """Where pods are moved to. They are evicted, and nobody else is for this reason."""
    moves = {short(entry["pod"]): entry for entry in found["moves"]}
    gone = {short(entry["pod"]): short(entry["for"]) for entry in found["evictions"] if entry["reason"] == "Moved"}
    assert gone == {pod: short(entry["for"]) for pod, entry in moves.items()}, f"moved: {shown}"
    compare_places("moved", wanted, {pod: entry["to"] for pod, entry in moves.items()}, names, shown)


def compare_resizes(wanted: Mapping[str, Any] | None, entries: list[Table], names: Names, shown: Shown) -> None:
    """`{job: [4, 8]}` of its only role that changes, or role by role. All resizes must be expected."""
    found: dict[str, dict[str, list[int]]] = {}
    for entry in entries:
        sizes = found.setdefault(short(entry["job"]), {})
        assert entry["role"] not in sizes, f"resized: {entry['job']}: a role is resized twice; {shown}"
        sizes[entry["role"]] = [entry["from"], entry["to"]]
    left = dict(found)
    for name, value in unrolled(wanted):
        has = left.pop(names.check(name), {})
        matches = has == value if isinstance(value, dict) else list(has.values()) == [value]
        assert matches, f"resized: {name}: {value} expected, {has} found; {shown}"
    assert not left, f"resized: nobody expected {left}; {shown}"


def compare_reservations(wanted: Mapping[str, Any] | None, entries: list[Table], names: Names, shown: Shown) -> None:
    """`{gang: {n1: 2}}`, `{gang: {nodes: {n1: 2}, expected: 600}}`, or `{gang: 2}` pods anywhere."""
    left = {short(entry["group"]): entry for entry in entries}
    for name, value in unrolled(wanted):
        entry = left.pop(names.check(name), None)
        assert entry is not None, f"reserved: {name} expected; {shown}"
        if isinstance(value, int):
            assert sum(entry["nodes"].values()) == value, f"reserved: {name}: {value} pods expected; {shown}"
            continue
        nodes = value.get("nodes", {}) if "expected" in value else value
        if nodes:
            assert entry["nodes"] == nodes, f"reserved: {name}: {nodes} expected; {shown}"
        if "expected" in value:
            when = (datetime.fromisoformat(entry["expected"]) - START).total_seconds()
            assert when == value["expected"], f"reserved: {name}: expected at {when}, not {value}; {shown}"
    assert not left, f"reserved: nobody expected {left}; {shown}"


def counts(nodes: Iterable[str]) -> dict[str, int]:
    made: dict[str, int] = {}
    for node in nodes:
        made[node] = made.get(node, 0) + 1
    return made


def compare_devices(fields: Fields, binds: list[Table], names: Names, shown: Shown) -> None:
    """Which GPUs the named pods get, how much of each, and how fast their ring is."""
    found = {short(entry["pod"]): entry for entry in binds}
    for key in ("gpus", "gpuShare", "ringGBs"):
        for pod, value in unrolled(fields.take(key)):
            assert names.check(pod) in found, f"{key}: {pod} is not bound; {shown}"
            has: Any = found[pod].get(key)
            if key == "gpus":
                assert sorted(has) == sorted(map(str, value)), f"gpus: {pod}: {value} expected; {shown}"
            elif value is None:
                assert has is None, f"{key}: {pod}: none expected; {shown}"
            else:
                assert has == pytest.approx(value), f"{key}: {pod}: {value} expected; {shown}"


def compare_domains(wanted: Mapping[str, Any] | None, entries: list[Table], names: Names, shown: Shown) -> None:
    """All nodes of a gang are in the domain, or in one domain of a list."""
    for name, value in unrolled(wanted):
        inside = {names.path_of[entry["node"]] for entry in entries if names.gang_of[short(entry["pod"])] == name}
        assert inside, f"domains: {names.check(name)} is given no place; {shown}"
        allowed = [value] if isinstance(value, str) else value
        held = [domain for domain in allowed if all(f"{path}/".startswith(f"{domain}/") for path in inside)]
        assert held, f"domains: {name}: {value} expected; {shown}"


def compare_waiting(wanted: Mapping[str, Any] | None, entries: list[Table], names: Names, shown: Shown) -> None:
    found = {short(entry["group"]): entry for entry in entries}
    expected = dict(unrolled(wanted))
    reasons = {name: entry["reason"] for name, entry in found.items()}
    first = {name: value if isinstance(value, str) else value["reason"] for name, value in expected.items()}
    first = {name: reasons.get(name) if reason == "any" else reason for name, reason in first.items()}
    assert reasons == first, f"waiting: {shown}"
    for name, value in expected.items():
        if not isinstance(value, dict):
            continue
        names.check(name)
        entry, fields = found[name], Fields(f"waiting.{name}", value)
        fields.take("reason")
        for key in ("message", "wouldStartIf"):
            assert fields.take(key, "") in entry[key], f"{name}: {key}; {shown}"
        texts = [entry["message"], entry["wouldStartIf"], *(row["reason"] for row in entry["nodes"])]
        for text in fields.take("says", []):
            assert any(text in one for one in texts), f"{name}: nothing says {text!r}; {shown}"
        tried = {one["action"]: one["why"] for one in entry.get("tried", [])}
        for action, text in fields.take("tried", {}).items():
            assert (action in tried) is (text is not None), f"{name}: tried {action}; {shown}"
            assert (text or "") in tried.get(action, ""), f"{name}: tried {action}: {text!r} expected; {shown}"
        place = fields.take("position")
        assert place in (None, entry["position"] or 0), f"{name}: position; {shown}"
        compare_nearest(name, fields.take("nearest"), entry["nearest"], shown)
        nodes = fields.take("nodes")
        if nodes is not None:
            assert {row["reason"]: row["count"] for row in entry["nodes"]} == nodes, f"{name}: nodes; {shown}"
        needs = fields.take("needs")
        if needs is not None:
            assert numbers(entry["needs"]) == numbers(amounts(needs)), f"{name}: needs; {shown}"
        fields.finish()


def compare_nearest(name: str, wanted: Table | None, found: Table | None, shown: Shown) -> None:
    if wanted is None:
        return
    assert found is not None, f"{name}: nearest; {shown}"
    fields = Fields(f"waiting.{name}.nearest", wanted)
    for key in ("place", "pods", "fits", "resource", "needs", "free", "lacks", "refusals", "others"):
        value = fields.take(key)
        assert value in (None, found[key]), f"{name}: nearest.{key}; {shown}"
    holders: dict[str, list[str]] = {}
    for holder in found["heldBy"]:
        holders.setdefault(short(holder["job"]), []).append(holder["what"])
    assert fields.take("holders") in (None, holders), f"{name}: nearest.heldBy: {holders}; {shown}"
    fields.finish()


def compare_queues(wanted: Mapping[str, Any] | None, entries: list[Table]) -> None:
    found = {entry["name"]: entry for entry in entries}
    for name, value in (wanted or {}).items():
        fields = Fields(f"queues.{name}", value)
        for kind in ("deserved", "allocated"):
            given = fields.take(kind)
            if given is not None:
                has = numbers(found[name][kind])
                expected = numbers(amounts(given))
                named = {key: has.get(key, Fraction(0)) for key in expected}
                assert named == expected, f"{name}: {kind}: {found[name]}"
        share = fields.take("share")
        assert share is None or found[name]["share"] == pytest.approx(share, abs=1e-3), found[name]
        fields.finish()


def numbers(resources: Mapping[str, str]) -> dict[str, Fraction]:
    return {name: quantity(value) for name, value in resources.items()}


# -- in the end


def final_places(objects: list[Table], made: Table, names: Names) -> dict[str, dict[str, int]]:
    """Gang -> node -> pods, after the last round."""
    places: dict[str, str] = {}
    for item in objects:
        is_there = item["kind"] == "Pod" and item["status"]["phase"] == "Running"
        if is_there and "deletionTimestamp" not in item["metadata"]:
            places[short(key_of(item))] = item["spec"]["nodeName"]
    for found in made["rounds"]:
        for entry in leaving(found):
            places.pop(short(entry["pod"]))
        places |= {short(entry["pod"]): entry["node"] for entry in found["binds"]}
    return {gang: counts(node for pod, node in places.items() if names.gang_of[pod] == gang) for gang in names.gangs}


def compare_settled(wanted: Mapping[str, Any], found: Mapping[str, dict[str, int]], names: Names) -> None:
    for name, value in unrolled(wanted):
        has = found[names.check(name)]
        assert (has if isinstance(value, dict) else sum(has.values())) == value, f"settled: {name}: {dict(found)}"
