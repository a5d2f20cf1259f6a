"""The ladder of rotary position embedding."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...model.dtypes import dtype_of
from ...model.launch import Launch, ceil_div
from ...model.operation import Operation
from ...model.problem import Size
from ..rows import groups
from ..rows.norms import THREADS
from .problem import RotaryProblem, problems

ROTARY = Operation(
    name="rotary",
    summary="rotary position embedding of the heads of queries or keys",
    problem=RotaryProblem,
    problems=problems,
    suite=tuple(
        RotaryProblem(batch=16, heads=16, seq=4096, half=half, dtype=dtype, pairs=pairs, layout=layout)
        for half in (32, 64)
        for dtype, pairs, layout in (
            ("bf16", "half", "bhsd"),
            ("bf16", "interleaved", "bhsd"),
            ("bf16", "half", "bshd"),
            ("fp32", "half", "bhsd"),
        )
    ),
    defines=lambda p: {
        "IN": dtype_of(p.dtype).cuda,
        "INTERLEAVED": int(p.pairs == "interleaved"),
        "EVEN": groups.even(_width(p), p.half, *p.strides("x"), *p.strides("y")),
    },
    emulator_size=Size(extent=2000, work=20_000),
    cuda_size=Size(extent=20_000, work=4_000_000),
    metric="GB/s",
    fastest=("vectorized", "naive"),
)


def _launch(kernel: str, p: RotaryProblem, size: Mapping[str, int], heads: int, pairs: int) -> Launch:
    """A thread takes `pairs` pairs of `heads` heads."""
    sizes = tuple(np.int32(n) for n in (p.batch, p.heads, p.seq, p.half))
    strides = tuple(np.int64(n) for name in ("x", "y") for n in p.strides(name))
    threads = p.batch * ceil_div(p.heads, heads) * p.seq * ceil_div(p.half, pairs)
    grid = (ceil_div(threads, size["THREADS"]), 1, 1)
    return Launch(kernel, grid, (size["THREADS"], 1, 1), ("x", "cos", "sin", "y", *sizes, *strides))


def _width(p: RotaryProblem) -> int:
    """Elements in 16 bytes."""
    return 16 // dtype_of(p.dtype).itemsize


@ROTARY.stage(
    "naive", idea="one thread takes one pair", parameters={"THREADS": 256}, space={"THREADS": THREADS}, alignment=1
)
def naive(p: RotaryProblem, size: Mapping[str, int]) -> Launch:
    return _launch("rotary_naive", p, size, 1, 1)


@ROTARY.stage("vectorized", after=naive, idea="one thread takes the pairs of two vectors of 16 bytes", alignment=16)
def vectorized(p: RotaryProblem, size: Mapping[str, int]) -> Launch:
    return _launch("rotary_vectorized", p, size, 1, _width(p))


@ROTARY.stage(
    "several_heads",
    after=vectorized,
    idea="one thread takes several heads: their angles are loaded once",
    edge_cases=(
        RotaryProblem(batch=3, heads=8, seq=70, half=32),
        RotaryProblem(batch=2, heads=7, seq=70, half=32, layout="bshd", pairs="interleaved"),
    ),
    parameters={"THREADS": 256, "HEADS": 4},
    space={"THREADS": THREADS, "HEADS": (1, 2, 4)},
)
def several_heads(p: RotaryProblem, size: Mapping[str, int]) -> Launch:
    return _launch("rotary_several_heads", p, size, size["HEADS"], _width(p))
