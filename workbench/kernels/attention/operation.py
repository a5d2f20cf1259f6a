"""The operation attention, and what the declarations of its stages share."""

from __future__ import annotations

import numpy as np

from ...model.dtypes import dtype_of
from ...model.operation import Operation
from ...model.problem import Size
from .fastest import fastest
from .problem import SUITE, AttentionProblem, Kind, Layout, problems

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


"""The most shared memory that a block may have."""


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
