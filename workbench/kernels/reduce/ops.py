"""`reduce` as a function on arrays."""

from __future__ import annotations

from typing import Any

from ...model.calls import Call
from ..shared.arguments import common_dtype, rows_of
from . import REDUCE, ReduceProblem


@REDUCE.function
def reduce(x: Any, *, op: str = "sum", over: str = "columns", out_dtype: Any = None) -> Call:
    """Sum or maximum (`op` sum or max) of a matrix, added up in fp32. x: (rows, columns), rows any distance apart;
    returns (rows,) where `over` is columns, (columns,) where it is rows, and (1,) where it is all."""
    fields = rows_of("reduce", common_dtype("reduce", x=x), out_dtype, x=x)
    for name, value in (("op", op), ("over", over)):
        if value not in ReduceProblem.choices[name]:
            allowed = ", ".join(ReduceProblem.choices[name])
            raise ValueError(f"reduce: {name} is {value!r}; it has to be one of {allowed}")
    if x.ndim != 2:
        raise ValueError(f"reduce: x has shape {x.shape}; it has to have two dimensions")
    return Call(ReduceProblem(**fields, op=op, over=over), {"x": x})
