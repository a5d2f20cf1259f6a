"""What was tried to make products of bf16 faster, and what each try gave: makes `reports/gemm-tries.md`.

    python benchmarks/gemm_tries.py measure OUTPUT.json [--only WORDS ...]   # on a machine with a GPU
    python benchmarks/gemm_tries.py write [OUTPUT.json]                      # the page, of that file and nothing else

With `--only`, tries whose ideas contain one of these words are timed, to be looked at.

A try is a change to the sources of a stage, to its parameters or to its clusters. It is timed in turns with the stage
as it is and with cuBLAS, so that nothing but the change is between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import changed
import numpy as np
import recorded
from changed import Change
from tabulate import tabulate

from workbench.catalogue import registry
from workbench.devices.cuda import CudaDevice
from workbench.kernels.gemm import GemmProblem
from workbench.measure.timing import Effort
from workbench.measure.timing import measure as race
from workbench.model.launch import Launch, Plan, TensorMap, ceil_div
from workbench.model.operation import Stage
from workbench.model.results import Conditions
from workbench.records import tuned
from workbench.report import derived
from workbench.toolchain.compiler import Compiled, compile_source

RECORD = Path(__file__).parents[1] / "reports/gemm-tries.json"


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


TEMPLATE = "include/pipeline/lcsf.cuh"

OF_PING_PONG = ("2048x2048x2048", "4096x4096x512")
"""The products for which `workbench.ops` takes that stage."""

ALONE = tuple(
    Change("gemm/11_stream_k.cu", old, new)
    for old, new in (
        ("SHARING = 2,", "SHARING = 1,"),
        ("      constexpr unsigned ALL = (1 << SHARING) - 1;\n", ""),
        ("tma_load_to(ALL, &input.b[mine", "tma_load(&input.b[mine"),
        ("tma_load_to(ALL, &input.b[n *", "tma_load(&input.b[n *"),
    )
)


def _at_a_step(before: str = "", after: str = "") -> Change:
    """What a consumer does before or after it waits for a step's slices."""
    wait, then = "        mbarrier_wait(shared.full[from.slot], from.parity);\n", "        if constexpr (FAR) {\n"
    return Change(TEMPLATE, wait + then, before + wait + after + then)


AHEAD_OF_THE_OTHER = (
    Change(
        TEMPLATE,
        "      if (mine == 1) named_arrive<TURN_THREADS>(TURN);  // the first turn is the other's\n",
        "      if (mine == 1) named_arrive<TURN_THREADS>(TURN);\n"
        "    if constexpr (!TURNS)\n"
        "      if (mine == 1) named_sync<TURN_THREADS>(TURN);\n",
    ),
    _at_a_step(
        "        if constexpr (!TURNS)\n"
        "          if (mine == 0 && item == 0 && step == 2) named_arrive<TURN_THREADS>(TURN);\n"
    ),
)
"""So that one multiplies while the other stores. The first item has more than two steps."""

BY_THREADS = (
    Change(
        "include/epilogue/tiles.cuh",
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
        "        store_vector(c + static_cast<long long>(row) * g.ldc,\n"
        "                     load_vector<CHUNK>(chunk(staged, first + row, own)));\n",
    ),
)
"""In whole lines, out of the same shared memory; nobody waits until it has been read."""

STAGGERED = (
    Change("gemm/13_streamed.cu", "    int steps, first, m, n;  // of k", "    int steps, first, turn, m, n;  // of k"),
    Change(
        "gemm/13_streamed.cu",
        "    common.steps = steps * (rank() + 1) / SPLIT - common.first;\n",
        "    common.steps = steps * (rank() + 1) / SPLIT - common.first;\n"
        "    common.turn = common.steps * blockIdx.y / gridDim.y;\n",
    ),
    Change(
        "gemm/13_streamed.cu",
        "    return (tile.first + step) * STEP_K;\n",
        "    const int at = step + tile.turn;\n"
        "    return (tile.first + (at < tile.steps ? at : at - tile.steps)) * STEP_K;\n",
    ),
)
"""Rows of B are 16 KB apart: so the addresses that are read at once differ in more bits."""


