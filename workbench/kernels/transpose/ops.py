"""`transpose` as a function on arrays."""

from __future__ import annotations

from typing import Any

from ...model.calls import Call
from ..shared.arguments import common_dtype, rows_of
from . import TRANSPOSE, TransposeProblem


@TRANSPOSE.function
def transpose(x: Any) -> Call:
    """The transpose of a matrix as an array of its own. x: (rows, columns), rows any distance apart."""
    fields = rows_of("transpose", common_dtype("transpose", x=x), None, x=x)
    if x.ndim != 2:
        raise ValueError(f"transpose: x has shape {x.shape}; it has to have two dimensions")
    return Call(TransposeProblem(**{**fields, "out": "fp32"}), {"x": x})
