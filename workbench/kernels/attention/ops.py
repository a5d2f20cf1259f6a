"""`attention` as a function on arrays."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeVar

from ...model.calls import Call, Gradient
from ...model.dtypes import FP32
from ..shared.arguments import REMEDY, common_dtype, head_strides
from . import ATTENTION, AttentionProblem, Layout


class AttentionOutputs(NamedTuple):
    """What `attention` returns."""

    o: Any
    lse: Any


@ATTENTION.function
def attention(
    q: Any, k: Any, v: Any, *, causal: bool = False, scale: float | None = None, layout: str = "bhsd"
) -> Call:
    """Attention of every head, softmax(scale q k^T) v. q: (batch, heads, rows, dim); k, v: (batch, key heads, keys,
    dim). With `layout` bshd, they are (batch, rows, heads, dim) and (batch, keys, key heads, dim). Types are bfloat16
    or float16; dim is at most 256; key heads divide heads. Rows of dim, and heads (rows, with bshd), may be any
    distance apart; k and v have the same distances. `scale` is positive; the default is 1 / sqrt(dim). With `causal`,
    row i sees the keys up to i + keys - rows.

    Returns a named tuple: o like q, without gaps, and lse, (batch, heads, rows) float32, the natural logarithm of the
    sum of a row's exponentials. A row that sees no key has o = 0 and lse = -inf. Raises TypeError and ValueError like
    `gemm`.
    """
    problem = problem_of(AttentionProblem, "attention", q, k, v, causal, scale, layout)

    def ordered(array: Any) -> Any:
        """In the order of the dimensions that the caller gave, or that the problem has: the same exchange."""
        return array if layout == Layout.BHSD else array.transpose(0, 2, 1, 3)

    def finish(found: dict[str, Any]) -> Any:
        return AttentionOutputs(o=ordered(found["o"]), lse=found["lse"])

    return Call(problem, {"q": ordered(q), "k": ordered(k), "v": ordered(v)}, finish)


attention.gradient = Gradient(
    "attention_backward",
    ("q", "k", "v", Gradient.RESULT, Gradient.result(1), Gradient.OF_RESULT),
    ("q", "k", "v"),
)

P = TypeVar("P", bound=AttentionProblem)


def problem_of(kind: type[P], name: str, q: Any, k: Any, v: Any, causal: bool, scale: float | None, layout: str) -> P:
    """The problem, of this class, of a function of this name. Raises TypeError and ValueError for arrays that are none
    of a problem."""
    dtype = common_dtype(name, q=q, k=k, v=v)
    if dtype is FP32:
        raise TypeError(f"{name}: the arrays have dtype float32; it has to be bfloat16 or float16")
    if layout not in tuple(Layout):
        raise ValueError(f"{name}: layout is {layout!r}; it has to be bhsd or bshd")
    given = {"q": q, "k": k, "v": v}
    for which, array in given.items():
        if array.ndim != 4 or 0 in array.shape:
            raise ValueError(f"{name}: {which} has shape {array.shape}; it has to have four dimensions, none empty")
    if k.shape != v.shape:
        raise ValueError(f"{name}: k has shape {k.shape} and v {v.shape}; they have to have the same")
    if scale is not None and not (scale > 0 and math.isfinite(scale)):
        raise ValueError(f"{name}: scale is {scale}; it has to be positive")
    heads, places = (1, 2) if layout == Layout.BHSD else (2, 1)
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3] or q.shape[heads] % k.shape[heads] or q.shape[3] > 256:
        raise ValueError(
            f"{name}: q has shape {q.shape} and k {k.shape}; they have to have the same batch and dim, dim at most "
            "256, and the heads of k have to divide those of q"
        )
    steps = {which: head_strides(name, which, array) for which, array in given.items()}
    if steps["k"] != steps["v"]:
        raise ValueError(f"{name}: rows of k and v are not as far apart; they have to be: {REMEDY}")
    pads = {which: row - q.shape[3] for which, (row, _) in steps.items()}
    gaps = {which: middle - given[which].shape[2] * row for which, (row, middle) in steps.items()}
    return kind(
        batch=q.shape[0],
        heads=q.shape[heads],
        rows=q.shape[places],
        keys=k.shape[places],
        dim=q.shape[3],
        group=q.shape[heads] // k.shape[heads],
        causal=causal,
        scale=scale or 0.0,
        layout=Layout(layout),
        dtype=dtype.name,
        pad_q=pads["q"],
        gap_q=gaps["q"],
        pad_kv=pads["k"],
        gap_kv=gaps["k"],
    )