ALL_AHEAD = (
    Change(
        "gemm/12_ping_pong.cu",
        "  Lcsf<Gemm, 1, true>::run(",
        "  if (threadIdx.x == 2 * WARP) {\n"
        "    const int slices = (K + BLOCK_K - 1) / BLOCK_K, down = (M + BLOCK_M - 1) / BLOCK_M;\n"
        "    const int wide = TRANS_B ? BLOCK_N : PANEL, across = (N + wide - 1) / wide;\n"
        "    for (int i = blockIdx.x; i < slices * down; i += gridDim.x)\n"
        "      tma_prefetch(A, i % down * BLOCK_M, i / down * BLOCK_K);\n"
        "    for (int i = blockIdx.x; i < slices * across; i += gridDim.x)\n"
        "      tma_prefetch(B, i % across * wide, i / across * BLOCK_K);\n"
        "  }\n"
        "  Lcsf<Gemm, 1, true>::run(",
    ),
)
"""Each block has its part of A and B fetched into the L2 before it loads anything."""

SHARED_AHEAD = (
    Change(
        "gemm/12_ping_pong.cu",
        "      const int k = step * BLOCK_K;\n",
        "      const int k = step * BLOCK_K, ahead = step + 8;\n"
        "      if (ahead < tile.steps && ahead % 8 == tile.n / BLOCK_N % 8)\n"
        "        tma_prefetch(g.A, tile.m, ahead * BLOCK_K);\n"
        "      if (ahead < tile.steps && ahead % GROUP_M == tile.m / BLOCK_M % GROUP_M)\n"
        "        for (int n = 0; n < BLOCK_N; n += TRANS_B ? BLOCK_N : PANEL)\n"
        "          tma_prefetch(g.B, TRANS_B ? tile.n : ahead * BLOCK_K, TRANS_B ? ahead * BLOCK_K : tile.n + n);\n",
    ),
)
"""Of the blocks that need a slice one fetches it, as far as they are all at work."""

ONE_RING = (
    Change("gemm/13_streamed.cu", "Either<B_ONCE, only_a, both>", "both"),
    Change("gemm/13_streamed.cu", "Either<B_ONCE, only_b, Nothing>", "Nothing"),
    Change("gemm/13_streamed.cu", "RING_DEPTH = A_SLOTS, BURST = B_AT_ONCE", "RING_DEPTH = 0, BURST = 1"),
)

_SUMS = ", ".join(f'"+f"(d[{i}])' for i in range(128))
_NAMES = ", ".join(f"%{i}" for i in range(128))

A_IN_REGISTERS = (
    Change(
        "include/tile/slices.cuh",
        "template <class In>\nstruct Slice {\n",
        "template <int B_TRANSPOSED>\n"
        "__device__ __forceinline__ void wgmma(float (&d)[128], const u32 (&a)[4], u64 b, __nv_bfloat16, bool add) {\n"
        "  asm volatile(\n"
        '      "{\\n.reg .pred accumulate;\\nsetp.ne.b32 accumulate, %134, 0;\\n"\n'
        f'      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {{{_NAMES}}}, "\n'
        '      "{%128, %129, %130, %131}, %132, accumulate, 1, 1, %133;\\n}"\n'
        f"      : {_SUMS}\n"
        '      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(B_TRANSPOSED), "r"(static_cast<int>(add)));\n'
        "}\n\n"
        "template <class In>\nstruct Slice {\n",
    ),
    Change("include/tile/slices.cuh", '#include "ptx/tma.cuh"\n', '#include "ptx/mma.cuh"\n#include "ptx/tma.cuh"\n'),
    Change(
        "include/tile/slices.cuh",
        "    const u64 rows = swizzled_operand(shared_address(a), 0, ATOM_BYTES);\n",
        "    const int lane = threadIdx.x % 32, row = threadIdx.x % WARPGROUP / 32 * 16 + lane % 16;\n"
        "    u32 rows[DEPTH / WGMMA_K][4];\n"
        "#pragma unroll\n"
        "    for (int k = 0; k < DEPTH / WGMMA_K; ++k)\n"
        "      ldmatrix_x4(rows[k], a + row * DEPTH + ((2 * k + lane / 16) ^ lane % 8) * 8);\n",
    ),
    Change("include/tile/slices.cuh", "operand_at(rows, k * A_STEP)", "rows[k]"),
    Change("include/tile/slices.cuh", "    wgmma_wait<1>();\n", "    wgmma_wait<0>();\n"),
    Change(
        "gemm/10_multicast.cu",
        "  static constexpr int CONSUMERS = ",
        "  static constexpr int IN_FLIGHT = 0, CONSUMERS = ",
    ),
)
"""Of one step only: while one consumer loads its A, the other multiplies."""

