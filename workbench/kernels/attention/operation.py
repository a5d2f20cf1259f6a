"""The operation attention: preferred stages, its call, its baselines, and what its stages share."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ... import reference
from ...model.calls import Call, Gradient
from ...model.dtypes import FP32, DType, dtype_of
from ...model.launch import ceil_div, machine
from ...model.operation import Operation
from ...model.problem import Size
from ..shared import REMEDY, beside_triton, common_dtype, cudnn_version, head_strides
from .problem import SUITE, AttentionProblem, Kind, Layout, problems, tensor_maps

TILE = 16
"""Rows that a block takes where there are few."""

FEW_ROWS = 2 * TILE
"""Rows of the heads that share keys, with which a product takes less time than to load the keys from memory."""

FEW_KEYS = 64
"""Keys that one tile holds."""

MOST_MERGED = 512
"""Rows of parts that one block merges in the time of another launch."""

SHORT, SMALL_TILE = 512, 64
"""Keys up to which small blocks beat those that fill a multiprocessor (H200), if tiles of 128 rows leave half of them
idle; and the rows of a small block, which waste half of a larger tile."""

LONG, LONGEST = 1024, 8192
"""Keys from which on a block with a long and a short tile in a fixed order beats one that draws them, and tiles of 176
keys those of 128, at a dim of 128 without a mask."""


def _of_many_rows(p: AttentionProblem) -> tuple[str, ...]:
    """The stages for tiles of many rows, best first. TMA stores no rows of part of 16 bytes, so `dynamic` is behind
    those that store by it."""
    tiles, most = p.batch * p.heads * ceil_div(p.rows, 128), machine().multiprocessors
    if p.dim <= 128 and p.keys <= SHORT and (tiles <= most // 2 or p.rows <= SMALL_TILE):
        return "small_blocks", "overlap"
    a_long_and_a_short_one = p.causal and p.keys > LONG and most < tiles <= 2 * most
    of_large_tiles = not p.causal and 64 < p.dim <= 128 and p.keys > LONGEST
    if a_long_and_a_short_one or of_large_tiles:
        return "persistent", "row_by_row", "dynamic"
    return "row_by_row", "dynamic", "overlap"


def fastest(p: AttentionProblem) -> tuple[str, ...]:
    """The stages that are preferred for a problem that is in no table of what is fastest, best first.

    Of few rows the keys are what takes time: those of a tile of rows are read once, by as many blocks as there are
    multiprocessors. Where all of them share one tile or a few, the last one has too much to merge. Of few keys, too,
    nothing is gained by that."""
    packed = p.group * p.rows
    few_keys = packed > TILE and p.keys <= FEW_KEYS
    if packed <= FEW_ROWS and not few_keys:
        tiles = p.batch * p.key_heads * ceil_div(packed, TILE)
        merged = min(packed, TILE) * machine().multiprocessors // tiles
        return "last_block" if merged <= MOST_MERGED else "split_keys", "online"
    return *_of_many_rows(p), "tensor_core", "online"


ATTENTION = Operation(
    name="attention",
    summary="softmax(scale q k^T) v of every head, causal or not",
    problem=AttentionProblem,
    problems=problems,
    suite=SUITE,
    defines=lambda p: {"IN": dtype_of(p.dtype).cuda},
    emulator_size=Size(extent=400, work=2_000_000),
    cuda_size=Size(extent=3000, work=100_000_000),
    fastest=fastest,
)

EDGE_CASES = (
    AttentionProblem(rows=5, keys=3, dim=8, causal=True),  # two rows see nothing
    AttentionProblem(rows=200, keys=70, dim=16, causal=True),  # a whole tile of rows sees nothing
    AttentionProblem(rows=1, keys=190, dim=64, heads=4, group=4, layout=Layout.BSHD),
    AttentionProblem(rows=3, keys=400, dim=8, values=Kind.EQUAL, dtype="fp16"),
    # in fp16 weights are lost that are relative to the maximum of another row
    AttentionProblem(
        rows=130, keys=300, dim=64, causal=True, values=Kind.LARGE, heads=2, layout=Layout.BSHD, dtype="fp16"
    ),
    AttentionProblem(rows=70, keys=33, dim=33, pad_q=1, pad_kv=2, gap_kv=3, layout=Layout.BSHD, heads=2),
    AttentionProblem(heads=8, rows=5, keys=7, dim=33, layout=Layout.BSHD),  # rows of o are aligned, heads are not
)
"""What random problems would hardly hit."""


def strides(p: AttentionProblem, *names: str) -> tuple[np.generic, ...]:
    """Elements of arrays from one batch, head and row to the next."""
    arrays = p.arrays()
    return tuple(np.int64(step) for name in names for step in arrays[name].element_strides[:3])


def counts(p: AttentionProblem) -> tuple[np.generic, ...]:
    """Heads, how many of q share one of k and v, rows, keys and dim."""
    return tuple(np.int32(n) for n in (p.heads, p.group, p.rows, p.keys, p.dim))


# ---------------------------------------------------------------------------------------------- as a function on arrays


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
    `gemm`."""
    problem = problem_of(AttentionProblem, "attention", q, k, v, causal, scale, layout)

    def ordered(array: Any) -> Any:
        """In the order of the dimensions that the caller gave, or that the problem has: the same exchange."""
        return array if layout == Layout.BHSD else array.transpose(0, 2, 1, 3)

    def finish(found: dict[str, Any]) -> Any:
        return AttentionOutputs(o=ordered(found["o"]), lse=found["lse"])

    return Call(problem, {"q": ordered(q), "k": ordered(k), "v": ordered(v)}, finish)


