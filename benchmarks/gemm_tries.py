"""What was tried to make products of bf16 faster, and what each try gave: makes `reports/gemm-tries.md`.

    python benchmarks/gemm_tries.py measure OUTPUT.json   # on a machine with a GPU
    python benchmarks/gemm_tries.py write [OUTPUT.json]   # the page, of that file and nothing else

A try is a change to the sources of a stage, to its parameters or to its clusters. It is timed in turns with the stage
as it is and with cuBLAS, so that nothing but the change is between them.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import recorded
from tabulate import tabulate

from workbench import derived, registry, tuned
from workbench.compiler import Compiled, compile_source
from workbench.devices.cuda import CudaDevice
from workbench.harness import Case
from workbench.kernels.gemm import GemmProblem
from workbench.launch import Launch, Plan, TensorMap, ceil_div
from workbench.operation import SOURCES, Stage
from workbench.results import Conditions
from workbench.timing import Effort
from workbench.timing import measure as race

RECORD = Path(__file__).parents[1] / "reports/gemm-tries.json"


@dataclass(frozen=True)
class Change:
    """Of a file below `cuda_src`: what stands in it, once, and what is tried instead."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Try:
    """`idea`: what differs from the stage. `sharing`: blocks of a cluster, where it has other clusters. `promotion`: of
    its tensor maps, where they have another.

    `problems` are those to time it on, of bf16, `small` one to check its answer on.
    """

    idea: str
    stage: str
    problems: tuple[str, ...]
    changes: tuple[Change, ...] = ()
    parameters: Mapping[str, int] = field(default_factory=dict)
    sharing: int = 0
    promotion: int | None = None
    small: str = "200x520x320"


TEMPLATE = "include/lcsf.cuh"

AHEAD = (
    Change(
        TEMPLATE,
        "    Shared& shared = *reinterpret_cast<Shared*>(memory);\n",
        "    Shared& shared = *reinterpret_cast<Shared*>(memory);\n"
        "    common_state first;\n"
        "    const bool any = Kernel::common_setup(g, first, 0);\n",
    ),
    Change(
        TEMPLATE,
        "    __syncthreads();\n    if constexpr (SHARING > 1) cluster_started();\n",
        "    if (threadIdx.x < LANES) {\n"
        "      __syncwarp();\n"
        "      named_arrive<THREADS>(0);\n"
        "    } else {\n"
        "      named_sync<THREADS>(0);\n"
        "    }\n",
    ),
    *(
        Change(TEMPLATE, f"void {role}(const globals& g, Shared& shared) {{\n", f"void {role}({new}) {{\n")
        for new in ("const globals& g, Shared& shared, common_state common, bool any",)
        for role in ("produce", "consume")
    ),
    Change(TEMPLATE, "produce(g, shared);", "produce(g, shared, first, any);"),
    Change(TEMPLATE, "consume(g, shared);", "consume(g, shared, first, any);"),
    Change(
        TEMPLATE,
        "    common_state common;\n"
        "    producer_state state;\n"
        "    for (int item = 0; Kernel::common_setup(g, common, item); ++item) {\n",
        "    producer_state state;\n"
        "    int item = 0;\n"
        "    for (bool more = any; more; more = Kernel::common_setup(g, common, ++item)) {\n",
    ),
    Change(
        TEMPLATE,
        "    Place<OUTPUTS ? OUTPUTS : 1> to;\n    common_state common;\n",
        "    Place<OUTPUTS ? OUTPUTS : 1> to;\n",
    ),
    Change(
        TEMPLATE,
        "    for (int item = 0; Kernel::common_setup(g, common, item); ++item) {\n      if constexpr (TURNS) {\n",
        "    int item = 0;\n"
        "    for (bool more = any; more; more = Kernel::common_setup(g, common, ++item)) {\n"
        "      if constexpr (TURNS) {\n",
    ),
)
"""The first item is set up, and loaded, while the other warps still wait for the barriers."""


def _prefetched(file: str, run: str, *maps: str) -> Change:
    fetch = ", ".join(f"tma_prefetch_map({name})" for name in maps)
    return Change(file, run, f"  if (threadIdx.x == 32) {fetch};\n{run}")


PING_PONG_RUN = "  Lcsf<Gemm, 1, true>::run({A, B, C_boxes, C, M, N, K, ldc}, memory);\n"

