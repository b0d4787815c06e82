"""The choice of GPUs: equal to a brute force on golden topologies, kind to those who come later, and quick."""

from __future__ import annotations

import re
import statistics
import time
from itertools import combinations
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maniple.api.gpu.topology_annotation import GpuDevice, GpuTopology
from maniple.model.gpu.link_search import ExactSearch
from maniple.model.gpu.links import (
    NVLINK_MBS_OF,
    PCIE_MBS,
    LinkClass,
    bandwidths,
    equal_links,
    known_shape,
    link_class,
    lowest,
    node_links,
    nvlink_mbs,
)
from model.golden_topologies import (
    ASYMMETRIC_16,
    DGX_1V,
    EIGHTS,
    FOUR_PAIRS,
    NVLINK,
    NVSWITCH_8,
    PCIE_8,
    SIXTEENS,
    TWO_BOARDS,
    Judge,
    Rows,
    mask_of,
    members,
)

# -- the choice is the best by definition


@pytest.mark.parametrize("name", EIGHTS)
def test_of_eight_every_choice_out_of_every_free_set_is_the_best(name: str) -> None:
    links, judge = link_class(EIGHTS[name]), Judge(EIGHTS[name], orders_up_to=8)
    for free in range(1, 256):
        for count in range(1, free.bit_count() + 1):
            assert links.choose(free, count) == judge.best(free, count), (members(free), count)


@pytest.mark.parametrize("name", EIGHTS)
def test_of_eight_every_ring_is_the_best(name: str) -> None:
    links, judge = link_class(EIGHTS[name]), Judge(EIGHTS[name], orders_up_to=8)
    assert [links.ring(mask) for mask in range(256)] == [judge.ring(mask) for mask in range(256)]


@pytest.mark.parametrize("name", SIXTEENS)
def test_of_sixteen_every_size_out_of_sampled_free_sets_is_the_best(name: str) -> None:
    links, judge, random = link_class(SIXTEENS[name]), Judge(SIXTEENS[name]), Random(16)
    for taken in (4, 4, 5, 6, 6, 8, 8, 10, 12):
        free = mask_of(tuple(random.sample(range(16), 16 - taken)))
        for count in range(1, free.bit_count() + 1):
            assert links.choose(free, count) == judge.best(free, count), (members(free), count)


@pytest.mark.parametrize("name", SIXTEENS)
def test_of_sixteen_free_large_requests_get_the_best(name: str) -> None:
    links, judge = link_class(SIXTEENS[name]), Judge(SIXTEENS[name])
    for count in (12, 13, 14, 15, 16):
        assert links.choose(0xFFFF, count) == judge.best(0xFFFF, count), count


@settings(max_examples=15, database=None, deadline=None)
@given(st.data())
def test_any_links_of_six_give_the_best(data: st.DataObject) -> None:
    """Few speeds make ties, many make none."""
    speeds = data.draw(st.lists(st.integers(0, 10**9), min_size=1, max_size=15))
    pairs = {(a, b): data.draw(st.sampled_from(speeds)) for a in range(6) for b in range(a)}
    rows = tuple(tuple(0 if a == b else pairs[max(a, b), min(a, b)] for b in range(6)) for a in range(6))
    links, judge = link_class(rows), Judge(rows)
    for free in range(1, 64):
        for count in range(1, free.bit_count() + 1):
            assert links.choose(free, count) == judge.best(free, count), (members(free), count)


def test_the_judge_finds_the_same_rings_by_orders_and_by_paths() -> None:
    """Its second way is needed for sixteen, and must be right as well."""
    for rows in EIGHTS.values():
        by_orders, by_paths = Judge(rows, orders_up_to=8), Judge(rows, orders_up_to=2)
        assert [by_orders.ring(mask) for mask in range(256)] == [by_paths.ring(mask) for mask in range(256)]


# -- what a person would expect


PAIRS = [mask_of((gpu, gpu + 1)) for gpu in range(0, 8, 2)]
QUADS = [0x0F, 0xF0]
BOARDS = [0x00FF, 0xFF00]


@pytest.mark.parametrize(
    ("rows", "groups", "frees"),
    [
        pytest.param(FOUR_PAIRS, PAIRS, range(1, 256), id="NVLink pairs"),
        pytest.param(PCIE_8, PAIRS, range(1, 256), id="PCIe switches"),
        pytest.param(PCIE_8, QUADS, range(1, 256), id="PCIe sockets"),
        pytest.param(
            TWO_BOARDS, BOARDS, [0x00FF | Random(seed).randrange(256) << 8 for seed in range(200)], id="boards"
        ),
    ],
)
def test_a_request_for_one_breaks_no_group_that_could_stay_whole(rows: Rows, groups: list[int], frees: range) -> None:
    links = link_class(rows)
    for free in frees:
        whole = mask_of(tuple({gpu for group in groups if group & free == group for gpu in members(group)}))
        if free & ~whole:
            assert links.choose(free, 1) & ~whole, (members(free), members(links.choose(free, 1)))


