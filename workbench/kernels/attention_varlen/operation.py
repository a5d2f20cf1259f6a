"""The operation attention_varlen, and what the declarations of its stages share."""

from __future__ import annotations

import numpy as np

from ...model.dtypes import dtype_of
from ...model.operation import Operation
from ...model.problem import Size
from ..attention.problem import Kind
from .problem import SUITE, AttentionVarlenProblem, Lengths, problems

SHORT, FEW = 256, 2**28
"""Keys of a sequence, on average, and products of elements of q and k for which one launch is faster than ranking the
sequences first. Microseconds of `tensor_core` and `row_by_row` (H200): 12 and 14 for one sequence of 67 with 8 heads of
128, 17 and 25 for 40 of 16, 15 and 17 for 300, 20 and 100 together, but 166 and 56 for 1000, 2000 and 30."""


def fastest(p: AttentionVarlenProblem) -> tuple[str, ...]:
    """The stages that are preferred, best first: where there is more to do, blocks that draw ranked tiles."""
    few = p.keys <= SHORT * p.batch and p.rows * p.keys // p.batch * p.heads * p.dim <= FEW
    ranked = ("row_by_row", "persistent")
    return (*(("tensor_core", *ranked) if few else (*ranked, "tensor_core")), "naive")


ATTENTION_VARLEN = Operation(
    name="attention_varlen",
    summary="attention of packed sequences of different lengths",
    problem=AttentionVarlenProblem,
    problems=problems,
    suite=SUITE,
    defines=lambda p: {"IN": dtype_of(p.dtype).cuda},
    emulator_size=Size(extent=400, work=2_000_000),
    cuda_size=Size(extent=3000, work=100_000_000),
    fastest=fastest,
)

_P = AttentionVarlenProblem

EDGE_CASES = (
    _P(batch=3, rows=9, keys=4, dim=8, causal=True, lengths=Lengths.EMPTY),  # rows without keys, keys without rows
    _P(batch=40, heads=2, rows=200, keys=200, dim=64, causal=True, lengths=Lengths.LOGNORMAL),
    _P(batch=70, rows=33, keys=50, dim=16, lengths=Lengths.UNIFORM),  # most have no row, and are more than two warps
    _P(batch=5, heads=4, group=4, rows=70, keys=400, dim=64, causal=True, lengths=Lengths.DECODE, values=Kind.LARGE),
    # in fp16 weights are lost that are relative to the maximum of another row
    _P(batch=2, rows=40, keys=300, dim=64, values=Kind.LARGE, dtype="fp16"),
    _P(batch=3, heads=2, rows=270, keys=140, dim=128, causal=True, lengths=Lengths.ONE_LONG, dtype="fp16"),
    _P(batch=4, heads=2, rows=70, keys=33, dim=33, pad_q=1, pad_kv=2, gap_kv=3, lengths=Lengths.UNIFORM),
)
"""What random problems would hardly hit."""


def strides(p: AttentionVarlenProblem, *names: str) -> tuple[np.generic, ...]:
    """Elements of arrays from one row and head to the next."""
    arrays = p.arrays()
    return tuple(np.int64(step) for name in names for step in arrays[name].element_strides[:2])


def counts(p: AttentionVarlenProblem) -> tuple[np.generic, ...]:
    """Sequences, heads, how many of q share one of k and v, rows and dim."""
    return tuple(np.int32(n) for n in (p.batch, p.heads, p.group, p.rows, p.dim))


def row_tiles(p: AttentionVarlenProblem, rows: int) -> int:
    """The most tiles of so many rows that sequences of these lengths together can have: see `row_tiles.cuh`."""
    return p.rows // rows + p.batch
