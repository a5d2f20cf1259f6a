"""Counters: sectors, wavefronts, bytes, operations and waits, against what the rules of the hardware say."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workbench.emulator import Checks, Counters, Output, PixelBox, Program, TensorMapOf, launch, load

PATTERNS = Path(__file__).parents[2] / "tools/patterns.cu"
LANES = np.arange(32)
BYTES = 32 * 1024


@cache
def patterns() -> Program:
    return load(PATTERNS)


@cache
def compiled(source: str) -> Program:
    return load(source)


def count(kernel: str, places: Any) -> dict[str, int]:
    """Counters of one access of one warp, without those of the load that reads the places."""
    arguments = [np.array(places, np.int32), np.zeros(BYTES, np.uint8)]
    report = launch(patterns(), kernel, 1, 32, arguments, shared=BYTES, checks=Checks.NONE, counters=True)
    assert report.ok, str(report)
    totals = report.counters.totals()
    totals.subtract({"global_load_requests": 1, "global_load_sectors": 4, "global_load_bytes": 128})
    return totals


def counters(source: str, grid: Any, block: Any, args: Any, **options: Any) -> Counters:
    report = launch(compiled(source), "k", grid, block, args, counters=True, **options)
    assert report.ok, str(report)
    return report.counters


@pytest.mark.parametrize(
    ("size", "places", "wavefronts", "conflicts"),
    [
        (4, 4 * LANES, 1, 0),
        (4, 0 * LANES, 1, 0),  # a broadcast
        (4, 4 * (LANES % 2), 1, 0),
        (4, 8 * LANES, 2, 1),
        (4, 12 * LANES, 1, 0),  # odd strides meet every bank once
        (4, 128 * LANES, 32, 31),
        (4, 132 * LANES, 1, 0),
        (4, np.where(LANES < 16, 128 * LANES, -1), 16, 15),
        (8, 8 * LANES, 2, 0),  # a half warp fills the banks
        (8, np.where(LANES < 16, 8 * LANES, -1), 1, 0),
        (8, 16 * LANES, 4, 2),
        (8, 8 * (LANES // 2), 1, 0),  # neighbours share: both halves in one pass
        (8, 8 * (LANES & ~2), 2, 1),  # so do lanes 2 apart, but half of the banks are met twice
        (8, 128 * LANES, 32, 30),
        (16, 16 * LANES, 4, 0),  # a quarter does
        (16, 16 * (LANES // 2), 2, 0),
        (16, np.where(LANES < 8, 16 * LANES, -1), 1, 0),
        (16, 32 * LANES, 8, 4),
        (16, 144 * LANES, 4, 0),
        (16, 128 * LANES, 32, 28),
    ],
)
def test_wavefronts_of_shared_memory(size: int, places: Any, wavefronts: int, conflicts: int) -> None:
    for verb in ("load", "store"):
        found = count(f"shared_{verb}_{size}", places)
        assert found[f"shared_{verb}_requests"] == 1
        assert found[f"shared_{verb}_wavefronts"] == wavefronts
        assert found[f"shared_{verb}_conflicts"] == conflicts
        assert found[f"shared_{verb}_bytes"] == size * np.count_nonzero(places >= 0)


@pytest.mark.parametrize(
    ("places", "wavefronts"),
    [(16 * LANES, 4), (128 * LANES, 32), (144 * LANES, 4), (32 * LANES, 8), (128 * (LANES % 8) + 16 * (LANES % 8), 4)],
)
def test_a_matrix_is_eight_rows_in_one_wavefront_at_best(places: Any, wavefronts: int) -> None:
    assert count("matrix_load_4", places)["shared_load_wavefronts"] == wavefronts
    assert count("matrix_store_4", places)["shared_store_wavefronts"] == wavefronts
    assert count("matrix_load_1", places)["shared_load_bytes"] == 128


def test_atomics_on_one_place_of_shared_memory_take_turns() -> None:
    assert count("shared_atomic_4", 4 * LANES)["shared_atomic_wavefronts"] == 1
    assert count("shared_atomic_4", 0 * LANES)["shared_atomic_wavefronts"] == 32
    assert count("shared_atomic_4", 4 * (LANES // 2))["shared_atomic_wavefronts"] == 2


@pytest.mark.parametrize(
    ("kernel", "verb", "size"),
    [
        *((f"global_{verb}", verb, size) for verb in ("load", "store") for size in (4, 8, 16)),
        ("global_atomic", "atomic", 4),
        ("global_reduction", "atomic", 4),
    ],
)
def test_sectors_of_global_memory(kernel: str, verb: str, size: int) -> None:
    rng = np.random.default_rng(size)
    drawn = [size * rng.integers(0, 2 ** rng.integers(0, 12), 32) for _ in range(5)]
    for places in [size * LANES, 32 * LANES, 0 * LANES, 16 + size * LANES, *drawn]:
        chosen = np.where(rng.random(32) < 0.8, places, -1) if places is not drawn[0] else places
        found = count(f"{kernel}_{size}", chosen)
        taking = chosen[chosen >= 0]
        assert found[f"global_{verb}_requests"] == 1
        assert found[f"global_{verb}_sectors"] == len({place // 32 for place in taking})
        assert found[f"global_{verb}_bytes"] == size * len(taking)


def test_a_copy_reads_global_and_writes_shared_memory() -> None:
    found = count("copy_16", 128 * LANES)
    assert (found["global_copy_requests"], found["global_copy_sectors"], found["global_copy_bytes"]) == (1, 16, 512)
    assert (found["shared_copy_requests"], found["shared_copy_wavefronts"]) == (1, 32)


def test_lanes_divergence_and_waits_by_line() -> None:
    source = """
