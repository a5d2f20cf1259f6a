"""The operation ssd: preferred stages, its call, its baselines, and what its stages share."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ... import reference
from ...model.calls import Call
from ...model.dtypes import BF16, FP32, dtype_of
from ...model.launch import ceil_div, scaled
from ...model.operation import Operation
from ...model.problem import Size
from ..shared import REMEDY, beside_triton, check_arrays, head_strides
from .problem import SUITE, Decays, SsdProblem, problems

ENOUGH = 200
"""Blocks that keep an H100 or H200 of 132 multiprocessors busy."""


def fastest(p: SsdProblem) -> tuple[str, ...]:
    """The stages that are preferred for a problem that is in no table of what is fastest, best first. Of few heads
    sequences are cut."""
    few = ceil_div(p.headdim, 64) * p.heads * p.batch < scaled(ENOUGH) and p.length > 128
    computes = p.group > 1 and p.dstate > 64  # rather than waits for memory: heads that are in step wait for each other
    best = ("specialised",) if computes else ("paired", "specialised")
    return *best, *(("parallel", "tensor_core") if few else ("tensor_core",))


SSD = Operation(
    name="ssd",
    summary="chunked scan of Mamba-2: a state with a scalar decay a head",
    problem=SsdProblem,
    problems=problems,
    suite=SUITE,
    defines=lambda p: {"IN": dtype_of(p.dtype).cuda},
    emulator_size=Size(extent=400, work=2_000_000),
    cuda_size=Size(extent=4000, work=100_000_000),
    fastest=fastest,
)

EDGE_CASES = (
    SsdProblem(length=130, headdim=64, dstate=64, decays=Decays.RESETS),
    SsdProblem(heads=2, length=200, headdim=64, dstate=128, group=2, decays=Decays.NEAR_ONE, pad_x=8, pad_bc=16),
    SsdProblem(batch=2, heads=2, length=65, headdim=128, dstate=64, decays=Decays.NEAR_ZERO),
    SsdProblem(length=129, headdim=33, dstate=70, pad_x=3, pad_bc=1),
)
"""What random problems would hardly hit: each kind of decays over some chunks, both sizes of state and head."""


def steps(p: SsdProblem) -> tuple[np.generic, ...]:
    """Elements of x, and of b and c, from one batch to the next and from one place to the next."""
    arrays = p.arrays()
    return tuple(np.int64(step) for name in ("x", "b") for step in arrays[name].element_strides[:2])


def counts(p: SsdProblem) -> tuple[np.generic, ...]:
    """Heads, how many of them share b and c, length, headdim and dstate."""
    return tuple(np.int32(n) for n in (p.heads, p.group, p.length, p.headdim, p.dstate))


# ---------------------------------------------------------------------------------------------- as a function on arrays


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
    ValueError like `gemm`."""
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


# --------------------------------------------------------------------------------- what the stages are measured against


CHUNK = 64
"""Places of a chunk of the calls of PyTorch."""


def _of_heads(p: SsdProblem, b: Any) -> Any:
    """b or c with one for every head."""
    return b.repeat_interleave(p.group, dim=2) if p.group > 1 else b


def _shares(p: SsdProblem) -> str | None:
    return "its call takes as many heads of b and c as of x" if p.group > 1 else None


@SSD.baseline("flash-linear-attention", requires=("torch", "fla"), vendor=True, refuses=_shares)
def fla(p: SsdProblem, x: Any, log_a: Any, b: Any, c: Any, h0: Any) -> Any:
    """`chunk_simple_gla`, linear attention with a decay: c are its queries, b its keys, x its values."""
    from fla.ops.simple_gla import chunk_simple_gla

    return chunk_simple_gla(c, b, x, g=log_a, scale=1.0, initial_state=h0, output_final_state=True)


def _torch(p: SsdProblem, x: Any, log_a: Any, b: Any, c: Any, h0: Any) -> Any:
    """Products of chunks: of all chunks at once within them, then from one state to the next."""
    import torch

    behind = -p.length % CHUNK
    pad = torch.nn.functional.pad
    xs, bs, cs = (
        pad(v, (0, 0, 0, 0, 0, behind)).unflatten(1, (-1, CHUNK)).permute(0, 3, 1, 2, 4)
        for v in (x, _of_heads(p, b), _of_heads(p, c))
    )  # (batch, heads, chunks, places, elements)
    sums = pad(log_a.clamp(min=-104.0), (0, 0, 0, behind)).unflatten(1, (-1, CHUNK)).permute(0, 3, 1, 2).cumsum(-1)
    earlier = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=x.device).tril()
    apart = (sums[..., :, None] - sums[..., None, :]).masked_fill(~earlier, float("-inf"))
    weights = (cs @ bs.mT).float() * apart.exp()
    kept = (bs.float() * (sums[..., -1:] - sums).exp()[..., None]).to(x.dtype)
    states = kept.float().mT @ xs.float()  # a product of bf16 would be rounded to it
    decays, h, before = sums[..., -1].exp()[..., None, None], h0, []
    for chunk in range(states.shape[2]):
        before.append(h)
        h = h * decays[:, :, chunk] + states[:, :, chunk]
    from_before = (cs @ torch.stack(before, 2).to(x.dtype)).float() * sums.exp()[..., None]
    y = (weights.to(x.dtype) @ xs).float() + from_before
    return y.permute(0, 2, 3, 1, 4).flatten(1, 2)[:, : p.length].to(x.dtype), h


SSD.baseline("PyTorch", requires="torch")(_torch)
SSD.baseline("torch.compile", requires="torch", compiled=True)(_torch)

beside_triton(SSD, __package__)


@SSD.baseline("NumPy", requires="numpy")
def numpy(p: SsdProblem, x: Any, log_a: Any, b: Any, c: Any, h0: Any) -> Any:
    solved = p.solved({"x": x, "log_a": log_a, "b": b, "c": c, "h0": h0}, reference.ssd, np.float32)
    return solved["y"], solved["h"]
