"""Stages of the convolution: on CUDA cores, by mma.sync, and by wgmma."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ...model.arrays import Array
from ...model.dtypes import FP32
from ...model.launch import Launch, Plan, ceil_div, scaled
from ...model.stage import every_problem
from .operation import EDGE_CASES, FFT_CONV, counts
from .problem import FftConvProblem, Filter, factors


@FFT_CONV.stage(
    "naive",
    track="simt",
    idea="one thread computes one element, by the sum that defines it",
    parameters={"THREADS": 128},
    edge_cases=EDGE_CASES,
    alignment=2,
)
def naive(p: FftConvProblem, size: Mapping[str, int]) -> Launch:
    grid = (ceil_div(p.length, size["THREADS"]) * p.channels, p.batch, 1)
    return Launch("fft_conv_naive", grid, (size["THREADS"], 1, 1), ("u", "k", "y", *counts(p), np.int32(p.causal)))


MOST_PERIOD = 16384
"""Places of complex numbers in fp32 that fit into shared memory."""

LONGEST = FftConvProblem(length=16384, filter=Filter.DECAYING)
"""Of the longest period that fits: beside it random problems have the shorter ones."""


def _fits(p: FftConvProblem) -> str | None:
    if p.period <= MOST_PERIOD:
        return None
    return f"a transform over {p.period:,} places does not fit into shared memory, {MOST_PERIOD:,} do"


@FFT_CONV.stage(
    "shared",
    after=naive,
    idea="transform, product and inverse in one kernel: radix-2 butterflies, in place in shared memory",
    parameters={"THREADS": 256},
    sizes=lambda p, size: {"PERIOD": p.period},
    supports=_fits,
    space={"THREADS": (128, 256, 512, 1024)},
    edge_cases=(*EDGE_CASES, LONGEST),
    alignment=8,
)
def shared(p: FftConvProblem, size: Mapping[str, int]) -> Launch:
    return Launch(
        "fft_conv_shared",
        (p.channels, p.batch, 1),
        (size["THREADS"], 1, 1),
        ("u", "spectrum", "roots", "y", *counts(p), np.int32(p.extended)),
        shared_bytes=8 * p.period,
    )


RESIDENT = {"RESIDENT_THREADS": 768}
RESIDENT_SPACE = {"RESIDENT_THREADS": (512, 768, 1024)}
"""Threads of a multiprocessor at once: the more, the fewer registers each has."""

HELD, LEAST_THREADS = 16, 128
"""Places of a thread, and threads of a block at least."""


def _whole(p: FftConvProblem, size: Mapping[str, int]) -> dict[str, int]:
    """A transform has all places of the period."""
    return {"PERIOD": p.period, "PLACES": p.period}


def _transforms(p: FftConvProblem, kernel: str, sequences: int, places: int) -> Launch:
    """A block for each channel and as many transforms of `sequences` each as a block has."""
    threads = places // HELD
    transforms = max(1, LEAST_THREADS // threads)
    return Launch(
        kernel,
        (p.channels, ceil_div(p.batch, sequences * transforms), 1),
        (threads * transforms, 1, 1),
        ("u", "spectrum", "roots", "y", *counts(p), np.int32(p.extended)),
        shared_bytes=8 * transforms * (places + places // 32),
    )


@FFT_CONV.stage(
    "registers",
    after=shared,
    idea="radix-16 butterflies in registers: a quarter of the passes through shared memory",
    parameters=RESIDENT,
    sizes=_whole,
    space=RESIDENT_SPACE,
)
def registers(p: FftConvProblem, size: Mapping[str, int]) -> Launch:
    return _transforms(p, "fft_conv_registers", 1, p.period)


@FFT_CONV.stage("paired", after=registers, idea="two real sequences are transformed as one complex sequence")
def paired(p: FftConvProblem, size: Mapping[str, int]) -> Launch:
    return _transforms(p, "fft_conv_paired", 2, p.period)


LONG = (FftConvProblem(length=32768, filter=Filter.DECAYING), FftConvProblem(length=20000, causal=True))
"""Periods of 32,768 and of 65,536 places."""


def _parts(p: FftConvProblem, size: Mapping[str, int]) -> dict[str, int]:
    """Two transforms, or four of the longest period; and how many parts the sequence reaches."""
    places = min(p.period // 2, MOST_PERIOD)
    return {"PERIOD": p.period, "PLACES": places, "PARTS": p.period // places, "KEPT": ceil_div(p.length, places)}


@FFT_CONV.stage(
    "split",
    after=paired,
    idea="each part of a transform has every second or fourth frequency, so any period fits into shared memory",
    sizes=_parts,
    edge_cases=LONG,
    supports=every_problem,
)
def split(p: FftConvProblem, size: Mapping[str, int]) -> Launch:
    return _transforms(p, "fft_conv_split", 2, size["PLACES"])


SHARED = (
    FftConvProblem(batch=3, channels=2, length=8192, filter=Filter.DECAYING),
    FftConvProblem(batch=2, length=1025),
    FftConvProblem(batch=5, channels=3, length=900, causal=True),
    FftConvProblem(batch=1, channels=2, length=16385, causal=True),
)
"""Factors that differ, and second butterflies of 2 to 16 places."""


def _together(p: FftConvProblem, size: Mapping[str, int]) -> int:
    """Pairs of a launch: all launches have as many, and their places between kernels take at most MIB MiB, which stay
    in the L2."""
    most = max(1, size["MIB"] * 2**20 // (8 * p.period))
    return ceil_div(p.pairs, ceil_div(p.pairs, most))


def _matrix(p: FftConvProblem, size: Mapping[str, int]) -> dict[str, int]:
    first, second = factors(p.period)
    return {"PERIOD": p.period, "FIRST": first, "SECOND": second}


def _steps(p: FftConvProblem, lines: int, begin: int, count: int) -> Iterator[Launch]:
    """The kernels for `count` pairs from `begin` on: a block for so many lines, which are columns or rows."""
    first, second = factors(p.period)

    def launch(kernel: str, of: int, places: int, *arguments: str | np.generic) -> Launch:
        threads = lines * (places // HELD)
        return Launch(kernel, (of // lines, count, 1), (threads, 1, 1), (*arguments, np.int32(begin)))

    yield launch("fft_conv_columns", second, first, "u", "roots", "between", *counts(p), np.int32(p.extended))
    yield launch("fft_conv_rows", first, second, "spectrum", "roots", "between", np.int32(p.batch))
    yield launch("fft_conv_columns_back", second, first, "between", "roots", "y", *counts(p))


@FFT_CONV.stage(
    "four_step",
    after=paired,
    idea="a period as a matrix: columns, rows and columns are kernels, so all multiprocessors share a sequence",
    parameters={"LINES": 8, "MIB": 32},
    sizes=_matrix,
    space={"LINES": (4, 8, 16), "MIB": (8, 16, 32, 64)},
    edge_cases=(*EDGE_CASES, *LONG, *SHARED),
    supports=every_problem,
)
def four_step(p: FftConvProblem, size: Mapping[str, int]) -> Plan:
    count = _together(p, size)
    begins = range(0, p.pairs, count)
    launches = (step for begin in begins for step in _steps(p, size["LINES"], begin, min(count, p.pairs - begin)))
    return Plan(tuple(launches), {"between": Array((count, p.period, 2), FP32, output=True)})


# ---------------------------------------------------------------------- by mma.sync: transforms as products of matrices


MOST_IN_REGISTERS = 16384
"""Places of a transform: rows of more than 128 do not fit into the registers of a warp."""

UNEVEN = (
    FftConvProblem(batch=14, length=256),
    FftConvProblem(batch=3, length=8000, filter=Filter.DECAYING, causal=True),
    FftConvProblem(batch=5, length=3000, causal=True),
)
"""More pairs than a block has at once, and factors that differ, with rows that are zero and one that is so in part."""


def _fits_registers(p: FftConvProblem) -> str | None:
    if p.period <= MOST_IN_REGISTERS:
        return None
    return f"rows of a transform over {p.period:,} places do not fit into registers, those of {MOST_IN_REGISTERS:,} do"


def _factors_of_mma(p: FftConvProblem, size: Mapping[str, int]) -> dict[str, int]:
    first, second = factors(p.period)
    return {"PERIOD": p.period, "FIRST": first, "SECOND": second}


def pairs_of_block(p: FftConvProblem) -> int:
    """Pairs of sequences that a block transforms at once: as many as have four warps, or eight, where one block fits on
    a multiprocessor."""
    first, second = factors(p.period)
    return max(1, 16 * (8 if second > 64 else 4) // first)


def rounds(p: FftConvProblem, size: Mapping[str, int]) -> int:
    """How many pairs a block transforms one after the other: two, so that the second is loaded meanwhile, and more
    where there are BLOCKS blocks all the same."""
    groups = ceil_div(ceil_div(p.batch, 2), pairs_of_block(p))
    return min(groups, max(2, groups * p.channels // scaled(size["BLOCKS"])))


def _shared_bytes(p: FftConvProblem) -> int:
    """Of complex numbers in bf16: the matrices, and two pairs of sequences, or more."""
    first, second = factors(p.period)
    matrices = first**2 + (second**2 if first != second else 0)
    return 4 * (matrices + 2 * pairs_of_block(p) * p.period)


def _blocks(p: FftConvProblem, size: Mapping[str, int]) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Grid and block: a channel, and its pairs of sequences, `rounds` after one another; two lanes a row."""
    first, pairs = factors(p.period)[0], pairs_of_block(p)
    groups = ceil_div(ceil_div(p.batch, 2), pairs)
    return (p.channels, ceil_div(groups, rounds(p, size)), 1), (2 * first * pairs, 1, 1)


