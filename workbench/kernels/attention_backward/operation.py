"""The operation attention_backward, and the edge cases of its stages."""

from __future__ import annotations

from ...model.dtypes import dtype_of
from ...model.operation import Operation
from ...model.problem import Size
from ..attention.problem import Kind, Layout
from .fastest import fastest
from .problem import EQUAL_SCALE, SUITE, AttentionBackwardProblem, problems

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
