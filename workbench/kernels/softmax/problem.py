"""Problems of softmax: logits and probabilities, masked and shifted rows, and how exact the result has to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ... import reference
from ...judge import bounds
from ...model.arrays import Array, Arrays
from ...model.problem import Cost, Invariant, Tier
from ..rows.problem import FLOATS, HELD_BY_CLUSTER, VALUES, RowProblem

FAR = 1024
"""How far below the maximum of a row the other logits of the exact tier are: their exponentials are 0 in fp32."""


@dataclass(frozen=True)
class SoftmaxProblem(RowProblem):
    """x: logits, (rows, columns); y: probabilities of the same shape.

    A logit of -inf is masked and has the probability 0; a row of nothing else is 0. A row with NaN or +inf becomes NaN.
    In the exact tier 2^k logits of a row are equal and the others so far below them that their probability is 0.
    """

    most_narrow: ClassVar[int] = HELD_BY_CLUSTER

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "dtype": FLOATS,
        "out": FLOATS,
        "values": (*VALUES, "masked"),
    }

    def arrays(self) -> dict[str, Array]:
        shape = (self.rows, self.columns)
        return {
            "x": Array(shape, self.in_type, self.ldx),
            "y": Array(shape, self.out_type, self.ldy, output=True),
        }

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

    @property
    def cost(self) -> Cost:
        elements = self.rows * self.columns
        return Cost(4 * elements, elements * (self.in_type.itemsize + self.out_type.itemsize))


def _rows_sum_to_one(first: Arrays, second: Arrays, bound: Arrays) -> bool:
    total, allowed = first["y"].sum(axis=1), bound["y"].sum(axis=1)
    return bool(((np.abs(total - 1) <= allowed) | (first["y"] == 0).all(axis=1)).all())
