"""The operation GEMM, and what the declarations of its stages share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...model.arrays import Array
from ...model.calls import Call
from ...model.dtypes import FP32, dtype_of
from ...model.launch import Launch, Plan, ceil_div
from ...model.operation import Operation
from ...model.problem import Size
from ..shared import common_dtype, multiprocessors, one_type, output_dtype, preferred_blas, row_stride, rows_contiguous
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


# ---------------------------------------------------------------------------------------------- as a function on arrays


@GEMM.function
def gemm(a: Any, b: Any, *, trans_b: bool = False, out_dtype: Any = None) -> Call:
    """Matrix product on the GPU, accumulated in fp32.

    a: (m, k), b: (k, n), or (n, k) with `trans_b`: arrays of one dtype (bfloat16, float16 or float32), rows
    contiguous, any distance between them; a `b` whose columns are contiguous is taken too. Returns (m, n) of
    `out_dtype`: the dtype of the inputs (default) or float32. Raises TypeError for wrong types and dtypes, ValueError
    for wrong shapes, strides or devices.
    """
    dtype = common_dtype("gemm", a=a, b=b)
    for name, array in (("a", a), ("b", b)):
        if array.ndim != 2:
            raise ValueError(f"gemm: {name} has shape {array.shape}; it has to have two dimensions")
    b_kn = b.T if trans_b else b
    if a.shape[1] != b_kn.shape[0]:
        wanted = f"(n, {a.shape[1]})" if trans_b else f"({a.shape[1]}, n)"
        raise ValueError(f"gemm: b has shape {b.shape}; for a of shape {a.shape} it has to be {wanted}")
    if 0 in a.shape or 0 in b.shape:
        raise ValueError(f"gemm: a {a.shape} and b {b.shape} have to have at least one element each")
    one_column = b_kn.shape[1] == 1 and rows_contiguous(b_kn.T)  # as a row, loads of it are wide
    layout = "nn" if rows_contiguous(b_kn) and not one_column else "nt"
    stored = b_kn if layout == "nn" else b_kn.T
    out = output_dtype("gemm", dtype, out_dtype)
    problem = GemmProblem(
        m=a.shape[0],
        n=b_kn.shape[1],
        k=a.shape[1],
        dtype=dtype.name,
        out=out.name,
        layout=layout,
        pad_a=row_stride("gemm", "a", a) - a.shape[1],
        pad_b=row_stride("gemm", "b", stored) - stored.shape[1],
    )
    return Call(problem, {"A": a, "B": stored})


# --------------------------------------------------------------------------------- what the stages are measured against


def _as_kn(p: GemmProblem, B: Any) -> Any:
    """B as (k, n), however it is stored."""
    return B if p.layout == "nn" else B.T


@GEMM.baseline("cuBLAS", requires="cublas", vendor=True)
def cublas(p: GemmProblem, A: Any, B: Any, C: Any) -> None:
    # it takes columns for what lie here as rows: of the product it computes the transpose, C^T = B^T A^T
    B.handle.gemm((int(p.layout == "nt"), 0), (p.n, p.m, p.k), B.argument, A.argument, C.argument)


@GEMM.baseline("PyTorch", requires="torch", refuses=one_type)
def pytorch(p: GemmProblem, A: Any, B: Any, C: Any) -> None:
    import torch

    torch.mm(A, _as_kn(p, B), out=C)


@GEMM.baseline("cuBLASLt", requires="torch", refuses=one_type)
def cublaslt(p: GemmProblem, A: Any, B: Any, C: Any) -> None:
    import torch

    with preferred_blas("cublaslt"):
        torch.mm(A, _as_kn(p, B), out=C)


def _no_convolution(p: GemmProblem) -> str | None:
    if p.layout != "nt":
        return "a convolution takes B with k along its rows, layout nt"
    if any(array.padded for array in p.arrays().values()):
        return "a convolution takes rows without padding between them"
    return one_type(p)


def _cudnn_version() -> str | None:
    import torch

    number = torch.backends.cudnn.version()
    return None if number is None else str(number)


@GEMM.baseline("cuDNN", requires="torch", refuses=_no_convolution, version=_cudnn_version)
def cudnn(p: GemmProblem, A: Any, B: Any, C: Any) -> None:
    """A product A B^T as a convolution with a window of one element: rows of A are pixels, k its channels, which come
    last in memory, and B the weights of n output channels. Padded rows would be copied first, within what is timed."""
    import torch

    how = {"padding": (0, 0), "stride": (1, 1), "dilation": (1, 1), "groups": 1}
    how |= {"benchmark": True, "deterministic": True, "allow_tf32": False}
    torch.ops.aten.cudnn_convolution.out(_pixels(A), B.view(*B.shape, 1, 1), **how, out=_pixels(C))


def _pixels(matrix: Any) -> Any:
    """A (rows, channels) matrix as one image of rows x 1 pixels, channels last in memory."""
    rows, channels = matrix.shape
    return matrix.view(1, rows, 1, channels).permute(0, 3, 1, 2)


@GEMM.baseline("torch.compile", requires="torch", compiled=True, refuses=one_type)
def compiled(p: GemmProblem, A: Any, B: Any) -> Any:
    import torch

    return torch.mm(A, _as_kn(p, B))


@GEMM.baseline("Triton", requires=("torch", "triton"), prepares=True)
def triton(p: GemmProblem, A: Any, B: Any, C: Any) -> Callable[[], object]:
    from ._triton import work

    return work(p, A, B, C, multiprocessors())


@GEMM.baseline("NumPy", requires="numpy")
def numpy(p: GemmProblem, A: Any, B: Any) -> Any:
    return A @ _as_kn(p, B)
