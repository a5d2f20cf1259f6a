"""`attention_varlen` as a function on arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...model.array_specs import ArraySpec
from ...model.calls import Call
from ...model.dtypes import FP32
from ..attention.ops import AttentionOutputs
from ..shared.arguments import REMEDY, check_arrays, common_dtype, contiguous
from . import ATTENTION_VARLEN, AttentionVarlenProblem

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
    Raises TypeError and ValueError like `gemm`.
    """
    dtype = common_dtype(_NAME, q=q, k=k, v=v)
    if dtype is FP32:
        raise TypeError(f"{_NAME}: the arrays have dtype float32; it has to be bfloat16 or float16")
    for which, array in {"q": q, "k": k, "v": v}.items():
        if array.ndim != 3 or 0 in array.shape:
            raise ValueError(f"{_NAME}: {which} has shape {array.shape}; it has to have three dimensions, none empty")
    if k.shape != v.shape:
        raise ValueError(f"{_NAME}: k has shape {k.shape} and v {v.shape}; they have to have the same")
    if q.shape[2] != k.shape[2] or q.shape[1] % k.shape[1] or q.shape[2] > 256:
        raise ValueError(
            f"{_NAME}: q has shape {q.shape} and k {k.shape}; they have to have the same dim, at most 256, and the "
            "heads of k have to divide those of q"
        )
    if scale is not None and not (scale > 0 and math.isfinite(scale)):
        raise ValueError(f"{_NAME}: scale is {scale}; it has to be positive")
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