FREE_AT_ONCE = (
    Change(
        "gemm/13_streamed.cu",
        "static constexpr int RING_DEPTH = A_SLOTS",
        "static constexpr int IN_FLIGHT = 0, RING_DEPTH = A_SLOTS",
    ),
    Change(
        "gemm/13_streamed.cu",
        "                                   state.add);\n",
        "                                   state.add);\n      wgmma_wait<0>();\n",
    ),
)
"""A slot is asked for again a step earlier; tensor cores pause meanwhile."""

FIRST_ALONE = (
    Change(
        TEMPLATE,
        "        mbarrier_wait(RAW ? shared.raw.empty : shared.empty[to.slot], to.parity ^ 1);\n        ask(g",
        "        if (!RAW && item == 0 && step == start.steps) mbarrier_wait(shared.full[0], 0);\n"
        "        mbarrier_wait(RAW ? shared.raw.empty : shared.empty[to.slot], to.parity ^ 1);\n        ask(g",
    ),
)
"""So that it does not share memory with others that nobody needs yet."""

INITIALISED_BY_TWO = (
    Change(
        TEMPLATE,
        "        mbarrier_init(shared.full[s], RAW ? ARRANGERS / LANES : 1);\n"
        "        mbarrier_init(shared.empty[s], RELEASES);\n      }\n",
        "        mbarrier_init(shared.full[s], RAW ? ARRANGERS / LANES : 1);\n      }\n",
    ),
    Change(
        TEMPLATE,
        "      if constexpr (SHARING == 1) begin(g, shared, start);\n    }\n    __syncthreads();\n",
        "      if constexpr (SHARING == 1) begin(g, shared, start);\n    } else if (threadIdx.x == LANES) {\n"
        "      for (int s = 0; s < DEPTH; ++s) mbarrier_init(shared.empty[s], RELEASES);\n"
        "      mbarrier_init_fence();\n    }\n    __syncthreads();\n",
    ),
)

TURN_BY_TURN = (
    Change(
        TEMPLATE,
        "    if constexpr (TURNS)\n      if (mine == 1) named_arrive<TURN_THREADS>(TURN);  // the first",
        "    if (mine == 1) named_arrive<TURN_THREADS>(TURN);  // the first",
    ),
    _at_a_step(after="        if constexpr (!TURNS) named_sync<TURN_THREADS>(TURN + mine);\n"),
    Change(
        TEMPLATE,
        "        if constexpr (IN_FLIGHT == 0) {\n          release(",
        "        if constexpr (!TURNS) named_arrive<TURN_THREADS>(TURN + 1 - mine);\n"
        "        if constexpr (IN_FLIGHT == 0) {\n          release(",
    ),
)
"""So that tensor cores have the products of a step of one warpgroup, with the same sums, one after the other."""

HANDED_OVER_EARLY = (
    Change(
        TEMPLATE,
        "        named_sync<TURN_THREADS>(TURN + mine);\n      }\n",
        "      }\n      common_state next;\n      more = Kernel::common_setup(g, next, item + 1);\n"
        "      if constexpr (TURNS) named_sync<TURN_THREADS>(TURN + mine);\n",
    ),
    _at_a_step(
        "        if constexpr (TURNS)\n"
        "          if (more && step == common.steps - 1) named_arrive<TURN_THREADS>(TURN + 1 - mine);\n"
    ),
    Change(
        TEMPLATE,
        "      common_state next;  // set up while the last step is computed\n"
        "      more = Kernel::common_setup(g, next, item + 1);\n"
        "      if constexpr (TURNS)\n        if (more) named_arrive<TURN_THREADS>(TURN + 1 - mine);\n",
        "",
    ),
    Change(
        TEMPLATE,
        "      if constexpr (TURNS)\n"
        "        Kernel::common_setup(g, common, item + 1);  // not before the turn was handed over\n"
        "      else\n        common = next;\n",
        "      common = next;\n",
    ),
)

