"""The operation GEMM, and what the declarations of its stages share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...model.arrays import Array
from ...model.dtypes import FP32, dtype_of
from ...model.launch import Launch, Plan, ceil_div
from ...model.operation import Operation
from ...model.problem import Size
from .fastest import fastest
from .problem import GemmProblem, problems, suite
from .work import work

GEMM = Operation(
    name="gemm",
    summary="matrix product C = A B, or A B^T",
    problem=GemmProblem,
    problems=problems,
    suite=suite(),
    defines=lambda p: {
        "IN": dtype_of(p.dtype).cuda,
        "OUT": dtype_of(p.out).cuda,
        "TRANS_B": int(p.layout == "nt"),
    },
    emulator_size=Size(extent=300, work=96**3),
    cuda_size=Size(extent=1100, work=512**3),
    fastest=fastest,
    work=work,
)


ODD_C = GemmProblem(m=5, n=9, k=16, dtype="bf16", out="bf16")
"""Rows of A and B start at multiples of 16 bytes, those of C do not."""


DEEP = (
    GemmProblem(m=70, n=136, k=64 * 13 + 1, dtype="bf16", pad_a=7, pad_b=7),
    GemmProblem(m=130, n=40, k=64 * 13, dtype="fp16", layout="nn"),
)
"""So many k-tiles that a circular buffer of them is filled three times: parities of its barriers come back. The last
k-tile of the first holds one element of a row."""


def scalars(p: GemmProblem) -> tuple[np.generic, ...]:
    return tuple(np.int32(x) for x in (p.m, p.n, p.k, p.lda, p.ldb, p.ldc))


def tiles(p: GemmProblem, block_m: int, block_n: int) -> tuple[int, int, int]:
    """A grid with columns of C along x and rows along y."""
    return (ceil_div(p.n, block_n), ceil_div(p.m, block_m), 1)


GROUPS = (1, 2, 4, 8, 16, 32)
"""Rows of tiles that may be walked together."""


LONG_ROW = 512
"""Elements of a row from which on a copy begins every row at a line of memory."""


def left_for_the_last(
    shared: bool, partial: tuple[int, int], counters: tuple[int, ...]
) -> tuple[dict[str, Array], tuple[str, str]]:
    """Scratch in which blocks that share a result leave parts for the last of them: sums, and counters that are zero.
    And what a kernel is given for them: where nothing is shared any address will do."""
    if not shared:
        return {}, ("C", "C")
    counted = Array(counters, FP32, output=True, zero=True)  # 4 bytes each
    return {"partial": Array(partial, FP32, output=True), "counters": counted}, ("partial", "counters")


def _realign(p: GemmProblem, name: str) -> tuple[Launch, Array]:
    """Copies an array to one whose rows are a multiple of 16 bytes apart, long ones of 128: a row of a k-tile is then
    one line of the L2, not two."""
    array = p.arrays()[name]
    rows, columns = array.shape
    apart = 8 if columns < LONG_ROW else 128 // array.dtype.itemsize
    packed = Array(array.shape, array.dtype, ceil_div(columns, apart) * apart, output=True)
    each = 8  # warps of a block, each with 256 elements of a row
    blocks = ceil_div(rows * ceil_div(columns, 256), each)
    numbers = tuple(np.int32(x) for x in (rows, columns, array.row_stride, packed.row_stride))
    return Launch("gemm_realign", (blocks, 1, 1), (32 * each, 1, 1), (name, f"realigned_{name}", *numbers)), packed


def realigned_plan(p: GemmProblem, product: Callable[[str, str], Launch]) -> Plan:
    """Copies what no tensor map takes of A and B, then launches the product of arrays of the names given."""
    copied = {name: _realign(p, name) for name in p.unmapped}
    a, b = (f"realigned_{name}" if name in copied else name for name in "AB")
    scratch = {f"realigned_{name}": array for name, (_, array) in copied.items()}
    return Plan((*(launch for launch, _ in copied.values()), product(a, b)), scratch=scratch)
