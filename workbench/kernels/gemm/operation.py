"""The operation GEMM, and what the declarations of its stages share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ...model.arrays import Array
from ...model.calls import ArraySpec, Call
from ...model.dtypes import FP32, DType
from ...model.launch import Argument, Launch, Plan, ceil_div
from ...model.operation import Operation
from ...model.problem import ProblemError, Size
from ..shared import (
    REMEDY,
    beside_triton,
    check_arrays,
    common_dtype,
    cudnn_version,
    one_type,
    output_dtype,
    preferred_blas,
    row_stride,
    rows_contiguous,
)
from .fastest import fastest
from .gradients import ProductGradients
from .problem import Activation, Added, GemmProblem, alone, defines, plain, problems, suite
from .work import work

GEMM = Operation(
    name="gemm",
    summary="matrix product C = A B, either operand transposed, in batches, with an epilogue",
    problem=GemmProblem,
    problems=problems,
    suite=suite(),
    defines=defines,
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

GENERAL = (
    GemmProblem(m=70, n=40, k=72, layout="tn", batch=3, step_a=0, added=Added.ROW, activation=Activation.GELU),
    GemmProblem(m=40, n=70, k=33, layout="tt", batch=2, step_b=0, added=Added.MATRIX, beta=-0.5, pad_added=3),
    GemmProblem(m=136, n=264, k=136, dtype="bf16", out="bf16", layout="tn", alpha=0.5, activation=Activation.SILU),
    GemmProblem(m=24, n=16, k=40, dtype="fp16", out="fp16", layout="tt", pad_a=40, step_a=24, batch=2),
    GemmProblem(m=5, n=8, k=3, dtype="bf16", out="bf16", layout="nn", batch=2, step_b=25),
)
"""Batches and epilogues, with an A that is stored transposed. The matrices of the fourth A lie beside each other, and
the second B begins anywhere, though its rows are 16 bytes apart."""


def extras(p: GemmProblem, *names: str) -> tuple[Argument, ...]:
    """What kernels are given for an epilogue, and the steps of a batch, of these arrays."""
    numbers = (np.int32(p.ld_added), np.float32(p.alpha), np.float32(p.beta))
    steps = (np.int64(p.steps[name] if p.batch else 0) for name in names or ("A", "B", "C", "added"))
    return ("added" if p.has_added else "C", *numbers, *steps)


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
    one line of the L2, not two. Rows of A along m become columns."""
    array = p.arrays()[name]
    rows, columns = array.shape
    turned = name == "A" and p.trans_a
    shape = (columns, rows) if turned else (rows, columns)
    apart = 8 if shape[1] < LONG_ROW else 128 // array.dtype.itemsize
    packed = Array(shape, array.dtype, ceil_div(shape[1], apart) * apart, output=True)
    numbers = tuple(np.int32(x) for x in (rows, columns, array.row_stride, packed.row_stride))
    if turned:
        grid = (ceil_div(rows, 64) * ceil_div(columns, 64), 1, 1)
        return Launch("gemm_turn", grid, (256, 1, 1), (name, f"realigned_{name}", *numbers)), packed
    each = 8  # warps of a block, each with 256 elements of a row
    blocks = ceil_div(rows * ceil_div(columns, 256), each)
    return Launch("gemm_realign", (blocks, 1, 1), (32 * each, 1, 1), (name, f"realigned_{name}", *numbers)), packed


def realigned_plan(p: GemmProblem, product: Callable[[str, str], Launch]) -> Plan:
    """Copies what has to be copied of A and B, then launches the product of arrays of the names given."""
    copied = {name: _realign(p, name) for name in p.copied}
    a, b = (f"realigned_{name}" if name in copied else name for name in "AB")
    scratch = {f"realigned_{name}": array for name, (_, array) in copied.items()}
    return Plan((*(launch for launch, _ in copied.values()), product(a, b)), scratch=scratch)


# ---------------------------------------------------------------------------------------------- as a function on arrays