SHARED_A = (
    Change(
        "gemm/13_streamed.cu",
        "    common.m = tile % tiles_m * BLOCK_M;\n    common.n = tile / tiles_m * BLOCK_N;\n",
        "    common.m = tile / 2 % tiles_m * BLOCK_M;\n    common.n = (tile / 2 / tiles_m * 2 + tile % 2) * BLOCK_N;\n",
    ),
    Change(
        "gemm/13_streamed.cu",
        "        tma_load(input.a[s], g.A, full, tile.m, k);\n",
        "        const int mine = cluster_rank() * BLOCK_M / 2;\n"
        "        tma_load_to(3, &input.a[s][mine * BLOCK_K], g.A, full, tile.m + mine, k);\n",
    ),
    Change(
        "gemm/13_streamed.cu",
        "return Lcsf<Gemm>::warpgroup() % BANDS",
        "return Lcsf<Gemm, 2>::warpgroup() % BANDS",
    ),
    Change(
        "gemm/13_streamed.cu",
        "return Lcsf<Gemm>::warpgroup() / BANDS",
        "return Lcsf<Gemm, 2>::warpgroup() / BANDS",
    ),
    Change(
        "gemm/13_streamed.cu",
        "void CLUSTER __launch_bounds__(Lcsf<Gemm>::THREADS, 1)",
        "void __cluster_dims__(2, 1, 1) __launch_bounds__(Lcsf<Gemm, 2>::THREADS, 1)",
    ),
    Change("gemm/13_streamed.cu", "  Lcsf<Gemm>::run(", "  Lcsf<Gemm, 2>::run("),
)

ALONE = tuple(
    Change("gemm/11_stream_k.cu", old, new)
    for old, new in (
        ("SHARING = 2,", "SHARING = 1,"),
        ("      constexpr unsigned ALL = (1 << SHARING) - 1;\n", ""),
        ("tma_load_to(ALL, &input.b[mine", "tma_load(&input.b[mine"),
        ("tma_load_to(ALL, &input.b[n *", "tma_load(&input.b[n *"),
    )
)


AHEAD_OF_THE_OTHER = (
    Change(
        TEMPLATE,
        "      if (mine == 1) named_arrive<TURN_THREADS>(TURN);  // the first turn is the other's\n",
        "      if (mine == 1) named_arrive<TURN_THREADS>(TURN);\n"
        "    if constexpr (!TURNS)\n"
        "      if (mine == 1) named_sync<TURN_THREADS>(TURN);\n",
    ),
    Change(
        TEMPLATE,
        "        mbarrier_wait(shared.full[from.slot], from.parity);\n        if constexpr (OUTPUTS) {\n",
        "        if constexpr (!TURNS)\n"
        "          if (mine == 0 && item == 0 && step == 2) named_arrive<TURN_THREADS>(TURN);\n"
        "        mbarrier_wait(shared.full[from.slot], from.parity);\n        if constexpr (OUTPUTS) {\n",
    ),
)
"""So that one multiplies while the other stores. The first item has more than two steps."""

BY_THREADS = (
    Change(
        "include/tiles.cuh",
        "    async_fence();\n    __syncwarp();\n    if (g.ldc % CHUNK == 0 && g.N % CHUNK == 0) {\n"
        "      if (lane == 0) {\n"
        "        tma_store(g.C_boxes, staged, m, n);\n"
        "        tma_store_commit();\n"
        "      }\n",
        "    __syncwarp();\n    if (m + ROWS <= g.M && n + COLUMNS <= g.N && g.ldc % CHUNK == 0) {\n"
        "      const int first = lane / CHUNKS, own = lane % CHUNKS;\n"
        "      Out* const c = g.C + static_cast<long long>(m + first) * g.ldc + n + own * CHUNK;\n"
        "#pragma unroll\n"
        "      for (int row = 0; row < ROWS; row += WARP / CHUNKS)\n"
        "        store_vector(c + static_cast<long long>(row) * g.ldc, load_vector<CHUNK>(chunk(first + row, own)));\n",
    ),
)
"""In whole lines, out of the same shared memory; nobody waits until it has been read."""

