"""Problems of cross entropy: logits and labels, loss and log-sum-exp."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ... import reference
from ...judge import bounds
from ...model.arrays import Array, Arrays, element_bytes
from ...model.dtypes import FP32, INT32
from ...model.problem import Cost, Tier
from ..rows.problem import FLOATS, VALUES, RowProblem


@dataclass(frozen=True)
class CrossEntropyProblem(RowProblem):
    """x: logits, (rows, columns); labels: (rows,), int32; loss and lse: (rows,), fp32.

    A label below 0 leaves its row out: the loss is 0. A logit of -inf is masked; the loss of a label that is masked is
    +inf, lse of a row that is wholly masked -inf. A row with NaN or +inf has the lse NaN.
    """

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "dtype": FLOATS,
        "out": (FP32.name,),
        "values": (*VALUES, "masked"),
    }

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

    def inputs(self) -> Arrays:
        rng = self.rng()
        x = self.draw_rows(rng)
        if self.values == "masked":
            x[rng.random(x.shape) < rng.choice([0.1, 0.9, 1.0], (self.rows, 1))] = -np.inf
        labels = rng.integers(0, self.columns, self.rows)
        return {"x": x, "labels": np.where(rng.random(self.rows) < 0.1, -100, labels).astype(np.int32)}

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

    @property
    def cost(self) -> Cost:
        return Cost(3 * self.rows * self.columns, element_bytes(self.arrays().values()))
