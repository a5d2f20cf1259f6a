"""Softmax of the rows of a matrix: y[r, c] = exp(x[r, c]) / sum_j exp(x[r, j])."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from hypothesis import strategies as st

from workbench import FLOATS, FP32, Array, Cost, Operation, Problem, Size, Tier, dtype_of, extents

from . import reference

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class ProbabilitiesProblem(Problem):
    """x, y: (rows, columns), both of type `dtype`."""

    rows: int = 1
    columns: int = 1
    dtype: str = "fp32"

    extents: ClassVar[tuple[str, ...]] = ("rows", "columns")
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"dtype": tuple(FLOATS)}

    @property
    def label(self) -> str:
        return f"{self.rows}x{self.columns} {self.dtype}"

    def arrays(self) -> dict[str, Array]:
        shape, dtype = (self.rows, self.columns), dtype_of(self.dtype)
        return {"x": Array(shape, dtype), "y": Array(shape, dtype, output=True)}

    def inputs(self) -> Arrays:
        if self.tier is not Tier.EXACT:
            return super().inputs()
        # 1, 2, 4 ... elements of a row are at its top and the others 200 below: exp is 1 or 0, and all sums are exact
        rng = self.rng()
        count = 2 ** rng.integers(0, self.columns.bit_length(), (self.rows, 1))
        rank = rng.permuted(np.tile(np.arange(self.columns), (self.rows, 1)), axis=1)
        top = rng.integers(-56, 100, (self.rows, 1))
        return {"x": np.where(rank < count, top, top - 200).astype(dtype_of(self.dtype).numpy)}

    def reference(self, inputs: Arrays) -> Arrays:
        return {"y": reference.probabilities(inputs["x"])}

    def bound(self, inputs: Arrays, expected: Arrays) -> Arrays:
        # relative errors in fp32: x - max is rounded before exp, which is good to 2 ulp; the sum grows with the root of
        # its length (see dot_products); one division. then the result is rounded
        x, y, dtype = inputs["x"].astype(np.float64), expected["y"], dtype_of(self.dtype)
        depth = x.max(axis=1, keepdims=True) - x
        relative = FP32.unit_roundoff * (2 * depth.max() + 8 + 4 * np.sqrt(self.columns))
        return {"y": (dtype.unit_roundoff + relative) * y + dtype.smallest}

    def negative_controls(self, inputs: Arrays, expected: Arrays) -> dict[str, Arrays]:
        y = expected["y"]
        wrong = {
            "all zeros": np.zeros_like(y),
            "not divided": y / y.max(axis=1, keepdims=True),
            "last row missing": np.concatenate([y[:-1], np.zeros((1, self.columns))]),
        }
        return {name: {"y": value} for name, value in wrong.items()}

    @property
    def cost(self) -> Cost:
        elements = self.rows * self.columns
        return Cost(4 * elements, 2 * elements * dtype_of(self.dtype).itemsize)


def problems(size: Size, edges: tuple[int, ...]) -> st.SearchStrategy[ProbabilitiesProblem]:
    """Matrices of up to `size.work` elements, long and short rows alike."""

    @st.composite
    def draw(d: st.DrawFn) -> ProbabilitiesProblem:
        first = d(extents(size, edges))
        second = d(extents(Size(max(1, min(size.extent, size.work // first)), size.work), edges))
        rows, columns = (first, second) if d(st.booleans()) else (second, first)
        return ProbabilitiesProblem(
            rows=rows, columns=columns, dtype=d(st.sampled_from(tuple(FLOATS))), seed=d(st.integers(0, 2**16))
        )

    return draw()


PROBABILITIES = Operation(
    name="probabilities",
    summary="softmax of the rows of a matrix",
    problem=ProbabilitiesProblem,
    problems=problems,
    suite=(
        ProbabilitiesProblem(rows=4096, columns=4096, dtype="fp32"),
        ProbabilitiesProblem(rows=65536, columns=1024, dtype="bf16"),
    ),
    defines=lambda p: {"IN": dtype_of(p.dtype).cuda},
    emulator_size=Size(extent=3000, work=20_000),
    cuda_size=Size(extent=20_000, work=4_000_000),
    metric="GB/s",
)


@PROBABILITIES.baseline("PyTorch", requires="torch", vendor=True)
def pytorch(p: ProbabilitiesProblem, x: Any) -> Any:
    """The softmax of PyTorch, in the type of x."""
    import torch

    return torch.softmax(x, dim=1)