HALVES = (
    Change(
        "include/slices.cuh",
        "    wgmma_commit();\n    wgmma_wait<1>();\n  }\n};\n",
        "    wgmma_commit();\n    wgmma_wait<1>();\n  }\n\n"
        "  template <bool ROWS_OF_K, int SUMS>\n"
        "  static __device__ __forceinline__ void multiply_last(float (&sum)[SUMS], const In* a0, const In* b0,\n"
        "                                                       const In* a1, const In* b1) {\n"
        "    constexpr int HALF = SUMS / 2;\n"
        "    constexpr int A_STEP = WGMMA_K * sizeof(In);\n"
        "    constexpr int B_STEP = ROWS_OF_K ? A_STEP : WGMMA_K * ROW_BYTES;\n"
        "    constexpr int PANEL_BYTES = DEPTH * ROW_BYTES;\n"
        "    wgmma_wait<0>();\n"
        "    wgmma_fence();\n"
        "#pragma unroll\n"
        "    for (int half = 0; half < 2; ++half) {\n"
        "      float (&part)[HALF] = reinterpret_cast<float (&)[HALF]>(sum[half * HALF]);\n"
        "#pragma unroll\n"
        "      for (int slice = 0; slice < 2; ++slice) {\n"
        "        const u64 rows = swizzled_operand(shared_address(slice ? a1 : a0), 0, ATOM_BYTES);\n"
        "        const u64 columns = swizzled_operand(shared_address((slice ? b1 : b0) + half * SUMS * DEPTH),\n"
        "                                             ROWS_OF_K ? 0 : PANEL_BYTES, ATOM_BYTES);\n"
        "#pragma unroll\n"
        "        for (int k = 0; k < DEPTH / WGMMA_K; ++k)\n"
        "          wgmma<!ROWS_OF_K>(part, operand_at(rows, k * A_STEP), operand_at(columns, k * B_STEP), In());\n"
        "      }\n"
        "      wgmma_commit();\n"
        "    }\n"
        "    wgmma_wait<1>();\n"
        "  }\n"
        "};\n",
    ),
    Change(
        TEMPLATE,
        "      for (int step = 0; step < common.steps; ++step, from.advance()) {\n"
        "        mbarrier_wait(shared.full[from.slot], from.parity);\n",
        "      for (int step = 0; step < common.steps - 2; ++step, from.advance()) {\n"
        "        mbarrier_wait(shared.full[from.slot], from.parity);\n",
    ),
    Change(
        TEMPLATE,
        "        consumer::drain();\n        if (before >= 0) release(before);\n      }\n",
        "      }\n"
        "      const int first = from.slot;\n"
        "      mbarrier_wait(shared.full[first], from.parity);\n"
        "      from.advance();\n"
        "      const int second = from.slot;\n"
        "      mbarrier_wait(shared.full[second], from.parity);\n"
        "      from.advance();\n"
        "      consumer::compute_last(state, shared.ring[first], shared.ring[second]);\n"
        "      if (before >= 0) release(before);\n"
        "      const auto drained = [&] {\n"
        "        consumer::drain();\n"
        "        release(first);\n"
        "        release(second);\n"
        "      };\n",
    ),
    Change(
        TEMPLATE,
        "consumer::finish(g, common, state, shared.finish[mine], shared.ring);",
        "consumer::finish(g, common, state, shared.finish[mine], drained);",
    ),
    Change(
        "include/tiles.cuh",
        "  template <int SLOTS, class Globals>\n",
        "  template <int SLOTS, bool BY_ENGINE = false, class Globals>\n",
    ),
    Change(
        "include/tiles.cuh",
        "    if (g.ldc % CHUNK == 0 && g.N % CHUNK == 0) {\n      if (lane == 0) {\n",
        "    if (BY_ENGINE || (g.ldc % CHUNK == 0 && g.N % CHUNK == 0)) {\n      if (lane == 0) {\n",
    ),
)
"""What the template and its headers need for it. Sums stay in place, and nothing else is in flight: else the compiler
waits for each product before the next."""