def test_a_request_for_one_leaves_dgx_1_as_many_whole_quads_as_can_be() -> None:
    """A quad is either side of the cube, or two GPUs and their twins on the other side."""
    quads = [*QUADS, *(mask_of((a, b, a + 4, b + 4)) for a, b in combinations(range(4), 2))]

    def whole(free: int) -> int:
        free_quads = [quad for quad in quads if quad & free == quad]
        return max([2 for a, b in combinations(free_quads, 2) if not a & b] + [1 for _ in free_quads], default=0)

    links = link_class(DGX_1V)
    for free in range(1, 256):
        assert whole(free ^ links.choose(free, 1)) == max(whole(free ^ 1 << gpu) for gpu in members(free)), members(
            free
        )


def test_a_request_for_two_takes_a_whole_pair_while_there_is_one() -> None:
    links = link_class(FOUR_PAIRS)
    for free in range(1, 256):
        if any(pair & free == pair for pair in PAIRS):
            assert links.choose(free, 2) in PAIRS
            assert links.quality(free, 2) == 4 * NVLINK


def test_nvswitch_gives_the_lowest_ids_and_builds_no_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ExactSearch, "__init__", None)
    links = link_class(NVSWITCH_8)
    assert links.is_uniform
    assert links.is_known
    for free in range(1, 256):
        for count in range(1, free.bit_count() + 1):
            assert members(links.choose(free, count)) == members(free)[:count]
    assert links.ring(0b1011) == 12 * NVLINK


def test_dgx_1_gives_a_quad_and_all_eight_run_over_the_double_links() -> None:
    links = link_class(DGX_1V)
    assert links.choose(0xFF, 4) == 0x0F
    assert links.choose(0xFF ^ 0b1000, 4) == 0xF0
    assert (links.ring(0x0F), links.ring(0xFF)) == (1 * NVLINK, 2 * NVLINK)
    assert links.quality(0xFF, 2) == 2 * NVLINK


def test_one_board_of_sixteen_is_taken_before_two_halves() -> None:
    links = link_class(TWO_BOARDS)
    assert links.choose(0xFFFF, 8) == 0x00FF
    assert links.choose(0xFFFE, 8) == 0xFF00
    assert links.choose(0xFFF0, 4) == 0x00F0
    assert links.ring(0xFFFF) == 9000


@pytest.mark.parametrize("lost", range(8))
def test_a_lost_gpu_is_no_loss_for_the_others(lost: int) -> None:
    """nvidia-smi knows nothing of its links; the others are as uniform as before."""
    rows = tuple(
        tuple(9000 if lost in (a, b) else value for b, value in enumerate(row)) for a, row in enumerate(NVSWITCH_8)
    )
    links = link_class(rows)
    healthy = 0xFF ^ 1 << lost
    for count in range(1, 8):
        assert links.choose(healthy, count) == lowest(healthy, count)
        assert links.quality(healthy, count) == (12 * NVLINK if count > 1 else 0)


# -- classes


def test_equal_topologies_share_one_class() -> None:
    assert link_class(DGX_1V) is link_class(tuple(tuple(row) for row in DGX_1V))
    assert link_class(DGX_1V) is not link_class(PCIE_8)
    assert len({link_class(DGX_1V), link_class(PCIE_8), LinkClass(DGX_1V)}) == 2
    assert equal_links(8) is equal_links(8)


def test_of_two_directions_the_slower_counts_and_the_diagonal_never() -> None:
    assert link_class(((5, 100, 9), (50, 5, 8), (9, 8, 5))) is link_class(((0, 50, 9), (100, 0, 8), (9, 8, 0)))


def test_unknown_links_have_no_ring_and_give_the_lowest_ids() -> None:
    links = equal_links(8)
    assert (links.is_known, links.is_uniform, links.size) == (False, True, 8)
    assert links.choose(0b11101010, 3) == 0b101010
    assert (links.ring(0xFF), links.quality(0xFF, 4)) == (0, 0)
    assert equal_links(0).choose(0, 0) == 0


def test_one_gpu_has_no_ring() -> None:
    assert [link_class(DGX_1V).ring(1 << gpu) for gpu in range(8)] == [0] * 8
    assert link_class(((0,),)).choose(1, 1) == 1


@pytest.mark.parametrize(("free", "count"), [(0b1, 2), (0b1, -1), (0x1FF, 1)])
def test_what_cannot_be_chosen_is_an_error(free: int, count: int) -> None:
    with pytest.raises(ValueError, match="cannot choose"):
        link_class(DGX_1V).choose(free, count)


