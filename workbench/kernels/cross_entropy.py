"""Cross entropy of logits and labels: loss[r] = log sum_j e^(x[r, j]) - x[r, label[r]], and that logarithm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .. import reference
from ..judge import bounds
from ..model.arrays import Array, Arrays
from ..model.calls import Call
from ..model.distributions import Distribution
from ..model.dtypes import FP32, INT32
from ..model.launch import Launch, Plan, scaled
from ..model.parts import Axis
from ..model.problem import Tier
from .rows import groups, ladder
from .rows.baselines import beside
from .rows.problem import FLOATS, VALUES, RowProblem
from .shared import check_arrays, common_dtype, contiguous, rows_of

LEFT_OUT = (-100, -1, -(2**31))
"""Labels that leave their row out; of the inputs that are timed, for PyTorch's sake, the first."""


@dataclass(frozen=True)
class CrossEntropyProblem(RowProblem):
    """x: logits, (rows, columns); labels: (rows,), int32; loss and lse: (rows,), fp32.

    A label below 0 leaves its row out: the loss is 0. A logit of -inf is masked; the loss of a label that is masked is
    +inf, lse of a row that is wholly masked -inf. A row with NaN or +inf has the lse NaN."""

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "dtype": FLOATS,
        "out": (FP32.name,),
        "values": (*VALUES, "masked"),
    }

    operations: ClassVar[int] = 3
    tiers: ClassVar[tuple[Tier, ...]] = (Tier.BOUNDED,)
    not_exact: ClassVar[str] = "the logarithm of a sum is rounded"

    @property
    def widest(self) -> int:
        """Rows are read alone."""
        return self.in_type.itemsize

    def arrays(self) -> dict[str, Array]:
        return {
            "x": Array((self.rows, self.columns), self.in_type, self.ldx),
            "labels": Array((self.rows,), INT32),
            "loss": Array((self.rows,), FP32, output=True),
            "lse": Array((self.rows,), FP32, output=True),
        }

    def scalars(self) -> tuple[np.generic, ...]:
        return super().scalars()[:3]

    def axes(self) -> tuple[Axis, ...]:
        return (Axis("rows", dict.fromkeys(self.arrays(), 0)),)

    def inputs(self) -> Arrays:
        rng = self.rng()
        x = self.draw_rows(rng)
        if self.values == "masked":
            x[rng.random(x.shape) < rng.choice([0.1, 0.9, 1.0], (self.rows, 1))] = -np.inf
        labels = rng.integers(0, self.columns, self.rows)
        out = rng.choice(LEFT_OUT[: 1 if self.distribution is Distribution.NORMAL else None], self.rows)
        return {"x": x, "labels": np.where(rng.random(self.rows) < 0.1, out, labels).astype(np.int32)}

    def reference(self, inputs: Arrays) -> Arrays:
        x, labels = inputs["x"], inputs["labels"]
        return {"loss": reference.cross_entropy(x, labels), "lse": reference.log_sum_exp(x)}

    def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
        loss, lse = expected["loss"], expected["lse"]
        error = bounds.log_sum_exp(inputs["x"], lse)
        with np.errstate(invalid="ignore"):
            rounding = FP32.unit_roundoff * np.abs(loss) + FP32.smallest
        return {"loss": np.where(np.isfinite(loss) & (inputs["labels"] >= 0), error + rounding, 0.0), "lse": error}

    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        x, labels, loss, lse = inputs["x"], inputs["labels"], expected["loss"], expected["lse"]
        last = lse.copy()
        last[-1] = 0.0
        wrong = {
            "all zeros": {"loss": np.zeros_like(loss), "lse": np.zeros_like(lse)},
            "the label after": {"loss": reference.cross_entropy(x, np.roll(labels, 1)), "lse": lse},
            "last row missing": {"loss": loss, "lse": last},
            "base 2": {"loss": loss, "lse": lse / np.log(2)},
        }
        if (labels < 0).any():
            wrong["left out rows counted"] = {"loss": reference.cross_entropy(x, np.maximum(labels, 0)), "lse": lse}
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            plain = np.log(np.exp(x.astype(np.float32)).sum(axis=1)).astype(np.float64)
        if (~np.isfinite(plain) & np.isfinite(lse)).any():
            wrong["no maximum subtracted"] = {"loss": loss, "lse": plain}
        return wrong


# ----------------------------------------------------------------------------------------------------------- the stages


WORTH_SPLITTING = 2**16
"""Columns of a row beyond which a second launch is worth it."""


