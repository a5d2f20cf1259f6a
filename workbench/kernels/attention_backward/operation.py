"""The operation attention_backward: preferred stages, its call, its baselines, and what its stages share."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ... import reference
from ...model.calls import Call
from ...model.dtypes import dtype_of
from ...model.launch import ceil_div
from ...model.operation import Operation
from ...model.problem import Size
from ..attention.operation import _torch_refuses, problem_of
from ..attention.problem import AttentionProblem, Kind, Layout
from ..shared import REMEDY, beside_triton, check_arrays, cudnn_version
from .problem import EQUAL_SCALE, SUITE, AttentionBackwardProblem, problems

MOST_TILES = {32: 8, 64: 2}
"""Of 64 queries, by most keys: so many a block of `all_keys` solves one after the other in no more time than three
launches take. Of the problems that this takes, among 75 timed on an H200, one was more than 1 % slower: 16 heads of 512
queries and 20 keys (28 us, 26)."""


def fastest(p: AttentionProblem) -> tuple[str, ...]:
    """The stages that are preferred for a problem that is in no table of what is fastest, best first. A block that owns
    all keys of a head is the fastest for short sequences: 2048 heads of 20 keys take 34 us so, and 156 in
    `specialised`; of 64 keys 129 and 170 with a dim of 64, and as long with one of 128 (H200)."""
    most = next((tiles for keys, tiles in MOST_TILES.items() if p.keys <= keys), 0)
    if p.dim <= 128 and ceil_div(p.rows, 64) * p.group <= most:
        return "all_keys", "specialised", "tensor_core", "naive"
    return "wide" if p.dim > 128 else "specialised", "tensor_core", "naive"


ATTENTION_BACKWARD = Operation(
    name="attention_backward",
    summary="gradients of attention for q, k and v",
    problem=AttentionBackwardProblem,
    problems=problems,
    suite=SUITE,
    defines=lambda p: {"IN": dtype_of(p.dtype).cuda},
    emulator_size=Size(extent=300, work=1_000_000),
    cuda_size=Size(extent=2000, work=60_000_000),
    fastest=fastest,
)

EDGE_CASES = (
    AttentionBackwardProblem(batch=2, rows=5, keys=3, dim=8, causal=True),  # two rows see nothing
    AttentionBackwardProblem(rows=200, keys=70, dim=16, causal=True),  # a whole tile of rows sees nothing
    AttentionBackwardProblem(rows=1, keys=190, dim=64, heads=4, group=4, layout=Layout.BSHD),
    AttentionBackwardProblem(rows=3, keys=200, dim=8, scale=EQUAL_SCALE, dtype="fp16"),
    AttentionBackwardProblem(rows=70, keys=150, dim=128, causal=True, values=Kind.LARGE, heads=2, layout=Layout.BSHD),
    AttentionBackwardProblem(
        batch=2, rows=70, keys=33, dim=33, pad_q=1, pad_kv=2, gap_kv=3, layout=Layout.BSHD, heads=2
    ),
    # logarithms of sums so low that the weight of a key behind the last, where it is not masked, is infinite
    AttentionBackwardProblem(rows=120, keys=1, dim=64, values=Kind.LARGE, seed=9),
)
"""What random problems would hardly hit."""


# ---------------------------------------------------------------------------------------------- as a function on arrays


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
    TypeError and ValueError like `attention`."""
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


# --------------------------------------------------------------------------------- what the stages are measured against


def _refuses(p: AttentionBackwardProblem) -> str | None:
    if p.group > 1:
        return "its call takes as many heads of keys as of queries"
    return _torch_refuses(p)


def _no_dropout(like: Any) -> tuple[Any, Any]:
    """A seed and an offset of random numbers, which nobody draws."""
    import torch

    seed, offset = (torch.empty((), dtype=torch.int64, device=like.device) for _ in range(2))
    return seed, offset


@ATTENTION_BACKWARD.baseline("cuDNN", requires="torch", vendor=True, version=cudnn_version, refuses=_refuses)
def cudnn(p: AttentionBackwardProblem, q: Any, k: Any, v: Any, o: Any, lse: Any, do: Any) -> Any:
    """What autograd calls for scaled_dot_product_attention by cuDNN."""
    import torch

    call = torch.ops.aten._scaled_dot_product_cudnn_attention_backward
    seed, offset = _no_dropout(q)
    none = (None, None, None)  # no bias, and lengths that do not vary
    sizes = (p.rows, p.keys, 0.0, p.causal)
    return tuple(call(do, q, k, v, o, lse.unsqueeze(-1), seed, offset, *none, *sizes, scale=p.factor))


@ATTENTION_BACKWARD.baseline("PyTorch flash", requires="torch", refuses=_refuses)
def flash(p: AttentionBackwardProblem, q: Any, k: Any, v: Any, o: Any, lse: Any, do: Any) -> Any:
    """What autograd calls for scaled_dot_product_attention by FlashAttention."""
    import torch

    call = torch.ops.aten._scaled_dot_product_flash_attention_backward
    sizes = (None, None, p.rows, p.keys, 0.0, p.causal)
    return tuple(call(do, q, k, v, o, lse, *sizes, *_no_dropout(q), scale=p.factor))


beside_triton(ATTENTION_BACKWARD, __package__)


@ATTENTION_BACKWARD.baseline("NumPy", requires="numpy")
def numpy(p: AttentionBackwardProblem, q: Any, k: Any, v: Any, o: Any, lse: Any, do: Any) -> Any:
    inputs = {"q": q, "k": k, "v": v, "o": o, "lse": lse, "do": do}
    return tuple(p.gradients(inputs, reference.attention_backward, np.float32).values())
