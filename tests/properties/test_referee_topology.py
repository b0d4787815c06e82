"""The referee's verdicts on devices, models and domains: for each a plan that breaks it beside one that keeps it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings

from properties.brute_force_links import rating, ring, value
from properties.cluster_facts import read_facts
from properties.gpu_facts import GPU, Ask, Device, is_called, rank_of, read_hardware
from properties.lone_gang_verdicts import slower_links, slower_models, spread_in_vain
from properties.missed_room import missed_opportunities
from properties.raw_objects import Object, at, quantity
from properties.referee import violations
from properties.replay_rounds import Promise, read_state
from properties.test_referee import (
    bind,
    broken,
    evict,
    group,
    node,
    nominate,
    plan_of,
    pod,
    queue,
    round_of,
    wait,
    waiting_plan,
)
from properties.topology_clusters import close_worlds, full_close_worlds, lone_worlds
from properties.topology_verdicts import open_books, pods_held

A100, V100, H100 = "NVIDIA-A100-SXM4-40GB", "Tesla-V100-SXM2-32GB", "NVIDIA-H100-80GB-HBM3"
LEVELS: list[Object] = [
    {"name": "block", "nodeLabel": "block"},
    {"name": "rack", "nodeLabel": "rack"},
    {"name": "host", "nodeLabel": "kubernetes.io/hostname"},
]
TOPOLOGY: Object = {"kind": "Topology", "metadata": {"name": "t"}, "spec": {"levels": LEVELS}}


def place(name: str, gpus: int = 4, path: str = "", model: str = "", topology: Object | None = None) -> Object:
    """A node at block/rack, with GPUs of a model, described one by one or not."""
    made = node(name, gpus)
    metadata = made["metadata"]
    assert isinstance(metadata, dict)
    metadata["labels"] |= dict(zip(("block", "rack"), path.split("/"), strict=False)) if path else {}
    if model:
        metadata["labels"] |= {"nvidia.com/gpu.product": model, "nvidia.com/gpu.memory": "40960"}
    if topology is not None:
        metadata["annotations"] = {"maniple.dev/gpu-topology": json.dumps(topology)}
    return made


def member(name: str, gpus: int = 1, **annotations: str) -> Object:
    """`annotations`: fraction, memory, models, ids; on and group go to the pod."""
    made = pod(name, gpus, on=annotations.pop("on", ""), group=annotations.pop("group", ""))
    metadata = made["metadata"]
    assert isinstance(metadata, dict)
    words = {"fraction": "gpu-fraction", "memory": "gpu-memory", "models": "gpu-models", "ids": "gpus"}
    metadata["annotations"] = {f"maniple.dev/{words[key]}": value for key, value in annotations.items()}
    return made


def share(name: str, to: str, amount: float, *gpus: str) -> Object:
    return bind(name, to, *gpus) | {"gpuShare": amount}


def described(*devices: Mapping[str, object], links: list[list[object]] | None = None) -> Object:
    return {"version": 1, "devices": list(devices)} | ({"links": links} if links else {})


@pytest.mark.parametrize(
    ("name", "model", "is_so"),
    [
        ("A100", A100, True),
        ("a100-sxm4", A100, True),
        ("A100-40GB", A100, False),
        ("A10", A100, False),
        ("NVIDIA-A100-SXM4-40GB", A100, True),
        ("V100", A100, False),
        ("A100", "", False),
    ],
)
def test_a_model_name_matches_by_consecutive_words(name: str, model: str, is_so: bool) -> None:
    assert is_called(name, model) is is_so


def test_the_rank_of_a_model_is_its_place_in_the_list() -> None:
    assert [rank_of(model, ("H100", "*", "V100")) for model in (H100, A100, V100, "")] == [0, 1, 2, 1]
    assert rank_of(A100, ("V100",)) is None
    assert rank_of(A100, ()) == 0


def test_memory_is_rounded_up_to_thousandths() -> None:
    device = Device("0", memory=quantity("40Gi"))
    assert Ask(1, memory=quantity("10Gi")).share_of(device) == Fraction(1, 4)
    assert Ask(1, memory=quantity("10Gi") + 1).share_of(device) == Fraction(251, 1000)
    assert Ask(1, memory=quantity("41Gi")).share_of(device) is None
    assert Ask(1, memory=quantity("1Gi")).share_of(Device("0")) is None


def test_hardware_is_described_or_counted() -> None:
    counted = read_hardware({"nvidia.com/gpu.product": A100, "nvidia.com/gpu.memory": "40960"}, {}, 2)
    assert counted.devices == (Device("0", A100, Fraction(40 * 2**30)), Device("1", A100, Fraction(40 * 2**30)))
    written = described(
        {"id": 7, "model": "Tesla-P100-SXM2-16GB"},
        {"id": "x", "memory": "32Gi", "healthy": False},
        {"id": "y"},
        links=[["X", "NV2", 12.5], ["NV2", "X", "SYS"], ["PIX", "PHB", "X"]],
    )
    found = read_hardware({"nvidia.com/gpu.product": A100}, {"maniple.dev/gpu-topology": json.dumps(written)}, 3)
    assert [device.id for device in found.devices] == ["7", "x", "y"]
    assert [device.id for device in found.healthy] == ["7", "y"]
    assert found.models == {"Tesla-P100-SXM2-16GB", A100}
    assert found.links is not None
    assert list(found.links[0]) == [0, 40, Fraction("10.6")]
    assert found.links[1][2] == 9


def matrix(count: int, usual: int, **pairs: int) -> tuple[tuple[Fraction, ...], ...]:
    """`pairs`: _01=25 and so on."""
    made = [[Fraction(usual) if one != other else Fraction(0) for other in range(count)] for one in range(count)]
    for pair, speed in pairs.items():
        one, other = int(pair[1]), int(pair[2])
        made[one][other] = made[other][one] = Fraction(speed)
    return tuple(map(tuple, made))


def test_a_ring_is_as_fast_as_its_slowest_link() -> None:
    square = matrix(4, 9, _01=25, _12=25, _23=25, _03=50)
    assert ring(square, (0, 3)) == 50
    assert ring(square, (0, 1, 2)) == 9
    assert ring(square, (0, 1, 2, 3)) == 25
    assert ring(square, (2,)) == 0


def test_what_is_left_is_worth_its_best_groups() -> None:
    pairs = matrix(4, 9, _01=50, _23=50)
    assert value(pairs, (0, 1, 2, 3)) == 2 * 50 + 2 * 50 + 4 * 9
    assert value(pairs, (0, 1, 2)) == 2 * 50
    rate = rating(pairs, (0, 1, 2, 3))
    assert list(rate((2, 3))) == [50, 50, 100]
    assert list(rate((0, 2))) == [9, 9, 18]


def test_shares_of_one_pod_are_on_different_devices() -> None:
    def free(*amounts: str) -> list[tuple[Device, Fraction]]:
        return [(Device(str(index)), Fraction(amount)) for index, amount in enumerate(amounts)]

    half = Fraction(1, 2)
    assert pods_held(Ask(1, half), free("1", "0.5", "0.4"), 9) == 3
    assert pods_held(Ask(2, half), free("1"), 9) == 0
    assert pods_held(Ask(2, half), free("1", "1"), 9) == 2
    assert pods_held(Ask(2, half), free("1", "0.5", "0.5"), 9) == 2
    assert pods_held(Ask(2), free("1", "0.9", "1", "1"), 9) == 1


# Devices.


@pytest.mark.parametrize(
    ("binds", "is_fine"),
    [
        ([share("a", "n1", 0.5, "0"), share("b", "n1", 0.25, "0")], True),
        ([share("a", "n1", 0.5, "0"), share("b", "n1", 0.25, "1")], False),  # 0.8 of it is taken
        ([share("a", "n1", 0.5, "0"), share("b", "n1", 0.5, "0")], False),
        ([bind("a", "n1", "0"), share("b", "n1", 0.25, "0")], False),
        ([share("a", "n1", 0.5, "0", "2"), share("b", "n1", 0.25, "0")], False),
        ([share("a", "n1", 0.5, "9"), share("b", "n1", 0.25, "0")], False),
    ],
)
def test_an_over_committed_device_is_caught(binds: list[Object], is_fine: bool) -> None:
    old = member("old", 1, on="n1", fraction="0.8", ids="1")
    objects = [place("n1", 3), old, member("a", 1, fraction="0.5"), member("b", 0, fraction="0.25")]
    assert broken(objects, round_of(binds=binds)) == (set() if is_fine else {Promise.GPUS})


def test_shares_sum_up_over_rounds() -> None:
    objects = [place("n1", 1), *[member(name, fraction="0.5") for name in "abc"]]
    first = round_of(binds=[share("a", "n1", 0.5, "0"), share("b", "n1", 0.5, "0")], waiting=[wait("c")])
    assert not broken(objects, first, round_of(waiting=[wait("c")]))
    assert Promise.GPUS in broken(objects, first, round_of(binds=[share("c", "n1", 0.5, "0")]))


def test_several_shares_of_a_pod_are_on_several_devices() -> None:
    objects = [place("n1", 2), member("a", 2, fraction="0.5")]
    assert not broken(objects, round_of(binds=[share("a", "n1", 0.5, "0", "1")]))
    assert broken(objects, round_of(binds=[share("a", "n1", 0.5, "0", "0")])) == {Promise.GPUS}


def test_unhealthy_and_unknown_devices_are_caught() -> None:
    sick = described({"id": "x"}, {"id": "y", "healthy": False}, {"id": "z"})
    objects = [place("n1", 3, topology=sick), member("a", 1)]
    assert not broken(objects, round_of(binds=[bind("a", "n1", "z")]))
    assert broken(objects, round_of(binds=[bind("a", "n1", "y")])) == {Promise.GPUS}
    assert broken(objects, round_of(binds=[bind("a", "n1", "0")])) == {Promise.GPUS}
    three = [objects[0], member("a", 3)]
    assert Promise.CAPACITY in broken(three, round_of(binds=[bind("a", "n1", "x", "y", "z")]))


def test_memory_is_a_share_of_the_assigned_device() -> None:
    both = described({"id": "0", "memory": "40Gi"}, {"id": "1", "memory": "16Gi"}, {"id": "2"})
    objects = [place("n1", 3, topology=both), member("a", memory="20Gi")]
    assert not broken(objects, round_of(binds=[share("a", "n1", 0.5, "0")]))
    assert broken(objects, round_of(binds=[share("a", "n1", 0.25, "0")])) == {Promise.GPUS}
    assert broken(objects, round_of(binds=[bind("a", "n1", "0")])) == {Promise.GPUS}
    assert broken(objects, round_of(binds=[share("a", "n1", 0.5, "1")])) == {Promise.GPUS}
    assert broken(objects, round_of(binds=[share("a", "n1", 0.5, "2")])) == {Promise.GPUS}


def test_unnamed_devices_are_counted() -> None:
    old = member("old", 2, on="n1")
    objects = [place("n1", 3), old, member("a", fraction="0.5"), member("b", fraction="0.5")]
    assert not broken(objects, round_of(binds=[share("a", "n1", 0.5, "0"), share("b", "n1", 0.5, "0")]))
    apart = round_of(binds=[share("a", "n1", 0.5, "0"), share("b", "n1", 0.5, "1")])
    assert broken(objects, apart) == {Promise.GPUS}, "then old would have one"


def test_a_nomination_needs_devices_too() -> None:
    halves = [member(f"h{gpu}", 1, on="n1", fraction="0.5", ids=str(gpu)) for gpu in range(2)]
    objects = [place("n1", 2), *halves, pod("a", 1, priority=1)]
    assert broken(objects, round_of(nominations=[nominate("a", "n1")])) == {Promise.CAPACITY}
    room = round_of(nominations=[nominate("a", "n1")], evictions=[evict("h0", "a")])
    assert not broken(objects, room)


def test_queues_are_charged_for_shares() -> None:
    objects = [place("n1", 2, model=A100), queue("default", limit={GPU: 1})]
    objects += [member("a", memory="20Gi"), member("b", fraction="0.5"), member("c", fraction="0.001")]
    two = [share("a", "n1", 0.5, "0"), share("b", "n1", 0.5, "0")]
    assert not broken(objects, round_of(binds=two, waiting=[wait("c")]))
    assert broken(objects, round_of(binds=[*two, share("c", "n1", 0.001, "1")])) == {Promise.LIMITS}


# Domains.


def gang(count: int = 2, gpus: int = 2, least: int = 0, models: str = "", **spec: object) -> list[Object]:
    words = {"models": models} if models else {}
    pods = [member(f"g-{index}", gpus, group="g", **words) for index in range(count)]
    return [TOPOLOGY, group("g", least or count, **spec), *pods]


RACKS = [place("n1", 4, "b0/r0"), place("n2", 4, "b0/r1"), place("n3", 4, "b1/r0"), place("n4", 4, "b0/r0")]
OUTSIDE = place("n5", 4)


@pytest.mark.parametrize(
    ("level", "where", "is_fine"),
    [
        ("rack", ("n1", "n4"), True),
        ("rack", ("n1", "n2"), False),
        ("rack", ("n1", "n3"), False),  # the racks have one name and are two
        ("block", ("n1", "n2"), True),
        ("block", ("n1", "n3"), False),
        ("host", ("n1", "n4"), False),
        ("host", ("n5", "n5"), False),  # in no rack, so in no host domain
        ("rack", ("n5", "n5"), False),
        ("", ("n1", "n5"), True),
    ],
)
def test_a_required_domain_holds_the_whole_gang(level: str, where: tuple[str, str], is_fine: bool) -> None:
    objects = [*RACKS, OUTSIDE, *gang(topology={"required": level})]
    moves = [nominate(f"g-{index}", name) for index, name in enumerate(where)]
    assert broken(objects, round_of(nominations=moves)) == (set() if is_fine else {Promise.DOMAINS})


def test_running_pods_are_part_of_the_gang() -> None:
    old = member("g-9", 1, on="n1", group="g", ids="0")
    objects = [*RACKS, *gang(1, 1, topology={"required": "rack"}), old]
    assert not broken(objects, round_of(binds=[bind("g-0", "n4", "0")]))
    assert broken(objects, round_of(binds=[bind("g-0", "n2", "0")])) == {Promise.DOMAINS}
    other = member("g-8", 1, on="n2", group="g", ids="0")
    assert not broken([*objects, other], round_of(waiting=[wait("g")])), "nothing was moved"
    assert broken([*objects, other], round_of(binds=[bind("g-0", "n2", "1")])) == {Promise.DOMAINS}


# Models.

MODELS = [place("a1", 4, "b0/r0", A100), place("v1", 4, "b0/r1", V100), place("a2", 4, "b1/r0", A100)]


def test_a_gang_is_on_one_model() -> None:
    def where(first: str, second: str) -> Object:
        return round_of(binds=[bind("g-0", first, "0", "1"), bind("g-1", second, "2", "3")])

    assert not broken([*MODELS, *gang()], where("a1", "a2"))
    assert broken([*MODELS, *gang()], where("a1", "v1")) == {Promise.MODELS}
    assert not broken([*MODELS, *gang(mixedGpuModels=True)], where("a1", "v1"))
    assert broken([*MODELS, *gang(models="V100")], where("a1", "a2")) == {Promise.MODELS}
    assert not broken([*MODELS, *gang(models="V100, *")], where("a1", "a2"))
    assert broken([*MODELS, *gang(models="V100, A100")], where("a1", "v1")) == {Promise.MODELS}
    lists = [*gang(1, models="V100"), member("g-1", 2, group="g", models="A100")]
    assert not broken([*MODELS, *lists], where("v1", "a1"))


def test_running_pods_and_roles_bind_a_gang_to_a_model() -> None:
    old = member("g-9", 1, on="v1", group="g", ids="0")
    objects = [*MODELS, *gang(1, 1), old]
    assert broken(objects, round_of(binds=[bind("g-0", "a1", "0")])) == {Promise.MODELS}
    assert not broken(objects, round_of(binds=[bind("g-0", "v1", "1")]))
    roles = [{"name": "w", "minMember": 1, "gpuModels": [{"model": "V100"}]}]
    objects = [*MODELS, group("g", 1, roles=roles), pod("g-0", 1, group="g", role="w")]
    assert broken(objects, round_of(binds=[bind("g-0", "a1", "0")])) == {Promise.MODELS}
    assert not broken(objects, round_of(binds=[bind("g-0", "v1", "0")]))


def test_the_gpus_of_one_pod_are_always_of_one_model() -> None:
    both = described(*[{"id": str(index), "model": model} for index, model in enumerate((A100, V100, A100))])
    objects = [place("n1", 3, topology=both), *gang(1, 2, mixedGpuModels=True)]
    assert broken(objects, round_of(binds=[bind("g-0", "n1", "0", "1")])) == {Promise.MODELS}
    assert not broken(objects, round_of(binds=[bind("g-0", "n1", "0", "2")]))


# Missed room.

IDLE = plan_of(round_of(waiting=[wait("g")]))


@pytest.mark.parametrize(
    ("objects", "has_room"),
    [
        ([*RACKS, *gang(4, 2, topology={"required": "rack"})], True),
        ([*RACKS, *gang(5, 2, topology={"required": "rack"})], False),
        ([*RACKS, *gang(6, 2, topology={"required": "block"})], True),
        ([*RACKS, *gang(7, 2, topology={"required": "block"})], False),
        ([*RACKS, *gang(7, 2, topology={"preferred": "block"})], True),
        ([OUTSIDE, *gang(1, 1, topology={"required": "rack"})], False),
        ([*RACKS, member("g-9", 1, on="n2", group="g", ids="0"), *gang(2, 2, 3, topology={"required": "rack"})], False),
        ([*RACKS, member("g-9", 1, on="n1", group="g", ids="0"), *gang(3, 2, 4, topology={"required": "rack"})], True),
        ([*MODELS, *gang(4, 2)], True),
        ([*MODELS, *gang(5, 2)], False),
        ([*MODELS, *gang(5, 2, mixedGpuModels=True)], True),
        ([*MODELS, *gang(3, 2, models="V100")], False),
        ([*MODELS, *gang(3, 2, models="V100, A100")], True),
        ([*MODELS, *gang(3, 2, models="A100", topology={"required": "rack"})], False),
    ],
)
def test_room_for_a_whole_gang_is_found(objects: list[Object], has_room: bool) -> None:
    assert bool(missed_opportunities(objects, IDLE)) is has_room


def test_room_on_devices_is_not_a_sum() -> None:
    halves = [member(f"h{gpu}", 1, on="n1", fraction="0.5", ids=str(gpu)) for gpu in range(2)]
    waits = plan_of(round_of(waiting=[wait("a")]))
    assert not missed_opportunities([place("n1", 2), *halves, member("a", 1)], waits)
    assert missed_opportunities([place("n1", 2), *halves, member("a", fraction="0.5")], waits)
    assert not missed_opportunities([place("n1", 2), *halves, member("a", fraction="0.6")], waits)
    assert missed_opportunities([place("n1", 2), *halves, member("a", 2, fraction="0.5")], waits)
    assert not missed_opportunities([place("n1", 1), member("a", 2, fraction="0.5")], waits)
    assert missed_opportunities([place("n1", 1, model=A100), member("a", memory="40Gi")], waits)
    assert not missed_opportunities([place("n1", 1, model=A100), member("a", memory="41Gi")], waits)
    sick = described({"id": "0", "healthy": False})
    assert not missed_opportunities([place("n1", 1, topology=sick), member("a", 1)], waits)


# One gang alone.


def starts(*where: str) -> Object:
    binds = [bind(f"g-{index}", name, str(2 * index), str(2 * index + 1)) for index, name in enumerate(where)]
    return plan_of(round_of(binds=binds))


def test_a_gang_that_could_be_close_and_is_not_is_caught() -> None:
    objects = [*RACKS, *gang(2, 2, topology={"preferred": "rack"})]
    assert not spread_in_vain(objects, starts("n1", "n1"))
    assert spread_in_vain(objects, starts("n1", "n3")) != []
    assert not spread_in_vain([*RACKS, *gang(2, 2)], starts("n1", "n3"))
    wide = [*RACKS[:3], *gang(2, 4, topology={"preferred": "rack"})]
    four = [[bind("g-0", "n1", *"0123"), bind("g-1", name, *"0123")] for name in ("n2", "n3")]
    assert not spread_in_vain(wide, plan_of(round_of(binds=four[0]))), "one block is the best there is"
    assert len(spread_in_vain(wide, plan_of(round_of(binds=four[1])))) == 1


def test_a_model_that_comes_later_in_the_list_is_caught() -> None:
    objects = [*MODELS, *gang(2, 2, models="V100, A100")]
    assert not slower_models(objects, starts("v1", "v1"))
    assert slower_models(objects, starts("a1", "a1")) != []
    assert not slower_models([*MODELS, *gang(2, 4, models="V100, A100")], starts("a1", "a2"))


def test_a_slower_set_of_gpus_is_caught() -> None:
    words: list[list[object]] = [
        ["X", "NV1", "SYS", "SYS"],
        ["NV1", "X", "SYS", "SYS"],
        ["SYS", "SYS", "X", "NV2"],
        ["SYS", "SYS", "NV2", "X"],
    ]
    best = place("n1", 4, topology=described(*[{"id": str(index)} for index in range(4)], links=words))

    def chosen(objects: list[Object], *gpus: str, speed: float) -> list[str]:
        return slower_links(objects, plan_of(round_of(binds=[bind("a", "n1", *gpus) | {"ringGBs": speed}])))

    alone = [best, member("a", 2)]
    assert not chosen(alone, "2", "3", speed=50)
    assert chosen(alone, "0", "1", speed=25) != []
    assert chosen(alone, "2", "3", speed=25) == ["default/a is said to have a ring of 25 GB/s, it is 50"]
    assert not chosen([*alone, member("old", 1, on="n1", ids="3")], "0", "1", speed=25)


# The random clusters.


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(close_worlds() | lone_worlds() | full_close_worlds())
def test_topology_clusters_break_no_promise_by_themselves(objects: list[Object]) -> None:
    assert violations(objects, waiting_plan(objects)) == []
    facts = read_facts(objects)
    state = read_state(facts, objects)
    for found in facts.nodes.values():
        books = open_books(state, found, state.where)
        assert all(held <= 1 for held in books.held.values())
        assert books.unnamed_whole <= books.untouched
        assert sum(books.held.values()) + books.unnamed_whole <= found.gpu_count
    names = [(text, at(item, "metadata", "name")) for item in objects for text in [item["kind"]]]
    assert len(set(names)) == len(names)