@GEMM.function
def gemm(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    trans_b: bool = False,
    out_dtype: Any = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    activation: str = "none",
) -> Call:
    """Matrix product on the GPU, accumulated in fp32: activation(alpha a b + beta c).

    a: (m, k), b: (k, n), or (n, k) with `trans_b`: arrays of one dtype (bfloat16, float16 or float32), views of any
    strides of which one is that of neighbours, so that either may be a transposed view. With three dimensions they are
    batches, (batch, m, k) and (batch, k, n); one of the two may have 1 matrix or two dimensions, which is for all. c,
    None or what is added, has the dtype of the result: one row, (n,), as a bias, or (m, n), or (batch, m, n), of which
    a batch of 1 or none is for all. `activation` is none, relu, gelu (with the error function) or silu. Returns (m, n)
    or (batch, m, n) of `out_dtype`: the dtype of the inputs (default) or float32. Raises TypeError for wrong types and
    dtypes, ValueError for wrong shapes, strides or devices."""
    dtype = common_dtype("gemm", a=a, b=b)
    out = output_dtype("gemm", dtype, out_dtype)
    batch = _batch(a, b, c)
    (of_a, step_a), (of_b, step_b) = _matrices("a", a), _matrices("b", b)
    b_kn = of_b.T if trans_b else of_b
    if of_a.shape[1] != b_kn.shape[0]:
        wanted = f"(n, {of_a.shape[1]})" if trans_b else f"({of_a.shape[1]}, n)"
        raise ValueError(f"gemm: b has shape {b.shape}; for a of shape {a.shape} it has to be {wanted}")
    if 0 in a.shape or 0 in b.shape:
        raise ValueError(f"gemm: a {a.shape} and b {b.shape} have to have at least one element each")
    if activation not in tuple(Activation):
        raise ValueError(f"gemm: activation is {activation!r}; it has to be one of {', '.join(Activation)}")
    one_column = b_kn.shape[1] == 1 and rows_contiguous(b_kn.T)  # as a row, loads of it are wide
    layout = f"{'n' if rows_contiguous(of_a) else 't'}{'n' if rows_contiguous(b_kn) and not one_column else 't'}"
    stored_a, stored_b = of_a if layout[0] == "n" else of_a.T, b_kn if layout[1] == "n" else b_kn.T
    fields: dict[str, Any] = {
        "m": of_a.shape[0],
        "n": b_kn.shape[1],
        "k": of_a.shape[1],
        "dtype": dtype.name,
        "out": out.name,
        "layout": layout,
        "pad_a": row_stride("gemm", "a", stored_a) - stored_a.shape[1],
        "pad_b": row_stride("gemm", "b", stored_b) - stored_b.shape[1],
        "batch": batch,
        **({"step_a": step_a, "step_b": step_b} if batch else {}),
        "alpha": alpha,
        "activation": activation,
    }
    inputs = {"A": _view(a, stored_a, batch, step_a), "B": _view(b, stored_b, batch, step_b)}
    if c is not None and beta != 0:
        inputs["added"] = _added(c, out, batch, fields)
        fields["beta"] = beta
    try:
        return Call(GemmProblem(**fields), inputs)
    except ProblemError as error:
        raise ValueError(f"gemm: {error}") from None


gemm.gradient = ProductGradients()


def _batch(a: ArraySpec, b: ArraySpec, c: ArraySpec | None) -> int:
    """Matrices of a batch, 0 of matrices alone. Raises ValueError."""
    given = {"a": a, "b": b} | ({} if c is None or c.ndim < 3 else {"c": c})
    for name, array in given.items():
        if array.ndim not in (2, 3):
            raise ValueError(f"gemm: {name} has shape {array.shape}; it has to have two dimensions, or a batch three")
    if max(a.ndim, b.ndim) == 2:
        if "c" in given:
            raise ValueError(f"gemm: c has shape {given['c'].shape}; of matrices alone it has two dimensions")
        return 0
    counts = {name: array.shape[0] for name, array in given.items() if array.ndim == 3}
    found = max(n for name, n in counts.items() if name != "c")
    if set(counts.values()) - {1, found}:
        wrong = ", ".join(f"{name} {n}" for name, n in counts.items())
        raise ValueError(f"gemm: the batches have {wrong} matrices; they have to have as many, or 1 for all")
    return found


def _matrices(name: str, array: ArraySpec) -> tuple[ArraySpec, int]:
    """The first matrix of an array, and elements to the next one: 0 of one for all. Raises ValueError."""
    if array.ndim == 2:
        return array, 0
    step, rest = divmod(array.strides[0], array.itemsize)
    if rest or step < 0:
        raise ValueError(f"gemm: {name} has strides {array.strides} bytes: {REMEDY}")
    return replace(array, shape=array.shape[1:], strides=array.strides[1:]), step if array.shape[0] > 1 else 0


def _view(array: ArraySpec, matrix: ArraySpec, batch: int, step: int) -> ArraySpec:
    """A caller's array as its problem has it: a batch of matrices like this one, or this one."""
    if not batch or not step:
        return matrix
    return replace(matrix, shape=(batch, *matrix.shape), strides=(step * array.itemsize, *matrix.strides))


