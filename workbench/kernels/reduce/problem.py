"""Problems of reductions: sums and maxima, along columns or rows or of all elements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ... import reference
from ...judge import bounds
from ...model.arrays import Array, Arrays, element_bytes
from ...model.problem import Cost, Tier, draw_values
from ..rows.problem import FLOATS, VALUES, RowProblem


@dataclass(frozen=True)
class ReduceProblem(RowProblem):
    """x: (rows, columns) with `pad_x` elements between its rows; y: (rows,), (columns,) or (1,) of type `out`.

    A sum with NaN, or with infinities of both signs, is NaN; a maximum with NaN is NaN.
    """

    op: str = "sum"
    over: str = "columns"

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "dtype": FLOATS,
        "out": FLOATS,
        "values": VALUES,
        "op": ("sum", "max"),
        "over": ("columns", "rows", "all"),
    }

    @property
    def label(self) -> str:
        out = "" if self.out == self.dtype else f"->{self.out}"
        return f"{self.rows}x{self.columns} {self.dtype}{out} {self.op} over {self.over}"

    @property
    def outputs(self) -> int:
        """Elements of y."""
        return {"columns": self.rows, "rows": self.columns, "all": 1}[self.over]

    def arrays(self) -> dict[str, Array]:
        return {
            "x": Array((self.rows, self.columns), self.in_type, self.ldx),
            "y": Array((self.outputs,), self.out_type, output=True),
        }

    def inputs(self) -> Arrays:
        rng = self.rng()
        if self.tier is Tier.EXACT:
            return {"x": draw_values(rng, self.tier, (self.rows, self.columns), self.in_type)}
        return {"x": self.draw_rows(rng)}

    def _solved(self, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return reference.reduce(x, op=self.op, over=self.over)

    def reference(self, inputs: Arrays) -> Arrays:
        return {"y": self._solved(inputs["x"])}

    def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
        y = expected["y"]
        if self.op == "max":  # no arithmetic
            return {"y": self.out_type.unit_roundoff * np.abs(y) + self.out_type.smallest}
        magnitude = reference.reduce(np.abs(inputs["x"]), over=self.over)
        return {"y": bounds.dot_products(y, magnitude, self.rows * self.columns // self.outputs, self.out_type)}

    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        x, y = inputs["x"].astype(np.float64), expected["y"]
        last = y.copy()
        last[-1] = 0.0
        wrong = {"all zeros": np.zeros_like(y), "shifted by one": np.roll(y, 1), "last element missing": last}
        if self.rows * self.columns // self.outputs > 1:
            half = x[:, : (self.columns + 1) // 2] if self.over == "columns" else x[: (self.rows + 1) // 2]
            wrong["of the first half"] = self._solved(half)
        if self.op == "sum" and self.tier is Tier.EXACT:
            dropped = x.copy()
            dropped[-1, :] = 0
            wrong["last row dropped"] = self._solved(dropped)
            dropped = x.copy()
            dropped[:, -1] = 0
            wrong["last column dropped"] = self._solved(dropped)
        if self.op == "max":
            wrong["of magnitudes"] = self._solved(np.abs(x))
            wrong["starts from zero"] = np.maximum(y, 0)
        return {name: {"y": value} for name, value in wrong.items()}

    @property
    def cost(self) -> Cost:
        return Cost(self.rows * self.columns, element_bytes(self.arrays().values()))
