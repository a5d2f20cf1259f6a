"""`attention_backward` as a function on arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...model.calls import Call
from ..attention.ops import problem_of
from ..attention.problem import Layout
from ..shared.arguments import REMEDY, check_arrays
from . import ATTENTION_BACKWARD, AttentionBackwardProblem


class AttentionGradients(NamedTuple):
    """What `attention_backward` returns."""

    dq: Any
    dk: Any
    dv: Any


@ATTENTION_BACKWARD.function
def attention_backward(
    q: Any,
    k: Any,
    v: Any,
    o: Any,
    lse: Any,
    do: Any,
    *,
    causal: bool = False,
    scale: float | None = None,
    layout: str = "bhsd",
) -> Call:
    """Gradients of `attention` for q, k and v. The arguments are those of `attention`, its results o and lse, and do,
    the gradient of o. o and do have the shape and dtype of q, without gaps; lse is (batch, heads, rows) float32.
    Options are those of the call of `attention`.

    Returns a named tuple: dq like q, dk and dv like k, without gaps. Gradients of heads that share keys are added up. A
    row that sees no key has dq = 0. The order of the sums for dq varies: two calls may differ by rounding. Raises
    TypeError and ValueError like `attention`.
    """
    name = "attention_backward"
    problem = problem_of(AttentionBackwardProblem, name, q, k, v, causal, scale, layout)
    for which, array in {"o": o, "do": do}.items():
        check_arrays(name, [q.dtype], **{which: array})
        if array.shape != q.shape or not array.contiguous:
            raise ValueError(
                f"{name}: {which} has shape {array.shape} and strides {array.strides} bytes; it has to have the shape "
                f"of q, {q.shape}, without gaps: {REMEDY}"
            )
    check_arrays(name, [np.dtype(np.float32)], lse=lse)
    shape = (problem.batch, problem.heads, problem.rows)
    if lse.shape != shape or not lse.contiguous:
        raise ValueError(f"{name}: lse has shape {lse.shape}; it has to have {shape}, without gaps: {REMEDY}")
    check_arrays(name, [q.dtype, lse.dtype], q=q, o=o, lse=lse, do=do)

    def ordered(array: Any) -> Any:
        """In the order of the dimensions that the caller gave, or that the problem has: the same exchange."""
        return array if layout == Layout.BHSD else array.transpose(0, 2, 1, 3)

    def finish(found: dict[str, Any]) -> Any:
        return AttentionGradients(**{gradient: ordered(found[gradient]) for gradient in ("dq", "dk", "dv")})

    given = {"q": q, "k": k, "v": v, "o": o, "do": do}
    return Call(problem, {which: ordered(array) for which, array in given.items()} | {"lse": lse}, finish)