def _arguments(p: FftConvProblem, size: Mapping[str, int]) -> tuple[str | np.generic, ...]:
    return ("u", "spectrum", "roots", "y", *counts(p), np.int32(p.extended), np.int32(rounds(p, size)))


@FFT_CONV.stage(
    "tensor_core",
    track="mma",
    idea="transforms as products of matrices on tensor cores (mma.sync), with one exchange between warps",
    parameters={"BLOCKS": 528, "RESIDENT_WARPS": 12},
    sizes=_factors_of_mma,
    supports=_fits_registers,
    space={"BLOCKS": (132, 264, 528, 1056), "RESIDENT_WARPS": (8, 12, 16)},
    edge_cases=(*EDGE_CASES, LONGEST, *UNEVEN),
    architecture=80,
)
def tensor_core(p: FftConvProblem, size: Mapping[str, int]) -> Launch:
    blocks, arguments = _blocks(p, size), _arguments(p, size)
    return Launch("fft_conv_tensor_core", *blocks, arguments, shared_bytes=_shared_bytes(p))


def _real_shared_bytes(p: FftConvProblem) -> int:
    """The same of real numbers, in the matrices."""
    first, second = factors(p.period)
    return 2 * (first**2 + second**2) + 8 * pairs_of_block(p) * p.period