def _in_halves(file: str, overlapped: str, changes: Mapping[str, str]) -> tuple[Change, ...]:
    """The first half of the columns is done, and stored, while the second half of the last two slices is multiplied,
    where `overlapped`. There are always two: a second one beyond K is zeros."""
    last = (
        "    static __device__ __forceinline__ void compute_last(consumer_state& state, const input_block& a,\n"
        "                                                        const input_block& b) {\n"
        "      Slice<IN>::multiply_last<TRANS_B>(state.sum, &a.a[state.first * BLOCK_K], a.b,\n"
        "                                        &b.a[state.first * BLOCK_K], b.b);\n"
        "    }\n\n"
    )
    drain = "    static __device__ __forceinline__ void drain() { wgmma_wait<0>(); }\n\n"
    finish = "    static __device__ __forceinline__ void finish("
    head = "      const int warp = threadIdx.x / WARP - WARPGROUP / WARP, m = tile.m + warp * WARP_ROWS;\n"
    buffers = "      auto& buffers = staged.c[warp % (WARPGROUP / WARP)];\n"
    changes = {
        f"{drain}{finish}": f"{last}{drain}    template <class Drained>\n{finish}",
        "finish_block& staged, input_block*) {": "finish_block& staged, const Drained& drained) {",
        buffers: "",
        head: f"{head}{buffers}"
        "      constexpr int CHUNK = Staged<OUT>::CHUNK;\n"
        f"      if (g.ldc % CHUNK == 0 && g.N % CHUNK == 0{overlapped}) {{\n"
        "#pragma unroll\n"
        "        for (int n = 0; n < BLOCK_N; n += STAGED) {\n"
        "          if (n == BLOCK_N / 2) drained();\n"
        "          Staged<OUT>::template store<STAGED_BUFFERS, true>(\n"
        "              g, buffers[n / STAGED % STAGED_BUFFERS], &state.sum[n / 2], m, tile.n + n);\n"
        "        }\n"
        "        return;\n"
        "      }\n"
        "      drained();\n",
        **changes,
    }
    return (*HALVES, *(Change(file, old, new) for old, new in changes.items()))


MULTICAST_IN_HALVES = _in_halves(
    "gemm/10_multicast.cu",
    "",
    {"common.steps = (g.K + BLOCK_K - 1) / BLOCK_K;": "common.steps = max(2, (g.K + BLOCK_K - 1) / BLOCK_K);"},
)

STREAM_K_IN_HALVES = _in_halves(
    "gemm/11_stream_k.cu",
    " && tile.others == 0",
    {
        "      common.order = {max(from - begin, 0), 1};\n      common.steps = min(to, end) - max(from, begin);\n": (
            "      common.steps = min(to, end) - max(from, begin);\n"
            "      common.order = {max(from - begin, 0), common.steps > 1 ? 1 : steps};\n"
            "      common.steps = max(2, common.steps);\n"
        ),
        "      common.steps = steps;\n": "      common.steps = max(2, steps);\n",
    },
)

EVEN_GROUPS = (
    Change(
        "include/tiles.cuh",
        "  const Tile place = grouped_tile<GROUP>(number, rows, columns);\n"
        "  return {place.row, place.row / GROUP % 2 ? columns - 1 - place.column : place.column};\n",
        "  const int groups = max(1, (rows + GROUP / 2) / GROUP), most = (rows + groups - 1) / groups;\n"
        "  const int group = number / (most * columns), within = number % (most * columns);\n"
        "  const int height = min(most, rows - group * most), column = within / height;\n"
        "  return {group * most + within % height, group % 2 ? columns - 1 - column : column};\n",
    ),
)

STAGGERED = (
    Change("gemm/13_streamed.cu", "    int steps, first, m, n;  // of k", "    int steps, first, turn, m, n;  // of k"),
    Change(
        "gemm/13_streamed.cu",
        "    common.steps = steps * (rank() + 1) / SPLIT - common.first;\n",
        "    common.steps = steps * (rank() + 1) / SPLIT - common.first;\n"
        "    common.turn = common.steps * tile / (static_cast<int>(gridDim.x) / SPLIT);\n",
    ),
    Change(
        "gemm/13_streamed.cu",
        "      const int first = (tile.first + step) * STEP_K;\n",
        "      const int at = step + tile.turn;\n"
        "      const int first = (tile.first + (at < tile.steps ? at : at - tile.steps)) * STEP_K;\n",
    ),
)
"""Rows of B are 16 KB apart: so the addresses that are read at once differ in more bits."""


