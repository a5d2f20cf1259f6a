"""`rotary` as a function on arrays."""

from __future__ import annotations

from typing import Any

from ...model.calls import Call
from ..shared.arguments import common_dtype, head_strides, row_of_rows
from . import ROTARY, RotaryProblem


@ROTARY.function
def rotary(x: Any, cos: Any, sin: Any, *, interleaved: bool = False, layout: str = "bhsd") -> Call:
    """Rotary position embedding: pairs (u, v) of the last axis become (u cos - v sin, u sin + v cos).

    x: (batch, heads, seq, dim), or (batch, seq, heads, dim) with `layout` bshd, whose rows of dim elements, and whose
    heads (positions, with bshd), may be any distance apart; cos, sin: (seq, dim / 2), contiguous. A pair is
    (2i, 2i + 1), `interleaved`, or (i, i + dim / 2).
    """
    dtype = common_dtype("rotary", x=x, cos=cos, sin=sin)
    if layout not in RotaryProblem.choices["layout"]:
        raise ValueError(f"rotary: layout is {layout!r}; it has to be bhsd or bshd")
    if x.ndim != 4 or 0 in x.shape or x.shape[-1] % 2:
        raise ValueError(f"rotary: x has shape {x.shape}; it has to have four dimensions, the last one even")
    seq = x.shape[2 if layout == "bhsd" else 1]
    angles = (seq, x.shape[-1] // 2)
    for name, array in (("cos", cos), ("sin", sin)):
        if array.shape != angles:
            raise ValueError(f"rotary: {name} has shape {array.shape}; it has to be {angles}")
        row_of_rows("rotary", name, array, angles[1])
    row, middle = head_strides("rotary", "x", x)
    problem = RotaryProblem(
        batch=x.shape[0],
        heads=x.shape[1 if layout == "bhsd" else 2],
        seq=seq,
        half=angles[1],
        dtype=dtype.name,
        pairs="interleaved" if interleaved else "half",
        layout=layout,
        pad_x=row - x.shape[3],
        gap_x=middle - x.shape[2] * row,
    )
    return Call(problem, {"x": x, "cos": cos, "sin": sin})