extern "C" __global__ void k(int* x) {
    __shared__ int last;
    int i = threadIdx.x;
    if (i % 32 < 8) {  // divergent
        x[i] = atomicAdd(x + 64, 1);  // atomic
        if (i == 0) last = x[i];
    }
    __syncthreads();  // wait
    if (i < 32) x[65 + i] = last;
}"""
    found = counters(source, 2, 64, [np.zeros(97, np.int32)], checks=Checks.NONE)
    lines = {line: counts for (_, line), counts in found.by_line().items()}
    totals = found.totals()
    assert sum(counts["warp_instructions"] for counts in lines.values()) == totals["warp_instructions"]
    assert lines[5]["divergent_branches"] == 4  # of 2 warps in 2 blocks
    assert lines[9]["waits"] == 4
    assert lines[9]["blocked_waits"] == 2  # the last to arrive goes on at once
    assert lines[6]["global_atomic_bytes"] == 4 * 4 * 8
    assert totals["thread_instructions"] < totals["active_lanes"] < 32 * totals["warp_instructions"]


def test_inlined_lines_count_where_they_were_inlined() -> None:
    source = """
__device__ __forceinline__ float read(const float* x) {
    return x[threadIdx.x];  // inner
}
extern "C" __global__ void k(const float* x, float* y) {
    y[threadIdx.x] = read(x) + read(x + 32);  // outer
}"""
    found = counters(source, 1, 32, [np.ones(64, np.float32), Output(np.empty(32, np.float32))])
    own = {line: counts["global_load_requests"] for (_, line), counts in found.by_line().items()}
    total = {line: counts["global_load_requests"] for (_, line), counts in found.by_line(inlined=True).items()}
    assert (own[3], own[6]) == (2, 0)
    assert (total[3], total[6]) == (2, 2)


def test_words_of_local_memory_lie_side_by_side() -> None:
    source = """