def _depth(slots: int) -> Change:
    return Change(
        TEMPLATE,
        "DEPTH = ASKED > 0 ? ASKED : FITTING;\n",
        f"DEPTH = {slots};\n",
    )


def _pause(nanoseconds: int) -> Change:
    return Change(
        TEMPLATE,
        "          producer::load(g, common, shared.ring[to.slot], full, step);\n",
        "          producer::load(g, common, shared.ring[to.slot], full, step);\n"
        f"        if (item == 0 && step == 0) __nanosleep({nanoseconds});\n",
    )


def _slices(count: int) -> tuple[Change, ...]:
    """A step of `streamed` has so many slices for each consumer: as many more bytes of a row are asked for at once."""
    step = f"wgmma_fence();\n#pragma unroll\n      for (int i = 0; i < {count}; ++i) {{\n      const u64 a = "
    own = f"[state.share * {count} + i]"
    changes = {
        "STEP_K = SHARES * BLOCK_K;": f"STEP_K = {count} * SHARES * BLOCK_K;",
        "    IN a[SHARES]": f"    IN a[{count} * SHARES]",
        "    IN b[SHARES]": f"    IN b[{count} * SHARES]",
        "for (int s = 0; s < SHARES; ++s) {": f"for (int s = 0; s < {count} * SHARES; ++s) {{",
        "const u64 a = swizzled_operand(shared_address(&input.a[state.share]": (
            f"{step}swizzled_operand(shared_address(&input.a{own}"
        ),
        "input.b[state.share]), 0, ATOM_BYTES);\n      wgmma_fence();\n": f"input.b{own}), 0, ATOM_BYTES);\n",
        "operand_at(b, k * B_STEP), IN());\n": "operand_at(b, k * B_STEP), IN());\n      }\n",
    }
    return tuple(Change("gemm/13_streamed.cu", old, new) for old, new in changes.items())


LEAVES_FIRST = tuple(
    Change("gemm/12_ping_pong.cu", f"tma_load(input.{name},", f"tma_load_once(input.{name},") for name in "ab"
)

PRODUCTS = """\
#pragma unroll
      for (int i = 0; i < TILES_M; ++i)
#pragma unroll
        for (int j = 0; j < TILES_N; ++j)
          mma("""


def _in_parts(parts: int) -> tuple[Change, ...]:
    """A step stores what came during the last one, in so many parts, each ahead of products, and asks for the next."""
    changes = {
        "void store(Slice<ROWS>& slice) const {\n": "void store(Slice<ROWS>& slice, int part) const {\n",
        "    for (int i = 0; i < ROWS / ROW_STEP; ++i)\n      store_vector": (
            f"    for (int i = part * ROWS / ROW_STEP / {parts}; i < (part + 1) * ROWS / ROW_STEP / {parts}; ++i)\n"
            "      store_vector"
        ),
        "  const auto store = [&](Buffer& to) {\n": "  const auto store = [&](Buffer& to, int part) {\n",
        "    next_a.store(to.a);\n": "    next_a.store(to.a, part);\n",
        "    next_b.store(to.b);\n    __syncthreads();": "    next_b.store(to.b, part);",
        "  store(buffers[0]);\n": (
            f"  for (int part = 0; part < {parts}; ++part) store(buffers[0], part);\n  if (steps > 1) load(1);\n"
        ),
        "    if (more) load(step + 1);\n": "    __syncthreads();\n",
        "    if (more) store(buffers[(step + 1) % 2]);\n": "",
        PRODUCTS: (
            f"      if (k / MMA_K < {parts} && more) store(buffers[(step + 1) % 2], k / MMA_K);\n"
            f"      if (k / MMA_K == {parts - 1} && step + 2 < steps) load(step + 2);\n{PRODUCTS}"
        ),
    }
    return tuple(Change("gemm/5_register_prefetch.cu", old, new) for old, new in changes.items())


