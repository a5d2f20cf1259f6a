"""Softmax of the rows of a matrix: y[r, c] = e^(x[r, c] - max_r) / sum_j e^(x[r, j] - max_r)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from .. import reference
from ..judge import bounds
from ..model.arrays import Arrays
from ..model.calls import Call, Gradient
from ..model.distributions import Distribution
from ..model.launch import Launch, ceil_div
from ..model.problem import Invariant, Tier
from .rows import groups, ladder
from .rows.baselines import beside, beside_liger
from .rows.problem import FLOATS, HELD_BY_CLUSTER, VALUES, RowProblem
from .shared import call_on_rows

FAR = 1024
"""How far below the maximum of a row the other logits of the exact tier are: their exponentials are 0 in fp32."""


@dataclass(frozen=True)
class SoftmaxProblem(RowProblem):
    """x: logits, (rows, columns); y: probabilities of the same shape.

    A logit of -inf is masked and has the probability 0; a row of nothing else is 0. A row with NaN or +inf becomes NaN.
    In the exact tier 2^k logits of a row are equal and the others so far below them that their probability is 0."""

    operations: ClassVar[int] = 4
    most_narrow: ClassVar[int] = HELD_BY_CLUSTER

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"dtype": FLOATS, "out": FLOATS, "values": (*VALUES, "masked")}

    def inputs(self) -> Arrays:
        rng = self.rng()
        if self.tier is Tier.EXACT:
            return {"x": self._exact(rng)}
        x = self.draw_rows(rng)
        if self.values == "masked":
            share = rng.choice([0.1, 0.9, 1.0], (self.rows, 1))
            x[rng.random(x.shape) < share] = -np.inf
        return {"x": x}

    def _exact(self, rng: np.random.Generator) -> np.ndarray[Any, Any]:
        base = rng.integers(-1, 2, (self.rows, 1)) * (FAR // 4)
        order = rng.permuted(np.tile(np.arange(self.columns), (self.rows, 1)), axis=1)
        equal = 1 << rng.integers(0, self.columns.bit_length(), (self.rows, 1))
        return (base - FAR * (order >= equal)).astype(self.in_type.numpy)

    def reference(self, inputs: Arrays) -> Arrays:
        return {"y": reference.softmax(inputs["x"])}

    def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
        return {"y": bounds.softmax(inputs["x"], expected["y"], self.out_type)}

    def invariants(self) -> tuple[Invariant, ...]:
        return (Invariant("rows sum to 1, or to 0 where all is masked", _rows_sum_to_one),)

    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        x, y = inputs["x"].astype(np.float64), expected["y"]
        wrong = {
            "all zeros": np.zeros_like(y),
            "last column dropped": np.pad(reference.softmax(x[:, :-1]), ((0, 0), (0, 1)))
            if self.columns > 1
            else 0 * y,
            "last row missing": np.concatenate([y[:-1], np.zeros_like(y[-1:])]),
            "shifted by one column": np.roll(y, 1, axis=1),
        }
        with np.errstate(over="ignore", invalid="ignore"):
            e = np.exp(inputs["x"].astype(np.float32))
            total = e.sum(axis=1, keepdims=True)
            if not np.isfinite(total).all() or (total == 0).any():
                wrong["no maximum subtracted"] = (e / total).astype(np.float64)
        return {name: {"y": value} for name, value in wrong.items()}


def _rows_sum_to_one(first: Arrays, second: Arrays, bound: Arrays) -> bool:
    total, allowed = first["y"].sum(axis=1), bound["y"].sum(axis=1)
    return bool(((np.abs(total - 1) <= allowed) | (first["y"] == 0).all(axis=1)).all())


# ----------------------------------------------------------------------------------------------------------- the stages


MOST_FETCHED = {2: 2**17, 4: 2**15}
"""Columns, by the bytes of an element, up to which clusters fetch the next row ahead."""

FETCHED = {**ladder.PREFETCHED, "MOST": 256, "RESIDENT": 3}
"""A thread keeps each element as fp32, for which two blocks of 512 threads have no registers: 4096x65536 takes 310 us
so, and 340 with one of them (bf16, H200)."""


def fastest(p: SoftmaxProblem) -> tuple[str, ...]:
    """Short rows that are no whole vectors are packed. Rows are held by a block each, or fetched ahead where they are
    many and long; few long ones, and others, are held by clusters, or else split."""
    fetched = ladder.worth_fetching(p) and p.columns <= MOST_FETCHED[p.in_type.itemsize]
    short = ("packed",) if not groups.defines(p)["EVEN"] else ()
    return (*short, *(("prefetch",) if fetched else ()), *ladder.held_first(p), "split_rows", "vectorized")


SOFTMAX = ladder.row_operation(SoftmaxProblem, "softmax", "softmax of the rows of a matrix", fastest)

ladder.declare_first(SOFTMAX, "x", "y", online="maximum and sum in one pass: a row is read twice, not three times")

MASKED = SoftmaxProblem(
    rows=6, columns=16, out="bf16", values="masked", tier=Tier.BOUNDED, distribution=Distribution.SCALED
)
"""A thread holds nothing but masked logits, in a row whose others are far below 0."""

NARROW = SoftmaxProblem(rows=7, columns=1004, out="bf16")
"""Rows of whole vectors of 8 bytes."""

LONG = SoftmaxProblem(rows=3, columns=9001, dtype="fp32", out="fp32")
SHORT = replace(LONG, rows=2)

HELD = {"THREADS": 128, "VECTORS": 4, "WIDEST": 6}
"""Threads of the smallest block; vectors that a thread holds, where more threads can be had, and at most before the
widest blocks are taken: it keeps each element as fp32."""

ladder.declare_held(
    SOFTMAX,
    "x",
    "y",
    held=HELD,
    edge_cases=(MASKED, NARROW, SoftmaxProblem(rows=2, columns=20_000, out="bf16"), LONG),
    of_cluster=(MASKED, NARROW, SoftmaxProblem(rows=2, columns=40_000, out="bf16"), LONG),
)
ladder.declare_split(SOFTMAX, ("x",), ("x",), 2, edge_cases=(SoftmaxProblem(rows=1, columns=60_000, out="bf16"), SHORT))
ladder.declare_prefetch(SOFTMAX, "x", "y", parameters=FETCHED, edge_cases=(MASKED,))

MOST_PACKED = 512
"""Columns of the longest row that lanes of a warp hold element by element."""


def _packed(p: SoftmaxProblem) -> str | None:
    """Why rows of a block are not one run of memory, or too long for lanes, or None."""
    if p.rows > 1 and (p.ldx > p.columns or p.ldy > p.columns):
        return "rows have gaps between them"
    return f"{p.columns} columns are too many for lanes of a warp" if p.columns > MOST_PACKED else None


def _lanes(p: SoftmaxProblem, size: Mapping[str, int]) -> dict[str, int]:
    """Lanes of a row with about four elements each, and threads for eight rows at least."""
    group = min(ladder.WARP, max(groups.LANES[0], groups.power_of_two(ceil_div(p.columns, 4))))
    return {
        "GROUP": group,
        "ELEMENTS": groups.power_of_two(ceil_div(p.columns, group)),
        "THREADS": max(size["THREADS"], EIGHT * group),
    }


EIGHT = 8
"""Rows of any length that together are whole vectors of 16 bytes."""


@SOFTMAX.stage(
    "packed",
    after="vectorized",
    idea="several short rows together are moved in vectors, through shared memory",
    parameters={"THREADS": 128},
    space={"THREADS": (64, 128, 256)},
    sizes=_lanes,
    supports=_packed,
    architecture=80,
    edge_cases=(
        SoftmaxProblem(rows=100, columns=61, out="bf16"),
        SoftmaxProblem(rows=35, columns=511),
        SoftmaxProblem(rows=70, columns=7, dtype="fp32", out="fp32"),
        SoftmaxProblem(rows=9, columns=1, dtype="fp16", out="fp16"),
        MASKED,
    ),
)
def packed(p: SoftmaxProblem, size: Mapping[str, int]) -> Launch:
    held = size["THREADS"] // size["GROUP"]
    elements = held * p.columns
    in_bytes, out_bytes = elements * p.in_type.itemsize, elements * p.out_type.itemsize
    return Launch(
        "softmax_packed",
        (ceil_div(p.rows, held), 1, 1),
        (size["THREADS"], 1, 1),
        ("x", "y", np.int32(p.rows), np.int32(p.columns)),
        shared_bytes=in_bytes if in_bytes == out_bytes else in_bytes + out_bytes,
    )


# ---------------------------------------------------------------------------------------------- as a function on arrays


@SOFTMAX.function
def softmax(x: Any, *, out_dtype: Any = None) -> Call:
    """Softmax along the last axis. x: (..., columns), an array of bfloat16, float16 or float32 with at least one
    element; rows of a matrix may be any distance apart, other arrays have to be contiguous. -inf is masked: a row of
    nothing else becomes 0. Returns the same shape, of the dtype of x or of `out_dtype` float32.

    Raises TypeError and ValueError like `gemm`, as do the other operations on rows."""
    return call_on_rows("softmax", SoftmaxProblem, ("y",), out_dtype, {"x": x})


softmax.gradient = Gradient("softmax_backward", (Gradient.RESULT, Gradient.OF_RESULT), ("x",))


# --------------------------------------------------------------------------------- what the stages are measured against


def _torch(p: Any, x: Any) -> Any:
    import torch

    return torch.softmax(x, -1)


def _numpy(p: Any, x: Any) -> Any:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


beside(SOFTMAX, _torch, _numpy)


@beside_liger(SOFTMAX)
def _liger(p: Any, x: Any) -> Any:
    from liger_kernel.transformers.functional import liger_softmax

    return liger_softmax(x)