SET_UP_AHEAD = (
    Change(
        TEMPLATE,
        "    for (bool more = start.any; more; more = Kernel::common_setup(g, common, ++item), step = 0) {\n",
        "    for (bool more = start.any; more; ++item, step = 0) {\n      common_state next;\n",
    ),
    Change(
        TEMPLATE,
        "      for (; step < common.steps; ++step, to.advance()) {\n        mbarrier_wait(RAW",
        "      for (; step < common.steps; ++step, to.advance()) {\n"
        "        if (step == common.steps - 1) more = Kernel::common_setup(g, next, item + 1);\n"
        "        mbarrier_wait(RAW",
    ),
    Change(
        TEMPLATE,
        "        ask(g, shared, common, state, to.slot, step);\n      }\n    }\n    if constexpr (SHARING > 1)",
        "        ask(g, shared, common, state, to.slot, step);\n      }\n      common = next;\n    }\n"
        "    if constexpr (SHARING > 1)",
    ),
)
"""The ring is full then. At the beginning the producer has asked for fewer steps than an item has."""

LAST_THROUGH_THE_RING = (
    Change(TEMPLATE, "shared.finish[mine], shared.ring);", "shared.finish[mine], more ? nullptr : shared.ring);"),
    Change(
        "gemm/12_ping_pong.cu",
        "finish_block& staged, input_block*) {\n",
        "finish_block& staged, input_block* ring) {\n"
        "      constexpr int PARTS = BANDS * BLOCK_N / STAGED;\n"
        "      using whole = OUT[PARTS][Staged<OUT>::ELEMENTS];\n"
        "      if (ring) named_sync<WARPGROUP>(3);\n",
    ),
    Change(
        "gemm/12_ping_pong.cu",
        "          Staged<OUT>::store<STAGED_BUFFERS>("
        "g, buffers[n / STAGED % STAGED_BUFFERS], &state.sum[band][n / 2],\n"
        "                                             tile.m",
        "          const int part = (band * BLOCK_N + n) / STAGED;\n"
        "          OUT* const free = reinterpret_cast<whole*>(ring)[warp][part];\n"
        "          if (!ring) tma_store_wait_read<STAGED_BUFFERS - 1>();\n"
        "          Staged<OUT>::store<PARTS + STAGED_BUFFERS>(\n"
        "              g, ring ? free : buffers[part % STAGED_BUFFERS], &state.sum[band][n / 2], tile.m",
    ),
)
"""Nobody loads into it any more, and no part of the tile waits until another has been read."""

PAIRS_SHARE_B = (
    Change(
        "gemm/12_ping_pong.cu",
        "  static constexpr int CONSUMERS = 2, BANDS",
        "  static constexpr int SHARING = 2, SHARE = BLOCK_N / SHARING;\n  static constexpr int CONSUMERS = 2, BANDS",
    ),
    Change(
        "gemm/12_ping_pong.cu",
        "        tma_load(input.b, g.B, full, tile.n, k);\n",
        "        tma_load_to(3, &input.b[cluster_rank() * SHARE * BLOCK_K], g.B, full,\n"
        "                    tile.n + cluster_rank() * SHARE, k);\n",
    ),
    Change(
        "gemm/12_ping_pong.cu",
        "__launch_bounds__(Lcsf<Gemm, 1, true>::THREADS, 1)",
        "__cluster_dims__(2, 1, 1) __launch_bounds__(Lcsf<Gemm, 2, true>::THREADS, 1)",
    ),
    Change("gemm/12_ping_pong.cu", "  Lcsf<Gemm, 1, true>::run(", "  Lcsf<Gemm, 2, true>::run("),
)

