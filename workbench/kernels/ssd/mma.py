"""Stages of the chunked scan on tensor cores by mma.sync, whose operands pass through registers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...model.arrays import Array
from ...model.dtypes import FP32
from ...model.launch import Launch, Plan, ceil_div
from ...model.machine import scaled
from .operation import EDGE_CASES, SSD, counts, steps
from .problem import COLUMNS, SsdProblem
from .simt import ARGUMENTS, column_tiles

CHUNK = 64
THREADS = 128


def padded_dstate(p: SsdProblem) -> int:
    """As it is in shared memory: whole tiles of 64 rows of the state."""
    return 64 * ceil_div(p.dstate, 64)


def _shared_bytes(p: SsdProblem) -> int:
    """Of two chunks of b, c, x and log_a, of the state, and of sums of every warp."""
    dstate = padded_dstate(p)
    chunk = 2 * CHUNK * (2 * dstate + COLUMNS) + 4 * CHUNK
    return 2 * chunk + 2 * dstate * COLUMNS + 4 * CHUNK * THREADS // 32


def _aligned(p: SsdProblem) -> np.generic:
    """Bit 0: heads of x lie at multiples of 16 bytes; bit 1: those of b and c do."""
    x = p.headdim % 8 == 0 and p.pad_x % 8 == 0
    return np.int32(x + 2 * (p.dstate % 8 == 0 and p.pad_bc % 8 == 0))


@SSD.stage(
    "tensor_core",
    track="mma",
    idea="tensor cores (mma.sync): a block takes one chunk after the other, the state stays in registers",
    sizes=lambda p, size: {"DSTATE": padded_dstate(p)},
    edge_cases=EDGE_CASES,
    architecture=80,
)
def tensor_core(p: SsdProblem, size: Mapping[str, int]) -> Launch:
    return Launch(
        "ssd_tensor_core",
        (column_tiles(p) * p.heads, p.batch, 1),
        (THREADS, 1, 1),
        (*ARGUMENTS, *steps(p), *counts(p), _aligned(p)),
        shared_bytes=_shared_bytes(p),
    )


MOST_BATCHES = 65_535


def in_a_grid(p: SsdProblem) -> str | None:
    heads = p.batch * p.heads
    return None if heads <= MOST_BATCHES else f"{heads:,} heads of all batches are more than {MOST_BATCHES:,}"


def segments(p: SsdProblem, size: Mapping[str, int]) -> tuple[int, int]:
    """How many segments a sequence has, and chunks of each: so many that there are BLOCKS blocks, unless segments had
    fewer than LEAST chunks then."""
    chunks = ceil_div(p.length, CHUNK)
    wanted = ceil_div(scaled(size["BLOCKS"]), column_tiles(p) * p.heads * p.batch)
    each = ceil_div(chunks, max(1, min(wanted, chunks // size["LEAST"])))
    return ceil_div(chunks, each), each


def state_scan(p: SsdProblem, size: Mapping[str, int], count: int) -> tuple[Launch, dict[str, Array]]:
    """The scan of the states of `count` segments, and the scratch arrays that hold them and their decays."""
    state, passing = p.dstate * p.headdim, size["PASSING"]
    scan = Launch(
        "ssd_pass_states",
        (ceil_div(state, passing), p.batch * p.heads, 1),
        (passing, 1, 1),
        ("h0", "h", "states", "decays", np.int32(state), np.int32(count)),
    )
    return scan, {
        "states": Array((p.batch, p.heads, count, p.dstate, p.headdim), FP32, output=True),
        "decays": Array((p.batch, p.heads, count), FP32, output=True),
    }


@SSD.stage(
    "parallel",
    after=tensor_core,
    idea="segments of a sequence in parallel: first their states, then a scan of the states, then their outputs",
    parameters={"PASSING": 128, "BLOCKS": 528, "LEAST": 2},
    sizes=lambda p, size: {"DSTATE": padded_dstate(p)},
    space={"PASSING": (64, 128, 256), "BLOCKS": (132, 264, 528, 792), "LEAST": (1, 2, 4, 8)},
    supports=in_a_grid,
)
def parallel(p: SsdProblem, size: Mapping[str, int]) -> Plan:
    count, each = segments(p, size)
    arguments: tuple[str | np.generic, ...] = (*ARGUMENTS, *steps(p), *counts(p), _aligned(p))

    def launch(kernel: str, *more: str | np.generic) -> Launch:
        grid, shared = (column_tiles(p) * p.heads, p.batch, count), _shared_bytes(p)
        return Launch(kernel, grid, (THREADS, 1, 1), (*arguments, *more, np.int32(count), np.int32(each)), shared)

    scan, scratch = state_scan(p, size, count)
    kernels = launch("ssd_segment_states", "states", "decays"), scan, launch("ssd_segment_outputs", "states")
    return Plan(kernels, scratch)
