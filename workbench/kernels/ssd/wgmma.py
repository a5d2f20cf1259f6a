"""Stages of the chunked scan by TMA and wgmma, which reads right operands from shared memory."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...model.launch import Launch, Plan, ceil_div
from ...model.tensor_map import TensorMap
from .mma import CHUNK, THREADS, in_a_grid, padded_dstate, segments, state_scan
from .operation import EDGE_CASES, SSD, counts, steps
from .problem import COLUMNS, SsdProblem
from .simt import ARGUMENTS, column_tiles


def _supports(p: SsdProblem) -> str | None:
    arrays = p.arrays()
    for name in ("x", "b"):
        if any(step * 2 % 16 for step in arrays[name].element_strides[:3]):
            return f"a tensor map needs heads, places and batches of {name} a multiple of 16 bytes apart"
    return in_a_grid(p)


def _shared_bytes(p: SsdProblem) -> int:
    """Of two chunks of b, c and x, of two states, of sums of decays and barriers, in whole atoms of the swizzle."""
    dstate = padded_dstate(p)
    tiles = CHUNK * (2 * dstate + COLUMNS) + dstate * COLUMNS
    return 1024 * ceil_div(2 * (2 * tiles + 4 * CHUNK + 8), 1024)


def _segments(p: SsdProblem, size: Mapping[str, int]) -> tuple[int, int]:
    """How many segments a sequence has, and chunks of each. Segments read b and x twice: there is one, where a quarter
    of the blocks that are wanted have a head each."""
    few = 4 * column_tiles(p) * p.heads * p.batch <= size["BLOCKS"]
    return segments(p, size) if few else segments(p, {"BLOCKS": 1, "LEAST": 1})


@SSD.stage(
    "tma",
    track="wgmma",
    source="ssd/wgmma/01_tma.cu",
    idea="TMA loads chunks, wgmma reads them from shared memory; segments if there are few heads",
    parameters={"PASSING": 128, "BLOCKS": 264, "LEAST": 2, "RESIDENT": 2},
    sizes=lambda p, size: {"DSTATE": padded_dstate(p)},
    space={"PASSING": (64, 128, 256), "BLOCKS": (132, 264, 528, 1056), "LEAST": (1, 2, 4, 8), "RESIDENT": (2, 3)},
    supports=_supports,
    edge_cases=(*EDGE_CASES, SsdProblem(batch=3, heads=23, length=70, headdim=8, dstate=16)),
    architecture=90,
    specific=True,
)
def tma(p: SsdProblem, size: Mapping[str, int]) -> Plan:
    count, each = _segments(p, size)
    maps = tuple(TensorMap(name, box=(1, CHUNK, 1, COLUMNS)) for name in ("x", "b", "c"))
    arguments: tuple[str | np.generic | TensorMap, ...] = (*maps, *ARGUMENTS, *steps(p), *counts(p))

    def launch(kernel: str, *more: str | np.generic) -> Launch:
        grid = (column_tiles(p) * p.heads, p.batch, count)
        cut = (np.int32(count), np.int32(each))
        return Launch(kernel, grid, (THREADS, 1, 1), (*arguments, *more, *cut), shared_bytes=_shared_bytes(p))

    if count == 1:
        return Plan((launch("ssd_tma_outputs", "h0"),))
    scan, scratch = state_scan(p, size, count)
    return Plan((launch("ssd_tma_states", "states", "decays"), scan, launch("ssd_tma_outputs", "states")), scratch)