def fastest(p: CrossEntropyProblem) -> tuple[str, ...]:
    """Threads of a block share a row; few very long ones are split: 8x61366 takes 10.4 us in `group_row`, and 11.7 in
    `split_rows`, 6x130104 14.5 and 11.2 (bf16, H200)."""
    few = p.rows < 2 * scaled(groups.ENOUGH) and p.columns > WORTH_SPLITTING
    return ("split_rows", "group_row") if few else ("group_row",)


CROSS_ENTROPY = ladder.row_operation(
    CrossEntropyProblem,
    "cross_entropy",
    "cross entropy of logits and labels, and log-sum-exp",
    fastest,
    suite=ladder.timed(((8192, 32768), (8192, 131072), (16384, 4096), (1, 2**26))),
    defines=lambda p: {"IN": p.in_type.cuda, "EVEN": groups.even(16 // p.in_type.itemsize, p.columns, p.ldx)},
)

ARRAYS = ("x", "labels", "loss", "lse")

ladder.declare_first(
    CROSS_ENTROPY,
    *ARRAYS,
    online="maximum and sum in one pass: a row is read once, not twice",
    vectorized="16 bytes a load, several loads in flight",
    vectors=(1, 2, 4, 8),
)

LONG = (CrossEntropyProblem(rows=2, columns=40_000), CrossEntropyProblem(rows=3, columns=9001, dtype="fp32"))


@CROSS_ENTROPY.stage(
    "group_row",
    after="vectorized",
    idea="as many threads share a row as have work for it",
    parameters={"THREADS": 128, "VECTORS": 4, "LARGEST": 512},
    sizes=groups.looping,
    edge_cases=LONG,
)
def group_row(p: CrossEntropyProblem, size: Mapping[str, int]) -> Launch:
    return ladder.held_rows("cross_entropy_group_row", p, size, (*ARRAYS, *p.scalars()))


@CROSS_ENTROPY.stage(
    "split_rows",
    after="online",
    idea="few rows are split over all blocks; a second kernel combines the parts",
    parameters={"THREADS": 256, "VECTORS": 4, "TARGET": 1056},
    space={"THREADS": ladder.THREADS, "VECTORS": (1, 2, 4, 8), "TARGET": (528, 1056, 2112)},
    supports=groups.worth_splitting,
    edge_cases=(*LONG, CrossEntropyProblem(columns=350_000)),  # more parts than a warp has lanes
    alignment=16,
)
def split_rows(p: CrossEntropyProblem, size: Mapping[str, int]) -> Plan:
    count, launch = ladder.on_parts(p, size)
    ldx = np.int64(p.ldx)
    first = launch("cross_entropy_parts", ("x", "states", np.int32(p.columns), ldx))
    combined = (*ARRAYS, "states", np.int32(p.rows), ldx, np.int32(count))
    second = ladder.warp_rows("cross_entropy_combine", p, size, combined)
    return Plan((first, second), scratch={"states": Array((p.rows * count, 2), FP32, output=True)})


# ---------------------------------------------------------------------------------------------- as a function on arrays


@CROSS_ENTROPY.function
def cross_entropy(x: Any, labels: Any) -> Call:
    """Cross entropy of logits x, (rows, columns), and labels, (rows,) int32 below columns; rows whose label is negative
    are left out: their loss is 0. Returns (loss, log-sum-exp), both (rows,) float32."""
    name = "cross_entropy"
    fields = rows_of(name, common_dtype(name, x=x), np.float32, x=x)
    check_arrays(name, [np.dtype(np.int32)], labels=labels)
    if x.ndim != 2 or labels.shape != x.shape[:1]:
        raise ValueError(f"{name}: x has shape {x.shape} and labels {labels.shape}; they have to be (n, c) and (n,)")
    contiguous(name, "labels", labels)
    return Call(CrossEntropyProblem(**fields), {"x": x, "labels": labels})


# --------------------------------------------------------------------------------- what the stages are measured against


def _torch(p: Any, x: Any, labels: Any) -> Any:
    import torch

    logits = x.float()
    loss = torch.nn.functional.cross_entropy(logits, labels.long(), reduction="none", ignore_index=-100)
    return loss, torch.logsumexp(logits, -1)


def _numpy(p: Any, x: Any, labels: Any) -> Any:
    top = x.max(axis=1)
    lse = top + np.log(np.exp(x - top[:, None]).sum(axis=1))
    loss = np.where(labels < 0, 0, lse - x[np.arange(len(labels)), np.maximum(labels, 0)])
    return loss.astype(np.float32), lse


beside(CROSS_ENTROPY, _torch, _numpy, refuses=lambda problem: None)