TRIES = (
    Try(
        "what was loaded during a step is stored with the first products of the next, and the next slice asked for",
        "register_prefetch",
        ("8192x8192x8192",),
        _in_parts(1),
    ),
    Try(
        "the same in two parts, with the first two sixteens of k",
        "register_prefetch",
        ("8192x8192x8192",),
        _in_parts(2),
    ),
    Try(
        "tiles of 256 x 128",
        "register_prefetch",
        ("8192x8192x8192",),
        parameters={"BLOCK_M": 256, "BLOCK_N": 128, "WARPS_M": 4, "WARPS_N": 2},
    ),
    Try(
        "sums leave registers in pairs of columns, not as whole matrices with stmatrix",
        "stream_k",
        ("8192x8192x8192",),
        (Change("include/tiles.cuh", "    if constexpr (sizeof(Out) == 2) {\n", "    if constexpr (false) {\n"),),
    ),
    Try(
        "clusters of four, one above the other, share B",
        "multicast",
        ("4096x4096x4096", "8192x8192x8192"),
        (Change("gemm/10_multicast.cu", "SHARING = 2", "SHARING = 4"),),
        sharing=4,
    ),
    Try(
        "no clusters: each block loads all of its B",
        "stream_k",
        ("4096x4096x4096", "6144x6144x6144", "8192x8192x8192"),
        ALONE,
        sharing=1,
    ),
    *(
        Try("the L2 fetches 128 bytes from memory, not 256", stage, problems, promotion=128)
        for stage, problems in (
            ("stream_k", ("6144x6144x6144", "8192x8192x8192")),
            ("multicast", ("4096x4096x4096",)),
            ("streamed", ("128x8192x8192", "64x8192x8192")),
        )
    ),
    Try(
        "A is the first to leave the L2",
        "stream_k",
        ("8192x8192x8192",),
        (Change("gemm/11_stream_k.cu", "tma_load(input.a, g.A", "tma_load_once(input.a, g.A"),),
    ),
    *(
        Try(idea, stage, problems, changes)
        for idea, changes in (
            ("one consumer is two steps ahead of the other", AHEAD_OF_THE_OTHER),
            ("threads store C themselves, not the copy engine", BY_THREADS),
        )
        for stage, problems in (
            ("multicast", ("4096x4096x4096",)),
            ("stream_k", ("4608x14336x4096", "8192x8192x8192")),
        )
    ),
    *(
        Try(
            "half of the columns leave while the others are multiplied by the last two slices", stage, problems, changes
        )
        for stage, changes, problems in (
            ("multicast", MULTICAST_IN_HALVES, ("4096x4096x4096",)),
            ("stream_k", STREAM_K_IN_HALVES, ("4608x14336x4096", "6144x6144x6144", "8192x8192x8192")),
        )
    ),
    Try(
        "rows that are walked together are about 8, everywhere as many",
        "stream_k",
        ("4608x14336x4096", "5120x4096x14336"),
        EVEN_GROUPS,
    ),
    Try("128 blocks, in whole rounds", "stream_k", ("6144x6144x6144", "8192x8192x8192"), parameters={"BLOCKS": 128}),
    Try(
        "each block begins at another slice of k",
        "streamed",
        ("1024x1024x1024", "128x8192x8192", "64x8192x8192"),
        STAGGERED,
    ),
    Try("4 rows of tiles are walked together", "multicast", ("4096x4096x4096",), parameters={"GROUP_M": 4}),
    Try("16 rows of tiles are walked together", "multicast", ("4096x4096x4096",), parameters={"GROUP_M": 16}),
    Try(
        "every last round is shared out, however little that gains",
        "stream_k",
        ("4096x4096x4096", "4096x4096x512"),
        (Change("gemm/11_stream_k.cu", "gain < LEAST_GAIN", "gain < 0"),),
    ),
    Try(
        "a last round is shared out where that gains 32 steps, instead of 16",
        "stream_k",
        ("6144x6144x6144", "5120x4096x14336"),
        (Change("gemm/11_stream_k.cu", "gain < LEAST_GAIN", "gain < 2 * LEAST_GAIN"),),
    ),
    Try(
        "only the tiles that are left over are shared out, no whole round with them",
        "stream_k",
        ("8192x8192x8192",),
        (
            Change(
                "gemm/11_stream_k.cu",
                "    return left * 2 < blocks ? left + blocks : left;\n",
                "    return left;\n",
            ),
        ),
    ),
    Try(
        "the first item is set up and loaded before the barriers are met, and maps are prefetched",
        "ping_pong",
        ("2048x2048x2048", "4096x4096x512"),
        (*AHEAD, _prefetched("gemm/12_ping_pong.cu", PING_PONG_RUN, "A", "B", "C_boxes")),
    ),
    Try(
        "tiles of 64 x 256",
        "ping_pong",
        ("2048x2048x2048", "4096x4096x512"),
        parameters={"BLOCK_M": 64, "BLOCK_N": 256},
    ),
    Try(
        "the first item is set up and loaded before the barriers are met",
        "streamed",
        ("1024x1024x1024", "128x8192x8192"),
        AHEAD,
    ),
    Try(
        "pairs of blocks load half of A each, for both",
        "streamed",
        ("1024x1024x1024", "128x8192x8192", "64x8192x8192"),
        SHARED_A,
        sharing=2,
        small="128x8192x256",
    ),
    Try(
        "steps of two slices: 256 bytes of each row at once",
        "streamed",
        ("1024x1024x1024", "128x8192x8192", "64x8192x8192"),
        _slices(2),
    ),
    Try(
        "A and B are the first to leave the L2",
        "ping_pong",
        ("2048x2048x2048", "4096x4096x512"),
        LEAVES_FIRST,
    ),
    Try("5 slices in flight instead of 8", "streamed", ("128x8192x8192",), (_depth(5),)),
    Try(
        "B stays in the L2 like any other array",
        "streamed",
        ("128x8192x8192", "64x8192x8192"),
        (Change("gemm/13_streamed.cu", "const bool once = g.M <= BLOCK_M;", "const bool once = false;"),),
    ),
    Try(
        "a pause of 1 us behind the first step, so that all first slices come before the second ones",
        "fitted_tiles",
        ("512x8192x8192", "2048x2048x2048"),
        (_pause(1000),),
    ),
)