PAIRS_SHARE_B_STREAMED = (
    Change(
        "gemm/13_streamed.cu",
        "          box(b[s], tile.n, k);\n",
        "          tma_load_to(3, &b[s][cluster_rank() * 32 * BLOCK_K], g.B, full, tile.n + cluster_rank() * 32, k);\n",
    ),
    Change("gemm/13_streamed.cu", "#define CLUSTER\n", "#define CLUSTER __cluster_dims__(2, 1, 1)\n"),
    Change("gemm/13_streamed.cu", "Lcsf<Gemm>::THREADS", "Lcsf<Gemm, 2>::THREADS"),
    Change("gemm/13_streamed.cu", "Lcsf<Gemm>::run(", "Lcsf<Gemm, 2>::run("),
)


def _fetched_before_the_cluster_starts(file: str, globals_of: str) -> tuple[Change, ...]:
    return (
        Change(
            file,
            "  Lcsf<Gemm, SHARING>::run(",
            "  if (threadIdx.x == 2 * WARP) {\n"
            "    Gemm::common_state first;\n"
            f"    const Gemm::globals all{{{globals_of}}};\n"
            "    if (Gemm::common_setup(all, first, 0))\n"
            "      for (int step = 0; step < min(2, first.steps); ++step) {\n"
            "        const int k = first.order.slice(step) * BLOCK_K, mine = cluster_rank() * SHARE;\n"
            "        tma_prefetch(A, first.m, k);\n"
            "        if constexpr (TRANS_B)\n"
            "          tma_prefetch(B, first.n + mine, k);\n"
            "        else\n"
            "          for (int n = mine; n < mine + SHARE; n += PANEL) tma_prefetch(B, k, first.n + n);\n"
            "      }\n"
            "  }\n"
            "  Lcsf<Gemm, SHARING>::run(",
        ),
    )


def _in_streamed(old: str, new: str) -> tuple[Change, ...]:
    return (Change("gemm/13_streamed.cu", old, new),)


def _paced(every: int) -> tuple[Change, ...]:
    """Who is so many steps ahead of the others waits, for a while, so that all end together: of blocks that read B row
    by row some are an eighth faster. They count their looks in one place; a look returns what was counted before."""
    return (
        Change(
            TEMPLATE,
            "template <class...>\nusing Exists = void;\n",
            "__device__ unsigned looks;\n\ntemplate <class...>\nusing Exists = void;\n",
        ),
        Change(
            TEMPLATE,
            "  static __device__ __forceinline__ void produce_far(const globals& g, Shared& shared) {\n",
            "  static __device__ __forceinline__ void produce_far(const globals& g, Shared& shared) {\n"
            "    unsigned before = 0;\n",
        ),
        Change(
            TEMPLATE,
            "        if (step % BURST == 0) {\n",
            f"        if (step > 0 && step % {every} == 0) {{\n"
            f"          const unsigned blocks = gridDim.x * gridDim.y, own = step / {every} - 1;\n"
            f"          const unsigned all = blocks * ((common.steps - 1) / {every});  // in a launch\n"
            "          for (int i = 0; i < 8 && own > 1 && own * blocks > before % all + blocks; ++i)\n"
            "            before = atomicAdd(&looks, 0);\n"
            "          before = atomicAdd(&looks, 1);\n"
            "        }\n"
            "        if (step % BURST == 0) {\n",
        ),
    )


LEAVES_FIRST = tuple(
    Change("gemm/12_ping_pong.cu", f"tma_load(input.{name},", f"tma_load_once(input.{name},") for name in "ab"
)

