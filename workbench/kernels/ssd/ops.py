"""`ssd` as a function on arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...model.calls import Call
from ...model.dtypes import BF16, FP32
from ..shared.arguments import REMEDY, check_arrays, head_strides
from . import SSD, SsdProblem


class SsdOutputs(NamedTuple):
    """What `ssd` returns."""

    y: Any
    h: Any


@SSD.function
def ssd(x: Any, log_a: Any, b: Any, c: Any, h0: Any = None) -> Call:
    """Mamba-2's chunked scan of every head, h_t = exp(log_a_t) h_{t-1} + b_t x_t^T and y_t = h_t^T c_t. x: (batch,
    length, heads, headdim) bfloat16; log_a: (batch, length, heads) float32, at most 0, which may be -inf; b, c: (batch,
    length, groups, dstate) bfloat16, groups a divisor of heads; h0: (batch, heads, dstate, headdim) float32, the state
    before the first position, by default zero; headdim and dstate at most 128. log_a and h0 are contiguous. Positions
    of x, and of b and c, may be any distance apart; b and c have the same distance.

    Returns a named tuple: y like x, without gaps, and h, the state after the last position. Raises TypeError and
    ValueError like `gemm`.
    """
    check_arrays("ssd", [BF16.numpy], x=x, b=b, c=c)
    given = {} if h0 is None else {"h0": h0}
    check_arrays("ssd", [FP32.numpy], log_a=log_a, **given)
    problem = _problem(x, log_a, b, c)
    state = problem.arrays()["h0"].shape
    if h0 is not None and h0.shape != state:
        raise ValueError(f"ssd: h0 has shape {h0.shape}; it has to be {state}, (batch, heads, dstate, headdim)")
    for name, array in {"log_a": log_a, **given}.items():
        if not array.contiguous:
            raise ValueError(f"ssd: {name} is not contiguous: {REMEDY}")
    inputs = {"x": x, "log_a": log_a, "b": b, "c": c, **given}
    return Call(problem, inputs, lambda found: SsdOutputs(y=found["y"], h=found["h"]))


def _problem(x: Any, log_a: Any, b: Any, c: Any) -> SsdProblem:
    """Raises ValueError for arrays that are none of a problem."""
    for name, array in {"x": x, "b": b, "c": c}.items():
        if array.ndim != 4 or 0 in array.shape or array.shape[3] > 128:
            raise ValueError(
                f"ssd: {name} has shape {array.shape}; it has to have four dimensions, none empty, the last at most 128"
            )
    batch, length, heads, headdim = x.shape
    if b.shape != c.shape or b.shape[:2] != (batch, length) or heads % b.shape[2]:
        raise ValueError(
            f"ssd: x has shape {x.shape}, b {b.shape} and c {c.shape}; b and c have to have the same, with the batch "
            "and length of x, and groups that divide its heads"
        )
    if log_a.shape != (batch, length, heads):
        raise ValueError(f"ssd: log_a has shape {log_a.shape}; it has to be {(batch, length, heads)}")
    pads = {name: _pad(name, array) for name, array in {"x": x, "b": b, "c": c}.items()}
    if pads["b"] != pads["c"]:
        raise ValueError(f"ssd: places of b and c are not as far apart; they have to be: {REMEDY}")
    return SsdProblem(
        batch=batch,
        heads=heads,
        length=length,
        headdim=headdim,
        dstate=b.shape[3],
        group=heads // b.shape[2],
        pad_x=pads["x"],
        pad_bc=pads["b"],
    )


def _pad(name: str, array: Any) -> int:
    """Elements between the heads of a place and the next place. Raises ValueError where heads do not follow each
    other."""
    heads, dim = array.shape[2:]
    row, place = head_strides("ssd", name, array)
    if row != dim:
        raise ValueError(f"ssd: heads of {name} are {row} elements apart; they have to be {dim}, without gaps")
    return int(place - heads * dim)