def _added(c: ArraySpec, out: DType, batch: int, fields: dict[str, Any]) -> ArraySpec:
    """What is added as the problem has it, of which fields are set. Raises TypeError and ValueError."""
    check_arrays("gemm", [out.numpy], c=c)
    m, n = fields["m"], fields["n"]
    as_row = replace(c, shape=(1, *c.shape), strides=(0, *c.strides)) if c.ndim == 1 else c
    if as_row.shape[-2:] not in ((1, n), (m, n)):
        raise ValueError(f"gemm: c has shape {c.shape}; it has to be ({n},) or ({m}, {n}), or a batch of such matrices")
    matrix, step = _matrices("c", as_row)
    if matrix.strides[0] == 0:  # expanded from a row
        matrix = replace(matrix, shape=(1, n))
    fields["added"] = Added.ROW if matrix.shape[0] == 1 else Added.MATRIX
    if matrix.shape[0] > 1:
        fields["pad_added"] = row_stride("gemm", "c", matrix) - n
    elif not rows_contiguous(matrix):
        raise ValueError(f"gemm: c has strides {c.strides} bytes; a row has to be contiguous: {REMEDY}")
    if batch:
        fields["step_added"] = step
    return _view(c, matrix, batch, step)


# --------------------------------------------------------------------------------- what the stages are measured against


def _operands(p: GemmProblem, A: Any, B: Any) -> tuple[Any, Any]:
    """A as (m, k) and B as (k, n), however they are stored."""
    return A.swapaxes(-1, -2) if p.trans_a else A, B.swapaxes(-1, -2) if p.trans_b else B


@GEMM.baseline("cuBLAS", requires="cublas", vendor=True, refuses=alone)
def cublas(p: GemmProblem, A: Any, B: Any, C: Any) -> None:
    # it takes columns for what lie here as rows: of the product it computes the transpose, C^T = B^T A^T
    B.handle.gemm((int(p.trans_b), int(p.trans_a)), (p.n, p.m, p.k), B.argument, A.argument, C.argument)


def _one_call(p: GemmProblem) -> str | None:
    if p.activation is not Activation.NONE:
        return "the call for products has no activation"
    return one_type(p)


@GEMM.baseline("PyTorch", requires="torch", refuses=_one_call)
def pytorch(p: GemmProblem, A: Any, B: Any, C: Any, added: Any = None) -> None:
    import torch

    a, b = _operands(p, A, B)
    if p.batch:
        a, b = (x.expand(p.batch, *x.shape[-2:]) for x in (a, b))
    if p.has_epilogue:
        how = {"alpha": p.alpha, "beta": 0.0 if added is None else p.beta, "out": C}
        (torch.baddbmm if p.batch else torch.addmm)((C if added is None else added), a, b, **how)
    else:
        (torch.bmm if p.batch else torch.mm)(a, b, out=C)


@GEMM.baseline("cuBLASLt", requires="torch", refuses=lambda p: alone(p) or one_type(p))
def cublaslt(p: GemmProblem, A: Any, B: Any, C: Any) -> None:
    import torch

    with preferred_blas("cublaslt"):
        torch.mm(*_operands(p, A, B), out=C)


def _no_convolution(p: GemmProblem) -> str | None:
    if alone(p) or p.layout != "nt":
        return "a convolution takes B with k along its rows, layout nt, no batches and no epilogue"
    if any(array.padded for array in p.arrays().values()):
        return "a convolution takes rows without padding between them"
    return one_type(p)


@GEMM.baseline("cuDNN", requires="torch", refuses=_no_convolution, version=cudnn_version)
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
def compiled(p: GemmProblem, A: Any, B: Any, added: Any = None) -> Any:
    import torch

    a, b = _operands(p, A, B)
    sums = torch.matmul(a, b) if p.batch else torch.mm(a, b)
    if p.alpha != 1:
        sums = p.alpha * sums
    if added is not None:
        sums = sums + (added if p.beta == 1 else p.beta * added)
    name = p.activation.value
    return sums if name == "none" else getattr(torch.nn.functional, name)(sums)


beside_triton(GEMM, __package__, refuses=plain)


@GEMM.baseline("NumPy", requires="numpy", refuses=alone)
def numpy(p: GemmProblem, A: Any, B: Any) -> Any:
    a, b = _operands(p, A, B)
    return a @ b