C_LEAVES_FIRST = (
    Change(
        "include/ptx/tma.cuh",
        '"cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map),',
        '"{\\n.reg .b64 first;\\ncreatepolicy.fractional.L2::evict_first.b64 first, 1.0;\\n"\n'
        '               "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group.L2::cache_hint "\n'
        '               "[%0, {%2, %3}], [%1], first;\\n}" ::"l"(&map),',
    ),
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
        (
            Change(
                "include/epilogue/tiles.cuh", "    if constexpr (sizeof(Out) == 2) {\n", "    if constexpr (false) {\n"
            ),
        ),
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
        Try("C is the first to leave the L2", stage, problems, C_LEAVES_FIRST)
        for stage, problems in (
            ("ping_pong", OF_PING_PONG),
            ("multicast", ("4096x4096x4096",)),
            ("stream_k", ("6144x6144x6144", "5120x4096x14336", "8192x8192x8192")),
        )
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
        Try(idea, stage, problems, (change,))
        for stage, file, problems in (
            ("multicast", "gemm/10_multicast.cu", ("4096x4096x4096",)),
            ("stream_k", "gemm/11_stream_k.cu", ("4608x14336x4096", "6144x6144x6144", "8192x8192x8192")),
        )
        for idea, change in (
            (
                "a tile leaves at once, not while the next one is multiplied",
                Change(file, "LATER = result_state::PARTS;", "LATER = 0;"),
            ),
            (
                "a tile leaves with the first steps of the next one, not over half of them",
                Change(TEMPLATE, "max(common.steps / (2 * LATER), 1)", "1"),
            ),
        )
    ),
    Try(
        "no pauses between the parts of a tile that leaves",
        "ping_pong",
        OF_PING_PONG,
        (Change("gemm/12_ping_pong.cu", "!tile.last) __nanosleep(PAUSE * tile.steps);", "false) {}"),),
    ),
    Try("A comes to the tensor cores through registers", "multicast", ("4096x4096x4096",), A_IN_REGISTERS),
    Try(
        "one consumer is two steps ahead of the other",
        "fitted_tiles",
        ("2048x2048x2048", "512x8192x8192"),
        AHEAD_OF_THE_OTHER,
        small="200x520x1400",
    ),
    *(
        Try("nothing else is asked for before the first slices have come", stage, problems, FIRST_ALONE)
        for stage, problems in (
            ("streamed", ("1024x1024x1024",)),
            ("ping_pong", ("2048x2048x2048",)),
            ("fitted_tiles", ("512x8192x8192",)),
        )
    ),
    *(
        Try("a second warp initialises half of the barriers", stage, problems, INITIALISED_BY_TWO)
        for stage, problems in (("streamed", ("1024x1024x1024",)), ("ping_pong", ("2048x2048x2048",)))
    ),
    Try(
        "a slot is free when it has been multiplied, not a step later",
        "streamed",
        ("1024x1024x1024", "128x8192x8192", "64x8192x8192"),
        FREE_AT_ONCE,
        small="100x520x1400",
    ),
    Try("128 blocks, in whole rounds", "stream_k", ("6144x6144x6144", "8192x8192x8192"), parameters={"BLOCKS": 128}),
    Try(
        "each block begins at another slice of k",
        "streamed",
        ("1024x1024x1024", "128x8192x8192", "64x8192x8192"),
        STAGGERED,
    ),
    *(
        Try("consumers take turns step by step", stage, (problem,), TURN_BY_TURN)
        for stage, problem in (
            ("multicast", "4096x4096x4096"),
            ("stream_k", "6144x6144x6144"),
            ("fitted_tiles", "512x8192x8192"),
        )
    ),
    Try(
        "two blocks, one above the other, share B",
        "ping_pong",
        OF_PING_PONG,
        PAIRS_SHARE_B,
        sharing=2,
    ),
    Try(
        "two blocks, one above the other, share B",
        "streamed",
        ("1024x1024x1024",),
        PAIRS_SHARE_B_STREAMED,
        sharing=2,
        small="1024x1024x128",
    ),
    Try(
        "a block's last tile leaves through the ring",
        "ping_pong",
        OF_PING_PONG,
        LAST_THROUGH_THE_RING,
    ),
    Try(
        "a consumer hands its turn over a step earlier",
        "ping_pong",
        OF_PING_PONG,
        HANDED_OVER_EARLY,
    ),
    *(
        Try(
            "the producer sets up its next tile before it waits for the last slot of this one",
            stage,
            problems,
            SET_UP_AHEAD,
        )
        for stage, problems in (
            ("ping_pong", OF_PING_PONG),
            ("multicast", ("4096x4096x4096",)),
            ("stream_k", ("6144x6144x6144", "5120x4096x14336")),
        )
    ),
    *(
        Try("the first slices are fetched into the L2 while the cluster starts", stage, (problem,), changes)
        for stage, problem, changes in (
            (
                "multicast",
                "4096x4096x4096",
                _fetched_before_the_cluster_starts("gemm/10_multicast.cu", "A, B, C_boxes, C, M, N, K, ldc"),
            ),
            (
                "stream_k",
                "6144x6144x6144",
                _fetched_before_the_cluster_starts(
                    "gemm/11_stream_k.cu", "A, B, C_boxes, C, partial, flags, M, N, K, ldc"
                ),
            ),
        )
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
        "tiles of 64 x 256",
        "ping_pong",
        OF_PING_PONG,
        parameters={"BLOCK_M": 64, "BLOCK_N": 256},
    ),
    Try(
        "A and B are the first to leave the L2",
        "ping_pong",
        OF_PING_PONG,
        LEAVES_FIRST,
    ),
    Try(
        "all of A and B is fetched into the L2 ahead of time",
        "ping_pong",
        OF_PING_PONG,
        ALL_AHEAD,
    ),
    Try(
        "a slice is fetched into the L2 8 steps ahead by one of the blocks that need it",
        "ping_pong",
        OF_PING_PONG,
        SHARED_AHEAD,
        small="200x520x1400",
    ),
    *(
        Try(idea, "streamed", ("128x8192x8192", "64x8192x8192"), changes, small="100x520x1400")
        for idea, changes in (
            ("A and B share a ring", ONE_RING),
            ("the ring of A has 4 slots, and that of B the rest", _in_streamed("= A_SLOTS", "= 4")),
            ("the ring of A has a slot less, and that of B more", _in_streamed("= A_SLOTS", "= A_SLOTS - 1")),
            ("blocks that are 2 steps ahead wait for the others", _paced(2)),
            ("blocks that are 4 steps ahead wait for the others", _paced(4)),
            (
                "512 bytes of each row of B are asked for at once",
                _in_streamed("BURST = B_AT_ONCE;", "BURST = 4 / SHARES;"),
            ),
            ("A is not fetched into the L2 ahead of time", _in_streamed("if (A_AHEAD && ", "if (false && ")),
            ("B stays in the L2 like any other array", _in_streamed("if constexpr (B_ONCE)", "if constexpr (false)")),
        )
    ),
    Try("8 rows of tiles are walked together, not 16", "stream_k", ("16384x16384x16384",), parameters={"GROUP_M": 8}),
)


