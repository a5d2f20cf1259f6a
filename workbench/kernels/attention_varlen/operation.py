"""The operation attention_varlen: preferred stages, its call, its baselines, and what its stages share."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import reference
from ...model.calls import ArraySpec, Call
from ...model.dtypes import dtype_of
from ...model.operation import Operation
from ...model.problem import Size
from ..attention.operation import AttentionOutputs, checked_dtype
from ..attention.problem import Kind
from ..shared import REMEDY, beside_triton, check_arrays, contiguous
from .problem import SUITE, AttentionVarlenProblem, Lengths, problems, tensor_maps

SHORT, FEW = 256, 2**28
"""Keys of a sequence, on average, and products of elements of q and k for which one launch is faster than ranking the
sequences first. Microseconds of `tensor_core` and `row_by_row` (H200): 12 and 14 for one sequence of 67 with 8 heads of
128, 17 and 25 for 40 of 16, 15 and 17 for 300, 20 and 100 together, but 166 and 56 for 1000, 2000 and 30."""


TILE, FEWER = 128, 0.9
"""Rows of a tile. Where packing the heads that share keys makes so many times fewer tiles of them, keys are read as
many times less often."""

FEW_ROWS = TILE // 2
"""Of a sequence, on average: with no more, half of a tile is idle, loading keys takes the time, and long ones are
split."""


def fastest(p: AttentionVarlenProblem) -> tuple[str, ...]:
    """The stages that are preferred, best first: where there is more to do, blocks that draw ranked tiles."""
    few = p.keys <= SHORT * p.batch and p.rows * p.keys // p.batch * p.heads * p.dim <= FEW
    apart = (p.rows / TILE + p.batch) * p.heads
    packed = (p.rows * p.group / TILE + p.batch) * p.key_heads
    packs = packed <= FEWER * apart or p.rows <= FEW_ROWS * p.batch
    ranked = (*(("packed_heads",) if packs else ()), "row_by_row", "persistent")
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


# ---------------------------------------------------------------------------------------------- as a function on arrays


_NAME = "attention_varlen"


@ATTENTION_VARLEN.function
def attention_varlen(
    q: Any, k: Any, v: Any, offsets_q: Any, offsets_k: Any, *, causal: bool = False, scale: float | None = None
) -> Call:
    """Attention of sequences of different lengths, packed one after the other. q: (rows, heads, dim); k, v: (keys, key
    heads, dim). Types are bfloat16 or float16; dim is at most 256; key heads divide heads. offsets_q, offsets_k:
    (batch + 1,) int32: sequence i has the rows offsets_q[i] to offsets_q[i + 1] of q and the keys offsets_k[i] to
    offsets_k[i + 1]. Offsets must begin with 0, never decrease, and end with at most rows and keys. This is not
    checked, because they are in the memory of the GPU. Sequences may be empty. No length has to be given, and calls
    with other offsets belong to the same class. Rows of dim, and rows of heads, may be any distance apart; k and v have
    the same distances. `scale` is positive; the default is 1 / sqrt(dim). With `causal`, row i of a sequence sees its
    keys up to i + keys - rows, counted in that sequence.

    Returns a named tuple: o like q, without gaps, and lse, (heads, rows) float32, the natural logarithm of the sum of a
    row's exponentials. A row that sees no key has o = 0 and lse = -inf. Rows behind the last sequence are not written.
    Raises TypeError and ValueError like `gemm`."""
    dtype = checked_dtype(_NAME, "three", scale, q, k, v)
    if q.shape[2] != k.shape[2] or q.shape[1] % k.shape[1] or q.shape[2] > 256:
        raise ValueError(
            f"{_NAME}: q has shape {q.shape} and k {k.shape}; they have to have the same dim, at most 256, and the "
            "heads of k have to divide those of q"
        )
    check_arrays(_NAME, [np.dtype(np.int32)], offsets_q=offsets_q, offsets_k=offsets_k)
    check_arrays(_NAME, [q.dtype, offsets_q.dtype], q=q, k=k, v=v, offsets_q=offsets_q, offsets_k=offsets_k)
    if offsets_q.ndim != 1 or offsets_q.shape != offsets_k.shape or offsets_q.shape[0] < 2:
        raise ValueError(
            f"{_NAME}: offsets_q has shape {offsets_q.shape} and offsets_k {offsets_k.shape}; both have to have one "
            "element more than there are sequences, and there has to be at least one"
        )
    contiguous(_NAME, "offsets_q", offsets_q)
    contiguous(_NAME, "offsets_k", offsets_k)
    gaps = {which: _gaps(which, array) for which, array in {"q": q, "k": k, "v": v}.items()}
    if gaps["k"] != gaps["v"]:
        raise ValueError(f"{_NAME}: rows of k and v are not as far apart; they have to be: {REMEDY}")
    problem = AttentionVarlenProblem(
        batch=offsets_q.shape[0] - 1,
        heads=q.shape[1],
        rows=q.shape[0],
        keys=k.shape[0],
        dim=q.shape[2],
        group=q.shape[1] // k.shape[1],
        causal=causal,
        scale=scale or 0.0,
        dtype=dtype.name,
        pad_q=gaps["q"][0],
        gap_q=gaps["q"][1],
        pad_kv=gaps["k"][0],
        gap_kv=gaps["k"][1],
    )
    given = {"q": q, "k": k, "v": v, "offsets_q": offsets_q, "offsets_k": offsets_k}
    return Call(problem, given, lambda found: AttentionOutputs(o=found["o"], lse=found["lse"]))


def _gaps(which: str, array: ArraySpec) -> tuple[int, int]:
    """Elements between heads of a place, and more of them between places. Raises ValueError."""
    item, (places, heads, dim) = array.itemsize, array.shape
    head = array.strides[1] if heads > 1 else dim * item
    place = array.strides[0] if places > 1 else heads * head
    whole = dim == 1 or array.strides[2] == item
    if not whole or head % item or place % item or head < dim * item or place < heads * head:
        raise ValueError(
            f"{_NAME}: {which} has strides {array.strides} bytes; rows of dim have to be contiguous, heads to follow "
            f"each other, and places to follow those: {REMEDY}"
        )
    return head // item - dim, (place - heads * head) // item


# --------------------------------------------------------------------------------- what the stages are measured against


def _longest(p: AttentionVarlenProblem) -> tuple[int, int]:
    """The most rows and keys of a sequence, which the libraries have to be told."""
    rows, keys = p.lengths_of()
    return max(rows), max(keys)


def _fa3_refuses(p: AttentionVarlenProblem) -> str | None:
    return "it takes rows of a multiple of 8 elements" if p.dim % 8 else tensor_maps(p)


def _refuses(p: AttentionVarlenProblem) -> str | None:
    pairs = zip(*p.lengths_of(), strict=True)
    if any(rows > (keys if p.causal else keys * rows) for rows, keys in pairs):
        return "of a row that sees no key its logarithm is +inf"
    return _fa3_refuses(p)


@ATTENTION_VARLEN.baseline("PyTorch flash", requires="torch", vendor=True, refuses=_refuses)
def flash(p: AttentionVarlenProblem, q: Any, k: Any, v: Any, offsets_q: Any, offsets_k: Any) -> Any:
    """FlashAttention of packed sequences, as nested tensors and `torch.nn.attention.varlen` call it."""
    import torch

    call = torch.ops.aten._flash_attention_forward
    o, lse, *_ = call(q, k, v, offsets_q, offsets_k, *_longest(p), 0.0, p.causal, False, scale=p.factor)
    return o, lse


@ATTENTION_VARLEN.baseline("FlashAttention-3", requires=("torch", "fa3_fwd_interface"), refuses=_fa3_refuses)
def flash_3(p: AttentionVarlenProblem, q: Any, k: Any, v: Any, offsets_q: Any, offsets_k: Any) -> Any:
    """The wheel fa3-fwd."""
    from fa3_fwd_interface import flash_attn_varlen_func

    # 0: it chooses into how many parts it splits the keys. Else there is one
    options = {"softmax_scale": p.factor, "causal": p.causal, "return_attn_probs": True, "num_splits": 0}
    o, lse = flash_attn_varlen_func(q, k, v, offsets_q, offsets_k, *_longest(p), **options)
    return o, lse


beside_triton(ATTENTION_VARLEN, __package__)


@ATTENTION_VARLEN.baseline("NumPy", requires="numpy")
def numpy(p: AttentionVarlenProblem, q: Any, k: Any, v: Any, offsets_q: Any, offsets_k: Any) -> Any:
    inputs = {"q": q, "k": k, "v": v, "offsets_q": offsets_q, "offsets_k": offsets_k}
    solved = p.solved(inputs, lambda one, given: one.solved(given, reference.attention, np.float32), np.float32)
    return solved["o"], solved["lse"]