@FFT_CONV.stage(
    "symmetric",
    after=tensor_core,
    idea="frequencies k and -k share their products: matrices of real numbers instead of complex ones",
)
def symmetric(p: FftConvProblem, size: Mapping[str, int]) -> Launch:
    shared = _real_shared_bytes(p)
    return Launch("fft_conv_symmetric", *_blocks(p, size), _arguments(p, size), shared_bytes=shared)


@FFT_CONV.stage(
    "persistent",
    after=symmetric,
    idea="as many blocks as fit on the device; each makes the matrices once, and they share all pairs evenly",
    parameters={"RESIDENT_WARPS": 12},
    space={"RESIDENT_WARPS": (8, 12, 16)},
    edge_cases=(*EDGE_CASES, *UNEVEN),
)
def persistent(p: FftConvProblem, size: Mapping[str, int]) -> Launch:
    pairs = pairs_of_block(p)
    return Launch(
        "fft_conv_persistent",
        (p.channels * ceil_div(p.batch, 2 * pairs), 1, 1),
        (2 * factors(p.period)[0] * pairs, 1, 1),
        ("u", "spectrum", "roots", "y", *counts(p), np.int32(p.extended)),
        shared_bytes=_real_shared_bytes(p),
        persistent=True,
    )


# ------------------------------------------------------ by wgmma, which reads matrices and sequences from shared memory


BAND = PANEL = 64
"""Rows of a warpgroup, and columns that are multiplied at once."""

LEAST_PERIOD = 1024
"""Places of a transform: 64 rows of 16."""


def _fits_wgmma(p: FftConvProblem) -> str | None:
    if LEAST_PERIOD <= p.period <= MOST_IN_REGISTERS:
        return None
    return f"transforms have {LEAST_PERIOD:,} to {MOST_IN_REGISTERS:,} places here, not {p.period:,}"


def factors_of_bands(p: FftConvProblem) -> tuple[int, int]:
    """Rows and columns of a sequence as a matrix: whole bands of rows, and of columns at most two panels."""
    first = max(BAND, p.period // (2 * PANEL))
    return first, p.period // first


def _factors_of_wgmma(p: FftConvProblem, size: Mapping[str, int]) -> dict[str, int]:
    first, second = factors_of_bands(p)
    return {"PERIOD": p.period, "FIRST": first, "SECOND": second}


def width(p: FftConvProblem) -> int:
    """Columns of all pairs of a block, side by side."""
    return max(PANEL, factors_of_bands(p)[1])


@FFT_CONV.stage(
    "wgmma",
    track="wgmma",
    idea="wgmma reads matrices and sequences from shared memory; short sequences lie side by side",
    parameters={"RESIDENT_WARPS": 12, "RIGHT_COLUMNS": 64},
    sizes=_factors_of_wgmma,
    supports=_fits_wgmma,
    space={"RESIDENT_WARPS": (8, 12, 16), "RIGHT_COLUMNS": (32, 64)},
    edge_cases=(*EDGE_CASES, LONGEST, *UNEVEN),
    architecture=90,
    specific=True,
)
def wgmma(p: FftConvProblem, size: Mapping[str, int]) -> Launch:
    first, second = factors_of_bands(p)
    right = second * width(p) * (2 if second < PANEL else 1)  # and the transposed one
    return Launch(
        "fft_conv_wgmma",
        (p.channels * ceil_div(p.batch, 2 * width(p) // second), 1, 1),
        (2 * first, 1, 1),
        ("u", "spectrum", "roots", "y", *counts(p), np.int32(p.extended)),
        shared_bytes=2 * (first**2 + right) + 8 * first * width(p),
        persistent=True,
    )