def parsed(shape: str) -> GemmProblem:
    """A product of this shape, of bf16 with B transposed."""
    return GemmProblem.parse(f"{shape},dtype=bf16,out=bf16,layout=nt")


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
        rows, columns = maps["B"].box  # each block loads a part of B for all
        maps["B"] = replace(maps["B"], box=(rows * before // blocks, columns))
        whole = ceil_div(launch.grid[0], blocks) * blocks
        launch = replace(launch, cluster=(blocks, 1, 1), grid=(whole, *launch.grid[1:]))
    args = tuple(maps[a.array] if isinstance(a, TensorMap) else a for a in launch.args)
    return replace(launch, args=args)


def compiled(attempt: Try, stage: Stage[Any], problem: GemmProblem) -> Compiled:
    """The changed source for a problem."""
    return changed.compiled(attempt.changes, stage, stage.defines(problem))


def stages(attempt: Try, problem: GemmProblem, device: str) -> tuple[Stage[Any], Stage[Any]]:
    """The stage with the parameters that the shipped table has for it, and with those of the try."""
    (usual,) = registry.select([f"gemm:{attempt.stage}"])
    picked = tuned.hand_picked(device, "gemm", problem)
    if picked and picked.name == usual.name:
        usual = picked
    return usual, usual.with_parameters({**usual.parameters, **attempt.parameters})


def contest(attempt: Try, shape: str, code: Compiled, device: CudaDevice) -> dict[str, Any]:
    """Cold and sustained samples of the stage, of the try, which is this code, and of cuBLAS, in turns; none where the
    try does not compute what the stage does."""
    problem, info = parsed(shape), device.info()
    arrays, storage = problem.arrays(), recorded.storage(problem, problem.inputs())
    usual, other = stages(attempt, problem, info.name)
    own = compile_source(usual.path, usual.defines(problem))
    shipped = device.bind(own, usual.plan(problem), arrays, storage, problem.seed)
    tried = device.bind(code, plan(attempt, other, problem), arrays, storage, problem.seed, beside=shipped)
    answers = []
    for bound in (shipped, tried):
        bound.poison()
        bound.run()
        answers.append(bound.read("C").astype(np.float32))
    row = {"idea": attempt.idea, "stage": attempt.stage, "problem": shape}
    right, found = answers
    if not np.allclose(right, found, rtol=0.02, atol=0.5):
        shipped.close()
        tried.close()
        return row
    libraries = list(recorded.libraries("gemm", shipped, problem))
    enqueue = {"shipped": shipped.enqueue, "tried": tried.enqueue} | {name: launch for name, launch, _ in libraries}
    timings = race(enqueue, info.l2_bytes, EFFORT, Conditions())
    shipped.close()
    tried.close()
    return row | {name: {"cold_us": t.cold_us, "sustained_us": t.sustained_us} for name, t in timings.items()}


EFFORT = Effort(seconds=0.3, enough=60, most=60)
"""More samples than a bench takes: what a try changes is small."""


def measure(output: Path, tries: Iterable[Try]) -> None:
    """Makes the record; what has been measured is saved and printed at once. Sources are compiled ahead, side by
    side."""
    device = CudaDevice()
    info = device.info()
    record = recorded.begin(info, "rows")
    todo = [(attempt, shape) for attempt in tries for shape in attempt.problems]
    ahead = [(a, stages(a, parsed(shape), info.name)[1], parsed(shape)) for a, shape in todo]
    with ThreadPoolExecutor() as pool:
        codes = list(pool.map(lambda arguments: compiled(*arguments), ahead))
    for (attempt, shape), code in zip(todo, codes, strict=True):
        record["rows"].append(contest(attempt, shape, code, device))
        recorded.save(record, output)
        print(*cells(record["rows"][-1]), sep=" | ", flush=True)


def chosen(words: Sequence[str]) -> list[Try]:
    """The tries whose ideas contain one of `words`, or all for no words. Exits where there is none."""
    found = [attempt for attempt in TRIES if not words or any(word in attempt.idea for word in words)]
    if not found:
        raise SystemExit(
            f"no try's idea contains {' or '.join(words)}; there are: {'; '.join(dict.fromkeys(t.idea for t in TRIES))}"
        )
    return found


def cells(row: Mapping[str, Any]) -> list[str]:
    """A row of the page's table."""
    what = [row["idea"], f"`{row['stage']}`", row["problem"]]
    if "tried" not in row:
        return [*what, "-", "wrong", *"---"]
    cold = {name: derived.median(row[name]["cold_us"]) for name in ("shipped", "tried", "cuBLAS")}
    long = {name: derived.median(row[name]["sustained_us"]) for name in cold}
    return [
        *what,
        f"{cold['shipped']:,.1f}",
        f"{cold['tried']:,.1f}",
        f"{cold['shipped'] / cold['tried']:.3f}",
        f"{long['shipped'] / long['tried']:.3f}",
        f"{cold['cuBLAS'] / cold['tried']:.3f}",
    ]


def page(record: dict[str, Any]) -> str:
    """The Markdown page."""
    headers = ["tried", "stage", "problem", "as it is, us", "tried, us", "gain", "gain, sustained", "cuBLAS / tried"]
    align = (*["left"] * 3, *["right"] * 5)
    return "\n".join(
        (
            "# What was tried on products of bf16\n",
            "Written by `benchmarks/gemm_tries.py`, which has the changes, from [the JSON beside it](gemm-tries.json). "
            "Each try is one change to a stage as it is, timed in turns with it and with cuBLAS: above 1 the try is "
            "faster. Medians; cold unless it says sustained. B is transposed. What was taken over is no longer among "
            "the changes: here is what gained nothing, or gained on one problem and lost on another, or cold and not "
            "sustained, and what it costs to do without some of what was taken over. What limits these products is on "
            "[a page of its own](gemm-limits.md).\n",
            recorded.made_on(record),
            tabulate(map(cells, record["rows"]), headers, tablefmt="pipe", disable_numparse=True, colalign=align)
            + "\n",
        )
    )


if __name__ == "__main__":
    only = {"nargs": "*", "default": []}
    recorded.main(__doc__, RECORD, lambda o: measure(o.file, chosen(o.only)), page, only=only)
