"""Experiments with memory: coalescing, bank conflicts, swizzles, raster order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..harness import Case
from ..kernels.gemm import GemmProblem
from ..model.distributions import st
from ..model.dtypes import BF16, FP32
from ..model.launch import Launch, ceil_div
from ..model.operation import Operation
from ..model.problem import Problem, Size, extents
from ..model.results import Resources
from ..model.stage import Stage
from ..toolchain.compiler import compile_stage
from .base import Experiment, Quantity, ratio
from .problems import Scale, Transpose, scaling, transposes

# ----------------------------------------------------------------------------------------------------------- coalescing
COALESCING = scaling(
    "coalescing",
    "coalescing: neighbouring lanes, neighbouring addresses",
    Scale(n=2**25, factor=2),
    3000,
    metric="GB/s",
)


@COALESCING.stage(
    "strided",
    source="experiments/coalescing.cu",
    idea="lanes are STRIDE elements apart",
    parameters={"STRIDE": 1, "THREADS": 256},
)
def strided(p: Scale, size: Mapping[str, int]) -> Launch:
    steps = ceil_div(p.m * p.n, size["STRIDE"])
    grid = (ceil_div(steps, size["THREADS"]), size["STRIDE"], 1)
    arguments = ("x", "y", np.int64(p.m * p.n), np.float32(p.factor))
    return Launch("coalescing", grid, (size["THREADS"], 1, 1), arguments)


coalescing = Experiment(
    COALESCING,
    swept="STRIDE",
    axis="elements from lane to lane",
    values=lambda multiprocessors: (1, 2, 4, 8, 16, 32),
    counted=Scale(n=2**15, factor=2),
    quantities=(
        ratio("sectors a load request", "global_load_sectors", "global_load_requests"),
        ratio("bytes used of a sector (of 32)", "global_load_bytes", "global_load_sectors"),
    ),
    idea="Every element is read and written once, whatever the stride; only which lanes share a request changes.",
    see="A request costs as much as it touches sectors. Their number grows with the stride, until every lane needs a "
    "sector of its own. The traffic for the same bytes grows as much: when another request wants the rest of a "
    "sector, the caches no longer have it, and it is read again. A sector that is written only in part has to be "
    "read, too. Device memory delivers neighbouring sectors together, so it reads even more if only every other "
    "one is wanted. Addresses that lie far apart take longer than their bytes alone explain.",
    metrics=("dram__bytes_read",),
    measured=(Quantity("MB read from device memory", lambda c: c["dram__bytes_read"] / 1e6),),
)

# ------------------------------------------------------------------------------------------------------- bank conflicts
BANK_CONFLICTS = Operation(
    name="bank_conflicts",
    summary="bank conflicts: the pitch of a tile that is read by columns",
    problem=Transpose,
    problems=transposes,
    suite=(Transpose(m=8192, n=8192),),
    defines=lambda p: {},
    emulator_size=Size(extent=100, work=10_000),
    cuda_size=Size(extent=1000, work=1_000_000),
    metric="GB/s",
)

_TILE = 32


@BANK_CONFLICTS.stage(
    "transpose",
    source="experiments/bank_conflicts.cu",
    idea="a tile in shared memory is written by rows and read by columns",
    parameters={"PITCH": 33, "ROWS": 8},
)
def transpose(p: Transpose, size: Mapping[str, int]) -> Launch:
    grid = (ceil_div(p.n, _TILE), ceil_div(p.m, _TILE), 1)
    return Launch("bank_conflicts", grid, (_TILE, size["ROWS"], 1), ("x", "y", np.int32(p.m), np.int32(p.n)))


bank_conflicts = Experiment(
    BANK_CONFLICTS,
    swept="PITCH",
    axis="words from row to row of the tile",
    values=lambda multiprocessors: (32, 33, 34, 36, 40, 48, 64),
    counted=Transpose(m=128, n=128),
    quantities=(
        ratio("wavefronts a load request", "shared_load_wavefronts", "shared_load_requests"),
        ratio("wavefronts a store request", "shared_store_wavefronts", "shared_store_requests"),
    ),
    idea="Only the pitch of the tile changes, that is, the unused words at the end of its rows.",
    see="The wavefronts of a column are the greatest common divisor of the pitch and the number of banks: one for any "
    "odd pitch. Rows, which are stored, never conflict. One word of padding a row is enough.",
)

# ------------------------------------------------------------------------------------------------------------- swizzles
_MULTIPLE = 64


def _whole_tiles(size: Size, edges: tuple[int, ...]) -> st.SearchStrategy[GemmProblem]:
    tiles = st.integers(1, size.extent // _MULTIPLE).map(lambda count: count * _MULTIPLE)
    return st.builds(
        GemmProblem,
        m=tiles,
        n=tiles,
        k=tiles,
        dtype=st.just(BF16.name),
        out=st.just(FP32.name),
        seed=st.integers(0, 99),
    )


def _only_whole_tiles(p: GemmProblem) -> str | None:
    if (p.dtype, p.out, p.layout) != (BF16.name, FP32.name, "nt") or p.pad_a or p.pad_b or p.pad_c:
        return "only bf16 to fp32, layout nt, without padding"
    return None if not any(x % _MULTIPLE for x in (p.m, p.n, p.k)) else f"only multiples of {_MULTIPLE}"


SWIZZLES = Operation(
    name="swizzles",
    summary="swizzles: a permutation instead of padding",
    problem=GemmProblem,
    problems=_whole_tiles,
    suite=(GemmProblem(m=4096, n=4096, k=1024, dtype="bf16", out="fp32"),),
    defines=lambda p: {},
    emulator_size=Size(extent=192, work=192**3),
    cuda_size=Size(extent=512, work=512**3),
)


@SWIZZLES.stage(
    "tensor_core",
    source="experiments/swizzles.cu",
    idea="ldmatrix reads the same chunk of 8 rows",
    parameters={"SWIZZLE": 128},
    supports=_only_whole_tiles,
    architecture=80,
)
def tensor_core(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    grid = (p.n // _MULTIPLE, p.m // _MULTIPLE, 1)
    return Launch("swizzles", grid, (128, 1, 1), ("A", "B", "C", np.int32(p.n), np.int32(p.k)))


swizzles = Experiment(
    SWIZZLES,
    swept="SWIZZLE",
    axis="bytes that are permuted (16: none)",
    values=lambda multiprocessors: (16, 32, 64, 128),
    counted=GemmProblem(m=128, n=128, k=128, dtype="bf16", out="fp32"),
    quantities=(
        ratio("wavefronts an ldmatrix.x4", "shared_load_wavefronts", "shared_load_requests"),
        ratio("share of them for bank conflicts", "shared_load_conflicts", "shared_load_wavefronts"),
    ),
    idea="The same matrix product by tensor cores; only where the 16-byte chunks of a row lie in shared memory "
    "changes.",
    see="Each doubling of the swizzle halves the wavefronts. At 128 bytes, all banks, they are four, the least that "
    "four 8x8 matrices need. The swizzle costs no byte of shared memory, rows stay aligned, and TMA writes in the "
    "same permutation. That is why tiles for tensor cores are swizzled and not padded.",
)

# --------------------------------------------------------------------------------------------------------- raster order


def _single(size: Size, edges: tuple[int, ...]) -> st.SearchStrategy[GemmProblem]:
    extent = extents(size, edges)
    pad = st.integers(0, 5)
    return st.builds(
        GemmProblem,
        m=extent,
        n=extent,
        k=extent,
        dtype=st.just(FP32.name),
        pad_a=pad,
        pad_b=pad,
        pad_c=pad,
        seed=st.integers(0, 99),
    )


RASTER = Operation(
    name="raster_order",
    summary="raster order: what a wave of blocks has in common",
    problem=GemmProblem,
    problems=_single,
    suite=(GemmProblem(m=1024, n=1024, k=16384, dtype="fp32"),),
    defines=lambda p: {},
    emulator_size=Size(extent=40, work=40**3),
    cuda_size=Size(extent=300, work=300**3),
)


@RASTER.stage(
    "grouped",
    source="experiments/raster.cu",
    idea="GROUP rows of C are walked together",
    parameters={"GROUP": 16},
    supports=lambda p: None if (p.dtype, p.layout) == (FP32.name, "nt") else "only fp32, layout nt",
)
def grouped(p: GemmProblem, size: Mapping[str, int]) -> Launch:
    scalars = tuple(np.int32(x) for x in (p.m, p.n, p.k, p.lda, p.ldb, p.ldc))
    return Launch("raster", (p.m * p.n, 1, 1), (32, 1, 1), ("A", "B", "C", *scalars))


def first_wave(stage: Stage[Any], problem: Problem, resources: Resources) -> dict[str, int]:
    """Launches the blocks alone that are resident first, in the emulator: what they write shows what they had to read.

    Counts rows and columns of C that have an element of the wave, which are rows of A and of B."""
    from ..devices.emulated import EmulatedDevice

    device, case, plan = EmulatedDevice(), Case.of(problem), stage.plan(problem)
    (launch,) = plan.launches
    wave = min(launch.grid[0], device.info().sm_count * resources.blocks_per_sm)
    part = Launch(launch.kernel, (wave, 1, 1), launch.block, launch.args)
    compiled = compile_stage(stage, problem)
    bound = device.bind(compiled, type(plan)((part,)), case.arrays, case.storage())
    try:
        bound.run()
        c = case.arrays["C"]
        written = ~c.dtype.unwritten(c.view(bound.read("C")))
    finally:
        bound.close()
    rows, columns = int(written.any(axis=1).sum()), int(written.any(axis=0).sum())
    return {"wave_blocks": wave, "wave_rows": rows, "wave_columns": columns}


L1_READ = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld"
L1_HIT = f"{L1_READ}_lookup_hit"
L2_HIT, L2_MISS = (f"lts__t_sectors_srcunit_tex_lookup_{outcome}" for outcome in ("hit", "miss"))

raster_order = Experiment(
    RASTER,
    swept="GROUP",
    axis="rows of C that are walked together",
    values=lambda multiprocessors: (1, 2, 4, 8, 16, 32, 64, 128, 256),
    counted=GemmProblem(m=256, n=256, k=16, dtype="fp32"),
    quantities=(
        Quantity("different rows that a wave reads", lambda c: c["wave_rows"] + c["wave_columns"]),
        Quantity(
            "blocks of a wave that read the same row",
            lambda c: 2 * c["wave_blocks"] / (c["wave_rows"] + c["wave_columns"]),
        ),
    ),
    idea="All blocks read as much in any order; the order decides what those that run at the same time share.",
    see="A wave of blocks that covers an almost square part of C needs the fewest different rows, and uses each of "
    "them most often. That saves time if the memory behind the L2 is slower than the blocks' requests. If not, "
    "the L1 decides: the blocks of a multiprocessor share it, and rows that they have in common do not even reach "
    "the L2. The emulator has no caches, so it counts the same sectors for every order. It shows how many blocks "
    "read the same row, which is an upper limit for hits. To count the hits takes a GPU and ncu.",
    look=first_wave,
    metrics=(L1_HIT, L1_READ, L2_HIT, L2_MISS),
    measured=(
        ratio("share of sectors that hit in the L1", L1_HIT, L1_READ),
        Quantity("share of the others that hit in the L2", lambda c: c[L2_HIT] / (c[L2_HIT] + c[L2_MISS])),
    ),
)