extern "C" __global__ void k(int* x, int n) {
    volatile int kept[8];
    kept[n] = x[threadIdx.x];
    x[threadIdx.x] = kept[n];
}"""
    totals = counters(source, 1, 32, [np.zeros(32, np.int32), 3]).totals()
    assert (totals["local_store_requests"], totals["local_store_sectors"], totals["local_store_bytes"]) == (1, 4, 128)
    assert totals["local_load_sectors"] == 4


TILES = """
struct alignas(64) Map { unsigned long long words[16]; };
extern "C" __global__ void k(const __grid_constant__ Map map, float* y) {
    __shared__ alignas(128) float tile[8][16];
    __shared__ alignas(8) unsigned long long full;
    unsigned bar = __cvta_generic_to_shared(&full), to = __cvta_generic_to_shared(tile);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1; fence.mbarrier_init.release.cluster;" :: "r"(bar));
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 512;" :: "r"(bar));
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                     " [%0], [%1, {%2, %3}], [%4];" :: "r"(to), "l"(&map), "r"(8), "r"(4), "r"(bar) : "memory");
    }
    __syncthreads();
    asm volatile("{.reg .pred p; l: mbarrier.try_wait.parity.shared.b64 p, [%0], 0; @!p bra l;}"
                 :: "r"(bar) : "memory");
    y[threadIdx.x] = tile[threadIdx.x / 16][threadIdx.x % 16];
}"""


def test_bulk_copies_count_sectors_inside_the_tensor_and_bytes_of_the_box() -> None:
    x = np.ones((10, 20), np.float32)  # rows of 80 bytes; the box of 8 x 16 begins at row 4, column 8
    found = counters(TILES, 1, 128, [TensorMapOf(x, (8, 16)), Output(np.empty(128, np.float32))]).totals()
    assert (found["bulk_load_requests"], found["bulk_load_bytes"]) == (1, 512)
    rows = [(80 * row + 32, 80 * row + 79) for row in range(4, 10)]  # columns 8 to 19
    assert found["bulk_load_sectors"] == sum(last // 32 - first // 32 + 1 for first, last in rows)


def test_im2col_copies_count_the_sectors_of_their_pixels() -> None:
    x = np.ones((1, 3, 5, 24), np.float32)  # rows, columns and channels of one image; pixels of 96 bytes
    source = TILES.replace("2d.shared::cluster.global.", "4d.shared::cluster.global.im2col.").replace(
        '" [%0], [%1, {%2, %3}], [%4];" :: "r"(to), "l"(&map), "r"(8), "r"(4), "r"(bar)',
        '" [%0], [%1, {%2, %3, %5, %5}], [%4], {%6, %6};"'
        ' :: "r"(to), "l"(&map), "r"(8), "r"(-1), "r"(bar), "r"(0), "h"((short)1)',
    )
    pixels = PixelBox(lower=(0, -1), upper=(-1, -1), channels=16, pixels=8)
    found = counters(source, 1, 128, [TensorMapOf(x, pixels), Output(np.empty(128, np.float32))]).totals()
    assert (found["bulk_load_requests"], found["bulk_load_bytes"]) == (1, 512)
    # offset by one, 5 pixels of the second row and 3 of the third; 16 channels from the ninth on
    begins = [96 * (5 * 1 + column) + 32 for column in range(5)] + [96 * (5 * 2 + column) + 32 for column in range(3)]
    assert found["bulk_load_sectors"] == sum((b + 63) // 32 - b // 32 + 1 for b in begins)


def test_nothing_is_counted_unless_asked_for() -> None:
    source = 'extern "C" __global__ void k(int* x) { x[threadIdx.x] = 1; }'
    report = launch(compiled(source), "k", 1, 32, [np.zeros(32, np.int32)])
    with pytest.raises(ValueError, match="ask for counters"):
        _ = report.counters
    assert report.as_dict()["counters"] is None
    found = launch(compiled(source), "k", 1, 32, [np.zeros(32, np.int32)], counters=True).as_dict()
    assert found["counters"]["global_store_sectors"] == 4
    assert [line["global_store_sectors"] for line in found["counters_by_line"] if "global_store_sectors" in line] == [4]


def test_a_hazard_keeps_what_was_counted_before_it() -> None:
    source = 'extern "C" __global__ void k(int* x) { x[threadIdx.x] = x[threadIdx.x + 32]; }'
    report = launch(compiled(source), "k", 1, 32, [np.zeros(32, np.int32)], counters=True)
    assert not report.ok
    assert report.counters.totals()["warp_instructions"] > 0