def parsed(shape: str) -> GemmProblem:
    """A product of this shape, of bf16 with B transposed."""
    return GemmProblem.parse(f"{shape},dtype=bf16,out=bf16,layout=nt")


def source(attempt: Try, stage: Stage[Any], folder: Path) -> Path:
    """The stage's source in a copy of all sources below `folder`, changed. Raises ValueError where a change has no
    place."""
    shutil.copytree(SOURCES, folder, dirs_exist_ok=True)
    for change in attempt.changes:
        text = (folder / change.file).read_text()
        if text.count(change.old) != 1:
            raise ValueError(f"{change.file} has {text.count(change.old)} times, not once:\n{change.old}")
        (folder / change.file).write_text(text.replace(change.old, change.new))
    return folder / stage.path.relative_to(SOURCES)


def plan(attempt: Try, stage: Stage[Any], problem: GemmProblem) -> Plan:
    """The launches of the stage, in the clusters and with the tensor maps of the try."""
    found = stage.plan(problem)
    return replace(found, launches=tuple(_launch(attempt, launch) for launch in found.launches))


def _launch(attempt: Try, launch: Launch) -> Launch:
    maps = {a.array: a for a in launch.args if isinstance(a, TensorMap)}
    if attempt.promotion is not None:
        maps = {name: replace(a, promotion=attempt.promotion) for name, a in maps.items()}
    if attempt.sharing and maps:
        before, blocks = launch.cluster[0], attempt.sharing
        shared = "A" if before == 1 else "B"  # the matrix of which each block loads a part for all
        rows, columns = maps[shared].box
        maps[shared] = replace(maps[shared], box=(rows * before // blocks, columns))
        whole = ceil_div(launch.grid[0], blocks) * blocks
        launch = replace(launch, cluster=(blocks, 1, 1), grid=(whole, 1, 1))
    args = tuple(maps[a.array] if isinstance(a, TensorMap) else a for a in launch.args)
    return replace(launch, args=args)


def compiled(attempt: Try, stage: Stage[Any], problem: GemmProblem) -> Compiled:
    """The changed source for a problem."""
    with tempfile.TemporaryDirectory() as folder:
        return compile_source(source(attempt, stage, Path(folder)), stage.defines(problem))


def stages(attempt: Try, problem: GemmProblem, device: str) -> tuple[Stage[Any], Stage[Any]]:
    """The stage with the parameters that the shipped table has for it, and with those of the try."""
    (usual,) = registry.select([f"gemm:{attempt.stage}"])
    picked = tuned.hand_picked(device, "gemm", problem)
    if picked and picked.name == usual.name:
        usual = picked
    return usual, usual.with_parameters({**usual.parameters, **attempt.parameters})


def contest(attempt: Try, shape: str, code: Compiled, device: CudaDevice) -> dict[str, Any]:
    """Cold and sustained samples of the stage, of the try, which is this code, and of cuBLAS, in turns."""
    problem, info = parsed(shape), device.info()
    arrays, storage = problem.arrays(), Case(problem, problem.arrays(), problem.inputs(), {}, {}).storage()
    usual, changed = stages(attempt, problem, info.name)
    own = compile_source(usual.path, usual.defines(problem))
    shipped = device.bind(own, usual.plan(problem), arrays, storage, problem.seed)
    tried = device.bind(code, plan(attempt, changed, problem), arrays, storage, problem.seed)
    for bound in (shipped, tried):
        bound.run()
    right, found = (bound.read("C").astype(np.float32) for bound in (shipped, tried))
    if not np.allclose(right, found, rtol=0.02, atol=0.5):
        raise ValueError(f"{attempt.stage}, {attempt.idea}: not what the stage as it is computes")
    libraries = list(recorded.libraries("gemm", shipped, problem))
    enqueue = {"shipped": shipped.enqueue, "tried": tried.enqueue} | {name: launch for name, launch, _ in libraries}
    timings = race(enqueue, info.l2_bytes, EFFORT, Conditions())
    shipped.close()
    tried.close()
    row = {"idea": attempt.idea, "stage": attempt.stage, "problem": shape}
    return row | {name: {"cold_us": t.cold_us, "sustained_us": t.sustained_us} for name, t in timings.items()}


EFFORT = Effort(seconds=0.3, enough=60, most=60)
"""More samples than a bench takes: what a try changes is small."""


def measure(output: Path) -> None:
    """Makes the record; what has been measured is saved at once. Sources are compiled ahead, side by side."""
    device = CudaDevice()
    info = device.info()
    record = recorded.begin(info, "rows")
    todo = [(attempt, shape) for attempt in TRIES for shape in attempt.problems]
    ahead = [(a, stages(a, parsed(shape), info.name)[1], parsed(shape)) for a, shape in todo]
    with ThreadPoolExecutor() as pool:
        codes = list(pool.map(lambda arguments: compiled(*arguments), ahead))
    for (attempt, shape), code in zip(todo, codes, strict=True):
        record["rows"].append(contest(attempt, shape, code, device))
        recorded.save(record, output)
        print(attempt.stage, shape, attempt.idea, flush=True)


def page(record: dict[str, Any]) -> str:
    """The Markdown page."""
    cells = []
    for row in record["rows"]:
        cold = {name: derived.median(row[name]["cold_us"]) for name in ("shipped", "tried", "cuBLAS")}
        long = {name: derived.median(row[name]["sustained_us"]) for name in cold}
        figures = (
            f"{cold['shipped']:,.1f}",
            f"{cold['tried']:,.1f}",
            f"{cold['shipped'] / cold['tried']:.3f}",
            f"{long['shipped'] / long['tried']:.3f}",
            f"{cold['cuBLAS'] / cold['tried']:.3f}",
        )
        cells.append([row["idea"], f"`{row['stage']}`", row["problem"], *figures])
    headers = ["tried", "stage", "problem", "as it is, us", "tried, us", "gain", "gain, sustained", "cuBLAS / tried"]
    align = (*["left"] * 3, *["right"] * 5)
    return "\n".join(
        (
            "# What was tried on products of bf16\n",
            "Written by `benchmarks/gemm_tries.py`, which has the changes, from [the JSON beside it](gemm-tries.json). "
            "Each try is one change to a stage as it is, timed in turns with it and with cuBLAS: above 1 the try is "
            "faster. Medians; cold unless it says sustained. B is transposed. What was taken over is no longer among "
            "the changes: here is what gained nothing, or gained on one problem and lost on another, or cold and not "
            "sustained. What limits these products is on [a page of its own](gemm-limits.md).\n",
            recorded.made_on(record),
            tabulate(cells, headers, tablefmt="pipe", disable_numparse=True, colalign=align) + "\n",
        )
    )


if __name__ == "__main__":
    recorded.main(__doc__, RECORD, lambda o: measure(o.file), page)
