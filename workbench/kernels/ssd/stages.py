"""Stages of the chunked scan: on CUDA cores, by mma.sync, and by TMA and wgmma."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from ...model.arrays import Array
from ...model.dtypes import FP32
from ...model.launch import Launch, Plan, ceil_div, machine, scaled
from ...model.tensor_map import TensorMap
from .operation import EDGE_CASES, SSD, counts, steps
from .problem import COLUMNS, Decays, SsdProblem

ARGUMENTS = ("x", "log_a", "b", "c", "h0", "y", "h")


@SSD.stage(
    "naive",
    track="simt",
    idea="the recurrence: a block takes a head, a thread a column of its state",
    sizes=lambda p, size: {"DSTATE": p.dstate},
    edge_cases=EDGE_CASES,
    alignment=2,
)
def naive(p: SsdProblem, size: Mapping[str, int]) -> Launch:
    return Launch("ssd_naive", (p.heads, p.batch, 1), (p.headdim, 1, 1), (*ARGUMENTS, *steps(p), *counts(p)))


def column_tiles(p: SsdProblem) -> int:
    """Blocks that share a head."""
    return ceil_div(p.headdim, COLUMNS)


@SSD.stage(
    "chunked",
    after=naive,
    idea="products of matrices: within a chunk like causal attention, between chunks through the state",
    parameters={"CHUNK": 32},
    sizes=lambda p, size: {"DSTATE": p.dstate},
    space={"CHUNK": (16, 32, 64)},
)
def chunked(p: SsdProblem, size: Mapping[str, int]) -> Launch:
    chunk = size["CHUNK"]
    floats = 2 * chunk * (p.dstate + 1) + chunk * COLUMNS + chunk * (chunk + 1) + p.dstate * COLUMNS + chunk
    return Launch(
        "ssd_chunked",
        (column_tiles(p) * p.heads, p.batch, 1),
        (256, 1, 1),
        (*ARGUMENTS, *steps(p), *counts(p)),
        shared_bytes=4 * floats,
    )


# ------------------------------------------------------------------- by mma.sync, whose operands pass through registers


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


# ------------------------------------------------------ by TMA and wgmma, which reads right operands from shared memory


def _supports(p: SsdProblem) -> str | None:
    arrays = p.arrays()
    for name in ("x", "b"):
        if any(step * 2 % 16 for step in arrays[name].element_strides[:3]):
            return f"a tensor map needs heads, places and batches of {name} a multiple of 16 bytes apart"
    return in_a_grid(p)


def _shared_bytes_by_tma(p: SsdProblem) -> int:
    """Of two chunks of b, c and x, of two states, of sums of decays and barriers, in whole atoms of the swizzle."""
    dstate = padded_dstate(p)
    tiles = CHUNK * (2 * dstate + COLUMNS) + dstate * COLUMNS
    return 1024 * ceil_div(2 * (2 * tiles + 4 * CHUNK + 8), 1024)


Segments = tuple[int, int]
"""How many segments a sequence has, and chunks of each."""


def _segments(p: SsdProblem, size: Mapping[str, int]) -> Segments:
    """How many segments a sequence has, and chunks of each. Segments read b and x twice: there is one, where a quarter
    of the blocks that are wanted have a head each."""
    few = 4 * column_tiles(p) * p.heads * p.batch <= scaled(size["BLOCKS"])
    return segments(p, size) if few else (1, ceil_div(p.length, CHUNK))


def _grid(p: SsdProblem, cut: Segments) -> tuple[int, int, int]:
    return column_tiles(p) * p.heads, p.batch, cut[0]


def _loaded() -> tuple[TensorMap, ...]:
    return tuple(TensorMap(name, box=(1, CHUNK, 1, COLUMNS)) for name in ("x", "b", "c"))


def _arguments(p: SsdProblem) -> tuple[str | np.generic, ...]:
    return (*ARGUMENTS, *steps(p), *counts(p))


def _plan(p: SsdProblem, size: Mapping[str, int], states: Launch, outputs: Callable[[str, Segments], Launch]) -> Plan:
    """`outputs` is the launch that computes them, from the states in an array. Before it `states` computes those of
    segments, where there are several; its grid, and its arguments behind the operands are added."""
    count, each = cut = _segments(p, size)
    if count == 1:
        return Plan((outputs("h0", cut),))
    scan, scratch = state_scan(p, size, count)
    arguments = (*_loaded(), *_arguments(p), "states", "decays", np.int32(count), np.int32(each))
    first = dataclasses.replace(states, grid=_grid(p, cut), args=arguments)
    return Plan((first, scan, outputs("states", cut)), scratch)


@SSD.stage(
    "tma",
    track="wgmma",
    idea="TMA loads chunks, wgmma reads them from shared memory; with few heads, sequences are cut into segments",
    parameters={"PASSING": 128, "BLOCKS": 264, "LEAST": 2, "RESIDENT": 2},
    sizes=lambda p, size: {"DSTATE": padded_dstate(p)},
    space={"PASSING": (64, 128, 256), "BLOCKS": (132, 264, 528, 1056), "LEAST": (1, 2, 4, 8), "RESIDENT": (2, 3)},
    supports=_supports,
    edge_cases=(*EDGE_CASES, SsdProblem(batch=3, heads=23, length=70, headdim=8, dstate=16)),
    architecture=90,
    specific=True,
)
def tma(p: SsdProblem, size: Mapping[str, int]) -> Plan:
    def outputs(states: str, cut: Segments) -> Launch:
        arguments = (*_loaded(), *_arguments(p), states, *map(np.int32, cut))
        return Launch(
            "ssd_tma_outputs", _grid(p, cut), (THREADS, 1, 1), arguments, shared_bytes=_shared_bytes_by_tma(p)
        )

    states = Launch("ssd_tma_states", (1, 1, 1), (THREADS, 1, 1), (), shared_bytes=_shared_bytes_by_tma(p))
    return _plan(p, size, states, outputs)


SPECIALISED = {"PASSING": 128, "BLOCKS": 132, "LEAST": 2, "RESIDENT": 2, "MOST_CHUNKS": 4, "AHEAD": 4}
"""AHEAD is how many chunks of decays are on their way, MOST_CHUNKS of all else if there is room for so many."""

SPACE = {"BLOCKS": (66, 132, 264), "LEAST": (1, 2, 4), "RESIDENT": (1, 2), "MOST_CHUNKS": (2, 3, 4), "AHEAD": (2, 4, 8)}


def _specialised_sizes(p: SsdProblem, size: Mapping[str, int]) -> dict[str, int]:
    """One block a multiprocessor has all shared memory, if there are not more of them or their states are large."""
    count, _ = _segments(p, size)
    few = column_tiles(p) * p.heads * p.batch * count <= machine().multiprocessors
    dstate = padded_dstate(p)
    return {"DSTATE": dstate, "RESIDENT": 1 if few or dstate > 64 else size["RESIDENT"]}


@SSD.stage(
    "specialised",
    track="pipeline",
    idea="warp specialisation: a producer, a warpgroup that keeps the state, and others for outputs",
    parameters=SPECIALISED,
    sizes=_specialised_sizes,
    space=SPACE,
    supports=_supports,
    edge_cases=(*EDGE_CASES, SsdProblem(batch=3, heads=23, length=70, headdim=8, dstate=16)),
    architecture=90,
    specific=True,
)
def specialised(p: SsdProblem, size: Mapping[str, int]) -> Plan:
    return _specialised_plan(p, size)


def _specialised_plan(p: SsdProblem, size: Mapping[str, int], cluster: int = 1) -> Plan:
    groups = padded_dstate(p) // 64  # of warps that keep the state
    outputs_at_once = 1 if size["RESIDENT"] > 1 else 2
    chunk = 2 * CHUNK * (64 * groups + COLUMNS) + 4 * CHUNK + 16  # with sums of its decays and two barriers
    shared = 1024 * ceil_div(size["MOST_CHUNKS"] * chunk + size["AHEAD"] * 4 * CHUNK, 1024)
    states = Launch("ssd_specialised_states", (1, 1, 1), (THREADS * (1 + groups), 1, 1), (), shared_bytes=shared)

    def outputs(before: str, cut: Segments) -> Launch:
        y = TensorMap("y", box=(1, 16, 1, COLUMNS))
        return Launch(
            "ssd_specialised",
            _grid(p, cut),
            (THREADS * (1 + groups + outputs_at_once), 1, 1),
            (*_loaded(), y, *_arguments(p), before, *map(np.int32, cut)),
            shared_bytes=1024 * (228 // size["RESIDENT"] - 1),
            cluster=(cluster, 1, 1),
        )

    return _plan(p, size, states, outputs)


def _pairs(p: SsdProblem) -> str | None:
    return _supports(p) or (None if column_tiles(p) * p.heads % 2 == 0 else "there is an odd number of heads")


@SSD.stage(
    "paired",
    after=specialised,
    idea="clusters: blocks of neighbouring heads stay in step, so memory is read 256 bytes at a time",
    supports=_pairs,
    edge_cases=(
        SsdProblem(batch=2, heads=2, length=200, headdim=64, dstate=64, decays=Decays.RESETS),
        SsdProblem(heads=4, length=130, headdim=8, dstate=128, group=2, decays=Decays.NEAR_ONE, pad_x=8, pad_bc=16),
        SsdProblem(batch=2, heads=3, length=65, headdim=128, dstate=64, decays=Decays.NEAR_ZERO),
        SsdProblem(batch=3, heads=24, length=70, headdim=8, dstate=16, group=4),
    ),
)
def paired(p: SsdProblem, size: Mapping[str, int]) -> Plan:
    return _specialised_plan(p, size, cluster=2)