def test_a_matrix_must_be_square() -> None:
    with pytest.raises(ValueError, match="square"):
        link_class(((0, 1), (1,)))


# -- more than sixteen


def boards(size: int, per_board: int) -> LinkClass:
    return link_class(
        tuple(
            tuple(0 if a == b else 150_000 if a // per_board == b // per_board else 9000 for b in range(size))
            for a in range(size)
        )
    )


def test_of_32_a_request_stays_on_a_board_and_breaks_none_in_vain() -> None:
    links = boards(32, 8)
    every = (1 << 32) - 1
    assert links.choose(every, 8) == 0xFF
    assert links.choose(every ^ 0x01, 8) == 0xFF00
    assert links.choose(every ^ 0x0F, 4) == 0xF0
    assert links.choose(every ^ 0x01_00, 1) & 0xFE_00
    assert (links.ring(0xFF), links.ring(0x1FF), links.quality(every, 16)) == (150_000, 9000, 9000)
    pairs = boards(32, 2)
    assert pairs.choose(every ^ 0b1000, 1) == 0b100


@settings(max_examples=30, database=None, deadline=None)
@given(st.integers(17, 40), st.integers(0, 2**40 - 1), st.integers(1, 40), st.integers(0, 99))
def test_above_16_the_choice_is_a_set_of_free_gpus_and_its_ring_no_faster_than_can_be(
    size: int, free: int, count: int, seed: int
) -> None:
    random = Random(seed)
    rows = tuple(tuple(random.choice((9000, 10600, 25000, 50000)) for _ in range(size)) for _ in range(size))
    links = link_class(rows)
    free &= (1 << size) - 1
    count = min(count, free.bit_count())
    chosen = links.choose(free, count)
    assert chosen & ~free == 0
    assert chosen.bit_count() == count
    assert links.choose(free, count) == chosen
    if 2 <= count <= 7:
        assert links.ring(chosen) <= Judge(links.matrix).ring(chosen)


# -- speed


def test_a_decision_out_of_16_takes_less_than_a_millisecond() -> None:
    links, random, times = LinkClass(ASYMMETRIC_16), Random(1), []
    links.choose(0xFFFF, 8)  # builds the tables
    for _ in range(300):
        free = random.randrange(1, 1 << 16)
        count = random.randint(1, free.bit_count())
        start = time.perf_counter()
        links.choose(free, count)
        times.append(time.perf_counter() - start)
    assert statistics.median(times) < 0.001


def test_the_tables_of_16_take_less_than_a_second() -> None:
    ExactSearch(ASYMMETRIC_16)
    start = time.process_time()
    ExactSearch(ASYMMETRIC_16)
    assert time.process_time() - start < 1


# -- speeds


def topology(links: list[list[str | float]], *models: str) -> GpuTopology:
    names = models or ("",) * len(links)
    devices = tuple(GpuDevice(str(index), model=model) for index, model in enumerate(names))
    return GpuTopology(1, "nvidia.com/gpu", devices, tuple(map(tuple, links)))


@pytest.mark.parametrize(
    ("link", "model", "mbs"),
    [
        ("SYS", "", 9000),
        ("NODE", "", 9500),
        ("PHB", "", 9900),
        ("PXB", "", 10200),
        ("PIX", "", 10600),
        ("PSB", "", 11000),
        ("NV1", "", 25000),
        ("NV4", "Tesla-P100-SXM2-16GB", 80000),
        ("NV2", "Tesla-V100-SXM2-16GB", 50000),
        ("NV12", "NVIDIA-A100-SXM4-40GB", 300000),
        ("NV18", "NVIDIA-H100-80GB-HBM3", 450000),
        ("NV18", "NVIDIA-B200", 900000),
        (64, "", 64000),
        (12.3456, "Tesla-P100-SXM2-16GB", 12346),
        (0.0001, "", 1),
    ],
)
def test_the_speed_of_each_link(link: str | float, model: str, mbs: int) -> None:
    assert bandwidths(topology([["X", link], [link, "X"]], model, model)) == ((0, mbs), (mbs, 0))
    assert bandwidths(topology([["X", link], [link, "X"]]), model) == ((0, mbs), (mbs, 0))


def test_the_page_tells_the_speeds_that_are_used() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/gpu-topology.md").read_text(encoding="utf-8")
    documented = dict(re.findall(r"^\| `([A-Z]+)` \| [^|]+ \| ([0-9.]+) \|$", page, re.MULTILINE))
    assert {word: float(gbs) * 1000 for word, gbs in documented.items()} == PCIE_MBS
    assert re.search(r"the number × 25; × 20 for P100, × 50 for " + ", ".join(list(NVLINK_MBS_OF)[1:]), page)


def test_of_two_models_and_two_directions_the_slower_counts() -> None:
    mixed = topology([["X", "NV2"], ["NV4", "X"]], "Tesla-V100-SXM2-16GB", "Tesla-P100-SXM2-16GB")
    assert bandwidths(mixed) == ((0, 40000), (40000, 0))


# -- shapes that are assumed


@pytest.mark.parametrize(
    ("product", "count", "expected"),
    [
        ("Tesla-V100-SXM2-16GB", 8, DGX_1V),
        ("NVIDIA-A100-SXM4-40GB", 8, NVSWITCH_8),
        ("A100-SXM4-80GB", 8, NVSWITCH_8),
        ("Tesla-T4", 8, PCIE_8),
        ("NVIDIA-L40S", 8, PCIE_8),
        ("NVIDIA-A100-80GB-PCIe", 8, PCIE_8),
        ("NVIDIA-H100-PCIe", 8, PCIE_8),
        ("Tesla-V100-PCIE-16GB", 8, PCIE_8),
        ("NVIDIA-GeForce-RTX-3090", 8, PCIE_8),
    ],
)
def test_the_shape_of_well_known_products(product: str, count: int, expected: Rows) -> None:
    assert known_shape(product, count) == expected
    assert node_links(None, product, count) is link_class(expected)


@pytest.mark.parametrize(
    ("product", "count", "mbs"),
    [
        ("NVIDIA-A100-SXM4-40GB", 4, 100_000),
        ("NVIDIA-H100-80GB-HBM3", 8, 450_000),
        ("NVIDIA-H200", 8, 450_000),
        ("NVIDIA-B200", 8, 900_000),
        ("Tesla-V100-SXM3-32GB", 16, 150_000),
        ("NVIDIA-A10", 2, 9_500),
    ],
)
def test_products_with_uniform_links(product: str, count: int, mbs: int) -> None:
    links = node_links(None, product, count)
    assert links.is_uniform
    assert links.ring((1 << count) - 1) == mbs


def test_the_cube_mesh_of_p100_has_single_links_of_20() -> None:
    links = node_links(None, "Tesla-P100-SXM2-16GB", 8)
    assert links.matrix[0] == (0, 20000, 20000, 20000, 20000, 9000, 9000, 9000)
    assert links.choose(0xFF, 4) == 0x0F
    assert links.ring(0xFF) == 20000


def test_four_pcie_cards_are_two_on_a_socket() -> None:
    assert known_shape("Tesla-T4", 4) == (
        (0, 9500, 9000, 9000),
        (9500, 0, 9000, 9000),
        (9000, 9000, 0, 9500),
        (9000, 9000, 9500, 0),
    )


@pytest.mark.parametrize(
    ("product", "count"),
    [
        ("NVIDIA-A100-SXM4-40GB", 7),  # one is lost, and nobody knows which
        ("Tesla-V100-SXM2-16GB", 7),
        ("Tesla-T4", 3),
        ("Tesla-T4", 1),
        ("NVIDIA-H100-NVL", 8),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", 8),
        ("Tesla-T4-SHARED", 8),
        ("Instinct-MI300X", 8),
        ("", 8),
        ("", 0),
        ("Tesla-T4", -1),
    ],
)
def test_where_nothing_is_known_all_links_are_equal(product: str, count: int) -> None:
    assert known_shape(product, count) is None
    assert node_links(None, product, max(0, count)) is equal_links(max(0, count))


def test_the_annotation_wins_over_the_product() -> None:
    annotated = topology([["X", "PIX"], ["PIX", "X"]])
    assert node_links(annotated, "Tesla-T4", 2).ring(0b11) == 10600


def test_an_annotation_without_links_tells_the_product_and_which_gpu_is_lost() -> None:
    devices = tuple(GpuDevice(str(index), model="Tesla-V100-SXM2-16GB", healthy=index != 3) for index in range(8))
    assert node_links(GpuTopology(1, "nvidia.com/gpu", devices), "", 7) is link_class(DGX_1V)
    unnamed = tuple(GpuDevice(str(index)) for index in range(8))
    assert node_links(GpuTopology(1, "nvidia.com/gpu", unnamed), "Tesla-V100-SXM2-16GB", 8) is link_class(DGX_1V)
    two_models = (*devices[:7], GpuDevice("7", model="Tesla-T4"))
    assert node_links(GpuTopology(1, "nvidia.com/gpu", two_models), "", 8) is equal_links(8)


def test_the_speed_of_an_nvlink_is_that_of_a_whole_word_of_the_model() -> None:
    assert nvlink_mbs("tesla-p100-sxm2-16gb") == 20000
    assert nvlink_mbs("XP1000") == 25000