attention.gradient = Gradient(
    "attention_backward", ("q", "k", "v", Gradient.RESULT, Gradient.result(1), Gradient.OF_RESULT), ("q", "k", "v")
)

P = TypeVar("P", bound=AttentionProblem)


def checked_dtype(name: str, dimensions: str, scale: float | None, q: Any, k: Any, v: Any) -> DType:
    """The type of arrays of as many dimensions, `three` or `four`. Raises TypeError and ValueError for arrays that no
    attention takes, and for a scale that is not positive."""
    dtype = common_dtype(name, q=q, k=k, v=v)
    if dtype is FP32:
        raise TypeError(f"{name}: the arrays have dtype float32; it has to be bfloat16 or float16")
    for which, array in {"q": q, "k": k, "v": v}.items():
        if array.ndim != {"three": 3, "four": 4}[dimensions] or 0 in array.shape:
            wanted = f"{dimensions} dimensions, none empty"
            raise ValueError(f"{name}: {which} has shape {array.shape}; it has to have {wanted}")
    if k.shape != v.shape:
        raise ValueError(f"{name}: k has shape {k.shape} and v {v.shape}; they have to have the same")
    if scale is not None and not (scale > 0 and math.isfinite(scale)):
        raise ValueError(f"{name}: scale is {scale}; it has to be positive")
    return dtype


def problem_of(kind: type[P], name: str, q: Any, k: Any, v: Any, causal: bool, scale: float | None, layout: str) -> P:
    """The problem, of this class, of a function of this name. Raises TypeError and ValueError for arrays that are none
    of a problem."""
    if layout not in tuple(Layout):
        raise ValueError(f"{name}: layout is {layout!r}; it has to be bhsd or bshd")
    given = {"q": q, "k": k, "v": v}
    dtype = checked_dtype(name, "four", scale, **given)
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


# --------------------------------------------------------------------------------- what the stages are measured against


def _torch_refuses(p: AttentionProblem) -> str | None:
    if p.causal and p.rows != p.keys:
        return "its causal mask is aligned to the first key, not to the last"
    if p.dim % 8:
        return "it takes rows of a multiple of 8 elements"
    return tensor_maps(p)


@ATTENTION.baseline("cuDNN", requires="torch", vendor=True, version=cudnn_version, refuses=_torch_refuses)
def cudnn(p: AttentionProblem, q: Any, k: Any, v: Any) -> Any:
    """What scaled_dot_product_attention calls where it is told to use cuDNN, with lse."""
    import torch

    call = torch.ops.aten._scaled_dot_product_cudnn_attention
    o, lse, *_ = call(q, k, v, None, True, 0.0, p.causal, False, scale=p.factor)
    return o, lse


@ATTENTION.baseline("PyTorch flash", requires="torch", refuses=_torch_refuses)
def flash(p: AttentionProblem, q: Any, k: Any, v: Any) -> Any:
    """What scaled_dot_product_attention calls where it is told to use FlashAttention, with lse."""
    import torch

    call = torch.ops.aten._scaled_dot_product_flash_attention
    o, lse, *_ = call(q, k, v, 0.0, p.causal, False, scale=p.factor)
    return o, lse


def _fa3_refuses(p: AttentionProblem) -> str | None:
    return "it takes rows of a multiple of 8 elements" if p.dim % 8 else tensor_maps(p)


@ATTENTION.baseline("FlashAttention-3", requires=("torch", "fa3_fwd_interface"), refuses=_fa3_refuses)
def flash_3(p: AttentionProblem, q: Any, k: Any, v: Any) -> Any:
    """The wheel fa3-fwd, which takes the order bshd."""
    from fa3_fwd_interface import flash_attn_func

    given = (x.transpose(1, 2) for x in (q, k, v))
    # 0: it chooses into how many parts it splits the keys. Else there is one
    options = {"softmax_scale": p.factor, "causal": p.causal, "return_attn_probs": True, "num_splits": 0}
    o, lse = flash_attn_func(*given, **options)
    return o.transpose(1, 2), lse


beside_triton(ATTENTION, __package__)


@ATTENTION.baseline("NumPy", requires="numpy")
def numpy(p: AttentionProblem, q: Any, k: Any, v: Any) -> Any:
    solved = p.solved({"q": q, "k": k, "v": v}, reference.attention, np.float32)
    return solved["o"], solved["lse"]
