"""`scan` as a function on arrays."""

from __future__ import annotations

from typing import Any

from ...model.calls import Call
from ..shared.arguments import common_dtype, matrix, rows_of
from . import SCAN, ScanProblem


@SCAN.function
def scan(x: Any, *, out_dtype: Any = None) -> Call:
    """Inclusive sums along the last axis, added up in fp32. x: (..., columns), as for `softmax`."""
    problem = ScanProblem(**rows_of("scan", common_dtype("scan", x=x), out_dtype, x=x))
    return Call(problem, {"x": matrix("scan", "x", x)}, lambda found: found["y"].reshape(x.shape))
